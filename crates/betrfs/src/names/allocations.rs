//! Room that fallocate has set aside for files, block by block, until the block is written, punched or cut
//! off, or the file is removed. Kept in memory only: it ends when the volume is closed.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::RwLock;
use betree_platform::sync::atomic::AtomicUsize;
use hashbrown::HashMap;

use crate::names::Inode;
use crate::schema::Record;
use crate::schema::block::BLOCK;
use crate::types::InodeId;

/// Number of stretches kept for all files together: each takes memory.
const STRETCHES_MAX: usize = 1 << 16;

/// The allocations of a volume. Those of a file are changed under the lock of the file's state.
#[derive(Default)]
pub(crate) struct Allocations {
    files: RwLock<HashMap<InodeId, Allocation>>,
    /// Number of stretches: if it is 0, nothing is looked up.
    stretches: AtomicUsize,
}

/// The blocks with room set aside for a file, which stays in memory for it.
struct Allocation {
    _inode: Arc<Inode>,
    blocks: Stretches,
    /// The end of the allocated range, in bytes.
    end: u64,
}

/// Stretches of blocks: first block → end. No two touch.
#[derive(Default)]
struct Stretches(BTreeMap<u64, u64>);

impl Allocations {
    /// The parts of these blocks without room set aside for the file.
    pub fn missing(&self, id: InodeId, blocks: &[Range<u64>]) -> Vec<Range<u64>> {
        match self.files.read().get(&id) {
            None => blocks.to_vec(),
            Some(allocate_ahead) => {
                blocks.iter().flat_map(|blocks| allocate_ahead.blocks.missing(blocks)).collect()
            }
        }
    }

    /// Adds blocks without room set aside, for a range that ends at the byte `end`. Returns `false`, and adds
    /// nothing, if there are too many stretches.
    pub fn add(&self, inode: &Arc<Inode>, blocks: &[Range<u64>], end: u64) -> bool {
        let mut files = self.files.write();
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

    /// Number of these blocks with room set aside for a file.
    pub fn count(&self, id: InodeId, blocks: &Range<u64>) -> u64 {
        if self.stretches.load(Relaxed) == 0 {
            return 0;
        }
        self.files.read().get(&id).map_or(0, |allocate_ahead| allocate_ahead.blocks.count(blocks))
    }

    /// Number of a file's blocks with room set aside that are not stored, not even in part.
    pub fn not_stored(&self, id: InodeId, record: &Record) -> u64 {
        if self.stretches.load(Relaxed) == 0 {
            return 0;
        }
        let files = self.files.read();
        let Some(Allocation { blocks, .. }) = files.get(&id) else { return 0 };
        let stored = record.stored_blocks().map(|stored| blocks.count(&stored)).sum();
        blocks.count(&(0..u64::MAX)).saturating_sub(stored)
    }

    /// Of the blocks that a write of the bytes `[from, end)` touches, those without later writes to come: the
    /// ones it fills, and the last one if the write reaches the end of the allocated range.
    pub fn filled(&self, id: InodeId, from: u64, end: u64) -> Range<u64> {
        let is_last = self.files.read().get(&id).is_some_and(|allocate_ahead| allocate_ahead.end <= end);
        from / BLOCK..if is_last { end.div_ceil(BLOCK) } else { end / BLOCK }
    }

    /// Ends the allocation of these blocks. Returns the number of blocks ended: more than these if the rest
    /// of a stretch can no longer be kept.
    pub fn end(&self, id: InodeId, blocks: &Range<u64>) -> u64 {
        if self.stretches.load(Relaxed) == 0 {
            return 0;
        }
        let mut files = self.files.write();
        let Some(allocate_ahead) = files.get_mut(&id) else { return 0 };
        let may_split = self.stretches.load(Relaxed) < STRETCHES_MAX;
        let before = allocate_ahead.blocks.0.len();
        let ended = allocate_ahead.blocks.remove(blocks, may_split);
        let after = allocate_ahead.blocks.0.len();
        let gone = if after == 0 { files.remove(&id) } else { None };
        self.stretches.fetch_add(after, Relaxed);
        self.stretches.fetch_sub(before, Relaxed);
        drop(files);
        // It may hold the last reference to the inode.
        drop(gone);
        ended
    }
}

impl Stretches {
    /// The stretches that overlap these blocks.
    fn of(&self, blocks: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let start = blocks.start;
        let before_end = self.0.range(..blocks.end).rev();
        before_end.map(|(first, end)| *first..*end).take_while(move |stretch| stretch.end > start)
    }

    fn count(&self, blocks: &Range<u64>) -> u64 {
        let part = |s: Range<u64>| s.end.min(blocks.end).saturating_sub(s.start.max(blocks.start));
        self.of(blocks).map(part).sum()
    }

    /// The parts of these blocks outside of all stretches.
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

    /// Removes blocks; returns the number removed. Unless a stretch may become two, its part behind the
    /// blocks is removed too.
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
    use crate::types::FileType;

    fn file(id: u64) -> Arc<Inode> {
        let record = Record::new(FileType::Regular, 0o644, id, 0);
        Arc::new(Inode::new(id, Place::Root, record, None))
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
    fn the_number_of_stretches_is_bounded() {
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
    fn blocks_set_aside_and_stored_count_once() {
        let (allocations, inode) = (Allocations::default(), file(7));
        let mut record = Record::new(FileType::Regular, 0o644, 7, 0);
        assert_eq!(allocations.not_stored(inode.id, &record), 0);
        assert!(allocations.add(&inode, from_ref(&(0..3)), 12_288));
        assert!(allocations.add(&inode, from_ref(&(5..9)), 40_000));
        assert_eq!(allocations.not_stored(inode.id, &record), 7);
        record.size = 40_000;
        assert_eq!(allocations.not_stored(inode.id, &record), 0, "a file without holes");
        record.make_sparse().remove(2, 6);
        assert_eq!(allocations.not_stored(inode.id, &record), 2);
        allocations.end(inode.id, &(0..3));
        assert_eq!(allocations.not_stored(inode.id, &record), 1);
        assert_eq!(allocations.not_stored(file(8).id, &record), 0);
    }

    #[test]
    fn a_block_is_filled_once_no_write_to_it_is_left() {
        let (allocations, inode) = (Allocations::default(), file(7));
        assert!(allocations.add(&inode, from_ref(&(0..3)), 10_000));
        let filled = |from, end| allocations.filled(inode.id, from, end);
        assert_eq!(filled(0, 100), 0..0);
        assert_eq!(filled(100, 4096), 0..1);
        assert_eq!(filled(0, 9000), 0..2);
        assert_eq!(filled(8192, 10_000), 2..3);
    }
}
