//! A disk with a volatile cache, whose power can be cut.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};
use seeded::Rng;

use crate::blocks::{Block, Blocks, numbers_of};
use crate::mem_device::{EINVAL, EIO};

/// The size of a sector, which is written whole or not at all when the power fails.
const SECTOR_BYTES: usize = 512;
/// The contents of a discarded block. A real one may hold anything; zeros would hide mistakes.
const DISCARDED: u8 = 0xdd;

/// A disk whose crash keeps all synced writes, and any part of the others.
pub struct SimDisk {
    len: AtomicU64,
    seeks: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    durable: Blocks,
    /// The writes since the last sync, by block, oldest first.
    pending: BTreeMap<u64, Vec<Pending>>,
    /// Calls that change the disk (write, sync, discard) so far.
    changing_calls: u64,
    /// The changing call at which the power fails.
    cut_at: Option<u64>,
    is_cut: bool,
    /// The number of syncs until one fails, including that one.
    sync_fails_in: Option<u64>,
    has_failed: bool,
    /// The length that the disk may have after a crash, because the power failed while it grew.
    growing_to: Option<u64>,
}

struct Pending {
    /// The changing call that wrote it.
    call: u64,
    contents: Box<Block>,
}

/// Which of the unsynced writes a crash keeps.
enum Fate {
    All,
    None,
    /// Each block for itself, with this probability in percent.
    Each(usize),
    /// The calls from this one on: the disk wrote the latest first.
    From(u64),
    /// The calls before this one.
    Before(u64),
    /// All but those of one call, or all but one block of that call.
    AllBut(u64, Option<u64>),
    /// Those of one call alone.
    Only(u64),
}

impl SimDisk {
    /// An empty disk of `len` bytes, rounded down to whole blocks.
    pub fn new(len: u64) -> SimDisk {
        let len = AtomicU64::new(len - len % BLOCK_BYTES as u64);
        SimDisk { len, seeks: true, state: Mutex::default() }
    }

    /// The same disk, which reports whether it seeks.
    pub fn which_seeks(self, seeks: bool) -> SimDisk {
        SimDisk { seeks, ..self }
    }

    /// Cuts the power at the `n`-th call from now (counted from 1) that changes the disk. That call and all
    /// later ones fail, reads too. If it is a write, it may still reach the disk, wholly or in part.
    pub fn cut_power_at(&self, n: u64) {
        let mut state = self.lock();
        state.cut_at = Some(state.changing_calls + n);
    }

    /// Makes the `n`-th sync from now (counted from 1) fail, once. Each waiting block is then lost or
    /// written, and no later sync reports it again: so does a cache that drops blocks it could not write.
    pub fn fail_sync_at(&self, n: u64) {
        self.lock().sync_fails_in = Some(n);
    }

    /// Whether the sync chosen by [`fail_sync_at`](SimDisk::fail_sync_at) has failed.
    pub fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Flips one bit (0 to 7) of the byte at `offset`, in what is durable and in what is written since: bit
    /// rot.
    pub fn rot(&self, offset: u64, bit: u8) {
        let mut state = self.lock();
        let (number, at) = (offset / BLOCK_BYTES as u64, (offset % BLOCK_BYTES as u64) as usize);
        let mut block = [0; BLOCK_BYTES];
        state.durable.read(number, &mut block);
        block[at] ^= 1 << bit;
        state.durable.write(number, &block);
        for write in state.pending.get_mut(&number).into_iter().flatten() {
            write.contents[at] ^= 1 << bit;
        }
    }

    /// Whether the power has failed.
    pub fn is_cut(&self) -> bool {
        self.lock().is_cut
    }

    /// The number of calls so far that change the disk.
    pub fn changing_calls(&self) -> u64 {
        self.lock().changing_calls
    }

    /// The disk after a crash. All synced writes are there; each unsynced write is kept, lost, or torn
    /// between sectors, in any order, as the seed decides.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let mut rng = Rng::new(seed);
        let state = self.lock();
        let mut found = state.durable.clone();
        let calls: Vec<u64> = state.pending.values().flatten().map(|write| write.call).collect();
        let fate = Fate::choose(&mut rng, &calls, &state.pending);
        let torn_percent = *rng.pick(&[0, 0, 10, 50, 100]);
        for (number, writes) in &state.pending {
            let kept = writes.iter().rev().find(|write| fate.keeps(&mut rng, write.call, *number));
            let mut block = [0; BLOCK_BYTES];
            found.read(*number, &mut block);
            let before = block;
            if let Some(write) = kept {
                block = *write.contents;
            }
            if rng.percent(torn_percent) {
                for (i, sector) in block.chunks_mut(SECTOR_BYTES).enumerate() {
                    let version = match rng.below(writes.len() + 1) {
                        0 => &before,
                        v => &*writes[v - 1].contents,
                    };
                    sector.copy_from_slice(&version[i * SECTOR_BYTES..][..SECTOR_BYTES]);
                }
            }
            found.write(*number, &block);
        }
        let has_grown = state.growing_to.filter(|_| rng.percent(50));
        let len = AtomicU64::new(has_grown.unwrap_or(self.len()));
        let state = State { durable: found, ..State::default() };
        SimDisk { len, seeks: self.seeks, state: Mutex::new(state) }
    }

    /// Another disk with all that this one holds, durable.
    pub fn copy(&self) -> SimDisk {
        let state = self.lock();
        let mut durable = state.durable.clone();
        for (number, writes) in &state.pending {
            if let Some(last) = writes.last() {
                durable.write(*number, last.contents.as_slice());
            }
        }
        let state = State { durable, ..State::default() };
        SimDisk { len: AtomicU64::new(self.len()), seeks: self.seeks, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_range(&self, op: DeviceOp, offset: u64, len: u64) -> Result<(), DeviceError> {
        let block = BLOCK_BYTES as u64;
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        if whole && offset.checked_add(len).is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        Err(DeviceError { op, offset, len, errno: EINVAL })
    }
}

impl Fate {
    fn choose(rng: &mut Rng, calls: &[u64], pending: &BTreeMap<u64, Vec<Pending>>) -> Fate {
        if calls.is_empty() {
            return Fate::All;
        }
        let call = *rng.pick(calls);
        match rng.below(9) {
            0 => Fate::All,
            1 => Fate::None,
            2 => Fate::Each(50),
            3 => Fate::Each(*rng.pick(&[10, 90])),
            4 => Fate::From(call),
            5 => Fate::Before(call),
            6 => Fate::AllBut(call, None),
            7 => {
                let number = pending.iter().find(|(_, writes)| writes.iter().any(|write| write.call == call));
                Fate::AllBut(call, number.map(|(number, _)| *number))
            }
            _ => Fate::Only(call),
        }
    }

    fn keeps(&self, rng: &mut Rng, call: u64, number: u64) -> bool {
        match *self {
            Fate::All => true,
            Fate::None => false,
            Fate::Each(percent) => rng.percent(percent),
            Fate::From(first) => call >= first,
            Fate::Before(end) => call < end,
            Fate::AllBut(lost, block) => call != lost || block.is_some_and(|block| block != number),
            Fate::Only(kept) => call == kept,
        }
    }
}

impl State {
    /// Counts a changing call. Returns `false` from the power cut on.
    fn has_power(&mut self) -> bool {
        self.changing_calls += 1;
        self.is_cut |= self.cut_at.is_some_and(|cut| self.changing_calls >= cut);
        !self.is_cut
    }

    fn write(&mut self, offset: u64, len: u64, contents: impl Fn(usize) -> Box<Block>) {
        let call = self.changing_calls;
        for (i, number) in numbers_of(offset, len).enumerate() {
            self.pending.entry(number).or_default().push(Pending { call, contents: contents(i) });
        }
    }
}

impl Device for SimDisk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        self.check_range(DeviceOp::Read, offset, len)?;
        let state = self.lock();
        if state.is_cut {
            return Err(DeviceError { op: DeviceOp::Read, offset, len, errno: EIO });
        }
        for (number, part) in numbers_of(offset, len).zip(buf.chunks_mut(BLOCK_BYTES)) {
            match state.pending.get(&number).and_then(|writes| writes.last()) {
                Some(write) => part.copy_from_slice(write.contents.as_slice()),
                None => state.durable.read(number, part),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        self.check_range(DeviceOp::Write, offset, len)?;
        let mut state = self.lock();
        let was_cut = state.is_cut;
        let has_power = state.has_power();
        if !was_cut {
            state.write(offset, len, |i| {
                let mut contents = Box::new([0; BLOCK_BYTES]);
                contents.copy_from_slice(&buf[i * BLOCK_BYTES..][..BLOCK_BYTES]);
                contents
            });
        }
        let failed = DeviceError { op: DeviceOp::Write, offset, len, errno: EIO };
        has_power.then_some(()).ok_or(failed)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        if !state.has_power() {
            return Err(DeviceError { op: DeviceOp::Sync, offset: 0, len: self.len(), errno: EIO });
        }
        state.sync_fails_in = state.sync_fails_in.map(|syncs| syncs.saturating_sub(1));
        let fails = state.sync_fails_in == Some(0);
        let mut rng = Rng::new(state.changing_calls);
        for (number, writes) in std::mem::take(&mut state.pending) {
            if let Some(last) = writes.last()
                && !(fails && rng.percent(50))
            {
                state.durable.write(number, last.contents.as_slice());
            }
        }
        if fails {
            (state.sync_fails_in, state.has_failed) = (None, true);
            return Err(DeviceError { op: DeviceOp::Sync, offset: 0, len: self.len(), errno: EIO });
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        let mut state = self.lock();
        let was_cut = state.is_cut;
        if !state.has_power() {
            state.growing_to = state.growing_to.or(Some(len.max(self.len())).filter(|_| !was_cut));
            return Err(DeviceError { op: DeviceOp::Grow, offset: 0, len, errno: EIO });
        }
        self.len.fetch_max(len, Ordering::Relaxed);
        Ok(self.len())
    }

    fn seeks(&self) -> bool {
        self.seeks
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check_range(DeviceOp::Discard, offset, len)?;
        let mut state = self.lock();
        if !state.has_power() {
            return Err(DeviceError { op: DeviceOp::Discard, offset, len, errno: EIO });
        }
        state.write(offset, len, |_| Box::new([DISCARDED; BLOCK_BYTES]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn fill(disk: &SimDisk, number: u64, byte: u8) -> Result<(), DeviceError> {
        disk.write_at(number * BLOCK, &[byte; BLOCK_BYTES])
    }

    fn block(disk: &SimDisk, number: u64) -> Vec<u8> {
        let mut buf = vec![0; BLOCK_BYTES];
        disk.read_at(number * BLOCK, &mut buf).unwrap();
        buf
    }

    #[test]
    fn what_was_synced_survives_every_crash() {
        let disk = SimDisk::new(1 << 20);
        fill(&disk, 3, 7).unwrap();
        disk.sync().unwrap();
        fill(&disk, 4, 8).unwrap();
        assert_eq!(block(&disk, 4), [8; BLOCK_BYTES], "reads see what is not synced");
        for seed in 0..200 {
            assert_eq!(block(&disk.crash(seed), 3), [7; BLOCK_BYTES]);
        }
    }

    #[test]
    fn two_unsynced_writes_are_found_in_every_combination_and_sectors_are_torn() {
        let disk = SimDisk::new(1 << 20);
        fill(&disk, 0, 1).unwrap();
        fill(&disk, 1, 2).unwrap();
        let images: Vec<_> = (0..500).map(|seed| disk.crash(seed)).collect();
        let found: HashSet<_> = images.iter().map(|image| (block(image, 0)[0], block(image, 1)[0])).collect();
        assert_eq!(found, HashSet::from([(0, 0), (0, 2), (1, 0), (1, 2)]));
        let torn =
            |image: &&SimDisk| block(image, 0).chunks(SECTOR_BYTES).any(|s| s[0] != block(image, 0)[0]);
        assert!(images.iter().filter(torn).count() > 20);
        let whole_sectors =
            |image: &SimDisk| block(image, 0).chunks(SECTOR_BYTES).all(|s| s.iter().all(|b| *b == s[0]));
        assert!(images.iter().all(whole_sectors), "a sector is never torn");
    }

    #[test]
    fn a_block_written_twice_may_be_found_in_each_of_its_states() {
        let disk = SimDisk::new(1 << 20);
        fill(&disk, 0, 1).unwrap();
        disk.sync().unwrap();
        fill(&disk, 0, 2).unwrap();
        fill(&disk, 0, 3).unwrap();
        let found: HashSet<u8> = (0..200).map(|seed| block(&disk.crash(seed), 0)[0]).collect();
        assert_eq!(found, HashSet::from([1, 2, 3]));
    }

    #[test]
    fn a_crash_is_decided_by_its_seed() {
        let disk = SimDisk::new(1 << 20);
        for number in 0..40 {
            fill(&disk, number, number as u8 + 1).unwrap();
        }
        let image = |seed| (0..40).flat_map(|n| block(&disk.crash(seed), n)).collect::<Vec<u8>>();
        assert!((0..20).all(|seed| image(seed) == image(seed)));
        assert!((0..20).any(|seed| image(seed) != image(seed + 1)));
    }

    #[test]
    fn from_the_power_cut_on_nothing_works_and_nothing_changes() {
        let disk = SimDisk::new(1 << 20);
        fill(&disk, 0, 1).unwrap();
        disk.cut_power_at(2);
        disk.sync().unwrap();
        assert!(!disk.is_cut());
        assert_eq!(fill(&disk, 1, 2).unwrap_err().errno, EIO);
        assert!(disk.is_cut());
        assert!(disk.sync().is_err() && fill(&disk, 2, 3).is_err() && disk.discard(0, BLOCK).is_err());
        assert!(disk.read_at(0, &mut [0; BLOCK_BYTES]).is_err());
        let found: HashSet<_> = (0..200)
            .map(|seed| disk.crash(seed))
            .map(|i| (block(&i, 0)[0], block(&i, 1)[0], block(&i, 2)[0]))
            .collect();
        assert_eq!(found, HashSet::from([(1, 0, 0), (1, 2, 0)]), "the write that was cut may have arrived");
    }

    #[test]
    fn a_discarded_block_holds_anything_but_what_it_held_once_synced() {
        let disk = SimDisk::new(1 << 20);
        fill(&disk, 0, 1).unwrap();
        disk.sync().unwrap();
        disk.discard(0, BLOCK).unwrap();
        let found: HashSet<u8> = (0..200).map(|seed| block(&disk.crash(seed), 0)[0]).collect();
        assert_eq!(found, HashSet::from([1, DISCARDED]));
        disk.sync().unwrap();
        assert_eq!(block(&disk.crash(1), 0)[0], DISCARDED);
    }

    #[test]
    fn a_sync_that_fails_loses_some_of_what_waited_and_fails_once() {
        let disk = SimDisk::new(1 << 20);
        fill(&disk, 0, 1).unwrap();
        disk.sync().unwrap();
        disk.fail_sync_at(2);
        disk.sync().unwrap();
        for number in 0..40 {
            fill(&disk, number, 9).unwrap();
        }
        assert!(!disk.has_failed() && disk.sync().is_err() && disk.has_failed());
        let kept = (0..40).filter(|number| block(&disk, *number)[0] == 9).count();
        assert!((5..35).contains(&kept), "{kept} of 40");
        disk.sync().unwrap();
        assert_eq!((0..40).filter(|number| block(&disk.crash(1), *number)[0] == 9).count(), kept);
    }
}
