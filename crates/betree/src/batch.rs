//! Changes that take effect together.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::record::{
    CLONE_PART, CLONE_RANGE, Change, Changes, DELETE, DELETE_RANGE, HEAD_BYTES, PUT, UPSERT, append, sides,
};
use crate::key::{Cut, KEY_BYTES_MAX};
use crate::message::PairCompression;
use crate::settings::DictId;

/// The most bytes that a freeing batch may put and still be accepted on a full volume.
const FREEING_PUTS_BYTES_MAX: u64 = 64 << 10;

/// A list of changes to any dictionaries of one environment, committed as one: after a crash all
/// of them are there or none.
///
/// It is kept in the form of a log record. Log and memtables share a large record with the batch instead of
/// copying it.
#[derive(Clone, Default)]
pub struct Batch {
    record: Arc<Vec<u8>>,
    changes: u32,
    puts_bytes: u64,
    frees: bool,
    frees_bytes: u64,
    /// The number of deletes of keys and of ranges.
    deletes: u32,
    replaces: bool,
    drawn_bytes: u64,
    clones: u32,
    clone_key_bytes_max: Option<usize>,
    /// The length of the longest key or prefix of keys.
    longest_key_bytes: usize,
    /// The length of a value that no record can hold.
    refused_value_bytes: Option<usize>,
    /// The compression that puts and upserts ask for from now on, and whether any asked.
    asked: PairCompression,
    asks: bool,
    /// One bit per dictionary; the highest stands for all ids that no volume has.
    dicts: u64,
}

/// A change of a whole range, as the tree takes it.
pub(crate) enum RangeChange<'b> {
    Delete {
        lo: Cut,
        hi: Cut,
    },
    /// The keys between two cuts behind the prefix `to` are replaced by those behind the prefix `from`.
    Clone {
        from: &'b [u8],
        to: &'b [u8],
        lo: Cut,
        hi: Cut,
    },
}

/// The capacity of a new record, in bytes.
const RECORD_BYTES_MIN: usize = 512;

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty batch with room for about `bytes` bytes of keys and values.
    pub fn with_capacity(bytes: usize) -> Batch {
        Batch { record: Arc::new(Vec::with_capacity(bytes)), ..Batch::default() }
    }

    /// Makes the puts and upserts that follow ask for this compression: see [`PairCompression`]. The first
    /// commit of a batch that asks for any makes a checkpoint that notes it in the volume: from then on
    /// programs that do not know it refuse the volume.
    pub fn compress_as(&mut self, asked: PairCompression) {
        self.asked = asked;
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, dict: DictId, key: &[u8], value: &[u8]) {
        self.push(PUT, dict, 0, key, value);
        self.puts_bytes += (key.len() + value.len()) as u64;
    }

    /// Removes `key`, if it is there.
    pub fn delete(&mut self, dict: DictId, key: &[u8]) {
        self.push(DELETE, dict, 0, key, &[]);
        self.deletes += 1;
    }

    /// Changes the value of `key` by the environment's [`Upsert`](crate::Upsert), without reading it.
    pub fn upsert(&mut self, dict: DictId, key: &[u8], delta: &[u8]) {
        self.push(UPSERT, dict, 0, key, delta);
        self.puts_bytes += (key.len() + delta.len()) as u64;
    }

    /// Removes every key in `[lo, hi)`. An empty range changes nothing.
    pub fn delete_range(&mut self, dict: DictId, lo: &Cut, hi: &Cut) {
        if lo < hi {
            self.push(DELETE_RANGE, dict, sides(lo, hi), lo.bytes(), hi.bytes());
            self.deletes += 1;
        }
    }

    /// Replaces all keys with the prefix `to` by those with the prefix `from`, as they are before the batch,
    /// at a cost that does not depend on their number (dissertation §4.2, §5.2).
    ///
    /// A batch with clones takes effect in this order, whatever the order of its changes: all sources are
    /// read; ranges are deleted; clones are made, in their order; the other changes follow, in theirs.
    pub fn clone_range(&mut self, dict: DictId, from: &[u8], to: &[u8]) {
        self.push(CLONE_RANGE, dict, 0, from, to);
        self.note_key(to.len());
        self.clones += 1;
    }

    /// As [`clone_range`](Batch::clone_range), but only for keys whose part after the prefix lies in `[lo,
    /// hi)`. An empty range changes nothing.
    pub fn clone_part(&mut self, dict: DictId, from: &[u8], to: &[u8], lo: &Cut, hi: &Cut) {
        if lo >= hi {
            return;
        }
        let ends = [to.len(), lo.bytes().len()].map(|len| (len as u32).to_le_bytes()).concat();
        self.push(CLONE_PART, dict, sides(lo, hi), from, &[&ends, to, lo.bytes(), hi.bytes()].concat());
        self.note_key(to.len() + lo.bytes().len().max(hi.bytes().len()));
        self.clones += 1;
    }

    /// As [`clone_range`](Batch::clone_range), and removes all keys with the prefix `from`.
    pub fn rename_range(&mut self, dict: DictId, from: &[u8], to: &[u8]) {
        if from == to {
            // The clone would come from what is deleted to where it was deleted.
            return;
        }
        self.delete_range(dict, &Cut::before(from), &Cut::after(from));
        self.clone_range(dict, from, to);
    }

    /// Makes the commit refuse clones whose keys might be longer than `bytes`, if that is less than
    /// [`KEY_BYTES_MAX`].
    pub fn limit_clone_keys(&mut self, bytes: usize) {
        self.clone_key_bytes_max = Some(bytes);
    }

    /// Declares that the batch frees about `bytes` bytes and puts little in comparison (a record, a marker):
    /// a full volume accepts it like a batch of deletes.
    pub fn mark_freeing(&mut self, bytes: u64) {
        self.frees = true;
        self.frees_bytes = self.frees_bytes.saturating_add(bytes);
    }

    /// Declares that the puts and clones of the batch replace about as much as they add: it may use room that
    /// is otherwise kept for deletes.
    pub fn mark_replacing(&mut self) {
        self.replaces = true;
    }

    /// Makes the batch take `bytes` of the room that was [set aside](crate::Env::set_aside); its commit
    /// reduces that room by as much.
    pub fn draw(&mut self, bytes: u64) {
        self.drawn_bytes = self.drawn_bytes.saturating_add(bytes);
    }

    /// Takes what another batch declares of itself, without its changes.
    pub(crate) fn take_marks(&mut self, other: &Batch) {
        self.frees |= other.frees;
        self.frees_bytes = self.frees_bytes.saturating_add(other.frees_bytes);
        self.replaces |= other.replaces;
        self.drawn_bytes = self.drawn_bytes.saturating_add(other.drawn_bytes);
        self.asks |= other.asks;
        self.clone_key_bytes_max =
            self.clone_key_bytes_max.into_iter().chain(other.clone_key_bytes_max).min();
    }

    /// Adds the changes of another batch behind its own.
    pub(crate) fn append(&mut self, other: &Batch) {
        Arc::make_mut(&mut self.record).extend_from_slice(&other.record);
        self.changes += other.changes;
        self.puts_bytes += other.puts_bytes;
        self.deletes += other.deletes;
        self.clones += other.clones;
        self.take_marks(other);
        self.longest_key_bytes = self.longest_key_bytes.max(other.longest_key_bytes);
        self.refused_value_bytes = self.refused_value_bytes.max(other.refused_value_bytes);
        self.dicts |= other.dicts;
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.changes as usize
    }

    /// The keys of its puts, deletes and upserts, in their order.
    pub fn keys(&self) -> impl Iterator<Item = (DictId, &[u8])> {
        Changes::of(&self.record).map_while(Result::ok).filter_map(|(dict, change)| match change {
            Change::Put { key, .. } | Change::Delete { key } | Change::Upsert { key, .. } => {
                Some((dict, key))
            }
            Change::DeleteRange { .. } | Change::CloneRange { .. } => None,
        })
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Its size in the log, in bytes. [`Env::commit`](crate::Env::commit) refuses a batch that is too large.
    pub fn bytes(&self) -> usize {
        self.record.len()
    }

    pub(crate) fn push(&mut self, kind: u8, dict: DictId, sides: u8, key: &[u8], value: &[u8]) {
        let (Ok(key_len), Ok(value_len)) = (u32::try_from(key.len()), u32::try_from(value.len())) else {
            self.note_key(key.len());
            self.refused_value_bytes = self.refused_value_bytes.max(Some(value.len()));
            return;
        };
        self.note_key(key.len().max(if kind == DELETE_RANGE { value.len() } else { 0 }));
        self.dicts |= 1 << dict.0.min(63);
        let record = Arc::make_mut(&mut self.record);
        // The changes of a small operation fit into one allocation.
        if record.capacity() == 0 {
            record.reserve((HEAD_BYTES + key.len() + value.len()).max(RECORD_BYTES_MIN));
        }
        let asked = if matches!(kind, PUT | UPSERT) { self.asked } else { PairCompression::Usual };
        self.asks |= asked != PairCompression::Usual;
        append(record, (kind, asked), dict, sides, (key_len, key), (value_len, value));
        self.changes += 1;
    }

    /// The bytes that it frees; 0 if unknown.
    pub(crate) fn frees_bytes(&self) -> u64 {
        self.frees_bytes
    }

    /// Whether it may free space.
    pub(crate) fn frees(&self) -> bool {
        self.frees || self.deletes > 0
    }

    /// The number of deletes of keys and of ranges.
    pub(crate) fn deletes(&self) -> u32 {
        self.deletes
    }

    /// Bytes that puts and upserts add, for the admission of space. Deletes do not count, nor do the few puts
    /// of a freeing batch.
    pub(crate) fn puts_bytes(&self) -> u64 {
        if self.frees && self.puts_bytes <= FREEING_PUTS_BYTES_MAX { 0 } else { self.puts_bytes }
    }

    /// Whether it replaces about as much as it adds.
    pub(crate) fn replaces(&self) -> bool {
        self.replaces
    }

    /// The bytes that it takes of the room set aside.
    pub(crate) fn drawn_bytes(&self) -> u64 {
        self.drawn_bytes
    }

    /// Whether any of its changes asks for a compression.
    pub(crate) fn asks_for_compression(&self) -> bool {
        self.asks
    }

    /// The number of clones.
    pub fn clones(&self) -> u32 {
        self.clones
    }

    /// The longest key allowed in a clone, in bytes.
    pub(crate) fn clone_key_bytes_max(&self) -> usize {
        self.clone_key_bytes_max.unwrap_or(KEY_BYTES_MAX).min(KEY_BYTES_MAX)
    }

    /// The record with the range changes first, and their number.
    pub(crate) fn ranges_first(&self) -> Result<(Arc<Vec<u8>>, u32)> {
        let (mut ranges, mut others) = (Batch::new(), Batch::new());
        for change in Changes::of(&self.record) {
            let (dict, change) = change?;
            match change {
                Change::Put { key, value, asked } => {
                    others.compress_as(asked);
                    others.put(dict, key, value);
                }
                Change::Delete { key } => others.delete(dict, key),
                Change::Upsert { key, delta, asked } => {
                    others.compress_as(asked);
                    others.upsert(dict, key, delta);
                }
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

    /// Refuses keys and values that no dictionary accepts.
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

#[cfg(test)]
mod tests {
    use super::*;

    const D: DictId = DictId(0);

    /// Each alone: what the commit goes by must not depend on how many batches became one.
    #[test]
    fn what_a_batch_declares_goes_along_when_it_joins_another() {
        let joined = |change: &dyn Fn(&mut Batch)| {
            let (mut all, mut other) = (Batch::new(), Batch::new());
            all.put(D, b"key", b"value");
            change(&mut other);
            all.append(&other);
            all
        };
        let asks = joined(&|batch| {
            batch.compress_as(PairCompression::None);
            batch.put(D, b"other", b"value");
        });
        assert!(asks.asks_for_compression() && !asks.frees() && !asks.replaces());
        let asked = Changes::of(asks.record()).map_while(Result::ok).filter_map(|(_, change)| match change {
            Change::Put { asked, .. } => Some(asked),
            _ => None,
        });
        assert!(asked.eq([PairCompression::Usual, PairCompression::None]));
        assert!(!joined(&|batch| batch.put(D, b"other", b"value")).asks_for_compression());
        let frees = joined(&|batch| batch.mark_freeing(7));
        assert_eq!((frees.frees(), frees.frees_bytes()), (true, 7));
        assert!(joined(&|batch| batch.delete_range(D, &Cut::LOW, &Cut::HIGH)).frees());
        assert!(joined(&Batch::mark_replacing).replaces());
        assert_eq!(joined(&|batch| batch.draw(9)).drawn_bytes(), 9);
        assert_eq!(joined(&|batch| batch.limit_clone_keys(11)).clone_key_bytes_max(), 11);
        assert_eq!(joined(&|batch| batch.clone_range(D, b"a", b"b")).clones(), 1);
        assert_eq!(joined(&|batch| batch.put(DictId(5), b"key", b"")).last_dict(), Some(5));
        assert_eq!(joined(&|batch| batch.put(D, b"other", b"value")).len(), 2);
        let too_long = joined(&|batch| batch.put(D, &alloc::vec![0; KEY_BYTES_MAX + 1], b""));
        assert!(matches!(too_long.validate(), Err(Error::KeyTooLong { .. })));
    }
}
