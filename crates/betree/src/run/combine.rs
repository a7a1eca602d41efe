//! Upserts of one key that become one.
//!
//! Each message of a key counts once, so deltas may only be combined where all that hold the older one give
//! it away together:
//!
//! - *Messages that move down* ([`combine()`]). What gives them away, a partition or a memtable, has them no
//!   longer in its next version, and what takes them has none of them yet. No reader is between two of them:
//!   a tree has no numbers for its readers, who see the versions of one epoch whole, before the move or after
//!   it. A view that sees only some of the messages of a memtable has the memtable, and the tree without it.
//!   Other edges to a node have its messages as they were: what they share is never changed.
//! - *A piece that is written whole* ([`combined()`]), for no lineage leads from it to what is on the device.
//!
//! Where a piece only gets newer messages, its older ones stay as they are: they may be on the device, or on
//! their way there in a checkpoint, and the newer ones are then written as a run over them
//! (`Piece::reusable_runs`). A delta that had an older one in it would count that twice.
//!
//! The one that stays has the number of the newest. So it is newer than all that it meets below, and a
//! replay knows by it that all of them have arrived.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{Run, RunBuilder};
use crate::message::Point;
use crate::planted::{self, Bug};
use crate::upsert::Upsert;

/// Upserts of one key, next to each other, and a delta with the effect of all of them.
pub(crate) struct Combined {
    /// Their indices among the points.
    indices: RangeInclusive<usize>,
    delta: Vec<u8>,
}

/// The upserts among points by (key, msn) that can become one with the next ones of their key.
pub(crate) fn combine(points: &[Point<'_>], upsert: &dyn Upsert) -> Vec<Combined> {
    let mut all = Vec::new();
    let mut first = 0;
    while first < points.len() {
        let (mut newest, mut delta) = (first, None);
        while let Some([older, newer]) = points.get(newest..).and_then(<[_]>::first_chunk::<2>)
            && older.kind.is_upsert()
            && newer.kind.is_upsert()
            && older.key == newer.key
            && let Some(both) = both(delta.as_deref().unwrap_or(older.value), newer.value, upsert)
        {
            (newest, delta) = (newest + 1, Some(both));
        }
        all.extend(delta.map(|delta| Combined { indices: first..=newest, delta }));
        first = newest + 1;
    }
    all
}

fn both(older: &[u8], newer: &[u8], upsert: &dyn Upsert) -> Option<Vec<u8>> {
    if planted::is(Bug::DeltasCombinedBackwards) {
        return upsert.combine(newer, older);
    }
    upsert.combine(older, newer)
}

/// The points with those that were combined in place of those that they were made of.
pub(crate) fn with_combined<'p>(points: &'p [Point<'_>], combined: &'p [Combined]) -> Cow<'p, [Point<'p>]> {
    if combined.is_empty() {
        return Cow::Borrowed(points);
    }
    let mut out = Vec::with_capacity(points.len());
    let mut at = 0;
    for Combined { indices, delta } in combined {
        out.extend_from_slice(points.get(at..*indices.start()).unwrap_or_default());
        let is_old = planted::is(Bug::DeltasCombinedUnderOldNumber);
        let numbered = points.get(if is_old { *indices.start() } else { *indices.end() });
        out.extend(numbered.map(|newest| Point { value: delta, ..newest.clone() }));
        at = indices.end() + 1;
    }
    out.extend_from_slice(points.get(at..).unwrap_or_default());
    Cow::Owned(out)
}

/// The run with as few upserts of each key as can be combined.
pub(crate) fn combined(run: Run, upsert: &dyn Upsert) -> Run {
    let points: Vec<Point<'_>> = run.points(0, run.len()).collect();
    let combined = combine(&points, upsert);
    if combined.is_empty() {
        return run;
    }
    let mut out = RunBuilder::with_room(run.as_bytes().len());
    for point in &*with_combined(&points, &combined) {
        out.push(&point.key, point.msn, point.kind, point.value);
    }
    out.set_ranges(run.ranges().to_vec());
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Cut;
    use crate::message::{Kind, Msn, PairCompression, RangeDelete, ZstdLevel};

    /// Appends deltas, and combines them as long as none has an exclamation mark.
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

    const UPSERT: Kind = Kind::Upsert(PairCompression::Usual);
    const PUT: Kind = Kind::Put(PairCompression::Usual);

    fn run_of(points: &[(&[u8], Msn, Kind, &[u8])]) -> Run {
        let mut builder = RunBuilder::default();
        points.iter().for_each(|(key, msn, kind, value)| builder.push(key, *msn, *kind, value));
        builder.set_ranges(Vec::from([RangeDelete { lo: Cut::LOW, hi: Cut::before(*b"b"), msn: 1 }]));
        builder.finish()
    }

    #[test]
    fn neighbours_of_one_key_become_one_with_the_number_and_the_wish_of_the_newest() {
        let zstd = Kind::Upsert(PairCompression::Zstd(ZstdLevel::DEFAULT));
        let run = run_of(&[
            (b"a", 2, UPSERT, b"alone"),
            (b"b", 3, PUT, b"base"),
            (b"b", 4, UPSERT, b"x"),
            (b"b", 7, UPSERT, b"y"),
            (b"b", 9, zstd, b"z"),
            (b"c", 5, UPSERT, b"1"),
            (b"c", 6, UPSERT, b"2"),
            (b"d", 8, Kind::Delete, b""),
        ]);
        let expected = run_of(&[
            (b"a", 2, UPSERT, b"alone"),
            (b"b", 3, PUT, b"base"),
            (b"b", 9, zstd, b"xyz"),
            (b"c", 6, UPSERT, b"12"),
            (b"d", 8, Kind::Delete, b""),
        ]);
        assert_eq!(combined(run, &Careful).as_bytes(), expected.as_bytes());
    }

    #[test]
    fn what_the_function_does_not_combine_stays_in_its_order() {
        let run = run_of(&[
            (b"b", 1, UPSERT, b"x"),
            (b"b", 2, UPSERT, b"y"),
            (b"b", 3, UPSERT, b"!"),
            (b"b", 4, UPSERT, b"z"),
            (b"b", 5, UPSERT, b"w"),
        ]);
        let expected = run_of(&[(b"b", 2, UPSERT, b"xy"), (b"b", 3, UPSERT, b"!"), (b"b", 5, UPSERT, b"zw")]);
        assert_eq!(combined(run, &Careful).as_bytes(), expected.as_bytes());
    }

    #[test]
    fn nothing_is_copied_where_nothing_is_combined() {
        let run = run_of(&[(b"a", 1, UPSERT, b"x"), (b"b", 2, PUT, b"y"), (b"b", 3, UPSERT, b"z")]);
        let points: Vec<_> = run.points(0, run.len()).collect();
        let none = combine(&points, &Careful);
        assert!(none.is_empty() && matches!(with_combined(&points, &none), Cow::Borrowed(_)));
    }
}
