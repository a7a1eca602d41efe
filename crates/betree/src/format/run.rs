//! A sorted run: the form of a partition and of a basement, in memory and (before compression) on
//! the device.
//!
//! ```text
//! points u32 | ranges u32 | end of each entry u32 × (points + ranges) | entries
//! point: msn u64 | kind u8 | key length u32 | key | value
//! range: msn u64 | sides u8 (1: lo is an after cut, 2: hi is) | lo length u32 | lo | hi
//! ```
//! All integers are little-endian; ends count from the first entry. Points are ordered by (key,
//! msn), ranges by their bounds and disjoint. A basement has no ranges, and each of its points is a
//! put with msn 0.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::key::Cut;
use crate::message::{Kind, Msn, Point, RangeDelete};

const HEAD_BYTES: usize = 8;
const POINT_HEAD_BYTES: usize = 13;
const LO_AFTER: u8 = 1;
const HI_AFTER: u8 = 2;

/// A sorted run in memory.
pub(crate) struct Run {
    bytes: Vec<u8>,
    points: usize,
    ranges: Vec<RangeDelete>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

impl Run {
    /// Takes bytes from the device for a run, if they are one in every respect.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn parse(bytes: Vec<u8>) -> Result<Run, &'static str> {
        let points = u32_at(&bytes, 0).ok_or("too short for its counts")? as usize;
        let ranges = u32_at(&bytes, 4).ok_or("too short for its counts")? as usize;
        let entries = points.checked_add(ranges).ok_or("too many entries")?;
        let ends = entries.checked_mul(4).and_then(|n| n.checked_add(HEAD_BYTES));
        let body = ends.filter(|at| *at <= bytes.len()).ok_or("too short for its entries")?;
        let mut run = Run { bytes, points, ranges: Vec::new() };
        let mut last_end = 0;
        for index in 0..entries {
            let end = run.end(index);
            if end < last_end + POINT_HEAD_BYTES || end > run.bytes.len() - body {
                return Err("an entry ends outside of the run");
            }
            last_end = end;
        }
        if last_end != run.bytes.len() - body {
            return Err("bytes after the last entry");
        }
        for index in 0..points {
            let entry = run.entry(index);
            let key_len = u32_at(entry, 9).unwrap_or(u32::MAX) as usize;
            if key_len > entry.len() - POINT_HEAD_BYTES {
                return Err("a key longer than its entry");
            }
            if entry.get(8).copied().and_then(Kind::from_code).is_none() {
                return Err("a message of unknown kind");
            }
            if index > 0 {
                let (before, this) = (run.point(index - 1), run.point(index));
                if (&before.key, before.msn) >= (&this.key, this.msn) {
                    return Err("keys out of order");
                }
            }
        }
        let mut all: Vec<RangeDelete> = Vec::new();
        for index in points..entries {
            let range = parse_range(run.entry(index)).ok_or("a range that does not parse")?;
            if range.lo >= range.hi || all.last().is_some_and(|last| last.hi > range.lo) {
                return Err("ranges out of order");
            }
            all.push(range);
        }
        run.ranges = all;
        Ok(run)
    }

    /// The form in which it is stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it takes in memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let cuts: usize = self.ranges.iter().map(RangeDelete::bytes).sum();
        self.bytes.len() + cuts + self.ranges.len() * size_of::<RangeDelete>()
    }

    /// How many points.
    pub fn len(&self) -> usize {
        self.points
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.points == 0 && self.ranges.is_empty()
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
        u32_at(&self.bytes, HEAD_BYTES + index * 4).unwrap_or(0) as usize
    }

    fn entry(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.end(index - 1) };
        let body = HEAD_BYTES + 4 * (self.points + u32_at(&self.bytes, 4).unwrap_or(0) as usize);
        self.bytes.get(body + start..body + self.end(index)).unwrap_or_default()
    }

    /// The key of the point at `index`; empty past the end.
    pub fn key(&self, index: usize) -> &[u8] {
        let entry = self.entry(index);
        let key_len = u32_at(entry, 9).unwrap_or(0) as usize;
        entry.get(POINT_HEAD_BYTES..POINT_HEAD_BYTES + key_len).unwrap_or_default()
    }

    /// The point at `index`, which is less than [`len`](Run::len).
    pub fn point(&self, index: usize) -> Point<'_> {
        let entry = self.entry(index);
        let msn = entry.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let kind = entry.get(8).copied().and_then(Kind::from_code).unwrap_or(Kind::Delete);
        let key_len = u32_at(entry, 9).unwrap_or(0) as usize;
        let (key, value) =
            entry.get(POINT_HEAD_BYTES..).and_then(|rest| rest.split_at_checked(key_len)).unwrap_or_default();
        Point { key: Cow::Borrowed(key), msn, kind, value }
    }

    /// The index of the first point whose key is not below `key`.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        self.partition_point(0, self.points, |k| k < key)
    }

    /// The index of the first point behind the cut.
    pub fn first_behind(&self, cut: &Cut) -> usize {
        self.partition_point(0, self.points, |k| cut.is_above(k))
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

    /// The points in `[from, to)` by index.
    pub fn points(&self, from: usize, to: usize) -> impl DoubleEndedIterator<Item = Point<'_>> {
        (from..to.min(self.points)).map(|index| self.point(index))
    }
}

fn parse_range(entry: &[u8]) -> Option<RangeDelete> {
    let msn = u64::from_le_bytes(*entry.first_chunk()?);
    let sides = *entry.get(8)?;
    let lo_len = u32_at(entry, 9)? as usize;
    let (lo, hi) = entry.get(POINT_HEAD_BYTES..)?.split_at_checked(lo_len)?;
    let cut = |bytes: &[u8], after| if after { Cut::after(bytes) } else { Cut::before(bytes) };
    if sides & !(LO_AFTER | HI_AFTER) != 0 {
        return None;
    }
    Some(RangeDelete { lo: cut(lo, sides & LO_AFTER != 0), hi: cut(hi, sides & HI_AFTER != 0), msn })
}

/// Makes a run from points in order and ranges in order.
#[derive(Default)]
pub(crate) struct RunBuilder {
    ends: Vec<u32>,
    entries: Vec<u8>,
    ranges: Vec<RangeDelete>,
}

impl RunBuilder {
    /// Adds the next point.
    pub fn push(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &[u8]) {
        self.entries.extend_from_slice(&msn.to_le_bytes());
        self.entries.push(kind as u8);
        self.entries.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
        self.ends.push(self.entries.len() as u32);
    }

    /// Sets the ranges.
    pub fn set_ranges(&mut self, ranges: Vec<RangeDelete>) {
        self.ranges = ranges;
    }

    /// The size of the points so far in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.len() + self.ends.len() * 4
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.ranges.is_empty()
    }

    /// The run. The builder is empty again, and keeps its memory.
    pub fn finish(&mut self) -> Run {
        let points = self.ends.len();
        for range in &self.ranges {
            let sides = if range.lo.is_after() { LO_AFTER } else { 0 }
                | if range.hi.is_after() { HI_AFTER } else { 0 };
            self.entries.extend_from_slice(&range.msn.to_le_bytes());
            self.entries.push(sides);
            self.entries.extend_from_slice(&(range.lo.bytes().len() as u32).to_le_bytes());
            self.entries.extend_from_slice(range.lo.bytes());
            self.entries.extend_from_slice(range.hi.bytes());
            self.ends.push(self.entries.len() as u32);
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.ends.len() * 4 + self.entries.len());
        bytes.extend_from_slice(&(points as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.ranges.len() as u32).to_le_bytes());
        for end in &self.ends {
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        bytes.extend_from_slice(&self.entries);
        self.ends.clear();
        self.entries.clear();
        Run { bytes, points, ranges: core::mem::take(&mut self.ranges) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Run {
        let mut builder = RunBuilder::default();
        builder.push(b"", 3, Kind::Put, b"empty key");
        builder.push(b"a", 4, Kind::Upsert, b"");
        builder.push(b"a", 9, Kind::Upsert, b"x");
        builder.push(b"b\xff", 5, Kind::Delete, b"");
        builder.set_ranges(alloc::vec![
            RangeDelete { lo: Cut::LOW, hi: Cut::before(*b"a"), msn: 2 },
            RangeDelete { lo: Cut::before(*b"b"), hi: Cut::after(*b"b"), msn: 1 },
        ]);
        builder.finish()
    }

    #[test]
    fn a_run_reads_back_as_it_was_built() {
        let run = Run::parse(sample().as_bytes().to_vec()).unwrap();
        assert_eq!(run.len(), 4);
        assert_eq!(run.point(2).value, b"x");
        assert_eq!(run.point(3).kind, Kind::Delete);
        assert_eq!(run.lower_bound(b"a"), 1);
        assert_eq!(run.lower_bound(b"a\0"), 3);
        assert_eq!(run.first_behind(&Cut::after(*b"b")), 4);
        assert_eq!(run.ranges(), sample().ranges());
        assert!(run.range_over(b"bzz").is_some() && run.range_over(b"a").is_none());
        assert!(run.range_over(b"").is_some());
    }

    #[test]
    fn no_truncation_and_no_flipped_byte_makes_a_run_panic() {
        let whole = sample().as_bytes().to_vec();
        for len in 0..whole.len() {
            assert!(Run::parse(whole[..len].to_vec()).is_err(), "cut at {len}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                if let Ok(run) = Run::parse(bytes) {
                    assert_eq!(run.points(0, run.len()).count(), run.len());
                }
            }
        }
    }
}
