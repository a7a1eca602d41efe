//! Applies messages to pairs.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Layers, Run, RunBuilder, live, same_key, with_newer};
use crate::expiry::Expiry;
use crate::key::Cut;
use crate::message::{Kind, PairCompression, Point, RangeDelete, subtract};
use crate::planted::{self, Bug};
use crate::upsert::{Upsert, fold};

/// The pairs of a basement with the messages over them applied.
pub(crate) fn pairs_of(layers: Layers, upsert: &dyn Upsert) -> Arc<Run> {
    if let Some(pairs) = layers.only().filter(|run| run.is_pairs()) {
        return pairs.clone();
    }
    let layers = match layers.newest_first().last() {
        Some(oldest) if planted::is(Bug::PairsCopiedWithoutMessages) => {
            Layers::of(core::slice::from_ref(oldest))
        }
        _ => Some(layers),
    };
    let mut out = RunBuilder::default();
    // Each reader hides by itself what has expired; a copy is made for all.
    merged(layers, &[], &[], &Expiry::at(upsert, None), &mut out);
    Arc::new(out.finish())
}

/// Receives pairs in the order of their keys.
pub(crate) trait Pairs {
    /// Takes the next pair, with the compression that it asks for.
    fn pair(&mut self, key: &[u8], value: &[u8], asked: PairCompression);
    /// Takes the next pairs, those in `[from, to)` of a run of pairs.
    fn pairs(&mut self, run: &Run, from: usize, to: usize);
    /// Takes known damage, in order, before all pairs behind its lower bounds. Pairs inside of it are newer.
    fn damage(&mut self, ranges: Vec<RangeDelete>);
}

impl Pairs for RunBuilder {
    fn pair(&mut self, key: &[u8], value: &[u8], asked: PairCompression) {
        self.push(key, 0, Kind::Put(asked), value);
    }

    fn pairs(&mut self, run: &Run, from: usize, to: usize) {
        self.push_pairs(run, from, to);
    }

    fn damage(&mut self, ranges: Vec<RangeDelete>) {
        self.set_ranges(ranges);
    }
}

/// Applies messages to the pairs of a basement and passes on the result in order, without values that have
/// expired. Known damage stays where nothing newer says what is there: deltas alone do not. The points come
/// by (key, msn); a range that covers a point is older than it.
pub(crate) fn merged(
    basement: Option<Layers>,
    points: &[Point<'_>],
    ranges: &[RangeDelete],
    expiry: &Expiry<'_>,
    out: &mut impl Pairs,
) {
    let (pairs, older) = basement.map_or((None, None), Layers::into_pairs_and_messages);
    match older {
        None => merge(pairs.as_deref(), points, ranges, expiry, out),
        Some(older) => {
            let all = with_newer(Some(&older), points, ranges);
            let points: Vec<_> = all.points(0, all.len()).collect();
            merge(pairs.as_deref(), &points, all.ranges(), expiry, out)
        }
    }
}

fn merge(
    pairs: Option<&Run>,
    points: &[Point<'_>],
    ranges: &[RangeDelete],
    expiry: &Expiry<'_>,
    out: &mut impl Pairs,
) {
    let empty = RunBuilder::default().finish();
    let pairs = pairs.unwrap_or(&empty);
    let damage = damage_left(points, ranges, expiry);
    if !damage.is_empty() && !planted::is(Bug::DamageForgottenByMerge) {
        out.damage(damage);
    }
    let mut newer = points;
    let mut covers = ranges;
    let mut at = 0;
    loop {
        // Pairs before the next message and outside of ranges are taken as they are.
        let next = newer.first().map_or(pairs.len(), |p| pairs.lower_bound_after(at, &p.key));
        while at < next {
            let until = uncovered(pairs, at, next, &mut covers);
            pass_on(pairs, at, until, expiry, out);
            at = until + usize::from(until < next);
        }
        let (group, rest) = newer.split_at_checked(same_key(newer)).unwrap_or_default();
        newer = rest;
        let Some(first) = group.first() else { return };
        let old = (at < pairs.len() && pairs.key(at) == &*first.key).then(|| pairs.point(at).value);
        at += usize::from(old.is_some());
        while covers.first().is_some_and(|r| !r.hi.is_above(&first.key)) {
            covers = covers.get(1..).unwrap_or_default();
        }
        let cover = covers.first().filter(|r| r.covers(&first.key));
        let covered = cover.is_some();
        if cover.is_some_and(RangeDelete::is_damage) && !is_healed(group) {
            continue;
        }
        if covered && old.is_some() && planted::is(Bug::RangeHidesNewerPoints) {
            continue;
        }
        let value = fold(old.filter(|_| !covered), live(group), expiry.upsert);
        if let Some(value) = value.and_then(|value| expiry.kept(value)) {
            let asked = group.last().map_or(PairCompression::Usual, |newest| newest.kind.asked());
            out.pair(&first.key, &value, asked);
        }
    }
}

/// Whether the messages of one key say what it is, whatever was there before.
fn is_healed(group: &[Point<'_>]) -> bool {
    live(group).first().is_some_and(|oldest| !oldest.kind.is_upsert())
}

/// The known damage among ranges, without the keys that messages over it have deleted: nothing else would say
/// of these that they are absent.
fn damage_left(points: &[Point<'_>], ranges: &[RangeDelete], expiry: &Expiry<'_>) -> Vec<RangeDelete> {
    let damage: Vec<RangeDelete> = ranges.iter().filter(|range| range.is_damage()).cloned().collect();
    let mut absent = Vec::new();
    for range in &damage {
        let from = points.partition_point(|point| range.lo.is_above(&point.key));
        let to = points.partition_point(|point| range.hi.is_above(&point.key));
        let mut inside = points.get(from..to).unwrap_or_default();
        while let Some(first) = inside.first() {
            let (group, rest) = inside.split_at_checked(same_key(inside)).unwrap_or_default();
            inside = rest;
            if is_healed(group)
                && fold(None, live(group), expiry.upsert).and_then(|value| expiry.kept(value)).is_none()
            {
                let key = first.key.as_ref();
                absent.push(RangeDelete::damage(Cut::before(key), Cut::just_after(key)));
            }
        }
    }
    subtract(&damage, &absent)
}

/// Passes on the pairs in `[from, to)`, but what has expired.
fn pass_on(pairs: &Run, from: usize, to: usize, expiry: &Expiry<'_>, out: &mut impl Pairs) {
    if expiry.is_idle() {
        return out.pairs(pairs, from, to);
    }
    let mut at = from;
    while at < to {
        let until = (at..to).find(|index| expiry.has_expired(pairs.point(*index).value)).unwrap_or(to);
        out.pairs(pairs, at, until);
        if until < to
            && let Some(left) = expiry.kept(Cow::Borrowed(pairs.point(until).value))
        {
            out.pair(pairs.key(until), &left, pairs.point(until).kind.asked());
        }
        at = until + 1;
    }
}

/// The index of the first pair in `[from, to)` that a range covers, or `to`. Drops the ranges before it.
fn uncovered(pairs: &Run, from: usize, to: usize, covers: &mut &[RangeDelete]) -> usize {
    if covers.is_empty() {
        return to;
    }
    (from..to)
        .find(|index| {
            let key = pairs.key(*index);
            while covers.first().is_some_and(|r| !r.hi.is_above(key)) {
                *covers = covers.get(1..).unwrap_or_default();
            }
            covers.first().is_some_and(|r| r.covers(key))
        })
        .unwrap_or(to)
}

/// The folded pairs of a basement in several runs, if the oldest run holds pairs and the first key remains;
/// otherwise `None`.
pub(crate) fn only_folded(layers: Layers, upsert: &dyn Upsert) -> Option<Arc<Run>> {
    let first = layers.newest_first().map(|run| run.key(0).to_vec()).min()?;
    let is_foldable =
        layers.only().is_none() && layers.newest_first().last().is_some_and(|run| run.is_pairs());
    if !is_foldable {
        return None;
    }
    let pairs = pairs_of(layers, upsert);
    // A basement begins with its first key, and is never empty.
    (!pairs.is_empty() && pairs.key(0) == first).then_some(pairs)
}
