//! The copies of the superblock.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::Device;

use crate::check::Finding;
use crate::check::damaged::newest_superblock;
use crate::error::Result;
use crate::format::superblock::{Superblock, slots};
use crate::io::Disk;

/// A copy of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockCopy {
    /// Its first byte on the device.
    pub offset: u64,
    /// What it holds, or why that is not to be used.
    pub found: core::result::Result<Superblock, String>,
}

/// All copies, and the superblock that counts.
#[derive(Clone, Debug)]
pub struct Superblocks {
    /// In the order of their places, two of each generation.
    pub copies: Vec<SuperblockCopy>,
    /// The newest good one; else why there is none, or why it is not this program's to read.
    pub current: Result<Superblock>,
}

/// Reads all copies of the superblock. What is wrong with any is given to `tell`.
///
/// # Errors
/// [`Error::NotAVolume`](crate::Error::NotAVolume) of a device that has no room for them.
pub fn superblocks(device: Arc<dyn Device>, tell: &mut dyn FnMut(Finding)) -> Result<Superblocks> {
    let disk = Disk::for_reading(device);
    let copies = slots::copies(&disk)?;
    let copies = copies.into_iter().map(|(offset, found)| SuperblockCopy { offset, found }).collect();
    let current = newest_superblock(&disk, tell).map(|(superblock, _)| superblock);
    Ok(Superblocks { copies, current })
}
