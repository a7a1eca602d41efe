//! The copies of the superblock.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::Device;

use crate::check::Finding;
use crate::check::damaged::newest_superblock;
use crate::error::{Error, Result};
use crate::format::superblock::{Superblock, slots};
use crate::io::Disk;

/// A copy of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockCopy {
    /// Its first byte on the device.
    pub offset: u64,
    /// The superblock in it, or the reason why it is not valid.
    pub found: core::result::Result<Superblock, String>,
}

/// All copies, and the current superblock.
#[derive(Clone, Debug)]
pub struct Superblocks {
    /// In the order of their places; two for each generation.
    pub copies: Vec<SuperblockCopy>,
    /// The newest valid superblock, or the error of opening the volume without one.
    pub current: Result<Superblock>,
    /// Why no opening takes the current one, if so: a newer one may be lost, or a part of the volume.
    pub refused: Option<Error>,
}

/// Reads all copies of the superblock. Calls `tell` with their damage.
///
/// # Errors
/// [`Error::NotAVolume`](crate::Error::NotAVolume) if the device is too small for them.
pub fn superblocks(device: Arc<dyn Device>, tell: &mut dyn FnMut(Finding)) -> Result<Superblocks> {
    let disk = Disk::for_reading(device);
    let copies = slots::copies(&disk)?;
    let copies = copies.into_iter().map(|(offset, found)| SuperblockCopy { offset, found }).collect();
    let current = newest_superblock(&disk, tell).map(|(superblock, _)| superblock);
    Ok(Superblocks { copies, current, refused: slots::load(&disk).err() })
}
