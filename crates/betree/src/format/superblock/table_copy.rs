//! The place of the second copy of the node table, kept in the superblock's tail.
//!
//! ```text
//! generation u64 | checksum u64 | length u32 | number of block ranges u32
//! (first block u64 | blocks u64) of each range
//! ```
//! The copy has a directory of its own, which leads to the second copies of the pages. A program that does
//! not know the tag takes the blocks of the copy for free, and keeps the tag: so it counts only in the
//! superblock of its own generation.

use alloc::vec::Vec;

use super::Superblock;
use super::raw::TAIL_BYTES_MAX;
use crate::format::tail::TaggedTail;
use crate::space::BlockRange;

/// The superblock's tag of the place.
const TAG: u16 = 3;
const HEAD_BYTES: usize = 24;
const PART_BYTES: usize = 16;
/// The most block ranges of the copy's directory. If it would need more, there is no copy.
pub(crate) const COPY_PARTS_MAX: usize = 4;

/// The place of the directory of a node table's copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableCopy {
    /// Its block ranges.
    pub parts: Vec<BlockRange>,
    /// Its length in bytes.
    pub len: u32,
    /// The xxh3-64 of these bytes.
    pub checksum: u64,
}

impl TableCopy {
    /// The place of the copy that belongs to a superblock, if it has one.
    pub(crate) fn of(superblock: &Superblock) -> Option<TableCopy> {
        let (_, value) = superblock.tail.iter().find(|(tag, _)| *tag == TAG)?;
        let number = |at: usize| Some(u64::from_le_bytes(*value.get(at..)?.first_chunk()?));
        let (generation, checksum, last) = (number(0)?, number(8)?, number(16)?);
        let count = (last >> 32) as usize;
        let is_whole =
            (1..=COPY_PARTS_MAX).contains(&count) && value.len() == HEAD_BYTES + count * PART_BYTES;
        if generation != superblock.generation || !is_whole {
            return None;
        }
        let part = |index: usize| {
            let at = HEAD_BYTES + index * PART_BYTES;
            Some(BlockRange { start_block: number(at)?, len_blocks: number(at + 8)? })
        };
        Some(TableCopy { parts: (0..count).map(part).collect::<Option<_>>()?, len: last as u32, checksum })
    }

    /// A superblock's tail with the place of the copy for `generation`, or with none. `false` if values of
    /// later versions leave no room for it; it has none then.
    #[must_use]
    pub(crate) fn put(copy: Option<&TableCopy>, generation: u64, tail: &mut TaggedTail) -> bool {
        *tail = tail.without(TAG);
        let Some(TableCopy { parts, len, checksum }) = copy else { return true };
        let last = (parts.len() as u64) << 32 | u64::from(*len);
        let parts = parts.iter().flat_map(|part| [part.start_block, part.len_blocks]);
        let numbers = [generation, *checksum, last].into_iter().chain(parts);
        let value: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        let mut with = tail.clone();
        let fits = with.set(TAG, &value) && with.as_bytes().len() <= TAIL_BYTES_MAX;
        if fits {
            *tail = with;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    fn copy(parts: u64) -> TableCopy {
        let parts = (0..parts).map(|at| BlockRange { start_block: 7 << at, len_blocks: at + 1 }).collect();
        TableCopy { parts, len: u32::MAX, checksum: u64::MAX - 1 }
    }

    #[test]
    fn a_place_counts_in_the_superblock_of_its_generation_alone() {
        let mut superblock = sample();
        assert_eq!(TableCopy::of(&superblock), None);
        let before = superblock.tail.without(TAG);
        for parts in 1..=COPY_PARTS_MAX as u64 {
            assert!(TableCopy::put(Some(&copy(parts)), superblock.generation, &mut superblock.tail));
            assert_eq!(TableCopy::of(&superblock), Some(copy(parts)));
        }
        // Written by a program that does not know the tag.
        superblock.generation += 1;
        assert_eq!(TableCopy::of(&superblock), None);
        assert!(TableCopy::put(None, superblock.generation, &mut superblock.tail));
        assert_eq!(superblock.tail, before);
    }

    #[test]
    fn a_place_of_no_or_too_many_ranges_is_none() {
        let mut superblock = sample();
        for parts in [0, COPY_PARTS_MAX as u64 + 1] {
            assert!(TableCopy::put(Some(&copy(parts)), superblock.generation, &mut superblock.tail));
            assert_eq!(TableCopy::of(&superblock), None);
        }
        let mut full = TaggedTail::new();
        assert!(full.set(9, &[1; TAIL_BYTES_MAX - 4]));
        let before = full.clone();
        assert!(!TableCopy::put(Some(&copy(1)), 7, &mut full) && full == before);
    }
}
