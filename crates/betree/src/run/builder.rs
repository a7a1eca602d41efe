//! Builds runs in their stored form.

use alloc::vec::Vec;

use super::Run;
use super::fences::Fences;
use crate::format::run::{self as layout, COUNTS_BYTES, END_BYTES, HEAD_BYTES};
use crate::message::{Kind, Msn, RangeDelete};

/// A run returns spare memory to the allocator if it is more than this part of what it uses.
const WASTE_PARTS: usize = 8;

/// Builds runs of points in order and ranges in order.
#[derive(Default)]
pub(crate) struct RunBuilder {
    /// Memory that each run gets at first, in bytes.
    room: usize,
    ends: Vec<u32>,
    bytes: Vec<u8>,
    ranges: Vec<RangeDelete>,
    last_msn: Msn,
}

impl RunBuilder {
    /// A builder for runs of about this size, in the measure of [`bytes`](RunBuilder::bytes). Each run gets
    /// its memory at once and not a byte more: allocators have size classes, and one byte over costs the next
    /// class.
    pub fn with_room(bytes: usize) -> RunBuilder {
        RunBuilder { room: bytes, ..RunBuilder::default() }
    }

    /// Adds the next point.
    pub fn push(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &[u8]) {
        self.push_entry(msn, kind.code(), key, value);
    }

    /// Adds the points in `[from, to)` of a run of pairs.
    pub fn push_pairs(&mut self, pairs: &Run, from: usize, to: usize) {
        if from >= to {
            return;
        }
        let (start, end) = (pairs.start(from), pairs.end(to - 1));
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(self.room.max(end - start));
        }
        let moved = |end: usize| (self.bytes.len() + end - start) as u32;
        self.ends.extend((from..to).map(|index| moved(pairs.end(index))));
        self.bytes.extend_from_slice(pairs.bytes.get(start..end).unwrap_or_default());
    }

    fn push_entry(&mut self, msn: Msn, code: u8, first: &[u8], second: &[u8]) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(self.room);
        }
        self.last_msn = self.last_msn.max(msn);
        let head = layout::entry_head(msn, code, first.len() as u32);
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Sets the ranges.
    pub fn set_ranges(&mut self, ranges: Vec<RangeDelete>) {
        self.ranges = ranges;
    }

    /// The size of the run with the points so far in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * END_BYTES + COUNTS_BYTES
    }

    /// The size that a point adds to the run, in bytes.
    pub fn bytes_of(key: &[u8], value: &[u8]) -> usize {
        HEAD_BYTES + key.len() + value.len() + END_BYTES
    }

    /// Whether the run is empty so far.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.ranges.is_empty()
    }

    /// Returns the run and leaves the builder empty.
    pub fn finish(&mut self) -> Run {
        let points = self.ends.len();
        let ranges = core::mem::take(&mut self.ranges);
        for range in &ranges {
            self.push_entry(range.msn, layout::sides_of(range), range.lo.bytes(), range.hi.bytes());
        }
        let mut bytes = core::mem::take(&mut self.bytes);
        let ends_at = bytes.len();
        bytes.reserve_exact(self.ends.len() * END_BYTES + COUNTS_BYTES);
        for end in self.ends.drain(..) {
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        bytes.extend_from_slice(&(points as u32).to_le_bytes());
        bytes.extend_from_slice(&(ranges.len() as u32).to_le_bytes());
        if bytes.capacity() - bytes.len() > bytes.len() / WASTE_PARTS {
            bytes.shrink_to_fit();
        }
        let last_msn = core::mem::take(&mut self.last_msn);
        Run { bytes, points, ends_at, ranges, last_msn, fences: Fences::default() }.fenced()
    }
}
