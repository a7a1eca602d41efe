//! The lock of an open file.

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::path::Path;

use super::Access;
use super::loop_file::{Behind, files_behind, is_used_by_kernel};
use crate::open_error::OpenError;
use crate::process_id::process_id;

/// A file with a lock, and the files beneath it where it is a block device. The locks end with this value,
/// even if a child that is being started still has the files: until it runs its own program, a child has all
/// open files.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    behind: Vec<Behind>,
    locked_by: u32,
}

impl Locked {
    /// Locks it, unless it is only looked at.
    ///
    /// # Errors
    /// [`OpenError::InUse`], or the system's own.
    pub(super) fn new(file: File, path: &Path, access: Access) -> Result<Locked, OpenError> {
        let lock = |file: &File, is_whole: bool| {
            let locked = match access {
                Access::Changes | Access::Replacing if is_whole => file.try_lock(),
                // Of a file that the device shows in part, others may use other parts.
                Access::Changes | Access::Replacing | Access::Reading => file.try_lock_shared(),
                Access::Looking => Ok(()),
            };
            locked.map_err(|error| match error {
                TryLockError::WouldBlock => OpenError::in_use(path),
                TryLockError::Error(source) => OpenError::Io { doing: "lock", path: path.to_owned(), source },
            })
        };
        lock(&file, true)?;
        let locked = Locked { behind: files_behind(&file), file, locked_by: process_id() };
        locked.behind.iter().try_for_each(|behind| lock(&behind.file, behind.is_whole))?;
        if access == Access::Changes && is_used_by_kernel(&locked.file) {
            return Err(OpenError::in_use(path));
        }
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
        for behind in &self.behind {
            let _ = behind.file.unlock();
        }
    }
}
