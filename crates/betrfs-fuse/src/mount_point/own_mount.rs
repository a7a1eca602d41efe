//! A mount that this process has made.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::error::failed;
use super::{MountPointError, detach, printed, unmount};

/// Of util-linux.
const UMOUNT: &str = "umount";

/// A mount that was made here, identified by its device number: another may be at its path later.
#[derive(Clone, Debug)]
pub struct OwnMount {
    path: PathBuf,
    device: (u32, u32),
    is_block: bool,
}

impl OwnMount {
    pub(super) fn at(path: &Path, is_block: bool) -> Result<OwnMount, MountPointError> {
        let device = device_number(path).map_err(|e| failed("examine the mount on", path, e.into()))?;
        Ok(OwnMount { path: path.to_owned(), device, is_block })
    }

    /// Its mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a mount of a block device: umount(2) then returns when the volume is closed, and
    /// syncfs(2) reaches the server if the kernel supports that (Linux 6.18).
    pub fn is_block(&self) -> bool {
        self.is_block
    }

    /// Sets the kernel's read-ahead, 128 KiB by default.
    ///
    /// # Errors
    /// The operating system's.
    pub fn set_read_ahead(&self, kib: u32) -> io::Result<()> {
        let (major, minor) = self.device;
        // The name without a suffix is the block device's own.
        let end = if self.is_block { "-fuseblk" } else { "" };
        std::fs::write(format!("/sys/class/bdi/{major}:{minor}{end}/read_ahead_kb"), kib.to_string())
    }

    /// The mounted file system's device number, major and minor.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// As [`unmount`], if it is still there.
    ///
    /// # Errors
    /// [`MountPointError::Elsewhere`] if it is not; else as [`unmount`].
    pub fn unmount(&self) -> Result<(), MountPointError> {
        self.must_be_there()?;
        self.undo_apart(&[], unmount)
    }

    /// As [`detach`], if it is still there.
    ///
    /// # Errors
    /// [`MountPointError::Elsewhere`] if it is not; else as [`detach`].
    pub fn detach(&self) -> Result<(), MountPointError> {
        self.must_be_there()?;
        self.undo_apart(&["--lazy"], detach)
    }

    /// Unmounts from the server's own process: a mount of a block device by the program umount. There the
    /// kernel waits for the server's answer, whatever signal comes; a server that waited itself and was
    /// killed would keep its own connection open, and so wait for ever.
    fn undo_apart(
        &self,
        how: &[&str],
        by_itself: fn(&Path) -> Result<(), MountPointError>,
    ) -> Result<(), MountPointError> {
        if !self.is_block {
            return by_itself(&self.path);
        }
        let mut command = Command::new(UMOUNT);
        command.args(["--internal-only", "--no-canonicalize"]).args(how).arg("--").arg(&self.path);
        match command.env("LC_ALL", "C").stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => match printed(&output.stderr) {
                why if why.contains("busy") => Err(MountPointError::Busy { path: self.path.clone() }),
                why => Err(failed("unmount", &self.path, io::Error::other(why))),
            },
            Err(error) => {
                // The program is missing, or no process can be started.
                tracing::info!("{UMOUNT} cannot be run: {error}");
                by_itself(&self.path)
            }
        }
    }

    /// Aborts its connection, so that waiting processes get an error. Ends this process if that fails.
    pub fn abort(&self) {
        // A mount in use (EBUSY) is aborted all the same.
        let forced = rustix::mount::unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
        let (major, minor) = self.device;
        let number = u64::from(major) << 20 | u64::from(minor);
        let by_number = || std::fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1");
        if !matches!(forced, Ok(()) | Err(Errno::BUSY)) && by_number().is_err() {
            tracing::error!("the mount cannot be aborted otherwise: the server ends");
            std::process::abort();
        }
    }

    /// Checks the device number, which no other mount has while this server lives.
    fn must_be_there(&self) -> Result<(), MountPointError> {
        match device_number(&self.path) {
            Ok(device) if device == self.device => Ok(()),
            _ => Err(MountPointError::Elsewhere { path: self.path.clone() }),
        }
    }
}

/// The device number of the file system at a path; asks no server.
fn device_number(path: &Path) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    // With an empty mask even another user's mount answers.
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mount_at_the_same_path_is_not_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnMount::at(dir.path(), false).unwrap();
        // It is there, and is no mount.
        assert!(!matches!(own.unmount(), Ok(()) | Err(MountPointError::Elsewhere { .. })));
        let other = OwnMount { device: (own.device.0, own.device.1 + 1), ..own };
        assert!(matches!(other.unmount(), Err(MountPointError::Elsewhere { .. })));
        assert!(matches!(other.detach(), Err(MountPointError::Elsewhere { .. })));
        dir.close().unwrap();
        assert!(matches!(other.unmount(), Err(MountPointError::Elsewhere { .. })));
    }
}
