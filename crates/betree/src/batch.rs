//! Changes that take effect together.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::key::Cut;
use crate::settings::DictId;

/// No more than this may a batch put that is taken on a full volume, in bytes.
const FREEING_PUTS_BYTES_MAX: u64 = 64 << 10;

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1 << 16;

/// A list of changes to any dictionaries of one environment, committed as one: after a crash all
/// of them are there or none.
///
/// It is kept in the form of a log record. Committing it does not copy large ones: log and
/// memtables share them with the batch.
#[derive(Clone, Default)]
pub struct Batch {
    record: Arc<Vec<u8>>,
    changes: u32,
    puts_bytes: u64,
    frees: bool,
    frees_bytes: u64,
    deletes: bool,
    replaces: bool,
    drawn_bytes: u64,
    clones: u32,
    clone_key_bytes_max: Option<usize>,
    /// The length of the longest key or prefix of keys.
    longest_key_bytes: usize,
    /// The length of a value that no record can hold.
    refused_value_bytes: Option<usize>,
    /// One bit a dictionary; the highest stands for all that no volume has.
    dicts: u64,
}

/// One change of a batch, borrowed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change<'b> {
    Put { key: &'b [u8], value: &'b [u8] },
    Delete { key: &'b [u8] },
    Upsert { key: &'b [u8], delta: &'b [u8] },
    DeleteRange { lo: Cut, hi: Cut },
    CloneRange { from: &'b [u8], to: &'b [u8], lo: Cut, hi: Cut },
}

/// A change of a whole range, as the tree takes it.
pub(crate) enum RangeChange<'b> {
    Delete {
        lo: Cut,
        hi: Cut,
    },
    /// What lies between two cuts behind the prefix `to` becomes what lies between them behind `from`.
    Clone {
        from: &'b [u8],
        to: &'b [u8],
        lo: Cut,
        hi: Cut,
    },
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const UPSERT: u8 = 3;
const DELETE_RANGE: u8 = 4;
const CLONE_RANGE: u8 = 5;
const CLONE_PART: u8 = 6;
const LO_AFTER: u8 = 1;
const HI_AFTER: u8 = 2;
/// kind, dictionary, sides of the cuts, reserved, two lengths.
const HEAD_BYTES: usize = 12;
/// The room that a record has at first.
const RECORD_BYTES_MIN: usize = 512;

impl Batch {
    /// An empty one.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty one with room for about so many bytes of keys and values.
    pub fn with_capacity(bytes: usize) -> Batch {
        Batch { record: Arc::new(Vec::with_capacity(bytes)), ..Batch::default() }
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, dict: DictId, key: &[u8], value: &[u8]) {
        self.push(PUT, dict, 0, key, value);
        self.puts_bytes += (key.len() + value.len()) as u64;
    }

    /// Removes `key`, if it is there.
    pub fn delete(&mut self, dict: DictId, key: &[u8]) {
        self.push(DELETE, dict, 0, key, &[]);
        self.deletes = true;
    }

    /// Changes the value of `key` by the environment's [`Upsert`](crate::Upsert), without reading it.
    pub fn upsert(&mut self, dict: DictId, key: &[u8], delta: &[u8]) {
        self.push(UPSERT, dict, 0, key, delta);
        self.puts_bytes += (key.len() + delta.len()) as u64;
    }

    /// Removes every key in `[lo, hi)`. An empty range changes nothing.
    pub fn delete_range(&mut self, dict: DictId, lo: &Cut, hi: &Cut) {
        if lo < hi {
            let sides = if lo.is_after() { LO_AFTER } else { 0 } | if hi.is_after() { HI_AFTER } else { 0 };
            self.push(DELETE_RANGE, dict, sides, lo.bytes(), hi.bytes());
            self.deletes = true;
        }
    }

    /// Makes all that begins with `to` what begins with `from`, as it stands before the batch, at a
    /// cost that does not depend on how much that is (dissertation §4.2, §5.2). What began with `to`
    /// before is gone.
    ///
    /// A batch with clones takes effect in this order, in which order ever its changes were added:
    /// all sources are looked at; ranges are deleted; clones are made, in their order; then come its
    /// other changes, in theirs.
    pub fn clone_range(&mut self, dict: DictId, from: &[u8], to: &[u8]) {
        self.push(CLONE_RANGE, dict, 0, from, to);
        self.note_key(to.len());
        self.clones += 1;
    }

    /// As [`clone_range`](Batch::clone_range), but only of keys and for keys of which what follows the
    /// prefix lies in `[lo, hi)`. An empty range changes nothing.
    pub fn clone_part(&mut self, dict: DictId, from: &[u8], to: &[u8], lo: &Cut, hi: &Cut) {
        if lo >= hi {
            return;
        }
        let ends = [to.len(), lo.bytes().len()].map(|len| (len as u32).to_le_bytes()).concat();
        let sides = if lo.is_after() { LO_AFTER } else { 0 } | if hi.is_after() { HI_AFTER } else { 0 };
        self.push(CLONE_PART, dict, sides, from, &[&ends, to, lo.bytes(), hi.bytes()].concat());
        self.note_key(to.len() + lo.bytes().len().max(hi.bytes().len()));
        self.clones += 1;
    }

    /// As [`clone_range`](Batch::clone_range), and what began with `from` is gone.
    pub fn rename_range(&mut self, dict: DictId, from: &[u8], to: &[u8]) {
        self.delete_range(dict, &Cut::before(from), &Cut::after(from));
        self.clone_range(dict, from, to);
    }

    /// Refuses clones whose keys might be longer than so many bytes, where that is less than
    /// [`KEY_BYTES_MAX`].
    pub fn limit_clone_keys(&mut self, bytes: usize) {
        self.clone_key_bytes_max = Some(bytes);
    }

    /// Says that the batch is there to free about so many bytes, and that what it puts (a record, a
    /// marker) is small beside it: it is taken on a full volume too, like one of deletes alone.
    pub fn mark_freeing(&mut self, bytes: u64) {
        self.frees = true;
        self.frees_bytes = self.frees_bytes.saturating_add(bytes);
    }

    /// Says that what the batch puts and clones takes the place of about as much, so that once it is carried out
    /// it adds nothing of size: it may use room that is otherwise kept for deletes.
    pub fn mark_replacing(&mut self) {
        self.replaces = true;
    }

    /// Says that the batch takes so many bytes of the room that was [set aside](crate::Env::set_aside): when it is
    /// committed, so much less is.
    pub fn draw(&mut self, bytes: u64) {
        self.drawn_bytes = self.drawn_bytes.saturating_add(bytes);
    }

    /// How many changes it holds.
    pub fn len(&self) -> usize {
        self.changes as usize
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Its size in the log in bytes, by which [`Env::commit`](crate::Env::commit) refuses one that is too large.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    fn push(&mut self, kind: u8, dict: DictId, sides: u8, key: &[u8], value: &[u8]) {
        let (Ok(key_len), Ok(value_len)) = (u32::try_from(key.len()), u32::try_from(value.len())) else {
            self.note_key(key.len());
            self.refused_value_bytes = self.refused_value_bytes.max(Some(value.len()));
            return;
        };
        self.note_key(key.len().max(if kind == DELETE_RANGE { value.len() } else { 0 }));
        self.dicts |= 1 << dict.0.min(63);
        let record = Arc::make_mut(&mut self.record);
        // A small operation's changes come in one piece, without growing.
        if record.capacity() == 0 {
            record.reserve((HEAD_BYTES + key.len() + value.len()).max(RECORD_BYTES_MIN));
        }
        record.extend_from_slice(&[kind, dict.0, sides, 0]);
        record.extend_from_slice(&key_len.to_le_bytes());
        record.extend_from_slice(&value_len.to_le_bytes());
        record.extend_from_slice(key);
        record.extend_from_slice(value);
        self.changes += 1;
    }

    /// How much space it is to give back, in bytes; 0 where that is not known.
    pub(crate) fn frees_bytes(&self) -> u64 {
        self.frees_bytes
    }

    /// Whether space may come back by it.
    pub(crate) fn frees(&self) -> bool {
        self.frees || self.deletes
    }

    /// Bytes that puts and upserts add, for the admission of space. Deletes count as nothing, nor do
    /// the few puts of a batch that frees.
    pub(crate) fn puts_bytes(&self) -> u64 {
        if self.frees && self.puts_bytes <= FREEING_PUTS_BYTES_MAX { 0 } else { self.puts_bytes }
    }

    /// Whether it adds nothing of size once it is carried out.
    pub(crate) fn replaces(&self) -> bool {
        self.replaces
    }

    /// How much of what was set aside it takes, in bytes.
    pub(crate) fn drawn_bytes(&self) -> u64 {
        self.drawn_bytes
    }

    /// How many clones it holds.
    pub(crate) fn clones(&self) -> u32 {
        self.clones
    }

    /// The longest that a key of a clone may be, in bytes.
    pub(crate) fn clone_key_bytes_max(&self) -> usize {
        self.clone_key_bytes_max.unwrap_or(KEY_BYTES_MAX).min(KEY_BYTES_MAX)
    }

    /// The record with the changes of ranges first, and how many these are.
    pub(crate) fn ranges_first(&self) -> Result<(Arc<Vec<u8>>, u32)> {
        let (mut ranges, mut others) = (Batch::new(), Batch::new());
        for change in Changes::of(&self.record) {
            let (dict, change) = change?;
            match change {
                Change::Put { key, value } => others.put(dict, key, value),
                Change::Delete { key } => others.delete(dict, key),
                Change::Upsert { key, delta } => others.upsert(dict, key, delta),
                Change::DeleteRange { lo, hi } => ranges.delete_range(dict, &lo, &hi),
                Change::CloneRange { from, to, lo, hi } if lo == Cut::LOW && hi == Cut::HIGH => {
                    ranges.clone_range(dict, from, to);
                }
                Change::CloneRange { from, to, lo, hi } => ranges.clone_part(dict, from, to, &lo, &hi),
            }
        }
        let count = ranges.changes;
        let record = Arc::make_mut(&mut ranges.record);
        record.extend_from_slice(&others.record);
        Ok((ranges.record, count))
    }

    fn note_key(&mut self, bytes: usize) {
        self.longest_key_bytes = self.longest_key_bytes.max(bytes);
    }

    /// Refuses what no dictionary takes.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::TooLarge`].
    pub(crate) fn validate(&self) -> Result<()> {
        if self.longest_key_bytes > KEY_BYTES_MAX {
            let (bytes, limit_bytes) = (self.longest_key_bytes as u64, KEY_BYTES_MAX as u64);
            return Err(Error::KeyTooLong { bytes, limit_bytes });
        }
        match self.refused_value_bytes {
            Some(bytes) => {
                let limit_bytes = u64::from(u32::MAX);
                Err(Error::TooLarge { what: "a value", bytes: bytes as u64, limit_bytes })
            }
            None => Ok(()),
        }
    }

    /// The highest dictionary that it changes.
    pub(crate) fn last_dict(&self) -> Option<u8> {
        self.dicts.checked_ilog2().map(|bit| bit as u8)
    }

    pub(crate) fn record(&self) -> &Arc<Vec<u8>> {
        &self.record
    }
}

/// The changes in a record, in the order in which they were added; an error ends them.
pub(crate) struct Changes<'b> {
    rest: &'b [u8],
}

impl<'b> Changes<'b> {
    pub fn of(record: &'b [u8]) -> Changes<'b> {
        Changes { rest: record }
    }

    /// How much of the record is left behind the change that came last, which ends with its value.
    pub fn rest_len(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self) -> Option<(DictId, Change<'b>)> {
        let (head, rest) = self.rest.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, dict, sides, _, k0, k1, k2, k3, v0, v1, v2, v3] = *head;
        let key_len = u32::from_le_bytes([k0, k1, k2, k3]) as usize;
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let key = rest.get(..key_len).filter(|key| is_key(key))?;
        let value_end = key_len.checked_add(value_len)?;
        let value = rest.get(key_len..value_end)?;
        let change = match kind {
            PUT => Change::Put { key, value },
            DELETE => Change::Delete { key },
            UPSERT => Change::Upsert { key, delta: value },
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

/// Whether it is no longer than any key that was ever committed.
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
        let taken = self.take();
        if taken.is_none() {
            self.rest = &[];
        }
        Some(taken.ok_or(Error::BadRecord))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_back_the_changes_in_order() {
        let (a, b) = (DictId(0), DictId(1));
        let mut batch = Batch::new();
        batch.put(a, b"k", b"v");
        batch.delete(b, b"");
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
                (a, Change::Put { key: b"k", value: b"v" }),
                (b, Change::Delete { key: b"" }),
                (a, Change::Upsert { key: b"u", delta: b"d" }),
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
