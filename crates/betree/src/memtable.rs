//! The memtable: the mutable head of the root's buffer.
//!
//! A message comes here first, into an ordered map that takes it without copying others. A full memtable is
//! frozen and then flushed to the root as one sorted batch. It holds every message of its dictionary from its
//! first sequence number to its last, so one number per dictionary ("everything up to here is in the tree")
//! determines the start of replay.

mod map;

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use map::KeyMap;

use crate::key::Cut;
use crate::message::{Bytes, Kind, Msn, POINT_OVERHEAD_BYTES, Point, RangeDelete, RangeSet};
use crate::upsert::Upsert;

/// One pending change of a key.
struct Pending {
    msn: Msn,
    kind: Kind,
    value: Bytes,
}

/// The pending changes of one key, oldest first: a put or a delete alone, or upserts whose base is in older
/// buffers.
enum Chain {
    One(Pending),
    Upserts(Vec<Pending>),
}

impl Chain {
    fn all(&self) -> &[Pending] {
        match self {
            Chain::One(one) => core::slice::from_ref(one),
            Chain::Upserts(all) => all,
        }
    }
}

/// A buffer's answer for a key.
pub(crate) enum Found {
    /// The value, and no older buffer matters.
    Value(Vec<u8>),
    /// There is no value, and no older buffer matters.
    Absent,
    /// Older buffers decide.
    Open,
}

/// The messages of a dictionary that are not in its tree yet.
#[derive(Default)]
pub(crate) struct Memtable {
    points: KeyMap<Chain>,
    ranges: RangeSet,
    point_bytes: usize,
    /// The bytes of the records that values were a part of, replaced values included; and the last such
    /// record.
    records_bytes: usize,
    last_record: Option<Arc<Vec<u8>>>,
    first_msn: Option<Msn>,
    last_msn: Msn,
}

impl Memtable {
    fn stamp(&mut self, msn: Msn) {
        self.first_msn.get_or_insert(msn);
        self.last_msn = msn;
    }

    /// Sets a key's value; `msn` is newer than all before.
    pub fn put(&mut self, key: &[u8], msn: Msn, value: Bytes) {
        if let Some(record) = value.record()
            && self.last_record.as_ref().is_none_or(|last| !Arc::ptr_eq(last, record))
        {
            self.records_bytes += record.len();
            self.last_record = Some(record.clone());
        }
        self.replace(key, Pending { msn, kind: Kind::Put, value });
    }

    /// Removes a key; `msn` is newer than all before.
    pub fn delete(&mut self, key: &[u8], msn: Msn) {
        self.replace(key, Pending { msn, kind: Kind::Delete, value: Bytes::Own(Vec::new()) });
    }

    fn replace(&mut self, key: &[u8], new: Pending) {
        self.stamp(new.msn);
        self.point_bytes += cost(key, &new);
        let mut replaced_bytes = 0;
        self.points.change(key, |chain| match chain {
            None => Some(Chain::One(new)),
            Some(chain) => {
                replaced_bytes = chain.all().iter().map(|p| cost(key, p)).sum::<usize>();
                *chain = Chain::One(new);
                None
            }
        });
        self.point_bytes -= replaced_bytes;
    }

    /// Changes a key's value; `msn` is newer than all before. If the base is here, the function is applied at
    /// once.
    pub fn upsert(&mut self, key: &[u8], msn: Msn, delta: &[u8], function: &dyn Upsert) {
        self.stamp(msn);
        let resolved = |old: Option<&[u8]>| match function.apply(old, delta) {
            Some(value) => Pending { msn, kind: Kind::Put, value: Bytes::Own(value) },
            None => Pending { msn, kind: Kind::Delete, value: Bytes::Own(Vec::new()) },
        };
        let upsert = || Pending { msn, kind: Kind::Upsert, value: delta.into() };
        let covered = !self.ranges.is_empty() && self.ranges.covers(key);
        let (mut added_bytes, mut replaced_bytes) = (0, 0);
        self.points.change(key, |chain| match chain {
            None => {
                let new = if covered { resolved(None) } else { upsert() };
                added_bytes = cost(key, &new);
                Some(if new.kind == Kind::Upsert {
                    Chain::Upserts(alloc::vec![new])
                } else {
                    Chain::One(new)
                })
            }
            Some(Chain::One(old)) => {
                replaced_bytes = cost(key, old);
                *old = resolved((old.kind == Kind::Put).then_some(&*old.value));
                added_bytes = cost(key, old);
                None
            }
            Some(Chain::Upserts(all)) => {
                let new = upsert();
                added_bytes = cost(key, &new);
                all.push(new);
                None
            }
        });
        self.point_bytes = self.point_bytes + added_bytes - replaced_bytes;
    }

    /// Removes every key in `[lo, hi)`; `msn` is newer than all before. Covered points here are dropped at
    /// once.
    pub fn delete_range(&mut self, lo: &Cut, hi: &Cut, msn: Msn) {
        self.stamp(msn);
        let covered: Vec<Vec<u8>> = match key_bounds(lo, hi) {
            Some((from, to)) => {
                self.points.range(&from, to.as_deref()).map(|(key, _)| key.to_vec()).collect()
            }
            None => Vec::new(),
        };
        for key in covered {
            if let Some(chain) = self.points.remove(&key) {
                self.point_bytes -= chain.all().iter().map(|p| cost(&key, p)).sum::<usize>();
            }
        }
        self.ranges.insert(lo, hi, msn);
    }

    /// Looks up a key. Pushes upserts whose base is in older buffers to `pending`, newest first.
    pub fn get(&self, key: &[u8], pending: &mut Vec<Vec<u8>>) -> Found {
        match self.points.get(key) {
            Some(Chain::One(one)) if one.kind == Kind::Put => return Found::Value(one.value.to_vec()),
            Some(Chain::One(_)) => return Found::Absent,
            Some(Chain::Upserts(all)) => pending.extend(all.iter().rev().map(|p| p.value.to_vec())),
            None => {}
        }
        if self.ranges.covers(key) { Found::Absent } else { Found::Open }
    }

    /// The points in `[lo, hi)`, in order.
    pub fn points_within(&self, lo: &Cut, hi: &Cut) -> impl DoubleEndedIterator<Item = Point<'_>> {
        let range = key_bounds(lo, hi).map(|(from, to)| self.points.range(&from, to.as_deref()));
        range.into_iter().flatten().flat_map(|(key, chain)| {
            chain.all().iter().map(move |p| Point {
                key: Cow::Borrowed(key),
                msn: p.msn,
                kind: p.kind,
                value: &p.value,
            })
        })
    }

    /// The ranges that reach into `[lo, hi)`, clipped to it.
    pub fn ranges_within(&self, lo: &Cut, hi: &Cut) -> Vec<RangeDelete> {
        self.ranges.within(lo, hi)
    }

    /// The range delete that covers the keys right behind a place, or right before it (`before`).
    pub fn range_around(&self, at: &Cut, before: bool) -> Option<RangeDelete> {
        self.ranges.around(at, before)
    }

    /// The first sequence number in it.
    pub fn first_msn(&self) -> Option<Msn> {
        self.first_msn
    }

    /// The last sequence number in it.
    pub fn last_msn(&self) -> Msn {
        self.last_msn
    }

    /// Whether no message ever arrived.
    pub fn is_empty(&self) -> bool {
        self.first_msn.is_none()
    }

    /// Its size as a buffer in bytes.
    pub fn bytes(&self) -> usize {
        self.point_bytes + self.ranges.bytes()
    }

    /// Whether it has `bytes_max` bytes as a buffer, or keeps records of twice as many: a key that is written
    /// again and again adds only records.
    pub fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes() >= bytes_max || self.records_bytes >= bytes_max * 2
    }
}

/// The first key of a range and the first one behind it, if there is one; `None` if no key can lie in it.
fn key_bounds(lo: &Cut, hi: &Cut) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let (from, to) = (lo.first_key_behind()?, hi.first_key_behind());
    to.as_ref().is_none_or(|to| *to > from).then_some((from, to))
}

fn cost(key: &[u8], pending: &Pending) -> usize {
    key.len() + pending.value.len() + POINT_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE_BYTES: usize = 4096;
    const BYTES_MAX: usize = 64 << 10;

    /// The number of values that fit, each in a record of its own and under a key by `key`, and the full
    /// memtable.
    fn values_until_full(key: impl Fn(u64) -> Vec<u8>) -> (usize, Memtable) {
        let mut memtable = Memtable::default();
        let mut count = 0;
        while !memtable.is_full(BYTES_MAX) {
            let record = Arc::new(alloc::vec![7; VALUE_BYTES]);
            memtable.put(&key(count), count + 1, Bytes::of(&record, 0..VALUE_BYTES));
            count += 1;
        }
        (count as usize, memtable)
    }

    #[test]
    fn it_is_full_by_the_bytes_of_its_messages() {
        let (count, memtable) = values_until_full(|number| number.to_be_bytes().to_vec());
        assert_eq!(count, BYTES_MAX / VALUE_BYTES);
        assert!(memtable.bytes() >= BYTES_MAX);
    }

    #[test]
    fn repeated_writes_of_one_key_fill_it_by_their_records() {
        let (count, memtable) = values_until_full(|_| b"key".to_vec());
        assert_eq!(count, 2 * BYTES_MAX / VALUE_BYTES);
        assert!(memtable.bytes() < 2 * VALUE_BYTES);
    }
}
