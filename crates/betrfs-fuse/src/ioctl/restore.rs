//! Bringing a directory back to a snapshot, from the side of the process that asks for it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betrfs::SNAPSHOTS_NAME;
use rustix::fs::{AtFlags, OFlags, statat};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl};

use super::{change, errno_of, held, open_plain, wait_told, wait_written_back};
use crate::mounts_below::has_mounts_below;
use crate::wire::ioctl::{MAY_RESTORE, RESTORE, RestoreBytes, restore_bytes};

/// Why a directory was not brought back to a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Something is mounted below it.
    #[error("something is mounted below it")]
    MountedBelow,
    /// It has no snapshot of that name.
    #[error("it has no snapshot of that name")]
    NoSnapshot,
    /// Directories below it have snapshots; the paths of some.
    #[error("directories below it have snapshots")]
    HeldBelow(Vec<Vec<u8>>),
    /// Any other cause: `ENOTTY` if it is on no BetrFS mount, `EEXIST` if there is a snapshot with the name
    /// for the present state, `EPERM` for users other than root and the one who mounted, and if the directory
    /// is immutable or append-only.
    #[error(transparent)]
    Os(#[from] io::Error),
}

impl From<Errno> for RestoreError {
    fn from(errno: Errno) -> RestoreError {
        RestoreError::Os(errno.into())
    }
}

/// A directory that may be brought back to a snapshot.
pub struct Restoration {
    open: File,
    names: [Vec<u8>; 2],
}

impl Restoration {
    /// Checks whether a directory can be brought back to its snapshot `name`, with its present state kept as
    /// the snapshot `keep_as`.
    ///
    /// # Errors
    /// It cannot.
    pub fn prepare(dir: &Path, name: &OsStr, keep_as: &OsStr) -> Result<Restoration, RestoreError> {
        let open = open_plain(dir, OFlags::DIRECTORY)?;
        if has_mounts_below(&open)? {
            return Err(RestoreError::MountedBelow);
        }
        let restoration = Restoration { open, names: [name, keep_as].map(|name| name.as_bytes().to_vec()) };
        let argument = restoration.argument(0)?;
        // SAFETY: the ioctl reads a `RestoreBytes`, and the argument is one.
        let may = unsafe { ioctl(&restoration.open, Setter::<MAY_RESTORE, RestoreBytes>::new(argument)) };
        match may {
            Ok(()) => Ok(restoration),
            Err(errno) => Err(restoration.why(errno)),
        }
    }

    /// Brings it back, with all that was written to mappings of its files in the snapshot of the present
    /// state. Returns when the kernel has dropped the names that were there: whether that snapshot is there
    /// already. Where many names lead to files with several, it is made afterwards, and a disk that is full
    /// or fails puts it off.
    ///
    /// # Errors
    /// Nothing has changed then, unless the server has ended meanwhile.
    pub fn carry_out(self) -> Result<bool, RestoreError> {
        let token = wait_written_back(&self.open)?;
        let argument = self.argument(token)?;
        change(&self.open, RESTORE, &argument).map_err(|error| match errno_of(&error) {
            Some(errno) => self.why(errno),
            None => error.into(),
        })?;
        wait_told(&self.open, token)?;
        let kept = [SNAPSHOTS_NAME, &self.names[1]].join(&b'/');
        Ok(statat(&self.open, kept.as_slice(), AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    fn argument(&self, token: u64) -> Result<RestoreBytes, Errno> {
        let [name, keep_as] = &self.names;
        restore_bytes(token, name, keep_as).ok_or(Errno::NAMETOOLONG)
    }

    fn why(&self, errno: Errno) -> RestoreError {
        match errno {
            Errno::NOENT => RestoreError::NoSnapshot,
            Errno::BUSY => {
                let mut paths = held(&self.open).map(|held| held.paths).unwrap_or_default();
                paths.retain(|path| !path.starts_with(SNAPSHOTS_NAME));
                RestoreError::HeldBelow(paths)
            }
            errno => errno.into(),
        }
    }
}
