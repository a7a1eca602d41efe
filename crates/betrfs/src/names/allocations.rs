//! Room that fallocate has promised to files, block by block, until the block is written, punched or cut off,
//! or the file goes. In memory alone: what is left when the volume is closed is promised no longer.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::AtomicUsize;
use hashbrown::HashMap;

use crate::names::Inode;
use crate::schema::block::BLOCK;
use crate::types::InodeId;

/// So many stretches are noted, of all files together: each costs memory.
const STRETCHES_MAX: usize = 1 << 16;

/// The promises of a volume. What is noted of a file is changed by whoever has the file's state locked.
#[derive(Default)]
pub(crate) struct Allocations {
    files: Mutex<HashMap<InodeId, Allocation>>,
    /// How many stretches there are: without any, nobody looks.
    stretches: AtomicUsize,
}

/// What is promised to a file, which for that stays in memory.
struct Allocation {
    _inode: Arc<Inode>,
    blocks: Stretches,
    /// Where what was asked for ends, in bytes.
    end: u64,
}

/// Stretches of blocks, by their first: where they end. No two touch.
#[derive(Default)]
struct Stretches(BTreeMap<u64, u64>);

impl Allocations {
    /// The parts of these blocks that are not promised to a file.
    pub fn missing(&self, id: InodeId, blocks: &[Range<u64>]) -> Vec<Range<u64>> {
        match self.files.lock().get(&id) {
            None => blocks.to_vec(),
            Some(allocate_ahead) => {
                blocks.iter().flat_map(|blocks| allocate_ahead.blocks.missing(blocks)).collect()
            }
        }
    }

    /// Promises blocks to a file that are not promised to it, for what ends at the byte `end`. `false`, and
    /// nothing is noted, where there is too much to note.
    pub fn add(&self, inode: &Arc<Inode>, blocks: &[Range<u64>], end: u64) -> bool {
        let mut files = self.files.lock();
        if self.stretches.load(Relaxed).saturating_add(blocks.len()) > STRETCHES_MAX {
            return false;
        }
        let new = || Allocation { _inode: inode.clone(), blocks: Stretches::default(), end: 0 };
        let allocate_ahead = files.entry(inode.id).or_insert_with(new);
        allocate_ahead.end = allocate_ahead.end.max(end);
        let before = allocate_ahead.blocks.0.len();
        blocks.iter().for_each(|blocks| allocate_ahead.blocks.add(blocks));
        let after = allocate_ahead.blocks.0.len();
        if after == 0 {
            files.remove(&inode.id);
        }
        self.stretches.fetch_add(after, Relaxed);
        self.stretches.fetch_sub(before, Relaxed);
        true
    }

    /// How many of these blocks are promised to a file.
    pub fn count(&self, id: InodeId, blocks: &Range<u64>) -> u64 {
        if self.stretches.load(Relaxed) == 0 {
            return 0;
        }
        self.files.lock().get(&id).map_or(0, |allocate_ahead| allocate_ahead.blocks.count(blocks))
    }

    /// Of the blocks that a write of the bytes `[from, end)` touches, those to which nothing is to come any
    /// more: which it fills, and the last if it goes to the end of what was asked for.
    pub fn filled(&self, id: InodeId, from: u64, end: u64) -> Range<u64> {
        let is_last = self.files.lock().get(&id).is_some_and(|allocate_ahead| allocate_ahead.end <= end);
        from / BLOCK..if is_last { end.div_ceil(BLOCK) } else { end / BLOCK }
    }

    /// Ends the promise of these blocks to a file. Gives how many that are; where the rest would be too much
    /// to note, more than these.
    pub fn end(&self, id: InodeId, blocks: &Range<u64>) -> u64 {
        if self.stretches.load(Relaxed) == 0 {
            return 0;
        }
        let mut files = self.files.lock();
        let Some(allocate_ahead) = files.get_mut(&id) else { return 0 };
        let may_split = self.stretches.load(Relaxed) < STRETCHES_MAX;
        let before = allocate_ahead.blocks.0.len();
        let ended = allocate_ahead.blocks.remove(blocks, may_split);
        let after = allocate_ahead.blocks.0.len();
        let gone = if after == 0 { files.remove(&id) } else { None };
        self.stretches.fetch_add(after, Relaxed);
        self.stretches.fetch_sub(before, Relaxed);
        drop(files);
        // It may be the last to hold the inode.
        drop(gone);
        ended
    }
}

impl Stretches {
    /// Those that have a part of these blocks.
    fn of(&self, blocks: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let start = blocks.start;
        let before_end = self.0.range(..blocks.end).rev();
        before_end.map(|(first, end)| *first..*end).take_while(move |stretch| stretch.end > start)
    }

    fn count(&self, blocks: &Range<u64>) -> u64 {
        let part = |s: Range<u64>| s.end.min(blocks.end).saturating_sub(s.start.max(blocks.start));
        self.of(blocks).map(part).sum()
    }

    /// The parts of these blocks that are in none.
    fn missing(&self, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut end = blocks.end;
        // From the last to the first.
        for stretch in self.of(blocks) {
            missing.push(stretch.end.min(end)..end);
            end = stretch.start.max(blocks.start);
        }
        missing.push(blocks.start..end);
        missing.retain(|part| !part.is_empty());
        missing
    }

    fn add(&mut self, blocks: &Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        let touching = blocks.start.saturating_sub(1)..blocks.end.saturating_add(1);
        let joined: Vec<_> = self.of(&touching).collect();
        let mut all = blocks.clone();
        for stretch in joined {
            self.0.remove(&stretch.start);
            all = all.start.min(stretch.start)..all.end.max(stretch.end);
        }
        self.0.insert(all.start, all.end);
    }

    /// Removes blocks; how many were there. Unless a stretch may become two, what lies behind them in it goes
    /// too.
    fn remove(&mut self, blocks: &Range<u64>, may_split: bool) -> u64 {
        let found: Vec<_> = self.of(blocks).filter(|_| !blocks.is_empty()).collect();
        let mut removed = 0;
        for stretch in found {
            self.0.remove(&stretch.start);
            removed += stretch.end - stretch.start;
            let mut keep = |part: Range<u64>| {
                if !part.is_empty() {
                    self.0.insert(part.start, part.end);
                    removed -= part.end - part.start;
                }
            };
            keep(stretch.start..blocks.start);
            if may_split || stretch.start >= blocks.start {
                keep(blocks.end..stretch.end);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use core::slice::from_ref;

    use seeded::Rng;

    use super::*;
    use crate::names::Place;
    use crate::schema::Record;
    use crate::types::FileType;

    fn file(id: u64) -> Arc<Inode> {
        let record = Record::new(FileType::Regular, 0o644, id, 0);
        Arc::new(Inode::new(InodeId(id), id, Place::Root, record, None))
    }

    #[test]
    fn stretches_are_as_a_set_of_blocks_is() {
        let (mut stretches, mut set) = (Stretches::default(), alloc::collections::BTreeSet::new());
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let dice = rng.next_u64();
            let first = dice >> 33 & 63;
            let blocks = first..first + (dice >> 50 & 7);
            let before = set.len() as u64;
            assert_eq!(stretches.count(&blocks), set.range(blocks.clone()).count() as u64);
            if dice >> 60 & 1 == 0 {
                let mut missing: Vec<u64> = stretches.missing(&blocks).into_iter().flatten().collect();
                missing.sort_unstable();
                assert!(missing.into_iter().eq(blocks.clone().filter(|block| !set.contains(block))));
                set.extend(blocks.clone());
                stretches.add(&blocks);
            } else {
                set.retain(|block| !blocks.contains(block));
                assert_eq!(stretches.remove(&blocks, true), before - set.len() as u64);
            }
            let all: Vec<u64> = stretches.0.iter().flat_map(|(first, end)| *first..*end).collect();
            assert!(all.iter().eq(set.iter()), "{all:?}");
            assert!(
                stretches.0.iter().zip(stretches.0.iter().skip(1)).all(|(a, b)| a.1 < b.0),
                "no two touch"
            );
        }
    }

    #[test]
    fn no_more_is_noted_than_there_is_memory_for() {
        let (allocations, inode) = (Allocations::default(), file(7));
        let end = 4 * STRETCHES_MAX as u64;
        assert!(allocations.add(&inode, from_ref(&(0..end)), 0));
        let mut ended = 0;
        // Every other block is written.
        for block in (1..end).step_by(2) {
            ended += allocations.end(inode.id, &(block..block + 1));
        }
        assert!(allocations.stretches.load(Relaxed) <= STRETCHES_MAX);
        assert_eq!(allocations.count(inode.id, &(0..end)), end - ended);
        assert!(!allocations.add(&file(8), from_ref(&(0..1)), 1));
        allocations.end(inode.id, &(0..u64::MAX));
        assert_eq!((allocations.stretches.load(Relaxed), Arc::strong_count(&inode)), (0, 1));
    }

    #[test]
    fn a_block_is_filled_once_nothing_is_to_come_to_it() {
        let (allocations, inode) = (Allocations::default(), file(7));
        assert!(allocations.add(&inode, from_ref(&(0..3)), 10_000));
        let filled = |from, end| allocations.filled(inode.id, from, end);
        assert_eq!(filled(0, 100), 0..0);
        assert_eq!(filled(100, 4096), 0..1);
        assert_eq!(filled(0, 9000), 0..2);
        assert_eq!(filled(8192, 10_000), 2..3);
    }
}
