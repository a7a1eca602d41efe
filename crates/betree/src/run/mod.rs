//! Sorted runs in memory, of which partitions and basements consist: search ([`Run`]), building
//! ([`RunBuilder`]), layers ([`Layers`]), upserts that become one ([`combine()`]), and messages
//! applied to pairs ([`merged`]). Their bytes are those on the device before compression; `format/run.rs` has
//! the layout.

mod builder;
mod combine;
mod fences;
mod fold;
mod layers;
#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::vec::Vec;

pub(crate) use builder::RunBuilder;
pub(crate) use combine::{Combined, combine, combined, with_combined};
pub(crate) use fold::{Pairs, merged, only_folded, pairs_of};
pub(crate) use layers::{Layers, live, newer_than, same_key, with_newer};

use crate::format::run::{self as layout, END_BYTES, Parsed};
use crate::key::Cut;
use crate::message::{Kind, Msn, Point, RangeDelete};
use fences::Fences;

/// A search for a point near another compares this many points in a row.
const NEAR_POINTS: usize = 8;

/// A sorted run in memory.
pub(crate) struct Run {
    bytes: Vec<u8>,
    points: usize,
    /// The offset of the entries' ends.
    ends_at: usize,
    ranges: Vec<RangeDelete>,
    last_msn: Msn,
    fences: Fences,
}

impl Run {
    /// Takes bytes from the device as a run if they are a valid one.
    ///
    /// # Errors
    /// The mismatch, in words.
    pub fn parse(bytes: Vec<u8>) -> Result<Run, &'static str> {
        let Parsed { points, ends_at, ranges, last_msn } = layout::parse(&bytes)?;
        Ok(Run { bytes, points, ends_at, ranges, last_msn, fences: Fences::default() }.fenced())
    }

    fn fenced(mut self) -> Run {
        self.fences = Fences::new(self.points, self.ends_at, |index| self.key(index));
        self
    }

    /// The bytes in their stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let cuts: usize = self.ranges.iter().map(RangeDelete::bytes).sum();
        self.bytes.len() + cuts + self.ranges.len() * size_of::<RangeDelete>() + self.fences.bytes()
    }

    /// The number of points.
    pub fn len(&self) -> usize {
        self.points
    }

    /// The length of the longest key of a point in bytes; 0 without points.
    pub fn longest_key(&self) -> u32 {
        (0..self.len()).map(|at| self.key(at).len()).max().unwrap_or(0) as u32
    }

    /// Whether there are neither points nor ranges.
    pub fn is_empty(&self) -> bool {
        self.points == 0 && self.ranges.is_empty()
    }

    /// The greatest sequence number; 0 for an empty run and for pairs.
    pub fn last_msn(&self) -> Msn {
        self.last_msn
    }

    /// The known damage in it.
    pub fn damage(&self) -> impl Iterator<Item = &RangeDelete> {
        self.ranges.iter().filter(|range| range.is_damage())
    }

    /// Whether it holds pairs, and neither messages nor known damage.
    pub fn is_pairs(&self) -> bool {
        self.last_msn == 0 && self.ranges.is_empty()
    }

    /// The ranges, disjoint and in order.
    pub fn ranges(&self) -> &[RangeDelete] {
        &self.ranges
    }

    /// The range that covers the key, if one does.
    pub fn range_over(&self, key: &[u8]) -> Option<&RangeDelete> {
        let at = self.ranges.partition_point(|r| !r.hi.is_above(key));
        self.ranges.get(at).filter(|r| r.covers(key))
    }

    fn end(&self, index: usize) -> usize {
        layout::u32_at(&self.bytes, self.ends_at + index * END_BYTES).unwrap_or(0) as usize
    }

    fn start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.end(index - 1) }
    }

    fn entry(&self, index: usize) -> &[u8] {
        self.bytes.get(self.start(index)..self.end(index)).unwrap_or_default()
    }

    /// The key of the point at `index`; empty past the end.
    pub fn key(&self, index: usize) -> &[u8] {
        layout::key_and_value(self.entry(index)).unwrap_or_default().0
    }

    /// The point at `index`, which is less than [`len`](Run::len).
    pub fn point(&self, index: usize) -> Point<'_> {
        let entry = self.entry(index);
        let (key, value) = layout::key_and_value(entry).unwrap_or_default();
        let kind = layout::kind_of(entry).unwrap_or(Kind::Delete);
        Point { key: Cow::Borrowed(key), msn: layout::msn_of(entry), kind, value }
    }

    /// The index of the first point whose key is not below `key`.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let (from, to) = self.fences.around(self.points, key, false);
        self.partition_point(from, to, |k| k < key)
    }

    /// The index of the first point behind the cut.
    pub fn first_behind(&self, cut: &Cut) -> usize {
        let (from, to) = self.fences.around(self.points, cut.bytes(), cut.is_after());
        self.partition_point(from, to, |k| cut.is_above(k))
    }

    /// Whether the point at `index` lies before the cut. As a rule this does not read the point.
    pub fn is_before(&self, index: usize, cut: &Cut) -> bool {
        self.fences.is_before(self.points, index, cut).unwrap_or_else(|| cut.is_above(self.key(index)))
    }

    /// The index of the first point in `[lo, hi)` whose key is not `below`, or `hi`.
    pub fn partition_point(&self, lo: usize, hi: usize, below: impl Fn(&[u8]) -> bool) -> usize {
        let (mut lo, mut hi) = (lo, hi.min(self.points).max(lo));
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            if below(self.key(middle)) { lo = middle + 1 } else { hi = middle }
        }
        lo
    }

    /// The index of the first point from `from` on whose key is not below `key`. The nearer that point, the
    /// fewer keys are compared.
    pub fn lower_bound_after(&self, from: usize, key: &[u8]) -> usize {
        // Neighbours in the run are neighbours in memory.
        let near = (from + NEAR_POINTS).min(self.points);
        if let Some(found) = (from..near).find(|index| self.key(*index) >= key) {
            return found;
        }
        let (mut below, mut step) = (near, NEAR_POINTS);
        while below + step < self.points && self.key(below + step) < key {
            below += step;
            step *= 2;
        }
        self.partition_point(below, below + step, |k| k < key)
    }

    /// How many of the points in `[from, to)` fit into this many bytes of a run.
    pub fn points_that_take(&self, from: usize, to: usize, bytes: usize) -> usize {
        let start = self.start(from);
        let takes = |count: usize| self.end(from + count - 1) - start + count * END_BYTES;
        let all = to.saturating_sub(from);
        if all == 0 || takes(all) <= bytes {
            return all;
        }
        let (mut fit, mut too_many) = (0, all);
        while fit + 1 < too_many {
            let middle = fit + (too_many - fit) / 2;
            if takes(middle) <= bytes { fit = middle } else { too_many = middle }
        }
        fit
    }

    /// The points in `[from, to)` by index.
    pub fn points(&self, from: usize, to: usize) -> impl DoubleEndedIterator<Item = Point<'_>> {
        (from..to.min(self.points)).map(|index| self.point(index))
    }
}
