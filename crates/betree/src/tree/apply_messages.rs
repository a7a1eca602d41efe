//! Applies messages to a node: they are newer than all that the node holds.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::build::Lift;
use super::leaf_builder::LeafBuilder;
use super::{Tree, TreeChange};
use crate::cache::Piece;
use crate::error::Result;
use crate::key::{Cut, Translation};
use crate::message::{Goto, Point, RangeDelete, outside};
use crate::node::{Basement, Body, Edge, Node, join_nulls};
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::run::{Combined, Run, RunBuilder, combine, combined, merged, with_combined, with_newer};

/// Messages on their way down: points by (key, msn) and disjoint ranges in order, all in one node's
/// coordinates and inside its bounds. A point is newer than a range of the same messages that covers it.
#[derive(Clone, Default)]
pub(crate) struct Messages<'m> {
    pub points: Vec<Point<'m>>,
    pub ranges: Vec<RangeDelete>,
    /// Disjoint too, also from the ranges, and older than the points that they cover.
    pub gotos: Vec<Goto>,
}

impl<'m> Messages<'m> {
    /// All messages that are pending for an edge; `run` is that of its partition.
    pub fn of(run: Option<&'m Run>, gotos: Vec<Goto>) -> Messages<'m> {
        Messages {
            points: run.map_or_else(Vec::new, |run| (0..run.len()).map(|i| run.point(i)).collect()),
            ranges: run.map_or_else(Vec::new, |run| run.ranges().to_vec()),
            gotos,
        }
    }

    /// The messages with upserts that became one in place of those that they were made of.
    pub(super) fn with_combined<'c>(&'c self, all: &'c [Combined]) -> Cow<'c, Messages<'c>> {
        match with_combined(&self.points, all) {
            Cow::Borrowed(_) => Cow::Borrowed(self),
            Cow::Owned(points) => {
                Cow::Owned(Messages { points, ranges: self.ranges.clone(), gotos: self.gotos.clone() })
            }
        }
    }

    /// The same messages in other coordinates; `back` leads from there to here.
    fn translate(&self, to: &Translation, back: &Translation) -> Messages<'m> {
        let points = self.points.iter().map(|point| {
            let key = match &point.key {
                Cow::Borrowed(key) => to.key(key),
                Cow::Owned(key) => Cow::Owned(to.key(key).into_owned()),
            };
            Point { key, ..*point }
        });
        Messages {
            points: points.collect(),
            ranges: self.ranges.iter().map(|r| r.translate(to)).collect(),
            gotos: self.gotos.iter().map(|goto| goto.rebase(to, back)).collect(),
        }
    }

    /// Splits off the points before the cut from the front of `points`.
    fn split_points<'s>(points: &mut &'s [Point<'m>], cut: &Cut) -> &'s [Point<'m>] {
        let at = points.partition_point(|p| cut.is_above(&p.key));
        let (head, rest) = points.split_at_checked(at).unwrap_or((points, &[]));
        *points = rest;
        head
    }

    fn ranges_within(&self, lo: &Cut, hi: &Cut) -> Vec<RangeDelete> {
        let is_before =
            |r: &RangeDelete| r.hi <= *lo || planted::is(Bug::RangeComesToFirstEdgeOnly) && r.lo < *lo;
        let from = self.ranges.partition_point(is_before);
        let reaching = self.ranges.get(from..).unwrap_or_default();
        reaching.iter().take_while(|r| r.lo < *hi).filter_map(|r| r.clip(lo, hi)).collect()
    }
}

/// The length of the longest key among points, in the coordinates below an edge, in bytes.
fn longest_behind(edge: &Edge, points: &[Point<'_>]) -> u32 {
    edge.lifted_len(points.iter().map(|p| p.key.len()).max().unwrap_or(0) as u32)
}

/// The messages of a null edge. Nothing lies below it, so a range delete would hide nothing; known damage is
/// kept.
pub(super) fn over_nothing(run: &Run) -> Run {
    let mut out = RunBuilder::with_room(run.as_bytes().len());
    run.points(0, run.len()).for_each(|p| out.push(&p.key, p.msn, p.kind, p.value));
    if !planted::is(Bug::DamageTakenForDelete) {
        out.set_ranges(run.damage().cloned().collect());
    }
    out.finish()
}

/// The effects of applying messages, beside the change of the node itself.
#[derive(Default)]
pub(crate) struct Applied {
    /// Whether a large share of the messages may go on to a child at once.
    pub may_pass: bool,
    pub change: TreeChange,
    /// The children that messages went on to.
    pub reached: Vec<NodeId>,
}

impl Tree<'_> {
    /// Returns the node's body with the messages applied; those of one key that can be combined come as one.
    /// `is_private`: the path taken is the only one to the node.
    pub fn apply_messages(
        &self,
        node: &Node,
        messages: &Messages<'_>,
        is_private: bool,
        applied: &mut Applied,
    ) -> Result<Body> {
        let all = combine(&messages.points, self.upsert);
        let messages = &*messages.with_combined(&all);
        match &node.body {
            Body::Interior(edges) => {
                Ok(Body::Interior(self.apply_to_edges(edges, messages, is_private, applied)?))
            }
            Body::Leaf(basements) => {
                let (lo, hi) = (&node.lo, &node.hi);
                Ok(Body::Leaf(self.apply_to_leaf(basements, lo, hi, messages, is_private)?.0))
            }
        }
    }

    pub(super) fn apply_to_edges(
        &self,
        edges: &[Edge],
        messages: &Messages<'_>,
        is_private: bool,
        applied: &mut Applied,
    ) -> Result<Vec<Edge>> {
        let mut with_gotos;
        let mut edges = edges;
        if !messages.gotos.is_empty() {
            with_gotos = edges.to_vec();
            for goto in &messages.gotos {
                with_gotos = self.place_goto(with_gotos, goto, &applied.change)?;
            }
            edges = &with_gotos;
        }
        // A GOTO of the same messages may have split one edge in two, or may come in two parts; the node
        // table counts neither yet.
        let others = edges;
        let is_sole = |edge: &Edge| {
            let all = others.iter().flat_map(Edge::references);
            messages.gotos.is_empty()
                || planted::is(Bug::HalvedEdgeTakenAsSole)
                || all.filter(|id| Some(*id) == edge.child).count() == 1
        };
        let mut points = messages.points.as_slice();
        let mut out = Vec::with_capacity(edges.len());
        for edge in edges {
            let is_private = is_private && is_sole(edge);
            let mine = Messages::split_points(&mut points, &edge.hi);
            let mut ranges = messages.ranges_within(&edge.lo, &edge.hi);
            if mine.is_empty() && ranges.is_empty() {
                out.push(edge.clone());
                continue;
            }
            let mut edge = edge.clone();
            let covers = |r: &RangeDelete| r.lo <= edge.lo && r.hi >= edge.hi;
            if ranges.iter().any(covers) && !planted::is(Bug::CoveredEdgeKept) {
                // The range covers all that is below and pending: a null edge remains, and the range itself
                // is done, unless it says that the keys were lost.
                edge = Edge::null(edge.lo, edge.hi);
                ranges.retain(RangeDelete::is_damage);
            }
            for range in &ranges {
                edge.gotos = outside(&edge.gotos, &range.lo, &range.hi);
            }
            let bytes = mine.iter().map(Point::bytes).sum::<usize>();
            let passes = applied.may_pass && self.is_passing(bytes);
            if passes && (edge.partition.is_none() || planted::is(Bug::MessagesOvertakeOlderOnes)) {
                let gotos = edge.gotos.clone();
                let mine = Messages { points: mine.to_vec(), ranges, gotos };
                let mut passed = self.pass(&edge, &mine, is_private, applied)?;
                if planted::is(Bug::MessagesOvertakeOlderOnes) {
                    passed.partition = edge.partition;
                }
                out.push(passed);
                continue;
            }
            // A run of their own is only for messages that are all newer than the older run: their sequence
            // numbers then tell them apart.
            let mut msns = mine.iter().map(|p| p.msn).chain(ranges.iter().map(|r| r.msn));
            let older = edge.partition.take();
            let grown = older.as_ref().filter(|older| msns.all(|msn| msn > older.last_msn()));
            let hides_all = edge.child.is_none() && !ranges.is_empty();
            if let Some(older) = grown.filter(|_| !passes && !hides_all)
                && let Some(piece) = Piece::over(&self.store.cache, older, mine, &ranges)
            {
                edge.longest_key = edge.longest_key.max(longest_behind(&edge, mine));
                edge.partition = Some(piece);
                out.push(edge);
                continue;
            }
            let older_run = older.as_ref().map(|piece| self.run(piece)).transpose()?;
            let mut run = with_newer(older_run.as_deref(), mine, &ranges);
            if hides_all {
                run = over_nothing(&run);
            }
            if passes {
                let all = Messages::of(Some(&run), edge.gotos.clone());
                out.push(self.pass(&edge, &all, is_private, applied)?);
                continue;
            }
            edge.longest_key = edge.longest_key.max(longest_behind(&edge, mine));
            edge.partition = (!run.is_empty()).then(|| match grown {
                Some(older) if !hides_all && older.may_keep_runs() => {
                    Piece::grown(&self.store.cache, run, older)
                }
                _ => Piece::new(&self.store.cache, combined(run, self.upsert)),
            });
            out.push(edge);
        }
        join_nulls(&mut out);
        Ok(out)
    }

    /// Applies messages, which replace all that is pending, to the child of an edge. A null edge gets a leaf
    /// if there are pairs among them. A child with other edges or other paths to it stays as it is, and a
    /// copy takes its place at this edge. Returns the new edge, with nothing pending.
    pub(super) fn pass(
        &self,
        edge: &Edge,
        messages: &Messages<'_>,
        is_private: bool,
        applied: &mut Applied,
    ) -> Result<Edge> {
        let mut new = Edge { partition: None, gotos: Vec::new(), ..edge.clone() };
        if let Some(id) = edge.child {
            let child = self.node(id)?;
            let gotos = messages.gotos.iter().map(|goto| edge.lifted_len(goto.longest_key_here())).max();
            let longest = longest_behind(edge, &messages.points).max(gotos.unwrap_or(0));
            new.longest_key = edge.longest_key.max(longest);
            let is_private = (is_private || planted::is(Bug::SharingNotInherited))
                && (self.is_private(id) || planted::is(Bug::SharedChildChanged));
            let below = messages.translate(&edge.translation, &edge.up());
            let body = self.apply_messages(&child, &below, is_private, applied)?;
            if is_private {
                applied.change.changed.push(self.with_body(&child, body));
                applied.reached.push(id);
            } else {
                let copy = self.new_node(child.height, child.lo.clone(), child.hi.clone(), body);
                applied.reached.push(copy.id);
                new.child = Some(copy.id);
                applied.change.added.push(copy);
            }
            return Ok(new);
        }
        let lift = Lift::into_child(&edge.lo, &edge.hi);
        let (lo, hi) = (lift.to.cut(&edge.lo), lift.to.cut(&edge.hi));
        let (basements, longest) =
            self.apply_to_leaf(&[], &lo, &hi, &messages.translate(&lift.to, &lift.back), true)?;
        if !basements.is_empty() {
            let leaf = self.new_node(0, lo, hi, Body::Leaf(basements));
            let (leaf, edge) = self.edge_to(leaf, &edge.lo, &edge.hi, lift, longest);
            applied.reached.push(leaf.id);
            applied.change.added.push(leaf);
            new = edge;
        }
        Ok(new)
    }

    /// The basements of a leaf with bounds `[lo, hi)` after the messages, and the length of the longest new
    /// key; keys of messages that were added to a basement unread do not count.
    fn apply_to_leaf(
        &self,
        basements: &[Basement],
        lo: &Cut,
        hi: &Cut,
        messages: &Messages<'_>,
        is_private: bool,
    ) -> Result<(Vec<Basement>, u32)> {
        let mut windows: Vec<(Cut, Cut)> = Vec::with_capacity(basements.len());
        for index in 0..basements.len().max(1) {
            let from = if index == 0 { lo.clone() } else { windows.last().map_or(Cut::LOW, |w| w.1.clone()) };
            let to = basements.get(index + 1).map_or_else(|| hi.clone(), |b| Cut::before(b.first.clone()));
            windows.push((from, to));
        }
        let mut points = messages.points.as_slice();
        let parts: Vec<(&[Point<'_>], Vec<RangeDelete>)> = windows
            .iter()
            .map(|(lo, hi)| (Messages::split_points(&mut points, hi), messages.ranges_within(lo, hi)))
            .collect();
        let covered = |part: &[RangeDelete], window: &(Cut, Cut)| {
            part.iter().any(|r| r.lo <= window.0 && r.hi >= window.1)
        };
        let mut wanted: Vec<Arc<Piece>> = Vec::new();
        let mut added: Vec<Option<Basement>> = Vec::with_capacity(basements.len());
        for ((basement, window), (points, ranges)) in basements.iter().zip(&windows).zip(&parts) {
            let is_untouched = points.is_empty() && ranges.is_empty();
            // A leaf with other paths to it is copied whole here, so its runs are merged now.
            let may_add = !is_untouched && is_private && ranges.is_empty();
            let grown = if may_add { self.with_messages(basement, points) } else { None };
            if !is_untouched && grown.is_none() && !covered(ranges, window) {
                wanted.push(basement.piece.clone());
            }
            added.push(grown);
        }
        let mut bases = self.all_layers(&wanted)?.into_iter();
        let expiry = self.expired_for_all();
        let mut out = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
        for (index, (window, (points, ranges))) in windows.iter().zip(&parts).enumerate() {
            let basement = basements.get(index);
            if points.is_empty() && ranges.is_empty() {
                basement.into_iter().for_each(|b| out.share(b));
                continue;
            }
            if let Some(Some(grown)) = added.get(index) {
                out.share(grown);
                continue;
            }
            let base = match basement {
                Some(_) if !covered(ranges, window) => bases.next(),
                _ => None,
            };
            let old_bytes = base.as_ref().and(basement).map_or(0, |basement| basement.piece.raw_bytes());
            let new_bytes = points.iter().map(|p| RunBuilder::bytes_of(&p.key, p.value)).sum::<usize>();
            let before_bytes = out.pushed_bytes();
            merged(base, points, ranges, &expiry, &mut out);
            let out_bytes = out.pushed_bytes() - before_bytes;
            // Messages over an empty basement say nothing about the yield of merges.
            if old_bytes > 0 {
                self.dict.merge_yield.note(old_bytes + new_bytes, out_bytes, self.geometry.node_bytes);
            }
        }
        Ok(out.finish())
    }
}
