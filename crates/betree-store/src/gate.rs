//! The device while a store is being opened: nothing is written before it is known that all is well.
//!
//! Opening replays the log and writes a checkpoint. Whether the file is a store, and whether all merges of
//! its dictionaries are registered, stands in the catalogue, which can only be read afterwards. So what the
//! engine writes is kept in memory, and read from there, until the [`Gate`] is opened. That of a store that
//! is opened for reading never is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp, Read};
use parking_lot::Mutex;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A device whose changes wait until it is opened.
pub(crate) struct Gate {
    device: Arc<dyn Device>,
    is_open: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// What was changed, in the order in which it was.
#[derive(Default)]
struct Waiting {
    changes: Vec<Change>,
    /// Of each block, the change that wrote it last.
    last: HashMap<u64, usize>,
}

enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Sync,
    Discard { offset: u64, len: u64 },
}

impl Gate {
    /// A closed gate before a device.
    pub fn before(device: Arc<dyn Device>) -> Gate {
        Gate { device, is_open: AtomicBool::new(false), waiting: Mutex::default() }
    }

    /// Makes all changes that wait, in their order; from now on there is no gate.
    ///
    /// # Errors
    /// The device's; the gate stays closed, and a part of the changes is made.
    pub fn open(&self) -> Result<(), DeviceError> {
        let mut waiting = self.waiting.lock();
        for change in &waiting.changes {
            match change {
                Change::Write { offset, bytes } => self.device.write_at(*offset, bytes)?,
                Change::Sync => self.device.sync()?,
                Change::Discard { offset, len } => self.device.discard(*offset, *len)?,
            }
        }
        self.is_open.store(true, Ordering::SeqCst);
        *waiting = Waiting::default();
        Ok(())
    }

    /// What waits, if it has to.
    fn waiting(&self) -> Option<parking_lot::MutexGuard<'_, Waiting>> {
        if self.is_open.load(Ordering::SeqCst) {
            return None;
        }
        Some(self.waiting.lock()).filter(|_| !self.is_open.load(Ordering::SeqCst))
    }
}

impl Waiting {
    /// The bytes of a block that waits.
    fn block(&self, number: u64) -> Option<&[u8]> {
        let Change::Write { offset, bytes } = self.changes.get(*self.last.get(&number)?)? else {
            return None;
        };
        let from = usize::try_from((number * BLOCK).checked_sub(*offset)?).ok()?;
        bytes.get(from..from + BLOCK_BYTES)
    }

    /// Puts the blocks that wait over what was read at `offset`.
    fn copy_to(&self, offset: u64, buf: &mut [u8]) {
        for (number, block) in (offset / BLOCK..).zip(buf.chunks_exact_mut(BLOCK_BYTES)) {
            if let Some(bytes) = self.block(number) {
                block.copy_from_slice(bytes);
            }
        }
    }
}

impl Device for Gate {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, buf)?;
        if let Some(waiting) = self.waiting() {
            waiting.copy_to(offset, buf);
        }
        Ok(())
    }

    fn read_many(&self, reads: &mut [Read<'_>]) {
        self.device.read_many(reads);
        if let Some(waiting) = self.waiting() {
            for Read { offset, buf, .. } in reads.iter_mut().filter(|read| read.result.is_ok()) {
                waiting.copy_to(*offset, buf);
            }
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let Some(mut waiting) = self.waiting() else { return self.device.write_at(offset, buf) };
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.device.len()) {
            return Err(DeviceError { op: DeviceOp::Write, offset, len: buf.len() as u64, errno: 28 });
        }
        let change = waiting.changes.len();
        let blocks = offset / BLOCK..offset / BLOCK + buf.len() as u64 / BLOCK;
        waiting.last.extend(blocks.map(|number| (number, change)));
        waiting.changes.push(Change::Write { offset, bytes: buf.to_vec() });
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let Some(mut waiting) = self.waiting() else { return self.device.sync() };
        waiting.changes.push(Change::Sync);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn len_in_bytes(&self) -> u64 {
        self.device.len_in_bytes()
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        self.device.grow(len)
    }

    fn is_open_ended(&self) -> bool {
        self.device.is_open_ended()
    }

    fn contents_len(&self) -> u64 {
        self.device.contents_len()
    }

    fn open_end(&self, len: u64) {
        self.device.open_end(len);
    }

    fn is_sparse(&self) -> bool {
        self.device.is_sparse()
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        // It changes no contents. What the device is yet to grow by is sparse.
        let there = self.device.len().saturating_sub(offset).min(len);
        if there == 0 { Ok(()) } else { self.device.allocate(offset, there) }
    }

    fn next_allocated(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        self.device.next_allocated(offset, len)
    }

    fn forked_from(&self) -> Option<u32> {
        self.device.forked_from()
    }

    fn seeks(&self) -> bool {
        self.device.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let Some(mut waiting) = self.waiting() else { return self.device.discard(offset, len) };
        waiting.changes.push(Change::Discard { offset, len });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    use betree_std::FileDevice;
    use seeded::Rng;

    const BLOCKS: usize = 16;

    fn image(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![0; BLOCKS * BLOCK_BYTES];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Random writes before a closed gate are read as they will be, and the device has them once it is
    /// opened.
    #[test]
    fn what_waits_is_read_and_written_in_its_order() {
        for seed in 0..40 {
            let folder = tempfile::tempdir().unwrap();
            let file =
                FileDevice::create(&folder.path().join("file"), (BLOCKS * BLOCK_BYTES) as u64).unwrap();
            let device: Arc<dyn Device> = Arc::new(file);
            device.write_at(0, &[9; 4 * BLOCK_BYTES]).unwrap();
            let before = image(&*device);
            let gate = Gate::before(device.clone());
            let (mut rng, mut expected) = (Rng::new(seed), before.clone());
            let write = |rng: &mut Rng, expected: &mut Vec<u8>| {
                let first = rng.below(BLOCKS);
                let len = rng.between(1, BLOCKS - first);
                let (from, bytes) =
                    (first * BLOCK_BYTES, seeded::bytes(rng.next_u64(), 0, len * BLOCK_BYTES));
                gate.write_at(from as u64, &bytes).unwrap();
                expected[from..from + bytes.len()].copy_from_slice(&bytes);
            };
            let read_together = |gate: &Gate| {
                let mut bytes = vec![0; BLOCKS * BLOCK_BYTES];
                let (a, b) = bytes.split_at_mut(5 * BLOCK_BYTES);
                let mut reads = [Read::new(5 * BLOCK, b), Read::new(0, a)];
                gate.read_many(&mut reads);
                reads.iter().for_each(|read| read.result.unwrap());
                bytes
            };
            for _ in 0..10 {
                write(&mut rng, &mut expected);
                gate.sync().unwrap();
                assert!(image(&gate) == expected && read_together(&gate) == expected, "seed {seed}");
            }
            assert!(image(&*device) == before, "seed {seed}: something was written");
            assert!(gate.write_at(((BLOCKS - 1) * BLOCK_BYTES) as u64, &[0; 2 * BLOCK_BYTES]).is_err());
            gate.open().unwrap();
            write(&mut rng, &mut expected);
            assert!(image(&gate) == expected && image(&*device) == expected, "seed {seed}");
            assert!(read_together(&gate) == expected, "seed {seed}");
        }
    }

    /// Counts calls that read together.
    struct Counting(AtomicUsize);

    impl Device for Counting {
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
            panic!("reads come together")
        }

        fn read_many(&self, reads: &mut [Read<'_>]) {
            self.0.fetch_add(reads.len(), Ordering::SeqCst);
        }

        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
            Ok(())
        }

        fn sync(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn len(&self) -> u64 {
            BLOCK
        }

        fn seeks(&self) -> bool {
            false
        }

        fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    #[test]
    fn reads_that_come_together_go_on_together() {
        let device = Arc::new(Counting(AtomicUsize::new(0)));
        let gate = Gate::before(device.clone());
        let (mut a, mut b) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        let mut reads = [Read::new(0, &mut a), Read::new(0, &mut b)];
        gate.read_many(&mut reads);
        assert_eq!(device.0.load(Ordering::SeqCst), 2);
        // A device that forgets a read has not made it.
        assert!(reads.iter().all(|read| read.result.is_err()));
    }
}
