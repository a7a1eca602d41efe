//! The part of a node that an edge shows, and new nodes made of it: the primitives under split, merge, grow
//! and shrink.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::leaf_builder::LeafBuilder;
use super::{Tree, astray};
use crate::cache::Piece;
use crate::error::Result;
use crate::invariant::internal;
use crate::key::{Cut, SEPARATOR, Translation, shared_len};
use crate::message::inside;
use crate::node::{Basement, Body, Edge, Node, join_nulls};
use crate::planted::{self, Bug};
use crate::run::{Run, RunBuilder};

/// Translations between the coordinates of two nodes, both ways, for one window.
#[derive(Default)]
pub(super) struct Lift {
    pub to: Translation,
    pub back: Translation,
}

impl Lift {
    /// From a parent's coordinates to those of a new child for exactly `[lo, hi)`. Strips the whole
    /// components that the bounds share, and no more: the halves of a node that is split within a directory
    /// or a file keep their keys, and so can share its basements.
    pub fn into_child(lo: &Cut, hi: &Cut) -> Lift {
        let shared = lo.bytes().get(..shared_len(lo, hi)).unwrap_or_default();
        let shared = shared.iter().rposition(|b| *b == SEPARATOR).map_or(0, |at| at + 1);
        let prepend = lo.bytes().get(..shared).unwrap_or_default().to_vec();
        Lift { to: Translation::strip(shared), back: Translation { strip_len: 0, prepend } }
    }

    /// From the coordinates of an edge's child to those of the edge's node.
    pub fn out_of_child(edge: &Edge) -> Lift {
        Lift { to: edge.up(), back: edge.translation.clone() }
    }

    /// `self` first, `second` after it.
    pub fn then(&self, second: &Lift) -> Lift {
        Lift { to: self.to.then(&second.to), back: second.back.then(&self.back) }
    }

    fn changes_nothing(&self) -> bool {
        self.to.is_identity()
    }
}

/// The run in other coordinates.
fn lift_run(run: &Run, to: &Translation) -> Run {
    let mut out = RunBuilder::default();
    for point in run.points(0, run.len()) {
        out.push(&to.key(&point.key), point.msn, point.kind, point.value);
    }
    out.set_ranges(run.ranges().iter().map(|r| r.translate(to)).collect());
    out.finish()
}

/// Which basements a new leaf may share with the leaf that it is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// None: their pairs are packed anew.
    Nothing,
    /// Those without messages.
    Pairs,
    /// Those with messages too.
    All,
}

impl Tree<'_> {
    /// The edge in other coordinates, with its pending messages.
    pub(super) fn lift_edge(&self, edge: &Edge, lift: &Lift) -> Result<Edge> {
        let partition = match &edge.partition {
            Some(piece) if !lift.changes_nothing() => {
                let run = lift_run(&*self.run(piece)?, &lift.to);
                Some(Piece::new(&self.store.cache, run))
            }
            other => other.as_ref().map(|piece| piece.fork(&self.store.cache)),
        };
        let (lo, hi) = (lift.to.cut(&edge.lo), lift.to.cut(&edge.hi));
        if edge.child.is_none() {
            // A null edge translates nothing: the longest pending key is its bound.
            let longest_key = match &partition {
                Some(piece) => self.run(piece)?.longest_key(),
                None => 0,
            };
            return Ok(Edge { longest_key, partition, ..Edge::null(lo, hi) });
        }
        Ok(Edge {
            lo,
            hi,
            translation: lift.back.then(&edge.translation),
            child: edge.child,
            longest_key: edge.longest_key,
            partition,
            gotos: edge.gotos.iter().map(|goto| goto.rebase(&lift.to, &lift.back)).collect(),
        })
    }

    /// The part of an edge inside `[lo, hi)`: a narrower window of the same child.
    pub(super) fn narrow(&self, edge: &Edge, lo: &Cut, hi: &Cut) -> Result<Option<Edge>> {
        let (lo, hi) = ((&edge.lo).max(lo), (&edge.hi).min(hi));
        if *lo == edge.lo && *hi == edge.hi {
            return Ok(Some(edge.clone()));
        }
        if lo >= hi {
            return Ok(None);
        }
        let partition = self.partition_within(edge, lo, hi)?;
        let gotos = inside(&edge.gotos, lo, hi);
        let mut part = Edge { lo: lo.clone(), hi: hi.clone(), partition, gotos, ..edge.clone() };
        if planted::is(Bug::StripDerivedFromWindow) && edge.child.is_some() {
            part.translation.strip_len = shared_len(lo, hi);
        }
        Ok(Some(part))
    }

    /// The part of an edge's partition for `[lo, hi)`.
    pub(super) fn partition_within(&self, edge: &Edge, lo: &Cut, hi: &Cut) -> Result<Option<Arc<Piece>>> {
        let Some(piece) = &edge.partition else { return Ok(None) };
        let run: Arc<Run> = self.run(piece)?;
        let mut out = RunBuilder::default();
        for p in run.points(run.first_behind(lo), run.first_behind(hi)) {
            out.push(&p.key, p.msn, p.kind, p.value);
        }
        out.set_ranges(run.ranges().iter().filter_map(|r| r.clip(lo, hi)).collect());
        Ok((!out.is_empty()).then(|| Piece::new(&self.store.cache, out.finish())))
    }

    /// The edges of an interior node inside `[lo, hi)` of its coordinates, through `lift`.
    pub(super) fn edges_within(&self, node: &Node, lo: &Cut, hi: &Cut, lift: &Lift) -> Result<Vec<Edge>> {
        let mut edges = Vec::with_capacity(node.edges().len());
        for edge in node.edges() {
            if let Some(edge) = self.narrow(edge, lo, hi)? {
                edges.push(self.lift_edge(&edge, lift)?);
            }
        }
        join_nulls(&mut edges);
        Ok(edges)
    }

    /// The edges that an edge to an interior child shows, through `lift`.
    ///
    /// # Errors
    /// If the edge shows more than the child has: between the edges would be a gap, which a node does not
    /// store.
    pub(super) fn edges_of(&self, child: &Node, edge: &Edge, lift: &Lift) -> Result<Vec<Edge>> {
        let (lo, hi) = edge.shown();
        if lo < child.lo || hi > child.hi {
            return Err(astray(child.id));
        }
        self.edges_within(child, &lo, &hi, lift)
    }

    /// A new interior node for `[lo, hi)` of edges in the same coordinates, and the edge to it.
    pub(super) fn build_interior(
        &self,
        height: u8,
        lo: &Cut,
        hi: &Cut,
        edges: &[Edge],
    ) -> Result<(Arc<Node>, Edge)> {
        let lift = Lift::into_child(lo, hi);
        let edges = edges.iter().map(|edge| self.lift_edge(edge, &lift)).collect::<Result<Vec<_>>>()?;
        let node = self.new_node(height, lift.to.cut(lo), lift.to.cut(hi), Body::Interior(edges));
        let longest_key = node.longest_key();
        Ok(self.edge_to(node, lo, hi, lift, longest_key))
    }

    /// The edge for `[lo, hi)` to a node that was made for it.
    pub(super) fn edge_to(
        &self,
        node: Arc<Node>,
        lo: &Cut,
        hi: &Cut,
        lift: Lift,
        longest_key: u32,
    ) -> (Arc<Node>, Edge) {
        let edge = Edge {
            lo: lo.clone(),
            hi: hi.clone(),
            translation: lift.to,
            child: Some(node.id),
            longest_key,
            partition: None,
            gotos: Vec::new(),
        };
        (node, edge)
    }

    /// Appends the pairs of a leaf in `[lo, hi)` to a leaf in other coordinates. Basements that lie inside
    /// whole and keep their keys are shared as far as `share` allows.
    pub(super) fn copy_pairs(
        &self,
        from: &Node,
        lo: &Cut,
        hi: &Cut,
        lift: &Lift,
        share: Share,
        out: &mut LeafBuilder<'_>,
    ) -> Result<()> {
        let basements = from.basements();
        let ends = basements.iter().skip(1).map(|b| Cut::before(b.first.clone())).chain([from.hi.clone()]);
        // Each basement in the range, and whether it can be shared as it is.
        let wanted: Vec<(&Basement, bool)> = basements
            .iter()
            .zip(ends)
            .filter(|(basement, end)| end > lo && hi.is_above(&basement.first))
            .map(|(basement, end)| {
                let inside = !lo.is_above(&basement.first) && end <= *hi;
                let may_share = match share {
                    Share::Nothing => false,
                    Share::Pairs => !basement.piece.has_messages(),
                    Share::All => true,
                };
                (basement, inside && may_share && lift.changes_nothing())
            })
            .collect();
        let read = wanted.iter().filter(|(_, shared)| !shared).map(|(basement, _)| basement.piece.clone());
        let mut runs = self.basement_pairs(&read.collect::<Vec<_>>())?.into_iter();
        for (basement, shared) in wanted {
            if shared {
                out.share(basement);
                continue;
            }
            let run = runs.next().ok_or_else(|| internal!("a basement that was read is there"))?;
            let (from, to) = (run.first_behind(lo), run.first_behind(hi));
            // Clipped first: only what lies in the window can be translated.
            let damage = run.damage().filter_map(|range| range.clip(lo, hi));
            out.push_damage(damage.map(|range| range.translate(&lift.to)));
            if lift.changes_nothing() {
                out.push_pairs(&run, from, to);
                continue;
            }
            for pair in run.points(from, to) {
                out.push(&lift.to.key(&pair.key), pair.value, pair.kind.asked());
            }
        }
        Ok(())
    }
}
