//! Writing data anew, from the side of the process that asks for it.

use std::fs::File;
use std::io;

use betrfs::{Recompress, Recompressed};
use rustix::ioctl::{NoArg, Updater, ioctl};

use crate::wire::recompress::{CHECKPOINT, RECOMPRESS, RecompressBytes};

/// Writes a part of an open file anew, or counts what would be: [`betrfs::Volume::recompress`]. To have read
/// access is enough, if the file is the caller's.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount, `EPERM` for others than the file's owner
/// and root, and for an immutable file, `EROFS` in a snapshot and on a read-only mount, `ENOSPC`.
pub fn recompress(open: &File, from: u64, what: Recompress) -> io::Result<Recompressed> {
    let mut bytes = RecompressBytes::argument(from, what);
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
