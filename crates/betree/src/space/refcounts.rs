//! Blocks that several extents hold at once: those that a new version of a node keeps from an old one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::block_range::BlockRange;

/// Ranges of blocks with their number of holders beyond the first. Empty unless an old version is still held.
#[derive(Default)]
pub(super) struct RefCounts {
    /// Start → length and number of further holders, at least one. Ranges do not overlap.
    by_start: BTreeMap<u64, (u64, u32)>,
}

impl RefCounts {
    /// Adds a holder of these blocks, which have one already.
    pub fn add(&mut self, part: BlockRange) {
        for (range, further) in self.cut_out(part) {
            self.by_start.insert(range.start_block, (range.len_blocks, further + 1));
        }
    }

    /// Removes a holder of these blocks. Returns those without a holder now.
    pub fn release(&mut self, part: BlockRange) -> Vec<BlockRange> {
        let mut free = Vec::new();
        for (range, further) in self.cut_out(part) {
            match further {
                0 => free.push(range),
                1 => {}
                _ => _ = self.by_start.insert(range.start_block, (range.len_blocks, further - 1)),
            }
        }
        free
    }

    /// Takes a range out of the map. Returns all of it as ranges with their number of further holders, in
    /// order.
    fn cut_out(&mut self, part: BlockRange) -> Vec<(BlockRange, u32)> {
        let (mut at, end) = (part.start_block, part.start_block + part.len_blocks);
        let mut found = Vec::new();
        let first = self.by_start.range(..=at).next_back().map_or(at, |(start, _)| *start);
        let known: Vec<_> = self.by_start.range(first..end).map(|(start, known)| (*start, *known)).collect();
        for (start, (len, further)) in known {
            let stop = start + len;
            if stop <= at {
                continue;
            }
            self.by_start.remove(&start);
            if start < at {
                self.by_start.insert(start, (at - start, further));
            }
            if stop > end {
                self.by_start.insert(end, (stop - end, further));
            }
            let (from, to) = (start.max(at), stop.min(end));
            if at < from {
                found.push((BlockRange { start_block: at, len_blocks: from - at }, 0));
            }
            found.push((BlockRange { start_block: from, len_blocks: to - from }, further));
            at = to;
        }
        if at < end {
            found.push((BlockRange { start_block: at, len_blocks: end - at }, 0));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use seeded::Rng;

    use super::*;

    /// Holders come and go at random, checked against a count for each block.
    #[test]
    fn random_sharing_agrees_with_a_count_for_each_block() {
        for seed in 0..100u64 {
            let mut rng = Rng::new(seed);
            let mut below = |n: u64| rng.below_u64(n);
            let mut refcounts = RefCounts::default();
            // Block -> holders.
            let mut counts = vec![0u32; 60];
            let mut held: Vec<BlockRange> = Vec::new();
            for step in 0..300 {
                let case = std::format!("seed {seed} step {step}");
                if below(2) == 0 || held.is_empty() {
                    let part = match held.len() {
                        // A first holder.
                        0 => BlockRange { start_block: below(30), len_blocks: 1 + below(30) },
                        n => {
                            // A part of a held range.
                            let of = held[below(n as u64) as usize];
                            let skipped = below(of.len_blocks);
                            let len_blocks = 1 + below(of.len_blocks - skipped);
                            BlockRange { start_block: of.start_block + skipped, len_blocks }
                        }
                    };
                    if !held.is_empty() {
                        refcounts.add(part);
                    }
                    let blocks = part.start_block..part.start_block + part.len_blocks;
                    blocks.for_each(|block| counts[block as usize] += 1);
                    held.push(part);
                } else {
                    let part = held.swap_remove(below(held.len() as u64) as usize);
                    let free = refcounts.release(part);
                    let mut expected = Vec::new();
                    for block in part.start_block..part.start_block + part.len_blocks {
                        counts[block as usize] -= 1;
                        if counts[block as usize] == 0 {
                            expected.push(block);
                        }
                    }
                    let free = free.into_iter().flat_map(|p| p.start_block..p.start_block + p.len_blocks);
                    assert_eq!(free.collect::<Vec<_>>(), expected, "{case}");
                }
                let further =
                    refcounts.by_start.values().map(|(len, further)| len * u64::from(*further)).sum();
                let expected = counts.iter().map(|count| u64::from(count.saturating_sub(1))).sum::<u64>();
                assert_eq!(expected, further, "{case}");
            }
        }
    }
}
