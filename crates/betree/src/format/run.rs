//! The layout of a sorted run, before compression: the form of a partition and of a basement.
//!
//! ```text
//! entries | end of each entry u32 × (points + ranges) | points u32 | ranges u32
//! point: msn u64 | kind u8 | key length u32 | key | value
//! range: msn u64 | sides u8 (1: lo is an after cut, 2: hi is) | lo length u32 | lo | hi
//! ```
//! Ends count from the first entry. Points are ordered by (key, msn), ranges by their bounds and disjoint. A
//! run of pairs has no ranges, and each of its points is a put with msn 0. The counts stand last, because
//! they are known last: so a run is built in the memory where it stays.

use alloc::vec::Vec;

use crate::key::Cut;
use crate::message::{Kind, Msn, RangeDelete};

/// The two counts at a run's end, in bytes.
pub(crate) const COUNTS_BYTES: usize = 8;
/// The end of an entry, in bytes.
pub(crate) const END_BYTES: usize = 4;
/// The bytes of an entry before its key.
pub(crate) const HEAD_BYTES: usize = 13;
const KIND_AT: usize = 8;
const KEY_LEN_AT: usize = 9;
const LO_AFTER: u8 = 1;
const HI_AFTER: u8 = 2;

/// The number at an offset, if all of it is there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// The bytes of an entry before its key: sequence number and kind of a point, or sequence number and sides of
/// a range; then the key's length.
pub(crate) fn entry_head(msn: Msn, code: u8, key_len: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let [m0, m1, m2, m3, m4, m5, m6, m7, c, l0, l1, l2, l3] = &mut head;
    [*m0, *m1, *m2, *m3, *m4, *m5, *m6, *m7] = msn.to_le_bytes();
    *c = code;
    [*l0, *l1, *l2, *l3] = key_len.to_le_bytes();
    head
}

/// The code of a range's sides.
pub(crate) fn sides_of(range: &RangeDelete) -> u8 {
    let side = |cut: &Cut, code| if cut.is_after() { code } else { 0 };
    side(&range.lo, LO_AFTER) | side(&range.hi, HI_AFTER)
}

/// The sequence number of an entry; 0 if it is too short.
pub(crate) fn msn_of(entry: &[u8]) -> Msn {
    entry.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

/// The kind of a point; `None` for an unknown code.
pub(crate) fn kind_of(entry: &[u8]) -> Option<Kind> {
    entry.get(KIND_AT).copied().and_then(Kind::from_code)
}

/// The key of a point, and its value; `None` if the key does not end in the entry.
pub(crate) fn key_and_value(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let key_len = u32_at(entry, KEY_LEN_AT)? as usize;
    entry.get(HEAD_BYTES..)?.split_at_checked(key_len)
}

/// The range of an entry; `None` if it does not parse.
fn range_of(entry: &[u8]) -> Option<RangeDelete> {
    let sides = *entry.get(KIND_AT)?;
    let (lo, hi) = key_and_value(entry)?;
    let cut = |bytes: &[u8], after| if after { Cut::after(bytes) } else { Cut::before(bytes) };
    if sides & !(LO_AFTER | HI_AFTER) != 0 {
        return None;
    }
    Some(RangeDelete {
        lo: cut(lo, sides & LO_AFTER != 0),
        hi: cut(hi, sides & HI_AFTER != 0),
        msn: msn_of(entry),
    })
}

/// The structure of a run, all bytes of which were verified.
pub(crate) struct Parsed {
    /// The number of points.
    pub points: usize,
    /// The offset of the entries' ends.
    pub ends_at: usize,
    /// The ranges, in order.
    pub ranges: Vec<RangeDelete>,
    /// The greatest sequence number.
    pub last_msn: Msn,
}

/// Parses the bytes of a run from the device, and verifies them in every respect.
///
/// # Errors
/// The mismatch, in words.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, &'static str> {
    let counts_at = bytes.len().checked_sub(COUNTS_BYTES).ok_or("too short for its counts")?;
    let points = u32_at(bytes, counts_at).unwrap_or(0) as usize;
    let ranges = u32_at(bytes, counts_at + 4).unwrap_or(0) as usize;
    let entries = points.checked_add(ranges).ok_or("too many entries")?;
    let ends_bytes = entries.checked_mul(END_BYTES).ok_or("too many entries")?;
    let ends_at = counts_at.checked_sub(ends_bytes).ok_or("too short for its entries")?;
    let mut parsed = Parsed { points, ends_at, ranges: Vec::new(), last_msn: 0 };
    let (mut start, mut last_key, mut last_msn) = (0, <&[u8]>::default(), 0);
    for index in 0..entries {
        let end = u32_at(bytes, ends_at + index * END_BYTES).unwrap_or(0) as usize;
        if end < start + HEAD_BYTES || end > ends_at {
            return Err("an entry ends outside of the run");
        }
        let entry = bytes.get(start..end).unwrap_or_default();
        start = end;
        if index >= points {
            let range = range_of(entry).ok_or("a range that does not parse")?;
            if range.lo >= range.hi || parsed.ranges.last().is_some_and(|last| last.hi > range.lo) {
                return Err("ranges out of order");
            }
            parsed.last_msn = parsed.last_msn.max(range.msn);
            parsed.ranges.push(range);
            continue;
        }
        let (key, _) = key_and_value(entry).ok_or("a key longer than its entry")?;
        if kind_of(entry).is_none() {
            return Err("a message of unknown kind");
        }
        let msn = msn_of(entry);
        if index > 0 && (last_key, last_msn) >= (key, msn) {
            return Err("keys out of order");
        }
        (last_key, last_msn) = (key, msn);
        parsed.last_msn = parsed.last_msn.max(msn);
    }
    if start != ends_at {
        return Err("bytes after the last entry");
    }
    Ok(parsed)
}
