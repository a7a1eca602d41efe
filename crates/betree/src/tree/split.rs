//! Splits a child that is too large, and materializes windows.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::build::{Lift, Share};
use super::leaf_builder::LeafBuilder;
use super::{EDGE_IS_THERE, Tree, TreeChange};
use crate::error::Result;
use crate::events;
use crate::invariant::internal;
use crate::key::{Cut, SEPARATOR};
use crate::message::inside;
use crate::node::{Basement, Body, Edge, Node, shown_basements};

impl Tree<'_> {
    /// Splits the part of a child that an edge shows in two. Returns the parent's new version, or `None` if
    /// there is too little to split.
    pub fn split(&self, parent: &Node, index: usize, child: &Node) -> Result<Option<Arc<Node>>> {
        let edge = parent.edges().get(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        let (lo, hi) = edge.shown();
        let cut = match &child.body {
            Body::Leaf(basements) => self.leaf_cut(basements, &lo, &hi)?,
            Body::Interior(edges) => interior_cut(edges, &lo, &hi),
        };
        match cut.filter(|cut| *cut > lo && *cut < hi) {
            Some(cut) => self.rebuild(parent, edge, index, child, &[lo, cut, hi]).map(Some),
            None => Ok(None),
        }
    }

    /// Makes a node of the part of a child that an edge shows (*materializing*), so that the hidden part can
    /// be freed. Returns the parent's new version.
    pub fn materialize_window(&self, parent: &Node, index: usize, child: &Node) -> Result<Option<Arc<Node>>> {
        let edge = parent.edges().get(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        let (lo, hi) = edge.shown();
        if lo == child.lo && hi == child.hi {
            return Ok(None);
        }
        self.rebuild(parent, edge, index, child, &[lo, hi]).map(Some)
    }

    /// Replaces the child of an edge by nodes for the parts of its window between the cuts, which are given
    /// in the child's coordinates.
    fn rebuild(
        &self,
        parent: &Node,
        edge: &Edge,
        index: usize,
        child: &Node,
        cuts: &[Cut],
    ) -> Result<Arc<Node>> {
        let mut change = TreeChange::default();
        let new = self.parts(edge, child, cuts, &mut change).map_err(|error| self.undone(&change, error))?;
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index, new);
        let parent = self.with_body(parent, Body::Interior(edges));
        change.changed.push(parent.clone());
        change.removed.push(child.id);
        self.install(change);
        events::split(self.dict.index, child.id, child.content_bytes(), cuts.len() - 1);
        Ok(parent)
    }

    /// The edges to nodes for the parts of a child between the cuts; the nodes come to `change`.
    fn parts(&self, edge: &Edge, child: &Node, cuts: &[Cut], change: &mut TreeChange) -> Result<Vec<Edge>> {
        let out = Lift::out_of_child(edge);
        // Parts that keep the blocks keep the messages over them too.
        let share = if self.store.may_keep_blocks() { Share::All } else { Share::Pairs };
        let mut new = Vec::with_capacity(cuts.len());
        let above = |cut: &Cut, bound: &Cut, is_bound: bool| {
            // A bound keeps its bytes in the parent, which its image in the child may lack.
            if is_bound { bound.clone() } else { out.to.cut(cut) }
        };
        for (part, pair) in cuts.windows(2).enumerate() {
            let [lo_below, hi_below] = pair else { return Err(internal!("a part has two bounds")) };
            let lo = above(lo_below, &edge.lo, part == 0);
            let hi = above(hi_below, &edge.hi, part + 2 == cuts.len());
            let into = Lift::into_child(&lo, &hi);
            let lift = out.then(&into);
            let (lo_new, hi_new) = (into.to.cut(&lo), into.to.cut(&hi));
            let gotos = inside(&edge.gotos, &lo, &hi);
            let (height, body) = match &child.body {
                Body::Leaf(_) => {
                    let mut leaf = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
                    self.copy_pairs(child, lo_below, hi_below, &lift, share, &mut leaf)?;
                    (0, Body::Leaf(leaf.finish().0))
                }
                Body::Interior(_) => {
                    let edges = self.edges_within(child, lo_below, hi_below, &lift)?;
                    (self.height_below(&edges, &gotos), Body::Interior(edges))
                }
            };
            let partition = self.partition_within(edge, &lo, &hi)?;
            let node = self.new_node(height, lo_new, hi_new, body);
            let longest = edge.longest_key_here().saturating_sub(into.to.strip_len as u32);
            let (node, mut edge_new) = self.edge_to(node, &lo, &hi, into, longest);
            edge_new.partition = partition;
            edge_new.gotos = gotos;
            change.added.push(node);
            new.push(edge_new);
        }
        Ok(new)
    }

    /// Where to split a leaf: between the keys at a quarter and at three quarters, where the halves share the
    /// longest prefixes (*preferential splitting*, §5.3.2), and of such places at the one nearest to the
    /// middle.
    fn leaf_cut(&self, basements: &[Basement], lo: &Cut, hi: &Cut) -> Result<Option<Cut>> {
        let basements = shown_basements(basements, lo, hi);
        let at_quarter =
            |quarters: usize| basements.get(basements.len() * quarters / 4).map(|b| b.first.clone());
        if basements.len() >= 4 {
            let keys = at_quarter(1).zip(at_quarter(2)).zip(at_quarter(3));
            return Ok(keys.map(|((low, middle), high)| cut_between(&low, &middle, &high)));
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for basement in basements {
            for run in self.basement_pairs(core::slice::from_ref(&basement.piece))? {
                keys.extend((run.first_behind(lo)..run.first_behind(hi)).map(|i| run.key(i).to_vec()));
            }
        }
        if keys.len() < 2 {
            return Ok(None);
        }
        let key = |quarters: usize| keys.get((keys.len() * quarters / 4).min(keys.len() - 1));
        let middle = keys.get(keys.len() / 2);
        let keys = key(1).or(keys.first()).zip(middle).zip(key(3));
        Ok(keys.map(|((low, middle), high)| cut_between(low.min(middle), middle, high)))
    }
}

/// A cut above `low` and not above `high`, at the end of a component of keys near `middle`.
fn cut_between(low: &[u8], middle: &[u8], high: &[u8]) -> Cut {
    let shared = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    // The end of the first component that the keys from `low` to `high` do not all share.
    let component = |key: &[u8]| {
        let end = key.get(shared..)?.iter().position(|b| *b == SEPARATOR)?;
        key.get(..=shared + end).map(Vec::from)
    };
    match (component(middle), component(high)) {
        (Some(middle), high) if high.as_ref() != Some(&middle) => Cut::after(middle),
        (Some(middle), _) if component(low).as_ref() != Some(&middle) => Cut::before(middle),
        _ => Cut::before(middle),
    }
}

/// Where to split an interior node: at the shortest pivot of the middle half, and of equally short ones at
/// the one nearest to the middle.
fn interior_cut(edges: &[Edge], lo: &Cut, hi: &Cut) -> Option<Cut> {
    let (from, to) = (edges.partition_point(|e| e.hi <= *lo), edges.partition_point(|e| e.lo < *hi));
    let edges = edges.get(from..to)?;
    let len = edges.len();
    let middle_half = (len / 4).max(1)..=(len * 3 / 4).min(len.checked_sub(1)?);
    let pivots = edges.iter().enumerate().filter(|(index, _)| middle_half.contains(index));
    let best = pivots.min_by_key(|(index, edge)| (edge.lo.bytes().len(), index.abs_diff(len / 2)));
    best.map(|(_, edge)| edge.lo.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_falls_between_components_and_separates_the_given_keys() {
        for (low, middle, high, cut) in [
            (&b"a\0x\0\x001"[..], &b"a\0x\0\x005"[..], &b"a\0y\0\x001"[..], Cut::after(*b"a\0x\0")),
            (b"a\0x\0\x001", b"a\0y\0\x001", b"a\0y\0\x009", Cut::before(*b"a\0y\0")),
            (b"a\0x1", b"a\0x5", b"a\0x9", Cut::before(*b"a\0x5")),
            (b"", b"b", b"c", Cut::before(*b"b")),
        ] {
            assert_eq!(cut_between(low, middle, high), cut);
            assert!(cut.is_above(low) && !cut.is_above(high));
        }
    }
}
