//! The memtable: the mutable head of the root's buffer.
//!
//! A message comes here first, into an ordered map that takes it without copying others. A full memtable is
//! frozen and then flushed to the root as one sorted batch. It holds every message of its dictionary from its
//! first sequence number to its last, so one number per dictionary ("everything up to here is in the tree")
//! determines the start of replay.
//!
//! Entries that newer ones replace stay while views see them.

mod chain;
mod map;
mod range_history;

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use chain::{Chain, Pending};
use map::KeyMap;
use range_history::RangeHistory;

use crate::error::Error;
use crate::key::Cut;
use crate::message::{Bytes, Kind, Msn, PairCompression, Point, RangeDelete};
use crate::planted::{self, Bug};
use crate::upsert::Upsert;
use crate::views::Seen;

/// A buffer's answer for a key.
pub(crate) enum Found {
    /// The value, and no older buffer matters.
    Value(Vec<u8>),
    /// There is no value, and no older buffer matters.
    Absent,
    /// The value was lost, and no older buffer matters: the error of known damage.
    Lost(Error),
    /// Older buffers decide.
    Open,
}

/// The messages of a dictionary that are not in its tree yet.
#[derive(Default)]
pub(crate) struct Memtable {
    points: KeyMap<Chain>,
    /// The range deletes, and those of earlier moments that views see.
    ranges: RangeHistory,
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
    pub fn put(&mut self, key: &[u8], msn: Msn, value: Bytes, asked: PairCompression, seen: &Seen) {
        if let Some(record) = value.record()
            && self.last_record.as_ref().is_none_or(|last| !Arc::ptr_eq(last, record))
        {
            self.records_bytes += record.len();
            self.last_record = Some(record.clone());
        }
        self.push(key, Pending::message(msn, Kind::Put(asked), value), seen);
    }

    /// Removes a key; `msn` is newer than all before.
    pub fn delete(&mut self, key: &[u8], msn: Msn, seen: &Seen) {
        self.push(key, Pending::message(msn, Kind::Delete, Bytes::Own(Vec::new())), seen);
    }

    fn push(&mut self, key: &[u8], new: Pending, seen: &Seen) {
        self.stamp(new.msn);
        self.point_bytes += new.cost(key);
        let mut dropped_bytes = 0;
        self.points.change(key, new.msn, |chain| match chain {
            None => Some(Chain::One(new)),
            Some(chain) => {
                dropped_bytes = chain.push(key, new, seen);
                None
            }
        });
        self.point_bytes -= dropped_bytes;
    }

    /// Changes a key's value; `msn` is newer than all before. If the base is here, the function is applied at
    /// once; two changes without a base become one if the function can combine them.
    pub fn upsert(
        &mut self,
        key: &[u8],
        msn: Msn,
        (delta, asked): (&[u8], PairCompression),
        function: &dyn Upsert,
        seen: &Seen,
    ) {
        self.stamp(msn);
        let unresolved = || Pending::message(msn, Kind::Upsert(asked), delta.into());
        let resolved = |old: Option<&[u8]>| match function.apply(old, delta) {
            Some(value) => Pending::message(msn, Kind::Put(asked), Bytes::Own(value)),
            None => Pending::message(msn, Kind::Delete, Bytes::Own(Vec::new())),
        };
        let covered = !self.ranges.newest().is_empty() && self.ranges.newest().covers(key);
        let (mut added_bytes, mut dropped_bytes) = (0, 0);
        self.points.change(key, msn, |chain| {
            let Some(chain) = chain else {
                let new = if covered { resolved(None) } else { unresolved() };
                added_bytes = new.cost(key);
                return Some(Chain::One(new));
            };
            let (new, includes_newest) = match chain.messages() {
                [base] if !base.kind().is_some_and(Kind::is_upsert) => {
                    (resolved(base.kind().is_some_and(Kind::is_put).then_some(&*base.value)), false)
                }
                [] if covered => (resolved(None), false),
                [.., last]
                    if last.kind().is_some_and(Kind::is_upsert)
                        && (!seen.between(last.msn, msn) || planted::is(Bug::DeltasCombinedAcrossViews)) =>
                {
                    match function.combine(&last.value, delta) {
                        Some(both) => {
                            let is_old = planted::is(Bug::DeltasCombinedUnderOldNumber);
                            let msn = if is_old { last.msn } else { msn };
                            (Pending::message(msn, Kind::Upsert(asked), Bytes::Own(both)), true)
                        }
                        None => (unresolved(), false),
                    }
                }
                _ => (unresolved(), false),
            };
            added_bytes = new.cost(key);
            dropped_bytes =
                if includes_newest { chain.replace_newest(key, new) } else { chain.push(key, new, seen) };
            None
        });
        self.point_bytes = self.point_bytes + added_bytes - dropped_bytes;
    }

    /// Removes every key in `[lo, hi)`; `msn` is newer than all before. Covered points here are dropped at
    /// once, except those that views see.
    pub fn delete_range(&mut self, lo: &Cut, hi: &Cut, msn: Msn, seen: &Seen) {
        self.stamp(msn);
        let covered: Vec<Vec<u8>> = match key_bounds(lo, hi) {
            Some((from, to)) => {
                self.points.range(&from, to.as_deref()).map(|(key, _)| key.to_vec()).collect()
            }
            None => Vec::new(),
        };
        for key in covered {
            if !seen.is_empty() {
                self.push(&key, Pending::covered(msn), seen);
            }
            if seen.is_empty() || self.points.get(&key).is_some_and(Chain::is_spent) {
                self.point_bytes -= self.points.remove(&key).map_or(0, |chain| chain.cost(&key));
            }
        }
        self.ranges.insert(lo, hi, msn, seen);
    }

    /// Whether all of it is newer than `at`.
    pub fn is_newer_than(&self, at: Msn) -> bool {
        self.first_msn.is_none_or(|first| first > at)
    }

    /// Each key in order, with the number of its newest change.
    pub fn newest_msns(&self) -> impl Iterator<Item = (&[u8], Msn)> {
        self.points.range(&[], None).map(|(key, chain)| (key, chain.newest_msn().unwrap_or(0)))
    }

    /// Looks up a key as of `at`. Pushes upserts whose base is in older buffers to `pending`, newest first.
    pub fn get(&self, key: &[u8], at: Msn, pending: &mut Vec<Vec<u8>>) -> Found {
        let messages = self.points.get(key).map_or(&[][..], |chain| chain.messages_at(at));
        for message in messages.iter().rev() {
            match message.kind() {
                Some(Kind::Put(_)) => return Found::Value(message.value.to_vec()),
                Some(Kind::Delete) => return Found::Absent,
                Some(Kind::Upsert(_)) => pending.push(message.value.to_vec()),
                None => {}
            }
        }
        if self.ranges.at(at).covers(key) { Found::Absent } else { Found::Open }
    }

    /// The points in `[lo, hi)` as of `at`, in order.
    pub fn points_within(&self, lo: &Cut, hi: &Cut, at: Msn) -> impl Iterator<Item = Point<'_>> {
        let range = key_bounds(lo, hi).map(|(from, to)| self.points.range(&from, to.as_deref()));
        range.into_iter().flatten().flat_map(move |(key, chain)| {
            chain.messages_at(at).iter().filter_map(move |p| {
                Some(Point { key: Cow::Borrowed(key), msn: p.msn, kind: p.kind()?, value: &p.value })
            })
        })
    }

    /// The messages of points in `[lo, hi)` as of `at`, in order. Nothing is looked for at the far end.
    pub fn messages_within<'m>(
        &'m self,
        lo: &Cut,
        hi: &'m Cut,
        at: Msn,
    ) -> impl Iterator<Item = (&'m [u8], Kind, &'m Bytes)> {
        let ahead = lo.first_key_behind().map(|from| self.points.range(&from, None));
        ahead.into_iter().flatten().take_while(|(key, _)| hi.is_above(key)).flat_map(move |(key, chain)| {
            chain.messages_at(at).iter().filter_map(move |p| Some((key, p.kind()?, &p.value)))
        })
    }

    /// As [`messages_within`](Memtable::messages_within), from the last to the first.
    pub fn messages_back_within<'m>(
        &'m self,
        lo: &'m Cut,
        hi: &Cut,
        at: Msn,
    ) -> impl Iterator<Item = (&'m [u8], Kind, &'m Bytes)> {
        let behind = self.points.range(&[], hi.first_key_behind().as_deref()).rev();
        behind.take_while(|(key, _)| !lo.is_above(key)).flat_map(move |(key, chain)| {
            chain.messages_at(at).iter().rev().filter_map(move |p| Some((key, p.kind()?, &p.value)))
        })
    }

    /// The ranges as of `at` that reach into `[lo, hi)`, clipped to it.
    pub fn ranges_within(&self, lo: &Cut, hi: &Cut, at: Msn) -> Vec<RangeDelete> {
        self.ranges.at(at).within(lo, hi)
    }

    /// The range delete as of `at` that covers the keys right behind a place, or right before it (`before`).
    pub fn range_around(&self, place: &Cut, before: bool, at: Msn) -> Option<RangeDelete> {
        self.ranges.at(at).around(place, before)
    }

    /// The first sequence number in it.
    pub fn first_msn(&self) -> Option<Msn> {
        self.first_msn
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

/// Changes of one dictionary, in which a transaction looks for one that it must not pass over.
pub(crate) trait ChangeSource {
    /// The last sequence number in them.
    fn last_msn(&self) -> Msn;

    /// The number of the newest change of a key, if there is one.
    fn newest_msn(&self, key: &[u8]) -> Option<Msn>;

    /// A change in `[lo, hi)` newer than `since`: its key, or the first that its range can hold there, and
    /// its number.
    fn newer_within(&self, lo: &Cut, hi: &Cut, since: Msn) -> Option<(Vec<u8>, Msn)>;
}

impl ChangeSource for Memtable {
    fn last_msn(&self) -> Msn {
        self.last_msn
    }

    fn newest_msn(&self, key: &[u8]) -> Option<Msn> {
        let point = self.points.get(key).and_then(|chain| chain.newest_msn());
        let range = self.ranges.newest().around(&Cut::before(key), false).filter(|range| range.covers(key));
        point.max(range.map(|range| range.msn))
    }

    fn newer_within(&self, lo: &Cut, hi: &Cut, since: Msn) -> Option<(Vec<u8>, Msn)> {
        let (from, to) = key_bounds(lo, hi)?;
        let mut points = self.points.range_since(&from, to.as_deref(), since);
        let point = points
            .find_map(|(key, chain)| Some((key.to_vec(), chain.newest_msn().filter(|msn| *msn > since)?)));
        point.or_else(|| {
            let ranges = self.ranges.newest().within(lo, hi);
            let mut newer = ranges.into_iter().filter(|range| range.msn > since);
            newer.find_map(|range| Some((key_bounds(&range.lo, &range.hi)?.0, range.msn)))
        })
    }
}

/// The first key of a range and the first one behind it, if there is one; `None` if no key can lie in it.
pub(crate) fn key_bounds(lo: &Cut, hi: &Cut) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let (from, to) = (lo.first_key_behind()?, hi.first_key_behind());
    to.as_ref().is_none_or(|to| *to > from).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::POINT_OVERHEAD_BYTES;

    const VALUE_BYTES: usize = 4096;
    const BYTES_MAX: usize = 64 << 10;

    /// The number of values that fit, each in a record of its own and under a key by `key`, and the full
    /// memtable.
    fn values_until_full(key: impl Fn(u64) -> Vec<u8>) -> (usize, Memtable) {
        let mut memtable = Memtable::default();
        let mut count = 0;
        while !memtable.is_full(BYTES_MAX) {
            let record = Arc::new(alloc::vec![7; VALUE_BYTES]);
            let value = Bytes::of(&record, 0..VALUE_BYTES);
            memtable.put(&key(count), count + 1, value, PairCompression::Usual, &Seen::default());
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

    /// Appends deltas, and combines those without an exclamation mark.
    struct Careful;

    impl Upsert for Careful {
        fn name(&self) -> &str {
            "careful"
        }

        fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
            Some([old.unwrap_or_default(), delta].concat())
        }

        fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
            (!older.contains(&b'!') && !newer.contains(&b'!')).then(|| [older, newer].concat())
        }
    }

    /// The deltas that wait for a base, oldest first, and the base.
    fn look(memtable: &Memtable, key: &[u8], at: Msn) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let mut pending = Vec::new();
        let base = match memtable.get(key, at, &mut pending) {
            Found::Value(value) => Some(value),
            Found::Absent | Found::Open | Found::Lost(_) => None,
        };
        pending.reverse();
        (pending, base)
    }

    #[test]
    fn upserts_without_a_base_become_one_where_no_view_is_between() {
        let (mut memtable, mut seen) = (Memtable::default(), Seen::default());
        for (msn, delta) in [(1, b"a"), (2, b"b")] {
            memtable.upsert(b"key", msn, (delta, PairCompression::Usual), &Careful, &seen);
        }
        let two_bytes = memtable.bytes();
        assert_eq!(look(&memtable, b"key", Msn::MAX), (Vec::from([b"ab".to_vec()]), None));
        seen.add(2);
        memtable.upsert(b"key", 3, (b"c", PairCompression::Usual), &Careful, &seen);
        assert_eq!(look(&memtable, b"key", Msn::MAX).0, [b"ab".to_vec(), b"c".to_vec()]);
        assert_eq!(look(&memtable, b"key", 2).0, [b"ab".to_vec()]);
        assert_eq!(memtable.bytes(), two_bytes + b"key".len() + 1 + POINT_OVERHEAD_BYTES);
        seen.remove(2);
        memtable.delete(b"key", 4, &seen);
        assert_eq!(memtable.bytes(), b"key".len() + POINT_OVERHEAD_BYTES);
    }
}
