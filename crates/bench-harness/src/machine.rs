//! The machine as a whole: one run measures at a time, with cold caches.

use std::fs::{File, TryLockError};

use anyhow::{Context, Result};

use crate::output::tell;

/// The file that runs lock while they measure: the sysctl that a memory limit sets.
pub(crate) const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";

/// Waits until no other run measures, and blocks other runs while the result lives. Two runs would disturb
/// each other, and each would restore the other's settings.
///
/// # Errors
/// The lock cannot be taken.
pub fn lock() -> Result<File> {
    let file = File::open(DIRTY_BYTES).with_context(|| format!("cannot open {DIRTY_BYTES}"))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        tell(format_args!("betrfs-bench: waiting for the end of another run's figure"));
        file.lock().with_context(|| format!("cannot lock {DIRTY_BYTES}"))?;
    }
    Ok(file)
}

/// Drops the kernel's caches of files, as far as they are on the disk.
///
/// # Errors
/// The kernel refuses.
pub fn drop_caches() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the kernel's caches")
}
