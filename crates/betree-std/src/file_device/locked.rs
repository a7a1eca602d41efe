//! The lock of an open file.

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::path::Path;

use super::Access;
use super::loop_file::whole_file_of;
use crate::open_error::OpenError;
use crate::process_id::process_id;

/// A file with a lock, and the file behind it where it is a loop device. The locks end with this value, even
/// if a child that is being started still has the files: until it runs its own program, a child has all open
/// files.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    behind: Option<File>,
    locked_by: u32,
}

impl Locked {
    /// Locks it, unless it is only looked at.
    ///
    /// # Errors
    /// [`OpenError::InUse`], or the system's own.
    pub(super) fn new(file: File, path: &Path, access: Access) -> Result<Locked, OpenError> {
        let lock = |file: &File| {
            let locked = match access {
                Access::Changes | Access::Replacing => file.try_lock(),
                Access::Reading => file.try_lock_shared(),
                Access::Looking => Ok(()),
            };
            locked.map_err(|error| match error {
                TryLockError::WouldBlock => OpenError::InUse { path: path.to_owned() },
                TryLockError::Error(source) => OpenError::Io { doing: "lock", path: path.to_owned(), source },
            })
        };
        lock(&file)?;
        let locked = Locked { behind: whole_file_of(&file), file, locked_by: process_id() };
        locked.behind.as_ref().map_or(Ok(()), lock)?;
        Ok(locked)
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if process_id() != self.locked_by {
            // A fork shares the lock with its parent. Closing its descriptors does not release it.
            return;
        }
        // Closing it does the same, a little later at worst.
        let _ = self.file.unlock();
        let _ = self.behind.as_ref().map(File::unlock);
    }
}
