//! The engine's way to the disk: counted, and closed to changes after a failed one.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use betree_platform::sync::{Mutex, RwLock, RwLockWriteGuard};
use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp, Read};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};
use crate::health::{ErrorKind, Health, Watcher};
use crate::space::Extent;

#[cfg(test)]
pub(crate) mod asked;
#[cfg(test)]
pub(crate) mod mem;

/// The operating system's error number for writing to a read-only device.
const EROFS: i32 = 30;

/// A device with counters and a poison flag.
///
/// After a failed write or sync, the fate of all writes since the last good sync is unknown, so every later
/// write and sync is refused; reads continue. A write that finds the disk under the device full is different:
/// earlier writes are intact, and it can be repeated.
pub(crate) struct Disk {
    device: Arc<dyn Device>,
    pub(crate) health: Health,
    /// The reason why nothing is written any more.
    poison: Mutex<Option<String>>,
    /// Held over a sync: the system may report a lost write to only one of two syncs at once.
    sync_turn: Mutex<()>,
    /// Held shared over each change of the device, exclusively while nothing may change on it.
    change_turn: RwLock<()>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    read_rounds: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
    /// Whether a read has failed because the device was released.
    is_released: AtomicBool,
}

/// The calls of a [`Disk`] so far, and their bytes. Failed calls count too, refused ones do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskCounts {
    pub reads: u64,
    pub read_bytes: u64,
    /// Calls that made one read, or several together.
    pub read_rounds: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub syncs: u64,
}

impl Disk {
    pub(crate) fn new(device: Arc<dyn Device>) -> Disk {
        Disk::watched(device, None)
    }

    /// As [`new`](Disk::new), with a watcher that receives failures.
    pub(crate) fn watched(device: Arc<dyn Device>, watcher: Option<Arc<dyn Watcher>>) -> Disk {
        Disk {
            device,
            health: Health::new(watcher),
            poison: Mutex::new(None),
            sync_turn: Mutex::new(()),
            change_turn: RwLock::new(()),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            read_rounds: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            is_released: AtomicBool::new(false),
        }
    }

    /// As [`new`](Disk::new), and nothing is ever written to it.
    pub(crate) fn for_reading(device: Arc<dyn Device>) -> Disk {
        let refusal = DeviceError { op: DeviceOp::Write, offset: 0, len: 0, errno: EROFS };
        Disk { poison: Mutex::new(Some(refusal.to_string())), ..Disk::new(device) }
    }

    /// The device's size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.device.len()
    }

    /// As [`Device::len_in_bytes`].
    pub(crate) fn len_in_bytes(&self) -> u64 {
        self.device.len_in_bytes()
    }

    /// As [`Device::grow`].
    pub(crate) fn grow(&self, len: u64) -> Result<u64> {
        self.refuse_if_forked()?;
        let _turn = self.change_turn.read();
        self.refuse_if_poisoned()?;
        self.device.grow(len).map_err(|error| match error.is_full() {
            true => Error::DeviceFull(error),
            false => Error::Device(error),
        })
    }

    /// As [`Device::is_open_ended`].
    pub(crate) fn is_open_ended(&self) -> bool {
        self.device.is_open_ended()
    }

    /// As [`Device::contents_len`].
    pub(crate) fn contents_len(&self) -> u64 {
        self.device.contents_len()
    }

    /// As [`Device::open_end`].
    pub(crate) fn open_end(&self, len: u64) {
        self.device.open_end(len);
    }

    /// As [`Device::is_sparse`].
    pub(crate) fn is_sparse(&self) -> bool {
        self.device.is_sparse()
    }

    /// As [`Device::next_allocated`].
    pub(crate) fn next_allocated(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        self.device.next_allocated(offset, len)
    }

    /// As [`Device::allocate`]. A failure poisons nothing: no contents depend on it.
    pub(crate) fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.refuse_if_forked()?;
        let _turn = self.change_turn.read();
        self.refuse_if_poisoned()?;
        self.device.allocate(offset, len).map_err(|error| match error.is_full() {
            true => Error::DeviceFull(error),
            false => Error::Device(error),
        })
    }

    /// As [`Device::seeks`].
    pub(crate) fn seeks(&self) -> bool {
        self.device.seeks()
    }

    /// Returns [`Error::Forked`] in a fork of the process that opened the device. Callers ask before they
    /// take a lock: a thread that the fork does not have may have held it.
    pub(crate) fn refuse_if_forked(&self) -> Result<()> {
        self.device.forked_from().map_or(Ok(()), |opened_by| Err(Error::Forked { opened_by }))
    }

    /// Fills `buf` from byte `offset` on; both in whole blocks.
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        debug_assert!(is_in_blocks(offset, buf.len()));
        self.count_reads(1, buf.len());
        self.device.read_at(offset, buf).map_err(|error| {
            self.note_failed_read(&error);
            Error::Device(error)
        })
    }

    /// Counts a failed read. One of a released device is no error of the device.
    fn note_failed_read(&self, error: &DeviceError) {
        if error.is_released() {
            self.is_released.store(true, Ordering::Relaxed);
        } else {
            self.health.count_error(ErrorKind::Read);
        }
    }

    /// Whether a read has failed because the device was released: what else failed may have failed for this.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }

    /// Makes several reads together, each in whole blocks, and sets the result of each.
    pub(crate) fn read_many(&self, reads: &mut [Read<'_>]) {
        match &mut *reads {
            [] => {}
            [read] => {
                self.count_reads(1, read.buf.len());
                read.result = self.device.read_at(read.offset, read.buf);
            }
            reads => {
                debug_assert!(reads.iter().all(|read| is_in_blocks(read.offset, read.buf.len())));
                self.count_reads(reads.len(), reads.iter().map(|read| read.buf.len()).sum());
                self.device.read_many(reads);
            }
        }
        reads.iter().filter_map(|read| read.result.err()).for_each(|error| self.note_failed_read(&error));
    }

    /// Counts a round of reads.
    fn count_reads(&self, reads: usize, bytes: usize) {
        self.reads.fetch_add(reads as u64, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.read_rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes `buf` at byte `offset`; both in whole blocks. A failure poisons the disk, but for
    /// [`Error::DeviceFull`].
    pub(crate) fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        debug_assert!(is_in_blocks(offset, buf.len()));
        self.refuse_if_forked()?;
        let _turn = self.change_turn.read();
        self.refuse_if_poisoned()?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.device.write_at(offset, buf).map_err(|error| {
            if !error.is_full() {
                return self.poison(error);
            }
            let error = Error::DeviceFull(error);
            self.health.device_is_full(&error.to_string());
            error
        })
    }

    /// Fills `buf` from byte `offset` of an extent on; both in whole blocks. A read for each part.
    pub(crate) fn read_extent(&self, extent: &Extent, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut rest = buf;
        for (at, len) in extent.places(offset, rest.len() as u64) {
            let Some((part, after)) = rest.split_at_mut_checked(len as usize) else { break };
            self.read_at(at, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Writes `buf`, in whole blocks, at the start of an extent. A write for each part.
    pub(crate) fn write_extent(&self, extent: &Extent, buf: &[u8]) -> Result<()> {
        let mut rest = buf;
        for (at, len) in extent.places(0, buf.len() as u64) {
            let Some((part, after)) = rest.split_at_checked(len as usize) else { break };
            self.write_at(at, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Discards bytes that nothing needs; offset and length are whole blocks. Nothing is lost by a failure.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.refuse_if_forked()?;
        let _turn = self.change_turn.read();
        self.refuse_if_poisoned()?;
        Ok(self.device.discard(offset, len)?)
    }

    /// Makes durable every write that returned before this call. A failure poisons the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        self.refuse_if_forked()?;
        let _turn = self.sync_turn.lock();
        self.refuse_if_poisoned()?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.device.sync().map_err(|e| self.poison(e))
    }

    /// Writes `buf` at byte `offset` and syncs, in spite of an earlier failure: for a note on which nothing
    /// depends. A failure of its own is not counted.
    pub(crate) fn write_note(&self, offset: u64, buf: &[u8]) -> Result<()> {
        debug_assert!(is_in_blocks(offset, buf.len()));
        self.refuse_if_forked()?;
        let _turn = self.change_turn.read();
        let _sync = self.sync_turn.lock();
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.device.write_at(offset, buf)?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(self.device.sync()?)
    }

    /// Waits until no write, growth or discard is under way, and makes later ones wait until the guard is
    /// dropped. Reads and syncs go on.
    pub(crate) fn hold_changes(&self) -> RwLockWriteGuard<'_, ()> {
        self.change_turn.write()
    }

    /// [`Error::ReadOnly`] after a failed write or sync.
    pub(crate) fn refuse_if_poisoned(&self) -> Result<()> {
        match &*self.poison.lock() {
            Some(first) => Err(Error::ReadOnly { why: first.clone() }),
            None => Ok(()),
        }
    }

    /// The counters. They are read one after the other, so they may not match each other while calls go on.
    pub(crate) fn counts(&self) -> DiskCounts {
        DiskCounts {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            read_rounds: self.read_rounds.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }

    /// Refuses every later write and sync, as after a failed one.
    pub(crate) fn refuse_from_now_on(&self, why: &str) {
        self.poison.lock().get_or_insert_with(|| why.into());
    }

    /// Accepts writes and syncs that were refused so far for this reason.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if they are refused for another one.
    pub(crate) fn accept_writes(&self, refused_because: &str) -> Result<()> {
        self.poison.lock().take_if(|why| why == refused_because);
        self.refuse_if_poisoned()
    }

    /// Treats a write that found the disk full as a failed one, where it cannot be repeated.
    pub(crate) fn poison_if_full(&self, error: Error) -> Error {
        match error {
            Error::DeviceFull(error) => self.poison(error),
            other => other,
        }
    }

    fn poison(&self, error: DeviceError) -> Error {
        self.refuse_from_now_on(&error.to_string());
        self.health.count_error(if error.op == DeviceOp::Sync { ErrorKind::Sync } else { ErrorKind::Write });
        self.health.fail(&error.to_string());
        Error::Device(error)
    }
}

fn is_in_blocks(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(BLOCK_BYTES as u64) && len.is_multiple_of(BLOCK_BYTES)
}

/// One block, aligned as direct I/O wants it.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == BLOCK_BYTES);

/// Copied from when buffers grow, so that no block is ever built on the stack.
static ZEROS: Block = Block([0; BLOCK_BYTES]);

/// A byte buffer of whole blocks, aligned to one.
#[derive(Default)]
pub(crate) struct AlignedBuf {
    blocks: Vec<Block>,
}

impl AlignedBuf {
    /// `len_blocks` blocks of zeros.
    pub(crate) fn zeroed(len_blocks: usize) -> Result<AlignedBuf> {
        let mut buf = AlignedBuf::default();
        buf.grow_to(len_blocks)?;
        Ok(buf)
    }

    /// Appends zeros up to `len_blocks` blocks, never shortens. After an error it is as it was.
    pub(crate) fn grow_to(&mut self, len_blocks: usize) -> Result<()> {
        let Some(missing) = len_blocks.checked_sub(self.blocks.len()) else { return Ok(()) };
        #[cfg(test)]
        asked::note(len_blocks.saturating_mul(BLOCK_BYTES));
        self.blocks
            .try_reserve(missing)
            .map_err(|_| Error::NoMemory { bytes: len_blocks as u64 * BLOCK_BYTES as u64 })?;
        for _ in 0..missing {
            self.blocks.extend_from_slice(core::slice::from_ref(&ZEROS));
        }
        Ok(())
    }

    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Length in bytes, a multiple of [`BLOCK_BYTES`].
    pub(crate) fn len(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Its allocated memory in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.blocks.as_slice().as_bytes()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.blocks.as_mut_slice().as_mut_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::mem::MemDevice;
    use super::*;
    use crate::health::State;

    #[test]
    fn buffers_are_aligned_zeroed_and_keep_their_bytes_when_they_grow() {
        let mut buf = AlignedBuf::zeroed(3).unwrap();
        assert_eq!(buf.len(), 3 * BLOCK_BYTES);
        assert!(buf.as_slice().iter().all(|&b| b == 0));
        buf.as_mut_slice().fill(7);
        buf.grow_to(2).unwrap();
        buf.grow_to(40).unwrap();
        assert_eq!(buf.as_slice().as_ptr() as usize % BLOCK_BYTES, 0);
        assert_eq!(buf.len(), 40 * BLOCK_BYTES);
        let (old, new) = buf.as_slice().split_at(3 * BLOCK_BYTES);
        assert!(old.iter().all(|&b| b == 7) && new.iter().all(|&b| b == 0));
        buf.clear();
        assert_eq!((buf.len(), buf.capacity() >= 40 * BLOCK_BYTES), (0, true));
    }

    #[test]
    fn a_buffer_that_memory_cannot_hold_is_an_error() {
        let too_many = usize::MAX / BLOCK_BYTES;
        assert!(matches!(AlignedBuf::zeroed(too_many), Err(Error::NoMemory { .. })));
    }

    #[test]
    fn calls_and_bytes_are_counted() {
        let disk = Disk::new(MemDevice::new(8));
        let mut buf = AlignedBuf::zeroed(2).unwrap();
        disk.write_at(4096, buf.as_slice()).unwrap();
        disk.read_at(0, buf.as_mut_slice()).unwrap();
        disk.sync().unwrap();
        let expected =
            DiskCounts { reads: 1, read_bytes: 8192, read_rounds: 1, writes: 1, write_bytes: 8192, syncs: 1 };
        assert_eq!(disk.counts(), expected);
        let mut more = AlignedBuf::zeroed(3).unwrap();
        let mut reads = [Read::new(4096, buf.as_mut_slice()), Read::new(0, more.as_mut_slice())];
        disk.read_many(&mut reads);
        assert!(reads.iter().all(|read| read.result.is_ok()));
        assert_eq!(disk.counts(), DiskCounts { reads: 3, read_bytes: 28_672, read_rounds: 2, ..expected });
    }

    #[test]
    fn a_write_that_finds_the_disk_full_can_be_repeated() {
        let device = MemDevice::new(8);
        let disk = Disk::new(device.clone());
        let buf = AlignedBuf::zeroed(1).unwrap();
        device.fill_up(true);
        for _ in 0..2 {
            let error = disk.write_at(0, buf.as_slice()).unwrap_err();
            assert!(matches!(&error, Error::DeviceFull(_)), "{error}");
            let State::DeviceFull(trouble) = disk.health.state() else {
                panic!("the state is not DeviceFull")
            };
            assert_eq!(trouble.why, error.to_string());
        }
        device.fill_up(false);
        disk.write_at(0, buf.as_slice()).unwrap();
        disk.sync().unwrap();
        disk.health.device_has_room();
        assert_eq!(disk.health.state(), State::Writable);
    }

    #[test]
    fn only_reads_work_after_a_failed_write_or_sync() {
        for failing_sync in [false, true] {
            let device = MemDevice::new(8);
            let disk = Disk::new(device.clone());
            let mut buf = AlignedBuf::zeroed(1).unwrap();
            let first = if failing_sync {
                device.fail_syncs(true);
                disk.sync()
            } else {
                device.fail_writes(true);
                disk.write_at(0, buf.as_slice())
            };
            assert!(matches!(first, Err(Error::Device(_))));
            device.fail_syncs(false);
            device.fail_writes(false);
            let before = disk.counts();
            assert!(matches!(disk.write_at(0, buf.as_slice()), Err(Error::ReadOnly { .. })));
            assert!(matches!(disk.sync(), Err(Error::ReadOnly { .. })));
            assert_eq!(disk.counts(), before);
            disk.read_at(0, buf.as_mut_slice()).unwrap();
        }
    }
}
