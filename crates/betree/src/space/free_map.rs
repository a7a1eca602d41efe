//! The free ranges of the volume, by place and by length.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::block_range::BlockRange;

/// The number of gaps beyond the cursor to look at before the best fit is used. On a volume full of small
/// gaps a longer search would cost more than the contiguity that it finds.
const GAPS_SEARCHED_MAX: usize = 32;

/// Of what is withheld, a part is handed out when less than one block in this many is free before it, and
/// then at least so many blocks.
const FREE_SHARE: u64 = 8;
const HANDED_OUT_MIN: u64 = 64;

/// Free ranges in blocks. No two of them touch.
pub(super) struct FreeMap {
    by_start: BTreeMap<u64, u64>,
    /// (length, start) of the same gaps.
    by_len: BTreeSet<(u64, u64)>,
    /// Where the last allocation ended.
    cursor: u64,
    free_blocks: u64,
    first_block: u64,
    /// Start and length of the free range behind all others, if it is withheld: see
    /// [`withhold_end`](FreeMap::withhold_end).
    withheld: (u64, u64),
}

impl FreeMap {
    /// One gap.
    pub fn new(start: u64, len: u64) -> FreeMap {
        let mut gaps = FreeMap {
            by_start: BTreeMap::new(),
            by_len: BTreeSet::new(),
            cursor: start,
            free_blocks: 0,
            first_block: start,
            withheld: (0, 0),
        };
        if len > 0 {
            gaps.insert(start, len);
        }
        gaps
    }

    pub fn free_blocks(&self) -> u64 {
        self.free_blocks + self.withheld.1
    }

    /// Withholds the gap before `end`, where the space ends: from then on [`hand_out`](FreeMap::hand_out)
    /// adds parts of it, from its start, to the gaps that allocations see. So what is in use stays near the
    /// start. Returns where the gap begins: all that is in use lies before.
    pub fn withhold_end(&mut self, end: u64) -> u64 {
        let Some((&start, &len)) = self.by_start.last_key_value() else { return end };
        if start + len != end {
            return end;
        }
        self.remove(start, len);
        self.withheld = (start, len);
        start
    }

    /// Hands out a part of what is withheld if the gaps are short: none has `len` blocks, or all together are
    /// less than one part in [`FREE_SHARE`] of what was handed out.
    pub fn hand_out(&mut self, len: u64) {
        let share = self.withheld.0.saturating_sub(self.first_block) / FREE_SHARE;
        if self.largest() < len || self.free_blocks < share {
            self.hand_out_more(len.max(share).max(HANDED_OUT_MIN));
        }
    }

    /// Hands out so many blocks of what is withheld, or all of it.
    pub fn hand_out_more(&mut self, len: u64) {
        let (start, left) = self.withheld;
        let more = len.min(left);
        if more > 0 {
            self.withheld = (start + more, left - more);
            self.give_back(start, more);
        }
    }

    /// Adds free blocks behind all others.
    pub fn extend(&mut self, start: u64, len: u64) {
        match &mut self.withheld {
            (from, left) if *left > 0 && *from + *left == start => *left += len,
            _ => self.give_back(start, len),
        }
    }

    /// Where the last allocation ended.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The range from `at` on, or the first one after it, or else the first of all: start and length.
    pub fn range_from(&self, at: u64) -> Option<(u64, u64)> {
        if let Some((&start, &len)) = self.by_start.range(..=at).next_back()
            && at < start + len
        {
            return Some((at, start + len - at));
        }
        let (&start, &len) = self.by_start.range(at..).chain(&self.by_start).next()?;
        Some((start, len))
    }

    /// The length of the largest range; 0 if there is none.
    pub fn largest(&self) -> u64 {
        self.by_len.last().map_or(0, |&(len, _)| len)
    }

    /// The largest range: start and length.
    pub fn largest_range(&self) -> Option<(u64, u64)> {
        self.by_len.last().map(|&(len, start)| (start, len))
    }

    /// Removes what of a range is in here.
    pub fn remove_within(&mut self, start: u64, len: u64) {
        self.take_within(start, len, &mut |_| ());
    }

    /// Removes what of a range is in here, and gives each part of that to `taken`.
    pub fn take_within(&mut self, start: u64, len: u64, taken: &mut dyn FnMut(BlockRange)) {
        let end = start.saturating_add(len);
        while let Some((&gap, &gap_len)) = self.by_start.range(..end).next_back() {
            let (from, to) = (gap.max(start), (gap + gap_len).min(end));
            let len_blocks = to.saturating_sub(from);
            if !self.take(from, len_blocks) {
                break;
            }
            taken(BlockRange { start_block: from, len_blocks });
        }
    }

    /// The free range that is withheld: start and length.
    pub fn withheld(&self) -> Option<(u64, u64)> {
        Some(self.withheld).filter(|(_, len)| *len > 0)
    }

    /// The ranges (start, length) but for what is withheld, in order of place.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(&start, &len)| (start, len))
    }

    /// Allocates `len` blocks where the last allocation ended or in the next gap that has them, so that data
    /// written together lies together; else in the smallest gap that has them.
    pub fn allocate(&mut self, len: u64) -> Option<u64> {
        if len == 0 || len > self.largest() {
            return None;
        }
        let start = self.at_cursor(len).or_else(|| self.after_cursor(len)).or_else(|| self.best_fit(len))?;
        if !self.take(start, len) {
            return None;
        }
        self.cursor = start + len;
        Some(start)
    }

    /// Allocates `len` blocks at the end of the last gap that has them, among those that are looked at. The
    /// next [`allocate`](FreeMap::allocate) goes on as if it had not been called.
    pub fn allocate_last(&mut self, len: u64) -> Option<u64> {
        let mut last = self.by_start.iter().rev().take(GAPS_SEARCHED_MAX);
        let (&gap_start, &gap_len) = last.find(|(_, gap_len)| **gap_len >= len && len > 0)?;
        let start = gap_start + gap_len - len;
        self.take(start, len).then_some(start)
    }

    /// Allocates `len` blocks in the largest gaps, so in as few parts as possible, at most `parts_max`.
    /// `None`, without a change, if these gaps are too small.
    pub fn gather(&mut self, len: u64, parts_max: usize) -> Option<Vec<BlockRange>> {
        let mut parts = Vec::new();
        let mut missing = len;
        for &(gap, start_block) in self.by_len.iter().rev().take(parts_max) {
            if missing == 0 {
                break;
            }
            let len_blocks = gap.min(missing);
            parts.push(BlockRange { start_block, len_blocks });
            missing -= len_blocks;
        }
        if missing > 0 || parts.is_empty() {
            return None;
        }
        // In the order of place, so that reading it all goes one way.
        parts.sort_unstable_by_key(|p| p.start_block);
        for part in &parts {
            let is_taken = self.take(part.start_block, part.len_blocks);
            debug_assert!(is_taken, "a gap is free");
        }
        Some(parts)
    }

    /// The cursor, if it is in a gap with `len` blocks left.
    fn at_cursor(&self, len: u64) -> Option<u64> {
        let (&start, &gap) = self.by_start.range(..=self.cursor).next_back()?;
        (start + gap >= self.cursor.saturating_add(len)).then_some(self.cursor)
    }

    fn after_cursor(&self, len: u64) -> Option<u64> {
        let beyond = self.by_start.range(self.cursor..).chain(self.by_start.range(..self.cursor));
        beyond.take(GAPS_SEARCHED_MAX).find(|&(_, &gap)| gap >= len).map(|(&start, _)| start)
    }

    fn best_fit(&self, len: u64) -> Option<u64> {
        self.by_len.range((len, 0)..).next().map(|&(_, start)| start)
    }

    /// Makes `[start, start + len)` used; `false`, without a change, if not all of it was free.
    pub fn take(&mut self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        let Some((&gap_start, &gap_len)) = self.by_start.range(..=start).next_back() else { return false };
        let gap_end = gap_start + gap_len;
        if len == 0 || end > gap_end {
            return false;
        }
        self.remove(gap_start, gap_len);
        if gap_start < start {
            self.insert(gap_start, start - gap_start);
        }
        if end < gap_end {
            self.insert(end, gap_end - end);
        }
        true
    }

    /// Makes a used range free and joins it to the gaps on both sides.
    pub fn give_back(&mut self, start: u64, len: u64) {
        let (mut from, mut to) = (start, start + len);
        if let Some((&before, &before_len)) = self.by_start.range(..start).next_back() {
            debug_assert!(before + before_len <= start, "blocks {start}+{len} were free already");
            if before + before_len == start {
                self.remove(before, before_len);
                from = before;
            }
        }
        if let Some((&after, &after_len)) = self.by_start.range(start..).next() {
            debug_assert!(after >= to, "blocks {start}+{len} were free already");
            if after == to {
                self.remove(after, after_len);
                to = after + after_len;
            }
        }
        self.insert(from, to - from);
    }

    fn insert(&mut self, start: u64, len: u64) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
        self.free_blocks += len;
    }

    fn remove(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
        self.free_blocks -= len;
    }
}
