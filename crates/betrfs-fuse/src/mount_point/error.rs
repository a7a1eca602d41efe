//! Why mounting or unmounting failed, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::{FUSERMOUNT, users};
use crate::shell_word::shell_word;

/// Why mounting on a directory, or unmounting, failed.
#[derive(Debug, thiserror::Error)]
pub enum MountPointError {
    /// The mount point does not exist.
    #[error("the mount point {} does not exist: make it with `mkdir -p {}`", .path.display(), shell_word(.path))]
    Missing {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is not a directory.
    #[error("the mount point {} is not a directory", .path.display())]
    NotADirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// A volume with a live server is mounted there.
    #[error("{} is a mount of {} already: unmount that first with `betrfs umount {}`", .path.display(), .volume.display(), shell_word(.path))]
    Mounted {
        /// The mount point.
        path: PathBuf,
        /// The volume mounted there.
        volume: PathBuf,
    },
    /// The kernel offers no FUSE.
    #[error("cannot open /dev/fuse: {source}{}", dev_fuse_advice(source))]
    NoFuse {
        /// The operating system's error.
        source: io::Error,
    },
    /// Users other than root need it to mount.
    #[error(
        "cannot run {FUSERMOUNT}, which users other than root need to mount and unmount: {source}; install the package fuse3, or do it as root"
    )]
    NoFusermount {
        /// The operating system's error.
        source: io::Error,
    },
    /// The helper refused.
    #[error("{FUSERMOUNT} refused {}: {why}", .path.display())]
    Fusermount {
        /// The mount point.
        path: PathBuf,
        /// Its message.
        why: String,
    },
    /// The mount is gone, or another covers it.
    #[error("the volume is no longer what is mounted on {}: it was unmounted, or names on the way to it changed", .path.display())]
    Elsewhere {
        /// The mount point.
        path: PathBuf,
    },
    /// Something is mounted on it.
    #[error("{} is in use: {} is mounted on it (`findmnt -R {}` lists all that is); unmount that first, then try again", .path.display(), .mounted.display(), shell_word(.path))]
    MountedOn {
        /// The mount point.
        path: PathBuf,
        /// Where the other is mounted.
        mounted: PathBuf,
    },
    /// Processes use the mount.
    #[error("{} is in use{}: end what has files open or its working directory there (`fuser -vm {}` lists it), then try again", .path.display(), by_one(.path), shell_word(.path))]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// The action that failed.
        doing: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A process that uses the mount, for the message.
fn by_one(path: &Path) -> String {
    users::first(path).map(|user| format!(" by {user}")).unwrap_or_default()
}

fn dev_fuse_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "; load the kernel's module with `modprobe fuse`, or, in a container, pass the device in (`--device /dev/fuse`)"
        }
        io::ErrorKind::PermissionDenied => "; do it as root, or get the right to open it",
        _ => "",
    }
}

/// The error of a refused call on a mount point.
pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> MountPointError {
    MountPointError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposed_commands_have_paths_in_quotes_where_a_shell_needs_them() {
        let path = || PathBuf::from("/mnt/my dir");
        let (volume, mounted) = (PathBuf::from("/dev/sdb"), PathBuf::from("/mnt/my dir/other"));
        for (error, command) in [
            (MountPointError::Missing { path: path() }, "`mkdir -p '/mnt/my dir'`"),
            (MountPointError::Mounted { path: path(), volume }, "`betrfs umount '/mnt/my dir'`"),
            (MountPointError::MountedOn { path: path(), mounted }, "`findmnt -R '/mnt/my dir'`"),
            (MountPointError::Busy { path: path() }, "`fuser -vm '/mnt/my dir'`"),
        ] {
            assert!(error.to_string().contains(command), "{error}");
        }
    }
}
