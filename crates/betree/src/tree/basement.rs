//! Basements: pairs, and messages over them.
//!
//! What comes to a leaf has something for most of its basements, and little for each. Where the last version's blocks may
//! be kept, messages are added to a basement as to a partition, without a look at its pairs, and written as a run of
//! their own; they are put together with the pairs once they are many, and by all that copies pairs.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::build::{Lift, Share};
use super::leaf_builder::LeafBuilder;
use super::{Change, Tree};
use crate::cache::Piece;
use crate::error::Result;
use crate::format::run::{Run, RunBuilder};
use crate::key::Cut;
use crate::message::{Kind, Point, RangeDelete};
use crate::node::{Basement, Body, Layers, Node, live, same_key, with_newer};
use crate::planted::{self, Bug};
use crate::upsert::{Upsert, fold};

/// A basement with its messages is not larger than so many basements of the usual size.
const SIZES_MAX: usize = 2;
/// The same where keys are mostly new.
const GROWING_SIZES_MAX: usize = 8;

impl Tree<'_> {
    /// A basement with messages added to it, without a look at what is there. `None` where it has to be
    /// looked at: blocks may not be kept, it would be too large or too many runs, or it might be left without a
    /// pair. A leaf that holds none is to be noticed.
    pub(super) fn with_messages(&self, basement: &Basement, points: &[Point<'_>]) -> Option<Basement> {
        let first = points.first()?;
        let new_bytes = points.iter().map(Point::bytes).sum::<usize>();
        let old_bytes = basement.piece.raw_bytes();
        let last_msn = basement.piece.last_msn();
        let is_newer = points.iter().all(|point| point.msn > last_msn);
        let may_delete = points.iter().any(|point| point.kind == Kind::Delete);
        let is_growing = self.dict.folds.lose_little();
        let sizes_max = if is_growing { GROWING_SIZES_MAX } else { SIZES_MAX };
        // What is much of it is better written with the rest than twice.
        let most_bytes = if is_growing { old_bytes } else { old_bytes / 2 };
        let too_large = new_bytes > most_bytes
            || old_bytes + new_bytes > self.geometry.basement_bytes as usize * sizes_max;
        if too_large || !is_newer || may_delete || !self.store.may_keep_blocks() {
            return None;
        }
        let piece = Piece::over(&self.store.cache, &basement.piece, points, &[])?;
        let mut first = basement.first.as_slice().min(&first.key).to_vec();
        if planted::is(Bug::SmallerKeyNotFirst) {
            first.clone_from(&basement.first);
        }
        Some(Basement { first, piece })
    }

    /// The pairs of basements, in their order, with the messages over them in them.
    pub(super) fn basement_pairs(&self, pieces: &[Arc<Piece>]) -> Result<Vec<Arc<Run>>> {
        let all = self.store.all_layers(pieces)?.into_iter().zip(pieces);
        let pairs = all.map(|(layers, piece)| {
            let pairs = pairs_of(layers, self.upsert);
            if piece.has_messages() {
                let out_bytes = pairs.as_bytes().len();
                self.dict.folds.note(piece.raw_bytes(), out_bytes, self.geometry.node_bytes);
            }
            pairs
        });
        Ok(pairs.collect())
    }

    /// A leaf of which no basement has messages. Nobody else names it.
    pub(super) fn folded(&self, leaf: &Arc<Node>) -> Result<Arc<Node>> {
        if !has_messages(leaf) {
            return Ok(leaf.clone());
        }
        let mut out = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
        self.copy_pairs(leaf, &Cut::LOW, &Cut::HIGH, &Lift::default(), Share::Pairs, &mut out)?;
        let leaf = self.with_body(leaf, Body::Leaf(out.finish().0));
        self.apply(Change { changed: Vec::from([leaf.clone()]), ..Change::default() });
        Ok(leaf)
    }
}

/// Whether it is a leaf with a basement that has messages.
pub(super) fn has_messages(leaf: &Node) -> bool {
    leaf.basements().iter().any(|basement| basement.piece.has_messages())
}

/// The pairs of a basement, with the messages over them in them.
fn pairs_of(layers: Layers, upsert: &dyn Upsert) -> Arc<Run> {
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
    merged(layers, &[], &[], upsert, &mut out);
    Arc::new(out.finish())
}

/// Where pairs go, in the order of their keys.
pub(super) trait Pairs {
    /// Takes the next pair.
    fn pair(&mut self, key: &[u8], value: &[u8]);
    /// Takes the next ones, those in `[from, to)` of a run of pairs.
    fn pairs(&mut self, run: &Run, from: usize, to: usize);
}

impl Pairs for RunBuilder {
    fn pair(&mut self, key: &[u8], value: &[u8]) {
        self.push(key, 0, Kind::Put, value);
    }

    fn pairs(&mut self, run: &Run, from: usize, to: usize) {
        self.push_pairs(run, from, to);
    }
}

impl Pairs for LeafBuilder<'_> {
    fn pair(&mut self, key: &[u8], value: &[u8]) {
        self.push(key, value);
    }

    fn pairs(&mut self, run: &Run, from: usize, to: usize) {
        self.push_pairs(run, from, to);
    }
}

/// Gives the pairs that messages make of what a basement holds, in order: points by (key, msn), and ranges of which
/// those that cover a point are older than it.
pub(super) fn merged(
    basement: Option<Layers>,
    points: &[Point<'_>],
    ranges: &[RangeDelete],
    upsert: &dyn Upsert,
    out: &mut impl Pairs,
) {
    let (pairs, older) = basement.map_or((None, None), Layers::into_pairs_and_messages);
    match older {
        None => merge(pairs.as_deref(), points, ranges, upsert, out),
        Some(older) => {
            let all = with_newer(Some(&older), points, ranges);
            let points: Vec<_> = all.points(0, all.len()).collect();
            merge(pairs.as_deref(), &points, all.ranges(), upsert, out);
        }
    }
}

fn merge(
    pairs: Option<&Run>,
    points: &[Point<'_>],
    ranges: &[RangeDelete],
    upsert: &dyn Upsert,
    out: &mut impl Pairs,
) {
    let empty = RunBuilder::default().finish();
    let pairs = pairs.unwrap_or(&empty);
    let mut newer = points;
    let mut covers = ranges;
    let mut at = 0;
    loop {
        // What lies before the next message, and is not covered, is taken as it is.
        let next = newer.first().map_or(pairs.len(), |p| pairs.lower_bound_after(at, &p.key));
        while at < next {
            let until = uncovered(pairs, at, next, &mut covers);
            out.pairs(pairs, at, until);
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
        let covered = covers.first().is_some_and(|r| r.covers(&first.key));
        if covered && old.is_some() && planted::is(Bug::RangeHidesNewerPoints) {
            continue;
        }
        if let Some(value) = fold(old.filter(|_| !covered), live(group), upsert) {
            out.pair(&first.key, &value);
        }
    }
}

/// The first of the pairs in `[from, to)` that a range covers, or `to`. Drops the ranges before it.
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
