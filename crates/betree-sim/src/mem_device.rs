//! A disk in memory that counts its calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};

use crate::blocks::{Blocks, numbers_of};

/// The errno of an input or output error.
pub const EIO: i32 = 5;
/// The errno of an invalid call.
pub(crate) const EINVAL: i32 = 22;
/// The errno of a full disk.
pub const ENOSPC: i32 = 28;

/// A failure to inject.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The number of the call that fails, counted from 1 when the fault is set.
    pub at_call: u64,
    /// The kind of call that is counted and fails; any kind, if `None`.
    pub op: Option<DeviceOp>,
    /// The error number of the failure: [`EIO`], [`ENOSPC`].
    pub errno: i32,
    /// Whether every later call of the kind fails too.
    pub lasting: bool,
}

/// The calls to a device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `read_at`.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Calls of `write_at`.
    pub writes: u64,
    /// Bytes of those.
    pub write_bytes: u64,
    /// Calls of `sync`.
    pub syncs: u64,
    /// Calls of `discard`.
    pub discards: u64,
    /// Calls of any kind that a [`Fault`] made fail.
    pub failed: u64,
}

impl Counts {
    /// The calls since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            syncs: self.syncs - earlier.syncs,
            discards: self.discards - earlier.discards,
            failed: self.failed - earlier.failed,
        }
    }
}

/// A disk in memory. Blocks that were never written take no memory and read as zeros.
pub struct MemDevice {
    len: AtomicU64,
    seeks: bool,
    blocks: RwLock<Blocks>,
    fault: Mutex<Option<Fault>>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
    discards: AtomicU64,
    failed: AtomicU64,
}

impl MemDevice {
    /// A disk of `len` bytes, rounded down to whole blocks.
    pub fn new(len: u64) -> MemDevice {
        MemDevice::holding(Blocks::default(), len)
    }

    pub(crate) fn holding(blocks: Blocks, len: u64) -> MemDevice {
        MemDevice {
            len: AtomicU64::new(len - len % BLOCK_BYTES as u64),
            seeks: true,
            blocks: RwLock::new(blocks),
            fault: Mutex::new(None),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            discards: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// A separate disk with the same contents, with counts at 0 and without a fault.
    pub fn copy(&self) -> MemDevice {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner).clone();
        MemDevice::holding(blocks, self.len()).which_seeks(self.seeks)
    }

    /// The same disk, which reports whether it seeks.
    pub fn which_seeks(self, seeks: bool) -> MemDevice {
        MemDevice { seeks, ..self }
    }

    /// The calls so far, failed ones included.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: load(&self.reads),
            read_bytes: load(&self.read_bytes),
            writes: load(&self.writes),
            write_bytes: load(&self.write_bytes),
            syncs: load(&self.syncs),
            discards: load(&self.discards),
            failed: load(&self.failed),
        }
    }

    /// Sets the failure to inject, in place of the one before; `None` heals the device.
    pub fn set_fault(&self, fault: Option<Fault>) {
        *self.lock_fault() = fault;
    }

    /// Flips one bit (0 to 7) of the byte at `offset`: bit rot.
    pub fn rot(&self, offset: u64, bit: u8) {
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        let number = offset / BLOCK_BYTES as u64;
        let mut block = [0; BLOCK_BYTES];
        blocks.read(number, &mut block);
        block[(offset % BLOCK_BYTES as u64) as usize] ^= 1 << bit;
        blocks.write(number, &block);
    }

    /// The byte offsets of the blocks that were written and not discarded since, ascending.
    pub fn written_blocks(&self) -> Vec<u64> {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        blocks.numbers().into_iter().map(|number| number * BLOCK_BYTES as u64).collect()
    }

    fn lock_fault(&self) -> MutexGuard<'_, Option<Fault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, op: DeviceOp, offset: u64, len: u64) -> Result<(), DeviceError> {
        let fail = |errno| Err(DeviceError { op, offset, len, errno });
        let block = BLOCK_BYTES as u64;
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        if !whole || offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return fail(EINVAL);
        }
        let mut fault = self.lock_fault();
        if let Some(coming) = fault.as_mut().filter(|coming| coming.op.is_none_or(|kind| kind == op)) {
            coming.at_call = coming.at_call.saturating_sub(1);
            if coming.at_call == 0 {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let errno = coming.errno;
                if !coming.lasting {
                    *fault = None;
                }
                return fail(errno);
            }
        }
        Ok(())
    }
}

impl Device for MemDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(len, Ordering::Relaxed);
        self.admit(DeviceOp::Read, offset, len)?;
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        for (number, part) in numbers_of(offset, len).zip(buf.chunks_mut(BLOCK_BYTES)) {
            blocks.read(number, part);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(len, Ordering::Relaxed);
        let admitted = self.admit(DeviceOp::Write, offset, len);
        if admitted.as_ref().is_err_and(|refused| refused.errno == EINVAL) {
            return admitted;
        }
        // A failing write does half of its work.
        let landed = if admitted.is_ok() { buf.len() } else { buf.len() / 2 / BLOCK_BYTES * BLOCK_BYTES };
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        for (number, part) in numbers_of(offset, len).zip(buf.chunks(BLOCK_BYTES)).take(landed / BLOCK_BYTES)
        {
            blocks.write(number, part);
        }
        admitted
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.admit(DeviceOp::Sync, 0, 0)
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        self.admit(DeviceOp::Grow, 0, 0)?;
        self.len.fetch_max(len, Ordering::Relaxed);
        Ok(self.len())
    }

    fn seeks(&self) -> bool {
        self.seeks
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.discards.fetch_add(1, Ordering::Relaxed);
        self.admit(DeviceOp::Discard, offset, len)?;
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        for number in numbers_of(offset, len) {
            blocks.clear(number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_counted() {
        let device = MemDevice::new(16 << 30);
        assert_eq!(device.len(), 16 << 30);
        let data: Vec<u8> = (0..12288u32).map(|i| (i / 3) as u8).collect();
        device.write_at((16 << 30) - 12288, &data).unwrap();
        device.sync().unwrap();
        let mut back = vec![1; 16384];
        device.read_at((16 << 30) - 16384, &mut back).unwrap();
        assert!(back[..4096].iter().all(|b| *b == 0) && back[4096..] == data);
        let counts = Counts {
            reads: 1,
            read_bytes: 16384,
            writes: 1,
            write_bytes: 12288,
            syncs: 1,
            ..Counts::default()
        };
        assert_eq!(device.counts(), counts);
        assert_eq!(device.written_blocks().len(), 3);
        device.discard((16 << 30) - 12288, 4096).unwrap();
        assert_eq!(device.written_blocks().len(), 2);
        assert_eq!(device.counts().since(&counts), Counts { discards: 1, ..Counts::default() });
    }

    #[test]
    fn outside_or_off_its_blocks_it_fails() {
        let device = MemDevice::new(8192 + 100);
        assert_eq!(device.len(), 8192);
        let mut buf = [0; 8192];
        assert_eq!(device.read_at(4096, &mut buf).unwrap_err().errno, EINVAL);
        assert!(device.write_at(512, &buf).is_err());
        assert!(device.write_at(0, &buf[..100]).is_err());
        assert!(device.discard(u64::MAX - 4095, 4096).is_err());
    }

    #[test]
    fn a_fault_strikes_at_its_call_once_or_for_good() {
        let device = MemDevice::new(1 << 20);
        let mut fault = Fault { at_call: 2, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: false };
        device.set_fault(Some(fault));
        let block = [7; BLOCK_BYTES];
        device.write_at(0, &block).unwrap();
        device.sync().unwrap();
        let failed = device.write_at(4096, &[7; 3 * BLOCK_BYTES]).unwrap_err();
        assert_eq!(
            (failed.op, failed.offset, failed.len, failed.errno),
            (DeviceOp::Write, 4096, 12288, ENOSPC)
        );
        assert_eq!(device.written_blocks(), [0, 4096], "the failed write did a part of its work");
        device.write_at(4096, &block).unwrap();
        fault = Fault { at_call: 1, op: None, errno: EIO, lasting: true };
        device.set_fault(Some(fault));
        assert!(device.sync().is_err() && device.write_at(0, &block).is_err());
        device.set_fault(None);
        device.sync().unwrap();
    }

    #[test]
    fn rot_flips_one_bit_and_a_copy_is_apart() {
        let device = MemDevice::new(1 << 20);
        device.write_at(4096, &[0xf0; BLOCK_BYTES]).unwrap();
        let copy = device.copy();
        copy.rot(4100, 3);
        let (mut before, mut after) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        device.read_at(4096, &mut before).unwrap();
        copy.read_at(4096, &mut after).unwrap();
        assert_eq!((before[4], after[4]), (0xf0, 0xf8));
        assert_eq!(before.iter().zip(&after).filter(|(a, b)| a != b).count(), 1);
    }
}
