//! A sorted run: the form of a partition and of a basement, in memory and (before compression) on
//! the device.
//!
//! ```text
//! entries | end of each entry u32 × (points + ranges) | points u32 | ranges u32
//! point: msn u64 | kind u8 | key length u32 | key | value
//! range: msn u64 | sides u8 (1: lo is an after cut, 2: hi is) | lo length u32 | lo | hi
//! ```
//! All integers are little-endian; ends count from the first entry. Points are ordered by (key,
//! msn), ranges by their bounds and disjoint. A run of pairs has no ranges, and each of its points is a
//! put with msn 0. What is known last stands last, so that a run is built where it stays.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::fences::Fences;
use crate::key::Cut;
use crate::message::{Kind, Msn, Point, RangeDelete};

const COUNTS_BYTES: usize = 8;
const END_BYTES: usize = 4;
const POINT_HEAD_BYTES: usize = 13;
const LO_AFTER: u8 = 1;
const HI_AFTER: u8 = 2;
/// A search for a point near to another looks at so many one after the other.
const NEAR_POINTS: usize = 8;
/// A run gives back memory that it does not use, if that is more than this part of what it uses.
const WASTE_PARTS: usize = 8;

/// A sorted run in memory.
pub(crate) struct Run {
    bytes: Vec<u8>,
    points: usize,
    /// Where the entries' ends stand.
    ends_at: usize,
    ranges: Vec<RangeDelete>,
    last_msn: Msn,
    fences: Fences,
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
        let counts_at = bytes.len().checked_sub(COUNTS_BYTES).ok_or("too short for its counts")?;
        let points = u32_at(&bytes, counts_at).unwrap_or(0) as usize;
        let ranges = u32_at(&bytes, counts_at + 4).unwrap_or(0) as usize;
        let entries = points.checked_add(ranges).ok_or("too many entries")?;
        let ends_bytes = entries.checked_mul(END_BYTES).ok_or("too many entries")?;
        let ends_at = counts_at.checked_sub(ends_bytes).ok_or("too short for its entries")?;
        let run = Run { bytes, points, ends_at, ranges: Vec::new(), last_msn: 0, fences: Fences::default() };
        let (mut start, mut last_key, mut last_msn) = (0, <&[u8]>::default(), 0);
        let mut newest = 0;
        let mut all: Vec<RangeDelete> = Vec::new();
        for index in 0..entries {
            let end = run.end(index);
            if end < start + POINT_HEAD_BYTES || end > ends_at {
                return Err("an entry ends outside of the run");
            }
            let entry = run.bytes.get(start..end).unwrap_or_default();
            start = end;
            if index >= points {
                let range = parse_range(entry).ok_or("a range that does not parse")?;
                if range.lo >= range.hi || all.last().is_some_and(|last| last.hi > range.lo) {
                    return Err("ranges out of order");
                }
                newest = newest.max(range.msn);
                all.push(range);
                continue;
            }
            let key_len = u32_at(entry, 9).unwrap_or(u32::MAX) as usize;
            let key = entry.get(POINT_HEAD_BYTES..).and_then(|rest| rest.get(..key_len));
            let key = key.ok_or("a key longer than its entry")?;
            if entry.get(8).copied().and_then(Kind::from_code).is_none() {
                return Err("a message of unknown kind");
            }
            let msn = entry.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            if index > 0 && (last_key, last_msn) >= (key, msn) {
                return Err("keys out of order");
            }
            (last_key, last_msn) = (key, msn);
            newest = newest.max(msn);
        }
        if start != ends_at {
            return Err("bytes after the last entry");
        }
        Ok(Run { ranges: all, last_msn: newest, ..run }.fenced())
    }

    fn fenced(mut self) -> Run {
        self.fences = Fences::new(self.points, self.ends_at, |index| self.key(index));
        self
    }

    /// The form in which it is stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it takes in memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let cuts: usize = self.ranges.iter().map(RangeDelete::bytes).sum();
        self.bytes.len() + cuts + self.ranges.len() * size_of::<RangeDelete>() + self.fences.bytes()
    }

    /// How many points.
    pub fn len(&self) -> usize {
        self.points
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.points == 0 && self.ranges.is_empty()
    }

    /// The greatest sequence number in it; 0 of an empty one, and of pairs.
    pub fn last_msn(&self) -> Msn {
        self.last_msn
    }

    /// Whether it holds pairs, and no message.
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
        u32_at(&self.bytes, self.ends_at + index * END_BYTES).unwrap_or(0) as usize
    }

    fn start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.end(index - 1) }
    }

    fn entry(&self, index: usize) -> &[u8] {
        self.bytes.get(self.start(index)..self.end(index)).unwrap_or_default()
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
        let (from, to) = self.fences.around(self.points, key, false);
        self.partition_point(from, to, |k| k < key)
    }

    /// The index of the first point behind the cut.
    pub fn first_behind(&self, cut: &Cut) -> usize {
        let (from, to) = self.fences.around(self.points, cut.bytes(), cut.is_after());
        self.partition_point(from, to, |k| cut.is_above(k))
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

    /// The index of the first point from `from` on whose key is not below `key`. The nearer it is, the fewer keys are
    /// looked at.
    pub fn lower_bound_after(&self, from: usize, key: &[u8]) -> usize {
        // Those beside each other lie beside each other in memory.
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

    /// How many of the points in `[from, to)` take at most so many bytes of a run together.
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

/// Makes runs from points in order and ranges in order.
#[derive(Default)]
pub(crate) struct RunBuilder {
    /// How much memory each run is given at first, in bytes.
    room: usize,
    ends: Vec<u32>,
    bytes: Vec<u8>,
    ranges: Vec<RangeDelete>,
    last_msn: Msn,
}

impl RunBuilder {
    /// One for runs of about so many bytes, by [`bytes`](RunBuilder::bytes). They get as much memory at
    /// once and not a byte more: allocators have sizes, and a little over one is the next.
    pub fn with_room(bytes: usize) -> RunBuilder {
        RunBuilder { room: bytes, ..RunBuilder::default() }
    }

    /// Adds the next point.
    pub fn push(&mut self, key: &[u8], msn: Msn, kind: Kind, value: &[u8]) {
        self.push_entry(msn, kind as u8, key, value);
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
        let mut head = [0; POINT_HEAD_BYTES];
        let [m0, m1, m2, m3, m4, m5, m6, m7, c, l0, l1, l2, l3] = &mut head;
        [*m0, *m1, *m2, *m3, *m4, *m5, *m6, *m7] = msn.to_le_bytes();
        *c = code;
        [*l0, *l1, *l2, *l3] = (first.len() as u32).to_le_bytes();
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

    /// What a point adds to it.
    pub fn bytes_of(key: &[u8], value: &[u8]) -> usize {
        POINT_HEAD_BYTES + key.len() + value.len() + END_BYTES
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.ranges.is_empty()
    }

    /// The run. The builder is empty again.
    pub fn finish(&mut self) -> Run {
        let points = self.ends.len();
        let ranges = core::mem::take(&mut self.ranges);
        for range in &ranges {
            let sides = if range.lo.is_after() { LO_AFTER } else { 0 }
                | if range.hi.is_after() { HI_AFTER } else { 0 };
            self.push_entry(range.msn, sides, range.lo.bytes(), range.hi.bytes());
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
        assert_eq!((run.last_msn(), sample().last_msn()), (9, 9));
        assert_eq!(run.point(2).value, b"x");
        assert_eq!(run.point(3).kind, Kind::Delete);
        assert_eq!(run.lower_bound(b"a"), 1);
        assert_eq!(run.lower_bound(b"a\0"), 3);
        assert_eq!(run.first_behind(&Cut::after(*b"b")), 4);
        assert_eq!(run.ranges(), sample().ranges());
        assert!(run.range_over(b"bzz").is_some() && run.range_over(b"a").is_none());
        assert!(run.range_over(b"").is_some());
    }

    /// So many points that there are fences between them.
    fn long_sample() -> Run {
        let mut builder = RunBuilder::default();
        for number in 0..24u8 {
            builder.push(&[b'k', number / 2], u64::from(number) + 1, Kind::Upsert, &[number; 3]);
        }
        builder.set_ranges(sample().ranges().to_vec());
        builder.finish()
    }

    /// Asks a run that was believed for all that it can be asked.
    fn assert_answers(run: &Run, place: &str) {
        for (index, point) in run.points(0, run.len()).enumerate() {
            let key = run.key(index);
            assert_eq!(*point.key, *key, "{place}");
            let first = run.lower_bound(key);
            assert!(first <= index && run.key(first) == key, "{place}: point {index} is not found");
            assert!(first == 0 || run.key(first - 1) < key, "{place}: point {index} is found too late");
            assert_eq!(run.first_behind(&Cut::before(key)), first, "{place}");
            assert!(run.first_behind(&Cut::just_after(key)) > index, "{place}");
            assert!(run.first_behind(&Cut::after(key)) > index, "{place}");
            assert!(run.range_over(key).is_none_or(|range| range.covers(key)), "{place}");
        }
        for range in run.ranges() {
            assert!(range.lo < range.hi, "{place}");
            assert!(run.first_behind(&range.lo) <= run.first_behind(&range.hi), "{place}");
        }
        let newest = run.points(0, run.len()).map(|point| point.msn);
        let newest = newest.chain(run.ranges().iter().map(|range| range.msn)).max();
        assert_eq!(run.last_msn(), newest.unwrap_or(0), "{place}");
    }

    #[test]
    fn a_search_from_any_point_on_finds_the_first_one_from_there() {
        let run = long_sample();
        for from in 0..=run.len() {
            for number in 0..14u8 {
                let key = [b'k', number];
                assert_eq!(
                    run.lower_bound_after(from, &key),
                    run.lower_bound(&key).max(from),
                    "{from} {number}"
                );
            }
        }
    }

    #[test]
    fn pairs_of_a_run_make_the_run_that_they_make_one_by_one() {
        let (mut builder, keys) = (RunBuilder::default(), [&b"a"[..], b"bc", b"", b"d"]);
        let value = |index: usize| std::vec![index as u8; index * 3];
        let push =
            |builder: &mut RunBuilder, index: usize| builder.push(keys[index], 0, Kind::Put, &value(index));
        (0..4).for_each(|index| push(&mut builder, index));
        let all = builder.finish();
        for (from, to) in (0..=4).flat_map(|from| (from..=4).map(move |to| (from, to))) {
            let (mut one_by_one, mut at_once) = (RunBuilder::default(), RunBuilder::default());
            push(&mut one_by_one, 1);
            push(&mut at_once, 1);
            (from..to).for_each(|index| push(&mut one_by_one, index));
            at_once.push_pairs(&all, from, to);
            assert_eq!(at_once.finish().as_bytes(), one_by_one.finish().as_bytes(), "{from} {to}");
            let bytes = (from..to).map(|index| RunBuilder::bytes_of(keys[index], &value(index))).sum();
            let count = to.saturating_sub(from);
            assert_eq!(all.points_that_take(from, 4.max(from), bytes), count);
            assert_eq!(all.points_that_take(from, to, bytes + 1), count);
            if count > 0 {
                assert_eq!(all.points_that_take(from, to, bytes - 1), count - 1);
            }
        }
    }

    #[test]
    fn no_truncation_and_no_flipped_bit_makes_a_run_panic() {
        for whole in [sample(), long_sample()] {
            let whole = whole.as_bytes().to_vec();
            for len in 0..whole.len() {
                assert!(Run::parse(whole[..len].to_vec()).is_err(), "cut at {len}");
            }
            let mut believed = 0;
            for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                if let Ok(run) = Run::parse(bytes) {
                    assert_answers(&run, &std::format!("bit {bit} of byte {at}"));
                    believed += 1;
                }
            }
            assert!(believed > 0, "a flipped bit of a value is none of the run's business");
        }
    }
}
