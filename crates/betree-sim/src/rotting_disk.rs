//! A disk whose blocks rot while it is used, and heal.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};

use crate::blocks::numbers_of;
use crate::mem_device::EIO;
use crate::sim_disk::SimDisk;

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rot {
    /// One bit (0 to 7) of one of its bytes is flipped.
    Flipped {
        /// The byte's place in the block.
        at: usize,
        /// The bit.
        bit: u8,
    },
    /// Reads of it fail.
    Unreadable,
}

/// A [`SimDisk`] on which blocks are rotten until they are written again, or healed: then they hold the bytes
/// that they should.
pub struct RottingDisk {
    disk: SimDisk,
    rotten: Mutex<BTreeMap<u64, Rot>>,
}

impl RottingDisk {
    /// A disk, with no block rotten.
    pub fn new(disk: SimDisk) -> RottingDisk {
        RottingDisk { disk, rotten: Mutex::default() }
    }

    /// Lets the block at a byte offset rot.
    pub fn rot(&self, offset: u64, rot: Rot) {
        self.lock().insert(offset / BLOCK_BYTES as u64, rot);
    }

    /// Heals all blocks.
    pub fn heal(&self) {
        self.lock().clear();
    }

    /// The number of rotten blocks.
    pub fn rotten_blocks(&self) -> usize {
        self.lock().len()
    }

    /// Whether a block of a byte range is rotten.
    pub fn is_rotten(&self, offset: u64, len: u64) -> bool {
        self.lock().range(numbers_of(offset, len.max(1))).next().is_some()
    }

    /// The disk after a crash, with the same rot.
    pub fn crash(&self, seed: u64) -> RottingDisk {
        RottingDisk { disk: self.disk.crash(seed), rotten: Mutex::new(self.lock().clone()) }
    }

    /// Another disk with what this one holds, all of it durable, and without rot.
    pub fn healed_copy(&self) -> RottingDisk {
        RottingDisk::new(self.disk.copy())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Rot>> {
        self.rotten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_written(&self, offset: u64, len: u64) {
        let mut rotten = self.lock();
        for number in numbers_of(offset, len) {
            rotten.remove(&number);
        }
    }
}

impl Device for RottingDisk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.disk.read_at(offset, buf)?;
        let len = buf.len() as u64;
        let rotten = self.lock();
        let first = offset / BLOCK_BYTES as u64;
        for (number, rot) in rotten.range(numbers_of(offset, len)) {
            match rot {
                Rot::Flipped { at, bit } => {
                    buf[(number - first) as usize * BLOCK_BYTES + at] ^= 1 << bit;
                }
                Rot::Unreadable => {
                    return Err(DeviceError { op: DeviceOp::Read, offset, len, errno: EIO });
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.disk.write_at(offset, buf)?;
        self.are_written(offset, buf.len() as u64);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }

    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        self.disk.grow(len)
    }

    fn seeks(&self) -> bool {
        self.disk.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.disk.discard(offset, len)?;
        self.are_written(offset, len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_rotten_until_they_are_written_or_healed() {
        let disk = RottingDisk::new(SimDisk::new(1 << 20));
        disk.write_at(0, &[7; 3 * BLOCK_BYTES]).unwrap();
        disk.sync().unwrap();
        let read = |disk: &RottingDisk, at: u64| {
            let mut buf = [0; BLOCK_BYTES];
            disk.read_at(at * BLOCK_BYTES as u64, &mut buf).map(|()| buf)
        };
        disk.rot(5, Rot::Flipped { at: 9, bit: 3 });
        disk.rot(BLOCK_BYTES as u64, Rot::Unreadable);
        assert_eq!(disk.rotten_blocks(), 2);
        assert_eq!(read(&disk, 0).unwrap()[8..11], [7, 15, 7]);
        assert!(read(&disk, 1).is_err() && read(&disk, 2) == Ok([7; BLOCK_BYTES]));
        let copy = disk.healed_copy();
        assert!((0..3).all(|number| read(&copy, number) == Ok([7; BLOCK_BYTES])));
        assert!(read(&disk.crash(1), 1).is_err());
        disk.write_at(BLOCK_BYTES as u64, &[8; BLOCK_BYTES]).unwrap();
        assert_eq!(read(&disk, 1), Ok([8; BLOCK_BYTES]));
        assert!(disk.is_rotten(0, 1) && !disk.is_rotten(BLOCK_BYTES as u64, 2 * BLOCK_BYTES as u64));
        disk.heal();
        assert_eq!(read(&disk, 0), Ok([7; BLOCK_BYTES]));
    }
}
