//! A mount that this process has made.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use super::error::failed;
use super::found::{FoundMount, device_of};
use super::{MountPointError, printed};

/// Of util-linux.
const UMOUNT: &str = "umount";

/// A mount that was made here, identified by its device number: another may be at its path later.
#[derive(Clone, Debug)]
pub struct OwnMount {
    path: PathBuf,
    device: (u32, u32),
    is_block: bool,
    /// Open files, closed before the mount is removed: to find it takes some, and none may be left.
    spare: Arc<Mutex<Vec<File>>>,
}

/// As many open files as it takes to find a mount and to remove it.
pub(super) fn spare_files() -> io::Result<Vec<File>> {
    // Twice the need: other threads of the server may take some meanwhile.
    const FILES: usize = 8;
    std::iter::repeat_with(|| File::open("/dev/null")).take(FILES).collect()
}

impl OwnMount {
    pub(super) fn at(
        path: &Path,
        connection: &OwnedFd,
        is_block: bool,
        spare: Vec<File>,
    ) -> Result<OwnMount, MountPointError> {
        let by_path = || device_number(path).map_err(|e| failed("examine the mount on", path, e.into()));
        let device = device_of(connection).map_or_else(by_path, Ok)?;
        Ok(OwnMount { path: path.to_owned(), device, is_block, spare: Arc::new(Mutex::new(spare)) })
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

    /// The kernel's number of it.
    ///
    /// # Errors
    /// [`MountPointError`]: `Elsewhere` if it is no longer there.
    pub fn number(&self) -> Result<u64, MountPointError> {
        Ok(self.found()?.entry().id)
    }

    /// Unmounts it, if it is still there.
    ///
    /// # Errors
    /// As [`FoundMount::unmount`].
    pub fn unmount(&self) -> Result<(), MountPointError> {
        self.undo_apart(&[], FoundMount::unmount)
    }

    /// Detaches it, if it is still there.
    ///
    /// # Errors
    /// As [`FoundMount::detach`].
    pub fn detach(&self) -> Result<(), MountPointError> {
        self.undo_apart(&["--lazy"], FoundMount::detach)
    }

    /// Unmounts from the server's own process: a mount of a block device by the program umount. There the
    /// kernel waits for the server's answer, whatever signal comes; a server that waited itself and was
    /// killed would keep its own connection open, and so wait for ever.
    fn undo_apart(
        &self,
        how: &[&str],
        by_itself: fn(&FoundMount) -> Result<(), MountPointError>,
    ) -> Result<(), MountPointError> {
        self.spare.lock().clear();
        let found = self.found()?;
        if !self.is_block {
            return by_itself(&found);
        }
        let (input, place) = found.for_program()?;
        let mut command = Command::new(UMOUNT);
        command.args(["--internal-only", "--no-canonicalize"]).args(how).arg("--").arg(place);
        let output = command.env("LC_ALL", "C").stdin(Stdio::from(input)).output();
        // It holds files too.
        drop(command);
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => match printed(&output.stderr) {
                why if why.contains("busy") => Err(MountPointError::Busy { path: self.path.clone() }),
                why => Err(failed("unmount", &self.path, io::Error::other(why))),
            },
            Err(error) => {
                // The program is missing, or no process can be started.
                tracing::info!("{UMOUNT} cannot be run: {error}");
                by_itself(&found)
            }
        }
    }

    /// Aborts its connection, so that waiting processes get an error. Ends this process if that fails.
    pub fn abort(&self) {
        self.spare.lock().clear();
        let forced = self.found().and_then(|found| found.abort());
        let (major, minor) = self.device;
        let number = u64::from(major) << 20 | u64::from(minor);
        let by_number = || std::fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1");
        if forced.is_err() && by_number().is_err() {
            tracing::error!("the mount cannot be aborted otherwise: the server ends");
            std::process::abort();
        }
    }

    /// The mount, if it is still there: no other has its device number while this server lives.
    pub(super) fn found(&self) -> Result<FoundMount, MountPointError> {
        let found = match FoundMount::at(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("examine the mount on", &self.path, error));
            }
            found => found.ok().flatten(),
        };
        let is_ours = |found: &FoundMount| found.entry().is_betrfs() && found.entry().device == self.device;
        found.filter(is_ours).ok_or_else(|| MountPointError::Elsewhere { path: self.path.clone() })
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
    fn nothing_but_its_own_mount_is_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        for path in [dir.path(), Path::new("/proc"), Path::new("/no/such")] {
            let device = device_number(path).unwrap_or_default();
            let own = OwnMount { path: path.to_owned(), device, is_block: false, spare: Arc::default() };
            assert!(matches!(own.unmount(), Err(MountPointError::Elsewhere { .. })));
            assert!(matches!(own.detach(), Err(MountPointError::Elsewhere { .. })));
        }
        assert_eq!(
            OwnMount::at(dir.path(), &null(), false, Vec::new()).unwrap().device(),
            device_number(dir.path()).unwrap()
        );
    }
}
