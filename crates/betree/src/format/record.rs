//! The record of a batch in the log: its changes one after the other.
//!
//! ```text
//! kind u8 | dictionary u8 | sides of the cuts u8 (1: the lower is after, 2: the upper)
//! | compression that a put or upsert asks for u8 (0: the usual one)
//! | key length u32 | value length u32 | key | value
//! ```
//! | kind | change | key | value |
//! |---|---|---|---|
//! | 1 | put | key | value |
//! | 2 | delete | key | none |
//! | 3 | upsert | key | delta |
//! | 4 | range delete | lower cut | upper cut |
//! | 5 | clone of a prefix | from | to |
//! | 6 | clone of a part of a prefix | from | lengths of to and lower cut u32, to, lower cut, upper cut |
//!
//! A record with another kind is refused with the kind's number, and never skipped in part.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::key::Cut;
use crate::key::KEY_BYTES_MAX;
use crate::message::PairCompression;
use crate::settings::DictId;

pub(crate) const PUT: u8 = 1;
pub(crate) const DELETE: u8 = 2;
pub(crate) const UPSERT: u8 = 3;
pub(crate) const DELETE_RANGE: u8 = 4;
pub(crate) const CLONE_RANGE: u8 = 5;
pub(crate) const CLONE_PART: u8 = 6;
/// Kinds above this one are of later versions.
const KINDS_END: u8 = CLONE_PART;
const LO_AFTER: u8 = 1;
const HI_AFTER: u8 = 2;
/// The bytes of a change before key and value.
pub(crate) const HEAD_BYTES: usize = 12;
/// One change of a batch, borrowed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'b> {
    /// Sets a value.
    Put {
        /// The key.
        key: &'b [u8],
        /// The value.
        value: &'b [u8],
        /// The compression that it asks for.
        asked: PairCompression,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: &'b [u8],
    },
    /// Changes a value by the upsert function.
    Upsert {
        /// The key.
        key: &'b [u8],
        /// The delta for the function.
        delta: &'b [u8],
        /// The compression that it asks for.
        asked: PairCompression,
    },
    /// Removes all keys between two cuts.
    DeleteRange {
        /// The lower.
        lo: Cut,
        /// The upper.
        hi: Cut,
    },
    /// Makes keys with one prefix appear under another.
    CloneRange {
        /// The prefix of the source.
        from: &'b [u8],
        /// The prefix of the copy.
        to: &'b [u8],
        /// The lower bound of the cloned part, among the rests of keys behind the prefix.
        lo: Cut,
        /// The upper bound.
        hi: Cut,
    },
}

/// Appends a change to a record; the lengths are those of key and value. Only puts and upserts ask for a
/// compression.
pub(crate) fn append(
    record: &mut Vec<u8>,
    (kind, asked): (u8, PairCompression),
    dict: DictId,
    sides: u8,
    (key_len, key): (u32, &[u8]),
    (value_len, value): (u32, &[u8]),
) {
    record.extend_from_slice(&[kind, dict.0, sides, asked.code()]);
    record.extend_from_slice(&key_len.to_le_bytes());
    record.extend_from_slice(&value_len.to_le_bytes());
    record.extend_from_slice(key);
    record.extend_from_slice(value);
}

/// The code for the sides of a range's cuts.
pub(crate) fn sides(lo: &Cut, hi: &Cut) -> u8 {
    let lo = if lo.is_after() { LO_AFTER } else { 0 };
    let hi = if hi.is_after() { HI_AFTER } else { 0 };
    lo | hi
}

/// The changes in a record, in the order in which they were added; an error ends them.
pub(crate) struct Changes<'b> {
    rest: &'b [u8],
}

impl<'b> Changes<'b> {
    pub fn of(record: &'b [u8]) -> Changes<'b> {
        Changes { rest: record }
    }

    /// The number of bytes behind the last returned change, which ends with its value.
    pub fn rest_len(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self) -> Option<(DictId, Change<'b>)> {
        let (head, rest) = self.rest.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, dict, sides, asked, k0, k1, k2, k3, v0, v1, v2, v3] = *head;
        if sides & !(LO_AFTER | HI_AFTER) != 0 {
            return None;
        }
        let key_len = u32::from_le_bytes([k0, k1, k2, k3]) as usize;
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let key = rest.get(..key_len).filter(|key| is_key(key))?;
        let value_end = key_len.checked_add(value_len)?;
        let value = rest.get(key_len..value_end)?;
        let asked = PairCompression::from_code(asked)?;
        if asked != PairCompression::Usual && !matches!(kind, PUT | UPSERT) {
            return None;
        }
        let change = match kind {
            PUT => Change::Put { key, value, asked },
            DELETE => Change::Delete { key },
            UPSERT => Change::Upsert { key, delta: value, asked },
            DELETE_RANGE if !is_key(value) => return None,
            DELETE_RANGE => {
                let (lo, hi) = (cut(key, sides & LO_AFTER != 0), cut(value, sides & HI_AFTER != 0));
                if lo >= hi {
                    return None;
                }
                Change::DeleteRange { lo, hi }
            }
            CLONE_RANGE if !is_key(value) => return None,
            CLONE_RANGE => Change::CloneRange { from: key, to: value, lo: Cut::LOW, hi: Cut::HIGH },
            CLONE_PART => {
                let (to_len, rest) = value.split_first_chunk::<4>()?;
                let (lo_len, rest) = rest.split_first_chunk::<4>()?;
                let (to, rest) = rest.split_at_checked(u32::from_le_bytes(*to_len) as usize)?;
                let (lo, hi) = rest.split_at_checked(u32::from_le_bytes(*lo_len) as usize)?;
                if to.len().saturating_add(lo.len().max(hi.len())) > KEY_BYTES_MAX {
                    return None;
                }
                let (lo, hi) = (cut(lo, sides & LO_AFTER != 0), cut(hi, sides & HI_AFTER != 0));
                if lo >= hi {
                    return None;
                }
                Change::CloneRange { from: key, to, lo, hi }
            }
            _ => return None,
        };
        self.rest = rest.get(value_end..)?;
        Some((DictId(dict), change))
    }
}

/// Whether it is short enough for a key.
fn is_key(bytes: &[u8]) -> bool {
    bytes.len() <= KEY_BYTES_MAX
}

fn cut(bytes: &[u8], after: bool) -> Cut {
    if after { Cut::after(bytes) } else { Cut::before(bytes) }
}

impl<'b> Iterator for Changes<'b> {
    type Item = Result<(DictId, Change<'b>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let kind = self.rest.first().copied().unwrap_or_default();
        let taken = self.take();
        if taken.is_none() {
            self.rest = &[];
        }
        Some(taken.ok_or_else(|| match kind {
            0..=KINDS_END => Error::BadRecord,
            // The replay adds the place.
            kind => Error::UnknownKind { what: "a log record of kind", number: kind.into(), offset: 0 },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::message::ZstdLevel;

    #[test]
    fn a_record_returns_its_changes_in_order() {
        let (a, b) = (DictId(0), DictId(1));
        let mut batch = Batch::new();
        batch.put(a, b"k", b"v");
        batch.delete(b, b"");
        let asked = PairCompression::Zstd(ZstdLevel::DEFAULT);
        batch.compress_as(asked);
        batch.upsert(a, b"u", b"d");
        batch.delete_range(b, &Cut::before(*b"x"), &Cut::after(*b"x"));
        batch.delete_range(b, &Cut::after(*b"x"), &Cut::before(*b"x"));
        batch.clone_range(a, b"from", b"to");
        let (lo, hi) = (Cut::after(*b"5"), Cut::before(*b"77"));
        batch.clone_part(b, b"from", b"to", &lo, &hi);
        batch.clone_part(b, b"from", b"to", &hi, &lo);
        let all: Vec<_> = Changes::of(batch.record()).collect::<Result<_>>().unwrap();
        assert_eq!(
            all,
            [
                (a, Change::Put { key: b"k", value: b"v", asked: PairCompression::Usual }),
                (b, Change::Delete { key: b"" }),
                (a, Change::Upsert { key: b"u", delta: b"d", asked }),
                (b, Change::DeleteRange { lo: Cut::before(*b"x"), hi: Cut::after(*b"x") }),
                (a, Change::CloneRange { from: b"from", to: b"to", lo: Cut::LOW, hi: Cut::HIGH }),
                (b, Change::CloneRange { from: b"from", to: b"to", lo, hi }),
            ]
        );
        assert_eq!(batch.len(), 6);
    }

    #[test]
    fn a_range_whose_ends_are_not_in_order_is_no_change() {
        for (kind, lo, value) in [
            (DELETE_RANGE, &b"b"[..], &b"a"[..]),
            (DELETE_RANGE, b"a", b"a"),
            (CLONE_PART, b"from", b"\x02\0\0\0\x01\0\0\0toba"),
        ] {
            let mut batch = Batch::new();
            batch.push(kind, DictId(0), 0, lo, value);
            let read: Vec<_> = Changes::of(batch.record()).collect();
            assert_eq!(read, [Err(Error::BadRecord)], "kind {kind}");
        }
    }

    #[test]
    fn an_unknown_kind_is_named_and_reserved_bytes_must_be_zero() {
        let mut batch = Batch::new();
        batch.put(DictId(0), b"k", b"v");
        let whole = batch.record().as_slice();
        for kind in [7u8, 100, 255] {
            let mut later = whole.to_vec();
            later.extend_from_slice(whole);
            later[whole.len()] = kind;
            let read: Vec<_> = Changes::of(&later).skip(1).collect();
            let unknown = Error::UnknownKind { what: "a log record of kind", number: kind.into(), offset: 0 };
            assert_eq!(read, [Err(unknown)]);
        }
        for (at, value) in [(0, 0), (2, 4), (2, 128), (3, PairCompression::CODES_END), (3, 255)] {
            let mut other = whole.to_vec();
            other[at] = value;
            assert_eq!(Changes::of(&other).collect::<Vec<_>>(), [Err(Error::BadRecord)], "{value} at {at}");
        }
        // What makes no pair asks for no compression.
        let mut delete = Batch::new();
        delete.delete(DictId(0), b"k");
        let mut other = delete.record().to_vec();
        other[3] = 1;
        assert_eq!(Changes::of(&other).collect::<Vec<_>>(), [Err(Error::BadRecord)]);
    }

    #[test]
    fn every_truncation_of_a_record_is_an_error_or_a_prefix() {
        let mut batch = Batch::new();
        batch.put(DictId(0), b"key", b"value");
        batch.clone_part(DictId(0), b"from", b"to", &Cut::before(*b"1"), &Cut::before(*b"2"));
        let whole = batch.record().as_slice();
        for len in 0..whole.len() {
            let read: Vec<_> = Changes::of(&whole[..len]).collect();
            let boundary = len == 0 || len == HEAD_BYTES + 8;
            assert_eq!(read.iter().all(Result::is_ok), boundary, "cut at {len}");
        }
    }
}
