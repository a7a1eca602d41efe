//! The lock of an open file.

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::path::Path;

use super::Access;
use crate::open_error::OpenError;

/// A file with a lock. The lock ends with this value, even if a child that is being started still
/// has the file: until it runs its own program, a child has all open files.
#[derive(Debug)]
pub(super) struct Locked(File);

impl Locked {
    /// Locks it, unless it is only looked at.
    ///
    /// # Errors
    /// [`OpenError::InUse`], or the system's own.
    pub(super) fn new(file: File, path: &Path, access: Access) -> Result<Locked, OpenError> {
        let locked = match access {
            Access::Changes | Access::Replacing => file.try_lock(),
            Access::Reading => file.try_lock_shared(),
            Access::Looking => Ok(()),
        };
        match locked {
            Ok(()) => Ok(Locked(file)),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => {
                Err(OpenError::Io { doing: "lock", path: path.to_owned(), source })
            }
        }
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing it does the same, a little later at worst.
        let _ = self.0.unlock();
    }
}
