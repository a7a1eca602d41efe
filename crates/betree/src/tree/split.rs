//! A child that is too large becomes two.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::build::Lift;
use super::leaf_builder::LeafBuilder;
use super::{Change, Tree};
use crate::error::Result;
use crate::format::run::{Run, RunBuilder};
use crate::cache::Piece;
use crate::key::Cut;
use crate::node::{Basement, Body, Edge, Node};

/// The byte that ends a component of a key; splits fall behind one where they can.
const SEPARATOR: u8 = 0;

impl Tree<'_> {
    /// Splits the child of an edge in two. Gives the new version of the parent, or `None` if the
    /// child holds too little to be split.
    pub fn split(&self, parent: &Node, index: usize, child: &Node) -> Result<Option<Arc<Node>>> {
        let Some(edge) = parent.edges().get(index) else { return Ok(None) };
        let cut_below = match &child.body {
            Body::Leaf(basements) => self.leaf_cut(basements)?,
            Body::Interior(edges) => interior_cut(edges),
        };
        let Some(cut_below) = cut_below.filter(|cut| *cut > child.lo && *cut < child.hi) else {
            return Ok(None);
        };
        let out = Lift::out_of_child(edge);
        let cut = out.to.cut(&cut_below);
        let mut change = Change::default();
        let mut new = Vec::with_capacity(2);
        for (lo, hi, lo_below, hi_below) in
            [(&edge.lo, &cut, &child.lo, &cut_below), (&cut, &edge.hi, &cut_below, &child.hi)]
        {
            let into = Lift::into_child(lo, hi);
            let lift = out.then(&into);
            let (lo_new, hi_new) = (into.to.cut(lo), into.to.cut(hi));
            let body = match &child.body {
                Body::Leaf(basements) => {
                    let mut leaf = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
                    self.copy_pairs(basements, lo_below, hi_below, &lift, false, &mut leaf)?;
                    Body::Leaf(leaf.finish().0)
                }
                Body::Interior(edges) => {
                    let mine = edges.iter().filter(|e| e.lo >= *lo_below && e.hi <= *hi_below);
                    let edges = mine.map(|e| self.lift_edge(e, &lift)).collect::<Result<Vec<_>>>()?;
                    Body::Interior(edges)
                }
            };
            let node = self.new_node(child.height, lo_new, hi_new, body);
            // The same keys, without what the edge prepended and what is stripped in addition.
            let gone = edge.translation.prepend.len() + into.to.strip_len - edge.translation.strip_len;
            let longest = edge.longest_key.saturating_sub(gone as u32);
            let (node, mut edge_new) = self.edge_to(node, lo, hi, into, longest);
            edge_new.partition = self.partition_within(edge, lo, hi)?;
            change.added.push(node);
            new.push(edge_new);
        }
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index, new);
        let parent = self.with_body(parent, Body::Interior(edges));
        change.changed.push(parent.clone());
        change.removed.push(child.id);
        self.apply(change);
        Ok(Some(parent))
    }

    /// The part of an edge's partition for `[lo, hi)`.
    fn partition_within(&self, edge: &Edge, lo: &Cut, hi: &Cut) -> Result<Option<Arc<Piece>>> {
        let Some(piece) = &edge.partition else { return Ok(None) };
        let run: Arc<Run> = self.store.run(piece)?;
        let mut out = RunBuilder::default();
        for p in run.points(run.first_behind(lo), run.first_behind(hi)) {
            out.push(&p.key, p.msn, p.kind, p.value);
        }
        out.set_ranges(run.ranges().iter().filter_map(|r| r.clip(lo, hi)).collect());
        Ok((!out.is_empty()).then(|| Piece::new(&self.store.cache, out.finish())))
    }

    /// Where to split a leaf: between the keys at a quarter and at three quarters of it, behind the
    /// shortest run of components that only the lower one has (*preferential splitting*, §5.3.2).
    fn leaf_cut(&self, basements: &[Basement]) -> Result<Option<Cut>> {
        let (low, high) = if basements.len() >= 4 {
            let at = |quarters: usize| basements.get(basements.len() * quarters / 4).map(|b| b.first.clone());
            (at(1), at(3))
        } else {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            for basement in basements {
                let run = self.store.run(&basement.piece)?;
                keys.extend((0..run.len()).map(|i| run.key(i).to_vec()));
            }
            if keys.len() < 2 {
                return Ok(None);
            }
            let low = (keys.len() / 4).min(keys.len() - 2);
            let high = (keys.len() * 3 / 4).max(low + 1);
            (keys.get(low).cloned(), keys.get(high).cloned())
        };
        Ok(low.zip(high).map(|(low, high)| cut_between(&low, &high)))
    }
}

/// A cut above `low` and not above `high`, behind as few components of `low` as can be.
fn cut_between(low: &[u8], high: &[u8]) -> Cut {
    let shared = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let tail = low.get(shared..).unwrap_or_default();
    match tail.iter().position(|b| *b == SEPARATOR) {
        // Not all of `low`: its last component ends without a separator.
        Some(end) => Cut::after(low.get(..=shared + end).unwrap_or(low)),
        None if !tail.is_empty() => Cut::after(low),
        // `low` is a prefix of `high`.
        None => Cut::before(high),
    }
}

/// Where to split an interior node: at the pivot of the middle half that is shared least.
fn interior_cut(edges: &[Edge]) -> Option<Cut> {
    let (from, to) = (edges.len() / 4, edges.len() * 3 / 4);
    let pivots = edges.get(from.max(1)..=to.min(edges.len().checked_sub(1)?))?;
    let middle = edges.get(edges.len() / 2).map(|e| &e.lo);
    let shortest = pivots.iter().map(|e| &e.lo).min_by_key(|cut| cut.bytes().len());
    shortest.or(middle).cloned()
}

