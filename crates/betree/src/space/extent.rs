//! Places on the volume, and their owners.

use alloc::format;
use alloc::sync::Arc;

use betree_sys::BLOCK_BYTES;
use betree_sys::sync::Mutex;

use super::gaps::Gaps;
use crate::error::{Error, Result};

/// The allocatable part of a volume, in blocks of [`BLOCK_BYTES`] counted from the volume's start.
///
/// Its lock is taken last: nothing else is locked under it, and an [`Extent`] may be dropped under
/// any other lock.
pub(crate) struct Space {
    gaps: Mutex<Gaps>,
    first_block: u64,
    total_blocks: u64,
}

/// A range of blocks in use; dropping it gives them back.
pub(crate) struct Extent {
    space: Arc<Space>,
    start_block: u64,
    len_blocks: u64,
}

impl Space {
    /// `total_blocks` free blocks from `first_block` on (what lies before holds superblocks and log).
    pub(crate) fn new(first_block: u64, total_blocks: u64) -> Arc<Space> {
        let total_blocks = total_blocks.min(u64::MAX - first_block);
        let gaps = Mutex::new(Gaps::new(first_block, total_blocks));
        Arc::new(Space { gaps, first_block, total_blocks })
    }

    /// Takes `blocks` contiguous blocks, right after the last ones taken if that can be; `None`
    /// where no gap has so many (or none were asked for).
    pub(crate) fn allocate(self: &Arc<Space>, blocks: u64) -> Option<Arc<Extent>> {
        let start = self.gaps.lock().allocate(blocks)?;
        Some(Arc::new(Extent { space: Arc::clone(self), start_block: start, len_blocks: blocks }))
    }

    /// Takes exactly these blocks: at mount, what the table says is in use.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the place in bytes, if any of them is outside or in use already.
    pub(crate) fn reserve_exact(self: &Arc<Space>, start_block: u64, len_blocks: u64) -> Result<Arc<Extent>> {
        if !self.gaps.lock().take(start_block, len_blocks) {
            return Err(self.refusal(start_block, len_blocks));
        }
        Ok(Arc::new(Extent { space: Arc::clone(self), start_block, len_blocks }))
    }

    fn refusal(&self, start: u64, len: u64) -> Error {
        let (first, end) = (self.first_block, self.first_block + self.total_blocks);
        let inside = start >= first && start.checked_add(len).is_some_and(|e| e <= end);
        let why = match (len, inside) {
            (0, _) => format!("the extent at block {start} is empty"),
            (_, false) => format!("blocks {start}+{len} are not within {first}..{end}"),
            (_, true) => format!("of blocks {start}+{len} some are in use already"),
        };
        let block = BLOCK_BYTES as u64;
        let (offset, len) = (start.saturating_mul(block), len.saturating_mul(block));
        Error::Corrupt { what: "extent", offset, len, why }
    }

    /// Blocks that no extent holds.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.gaps.lock().free_blocks()
    }

    /// Blocks in all.
    pub(crate) fn total_blocks(&self) -> u64 {
        self.total_blocks
    }

    /// The most that one [`allocate`](Space::allocate) could get.
    #[cfg(test)]
    pub(crate) fn largest_gap_blocks(&self) -> u64 {
        self.gaps.lock().largest()
    }

    /// The free ranges (start, length) in blocks, in order of place.
    #[cfg(test)]
    pub(crate) fn gaps(&self) -> alloc::vec::Vec<(u64, u64)> {
        self.gaps.lock().iter().collect()
    }
}

impl Extent {
    /// Its first block, counted from the volume's start.
    pub(crate) fn start_block(&self) -> u64 {
        self.start_block
    }

    pub(crate) fn len_blocks(&self) -> u64 {
        self.len_blocks
    }

    /// Its first byte, counted from the volume's start.
    pub(crate) fn offset(&self) -> u64 {
        self.start_block.saturating_mul(BLOCK_BYTES as u64)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.space.gaps.lock().give_back(self.start_block, self.len_blocks);
    }
}

impl core::fmt::Debug for Extent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "blocks {}+{}", self.start_block, self.len_blocks)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    /// A small generator, so that every failure is a seed.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    fn agree(space: &Space, used: &[bool], first: u64, seed: u64) {
        let mut expected = Vec::new();
        let mut run = 0;
        for (i, &u) in used.iter().chain([&true]).enumerate() {
            if u && run > 0 {
                expected.push((first + i as u64 - run, run));
            }
            run = if u { 0 } else { run + 1 };
        }
        assert_eq!(space.gaps(), expected, "seed {seed}");
        assert_eq!(space.free_blocks(), expected.iter().map(|g| g.1).sum::<u64>());
        assert_eq!(space.largest_gap_blocks(), expected.iter().map(|g| g.1).max().unwrap_or(0));
    }

    #[test]
    fn random_use_agrees_with_a_bitmap() {
        for seed in 0..60 {
            let mut dice = Dice(seed);
            let (first, total) = (7, 1 + dice.below(300));
            let space = Space::new(first, total);
            let mut used = vec![false; total as usize];
            let mut held: Vec<Arc<Extent>> = Vec::new();
            let mark = |used: &mut Vec<bool>, e: &Extent, to: bool| {
                for b in e.start_block()..e.start_block() + e.len_blocks() {
                    let bit = &mut used[(b - first) as usize];
                    assert_ne!(*bit, to, "seed {seed}: block {b}");
                    *bit = to;
                }
            };
            for _ in 0..400 {
                match dice.below(5) {
                    0 | 1 => {
                        let len = 1 + dice.below(12);
                        match space.allocate(len) {
                            Some(extent) => {
                                assert_eq!(extent.len_blocks(), len);
                                mark(&mut used, &extent, true);
                                held.push(extent);
                            }
                            None => assert!(space.largest_gap_blocks() < len, "seed {seed}"),
                        }
                    }
                    2 => {
                        let (start, len) = (dice.below(total + 20), dice.below(9));
                        let range = start as usize..(start + len) as usize;
                        let in_range = start >= first && start + len <= first + total && len > 0;
                        let free = in_range
                            && used[range.start - first as usize..range.end - first as usize]
                                .iter()
                                .all(|u| !u);
                        match space.reserve_exact(start, len) {
                            Ok(extent) => {
                                assert!(free, "seed {seed}");
                                mark(&mut used, &extent, true);
                                held.push(extent);
                            }
                            Err(Error::Corrupt { offset, .. }) => {
                                assert!(!free && offset == start * 4096, "seed {seed}");
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    _ if !held.is_empty() => {
                        let extent = held.swap_remove(dice.below(held.len() as u64) as usize);
                        mark(&mut used, &extent, false);
                    }
                    _ => {}
                }
                agree(&space, &used, first, seed);
            }
            held.clear();
            assert_eq!(space.gaps(), [(first, total)], "seed {seed}: all gaps are one again");
        }
    }

    #[test]
    fn what_is_allocated_in_turn_stands_in_turn() {
        let space = Space::new(10, 100);
        let all: Vec<_> = (0..10).map(|_| space.allocate(10).unwrap()).collect();
        let starts: Vec<_> = all.iter().map(|e| e.start_block()).collect();
        assert_eq!(starts, (1..=10).map(|i| i * 10).collect::<Vec<_>>());
        assert!(space.allocate(1).is_none());
    }

    #[test]
    fn freed_blocks_behind_the_cursor_wait_until_it_has_gone_round() {
        let space = Space::new(0, 100);
        let first = space.allocate(30).unwrap();
        drop(first);
        assert_eq!(space.gaps(), [(0, 100)]);
        let second = space.allocate(30).unwrap();
        assert_eq!(second.start_block(), 30, "the cursor goes on within the joined gap");
        let third = space.allocate(35).unwrap();
        assert_eq!(third.start_block(), 60);
        let fourth = space.allocate(10).unwrap();
        assert_eq!(fourth.start_block(), 0, "5 blocks at the end are too few");
    }

    #[test]
    fn beyond_many_small_gaps_the_best_fit_is_found() {
        let space = Space::new(0, 1000);
        let wall: BTreeSet<u64> = (0..400).filter(|b| b % 2 == 1).chain([420, 999]).collect();
        let _walls: Vec<_> = wall.iter().map(|&b| space.reserve_exact(b, 1).unwrap()).collect();
        let best = space.allocate(15).unwrap();
        assert_eq!(best.start_block(), 400, "20 blocks fit better than 578");
        assert_eq!(space.largest_gap_blocks(), 578);
    }

    #[test]
    fn an_extent_is_in_use_until_its_last_holder_lets_go() {
        let space = Space::new(0, 8);
        let one = space.allocate(8).unwrap();
        let other = Arc::clone(&one);
        drop(one);
        assert_eq!(space.free_blocks(), 0);
        drop(other);
        assert_eq!(space.free_blocks(), 8);
    }
}
