//! Block devices that cannot be written: some kernels open them for writing all the same, and refuse the
//! first write with EPERM.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Whether an open file is a block device that the kernel has as read-only.
pub(super) fn is_write_protected(file: &File) -> bool {
    let Ok(found) = file.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    let told = |name: &str| fs::read(format!("/sys/dev/block/{major}:{minor}/{name}"));
    found.file_type().is_block_device() && told("ro").is_ok_and(|told| told.starts_with(b"1"))
}
