//! Writing data anew, from the side of the process that asks for it.

use std::fs::File;
use std::io;

use betree_platform::Platform;
use betrfs::{Recompress, Recompressed};
use rustix::ioctl::{NoArg, Updater, ioctl};

use super::permit;
use crate::wire::recompress::{CHECKPOINT, RECOMPRESS, RecompressBytes};

/// Has the server let this process recompress an open file; returns what [`recompress`] needs. The kernel
/// checks that the file was opened on a mount for writing.
///
/// # Errors
/// The operating system's: `EROFS` on a read-only mount.
pub fn recompress_permit(open: &File, platform: &dyn Platform) -> io::Result<u64> {
    let token = platform.random_u64();
    permit(open, token)?;
    Ok(token)
}

/// Writes a part of an open file anew, or counts what would be: [`betrfs::Volume::recompress`]. To have read
/// access is enough, if the file is the caller's. To count needs no permit.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount, `EPERM` for others than the file's owner
/// and root, and for an immutable file, `EROFS` in a snapshot and on a read-only mount, `ENOSPC`.
pub fn recompress(open: &File, from: u64, what: Recompress, permit: u64) -> io::Result<Recompressed> {
    let mut bytes = RecompressBytes::argument(from, what, permit);
    // SAFETY: the ioctl reads a `RecompressBytes` and writes one in its place.
    unsafe { ioctl(open, Updater::<RECOMPRESS, RecompressBytes>::new(&mut bytes)) }?;
    Ok(bytes.into())
}

/// Makes a checkpoint of the volume of an open file: then what was written before is on the device,
/// compressed.
///
/// # Errors
/// As those of [`recompress`]; the file has to be the caller's.
pub fn checkpoint(open: &File) -> io::Result<()> {
    // SAFETY: the ioctl takes no argument.
    Ok(unsafe { ioctl(open, NoArg::<CHECKPOINT>::new()) }?)
}
