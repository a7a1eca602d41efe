//! Errors of opening a device, with advice.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The error of creating or opening a [`FileDevice`](crate::FileDevice).
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another device in this one) has it open.
    #[error("{} is in use{}", path.display(), by(mounted_on.as_deref(), holder.as_ref()))]
    InUse {
        /// The file or block device.
        path: PathBuf,
        /// The directory on which it is mounted, if that is known.
        mounted_on: Option<PathBuf>,
        /// The process that has it open, if the system tells.
        holder: Option<Holder>,
    },
    /// A file of that name exists.
    #[error("{} exists already: choose another name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is {what}: a volume needs a regular file or a block device", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// The kind of the existing file.
        what: &'static str,
    },
    /// A block device that can only be read.
    #[error("{} is write-protected: it can only be read, and mounted with `-o ro`", path.display())]
    WriteProtected {
        /// The block device.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file or block device.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A process that has a file or block device locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
}

impl Holder {
    /// The process that holds a lock on the file at a path, as `/proc/locks` lists them.
    pub fn of(path: &Path) -> Option<Holder> {
        let found = std::fs::metadata(path).ok()?;
        let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        let place = format!("{major:02x}:{minor:02x}:{}", found.ino());
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        // 1: FLOCK  ADVISORY  WRITE 4071 08:01:1577 0 EOF
        let holder = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok(),
            _ => None,
        };
        let pid = locks.lines().find_map(holder)?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(Holder { pid, name: name.trim_end().to_owned() })
    }
}

impl OpenError {
    /// The error of a path that another process has open.
    pub fn in_use(path: &Path) -> OpenError {
        OpenError::InUse { path: path.to_owned(), mounted_on: None, holder: Holder::of(path) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "process {}", self.pid),
            name => write!(f, "process {} ({name})", self.pid),
        }
    }
}

/// Who uses it, and what to do about that.
fn by(mounted_on: Option<&Path>, holder: Option<&Holder>) -> String {
    let holder = holder.map(|holder| format!(" by {holder}")).unwrap_or_default();
    match mounted_on {
        Some(dir) => {
            let dir = dir.display();
            format!("{holder}: it is mounted on {dir}; unmount it (`betrfs umount {dir}`)")
        }
        None if holder.is_empty() => {
            ": unmount it, or wait until the program that has it open ends".to_owned()
        }
        None => format!("{holder}: wait until that ends, or unmount it if that is the server of a mount"),
    }
}

fn advice(error: &io::Error) -> &'static str {
    // The permissions of the path allow it: else it were EACCES.
    if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) {
        return " (it or its directory may be immutable: `lsattr` tells, and `chattr -i` changes that)";
    }
    match error.kind() {
        io::ErrorKind::NotFound => " (is the path right?)",
        io::ErrorKind::PermissionDenied => " (try it as root, or as the file's owner)",
        io::ErrorKind::StorageFull => " (make room, or choose a smaller size)",
        io::ErrorKind::ReadOnlyFilesystem => " (the file system that holds it is mounted read-only)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_mount_and_the_process() {
        let in_use = |mounted_on: Option<&str>, holder| {
            OpenError::InUse { path: "a".into(), mounted_on: mounted_on.map(PathBuf::from), holder }
                .to_string()
        };
        let holder = Holder { pid: 7, name: "betrfs".to_owned() };
        assert_eq!(
            in_use(Some("/mnt"), Some(holder.clone())),
            "a is in use by process 7 (betrfs): it is mounted on /mnt; unmount it (`betrfs umount /mnt`)"
        );
        assert!(in_use(None, Some(holder)).starts_with("a is in use by process 7 (betrfs): wait until"));
        assert!(in_use(Some("/mnt"), None).starts_with("a is in use: it is mounted on /mnt;"));
        assert!(in_use(None, None).starts_with("a is in use: unmount it, or wait"));
    }

    #[test]
    fn what_root_may_not_open_either_is_not_to_be_tried_as_root() {
        let advice = |errno: Errno| advice(&io::Error::from_raw_os_error(errno.raw_os_error()));
        assert!(advice(Errno::ACCESS).contains("as root"));
        assert!(advice(Errno::PERM).contains("immutable"));
    }
}
