//! A device in memory for the tests of this crate's modules: it fails on demand, remembers what a
//! crash keeps, and lets a test look at and change any byte.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::vec;
use std::vec::Vec;

use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};

/// See the module.
pub(crate) struct MemDevice {
    state: Mutex<State>,
}

struct State {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Range<usize>>,
    bad_reads: Vec<Range<usize>>,
    /// The error number of every write, if writes fail.
    write_errno: Option<i32>,
    fail_syncs: bool,
    seeks: bool,
}

impl MemDevice {
    /// A device of zeros.
    pub(crate) fn new(blocks: usize) -> Arc<MemDevice> {
        MemDevice::holding(vec![0; blocks * BLOCK_BYTES])
    }

    /// A device that holds these bytes, all durable.
    pub(crate) fn holding(bytes: Vec<u8>) -> Arc<MemDevice> {
        assert_eq!(bytes.len() % BLOCK_BYTES, 0);
        let state = State {
            durable: bytes.clone(),
            bytes,
            unsynced: Vec::new(),
            bad_reads: Vec::new(),
            write_errno: None,
            fail_syncs: false,
            seeks: true,
        };
        Arc::new(MemDevice { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Makes every write fail without effect, or succeed again.
    pub(crate) fn fail_writes(&self, fail: bool) {
        self.state().write_errno = fail.then_some(5);
    }

    /// Makes every write find no room, or succeed again.
    pub(crate) fn fill_up(&self, full: bool) {
        self.state().write_errno = full.then_some(28);
    }

    /// Makes every sync fail and make nothing durable, or succeed again.
    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.state().fail_syncs = fail;
    }

    /// Makes [`Device::seeks`] return `false`.
    pub(crate) fn do_not_seek(&self) {
        self.state().seeks = false;
    }

    /// Reads that touch these bytes fail.
    pub(crate) fn fail_reads_of(&self, bytes: Range<usize>) {
        self.state().bad_reads.push(bytes);
    }

    /// The bytes that a reader sees now.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// The bytes after a crash that loses every unsynced write.
    pub(crate) fn durable_bytes(&self) -> Vec<u8> {
        self.state().durable.clone()
    }

    /// The bytes after a crash that keeps the unsynced blocks for which `keeps` returns `true`.
    pub(crate) fn crashed_bytes(&self, mut keeps: impl FnMut() -> bool) -> Vec<u8> {
        let state = self.state();
        let mut left = state.durable.clone();
        for place in &state.unsynced {
            for block in place.clone().step_by(BLOCK_BYTES).map(|start| start..start + BLOCK_BYTES) {
                if keeps() {
                    left[block.clone()].copy_from_slice(&state.bytes[block]);
                }
            }
        }
        left
    }

    /// Changes bytes behind the engine's back.
    pub(crate) fn poke(&self, offset: usize, bytes: &[u8]) {
        let mut state = self.state();
        state.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        state.durable[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Flips one bit, counted from the device's start.
    pub(crate) fn flip(&self, bit: usize) {
        let mut state = self.state();
        state.bytes[bit / 8] ^= 1 << (bit % 8);
        state.durable[bit / 8] ^= 1 << (bit % 8);
    }
}

fn range(op: DeviceOp, offset: u64, len: usize, size: usize) -> Result<Range<usize>, DeviceError> {
    let start = offset as usize;
    if start.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK_BYTES) && start + len <= size {
        Ok(start..start + len)
    } else {
        Err(DeviceError { op, offset, len: len as u64, errno: 22 })
    }
}

impl Device for MemDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let state = self.state();
        let place = range(DeviceOp::Read, offset, buf.len(), state.bytes.len())?;
        if state.bad_reads.iter().any(|bad| bad.start < place.end && place.start < bad.end) {
            return Err(DeviceError { op: DeviceOp::Read, offset, len: buf.len() as u64, errno: 5 });
        }
        buf.copy_from_slice(&state.bytes[place]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let mut state = self.state();
        let place = range(DeviceOp::Write, offset, buf.len(), state.bytes.len())?;
        if let Some(errno) = state.write_errno {
            return Err(DeviceError { op: DeviceOp::Write, offset, len: buf.len() as u64, errno });
        }
        state.bytes[place.clone()].copy_from_slice(buf);
        state.unsynced.push(place);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        if state.fail_syncs {
            return Err(DeviceError { op: DeviceOp::Sync, offset: 0, len: 0, errno: 5 });
        }
        for place in core::mem::take(&mut state.unsynced) {
            let State { bytes, durable, .. } = &mut *state;
            durable[place.clone()].copy_from_slice(&bytes[place]);
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.state().bytes.len() as u64
    }

    fn seeks(&self) -> bool {
        self.state().seeks
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}
