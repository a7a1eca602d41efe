//! Keeps the edges of a node few after clones have cut ranges up and gone: edges to little are replaced by
//! that child's own edges, neighbours merge, and runs of low edges go below a node of their own. So a tree
//! grows with its contents, not with the number of clones.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::apply_messages::{Applied, Messages};
use super::build::Lift;
use super::{EDGE_IS_THERE, Tree, TreeChange};
use crate::error::Result;
use crate::invariant::internal;
use crate::node::{Body, Edge, Node, is_nothing, join_nulls, live, next_live, shown_basements, shown_edges};
use crate::planted::{self, Bug};
use crate::run::{Run, combine};

impl Tree<'_> {
    /// The edges that an edge shows of its interior child, with the edge's pending messages applied to them:
    /// they can take the edge's place.
    pub(super) fn expand_edge(&self, edge: &Edge, child: &Node) -> Result<Vec<Edge>> {
        let shown = self.edges_of(child, edge, &Lift::out_of_child(edge))?;
        if !edge.has_pending() || planted::is(Bug::PendingLostWhenPulledUp) {
            return Ok(shown);
        }
        let run = edge.partition.as_ref().map(|piece| self.store.run(piece)).transpose()?;
        let messages = Messages::of(run.as_deref(), edge.gotos.clone());
        let all = combine(&messages.points, self.upsert);
        self.apply_to_edges(&shown, &messages.with_combined(&all), false, &mut Applied::default())
    }

    /// Replaces edges to the highest children by those children's own edges, one level at a time, while at
    /// most `tall_max` children a level are expanded and at most `most` edges result. A small directory
    /// across the bound of two high nodes so becomes no higher than its contents. Returns the edges of the
    /// level that gives the lowest tree.
    pub(super) fn flatten_edges(&self, edges: Vec<Edge>, tall_max: usize, most: usize) -> Result<Vec<Edge>> {
        let mut best = edges;
        let mut best_height = self.height_of_tree(&best);
        let mut next = self.one_level_down(&best, tall_max, most)?;
        while let Some(lower) = next {
            next = self.one_level_down(&lower, tall_max, most)?;
            let height = self.height_of_tree(&lower);
            if height < best_height {
                (best, best_height) = (lower, height);
            }
        }
        Ok(best)
    }

    fn one_level_down(&self, edges: &[Edge], tall_max: usize, most: usize) -> Result<Option<Vec<Edge>>> {
        let highest = self.height_above(edges) - 1;
        let is_tall = |edge: &Edge| match edge.child {
            Some(id) => self.table.lock().height(id) == Some(highest),
            None => false,
        };
        let tall = edges.iter().filter(|edge| is_tall(edge)).count();
        if highest == 0 || tall == 0 || tall > tall_max {
            return Ok(None);
        }
        let mut children = Vec::with_capacity(edges.len());
        let mut count = live(edges) - tall;
        for edge in edges {
            let child = match edge.child.filter(|_| is_tall(edge)) {
                Some(id) => Some(self.node(id)?),
                None => None,
            };
            count += child.as_ref().map_or(0, |child| live(shown_edges(child, edge)));
            children.push(child);
        }
        if count > most {
            return Ok(None);
        }
        let mut lower = Vec::with_capacity(count);
        for (edge, child) in edges.iter().zip(&children) {
            match child {
                Some(child) => lower.extend(self.expand_edge(edge, child)?),
                None => lower.push(edge.clone()),
            }
        }
        join_nulls(&mut lower);
        // Pending GOTOs may have become edges.
        Ok((live(&lower) <= most).then_some(lower))
    }

    /// The height of the lowest tree over these edges.
    pub(super) fn height_of_tree(&self, edges: &[Edge]) -> u8 {
        let (mut height, mut nodes) = (self.height_above(edges), live(edges));
        while nodes > self.geometry.fanout_max as usize {
            nodes = nodes.div_ceil(self.geometry.fanout_max as usize);
            height = height.saturating_add(1);
        }
        height
    }

    /// Reduces the edges to as many as fit into one node. Puts nodes below them where there are more, and
    /// adds these nodes to `change`.
    pub(super) fn bundle_edges(&self, edges: Vec<Edge>, change: &mut TreeChange) -> Result<Vec<Edge>> {
        let fanout_max = self.geometry.fanout_max as usize;
        let mut edges = edges;
        while live(&edges) > fanout_max {
            let nodes = live(&edges).div_ceil(fanout_max);
            let mut above = Vec::with_capacity(nodes);
            for run in edges.chunks(edges.len().div_ceil(nodes)) {
                let ends = run.first().zip(run.last());
                let (first, last) = ends.ok_or_else(|| internal!("a node is put below edges"))?;
                let height = self.height_over(run.iter().flat_map(Edge::references), change)?;
                let (node, edge) = self.build_interior(height, &first.lo, &last.hi, run)?;
                change.added.push(node);
                above.push(edge);
            }
            edges = above;
        }
        Ok(edges)
    }

    /// Replaces an edge by the only edge of its child that it shows, or by a null edge if that edge leads to
    /// nothing. Returns the parent's new version.
    pub(super) fn collapse_edge(
        &self,
        parent: &Node,
        index: usize,
        child: &Node,
    ) -> Result<Option<Arc<Node>>> {
        let edge = parent.edges().get(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        if child.height == 0 {
            return if self.shows_pairs(edge, child)? { Ok(None) } else { self.drop_child(parent, index) };
        }
        let (lo, hi) = edge.shown();
        let is_too_wide = lo < child.lo || hi > child.hi;
        // An edge that shows more than the child has stays for a check to find.
        if is_too_wide || live(shown_edges(child, edge)) > 1 {
            return Ok(None);
        }
        let new = self.expand_edge(edge, child)?;
        if live(&new) > 1 {
            return Ok(None);
        }
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index, new);
        join_nulls(&mut edges);
        Ok(Some(self.with_edges(
            parent,
            edges,
            TreeChange { removed: Vec::from([child.id]), ..TreeChange::default() },
        )))
    }

    /// Whether an edge shows any pair of a leaf, or known damage.
    fn shows_pairs(&self, edge: &Edge, leaf: &Node) -> Result<bool> {
        let (lo, hi) = edge.shown();
        let basements = shown_basements(leaf.basements(), &lo, &hi);
        // A basement begins with its first key, unless an upsert over it removes that key.
        if basements.iter().any(|basement| !lo.is_above(&basement.first)) {
            return Ok(true);
        }
        let pieces: Vec<_> = basements.iter().map(|basement| basement.piece.clone()).collect();
        let shows_some = |run: &Arc<Run>| {
            run.first_behind(&lo) < run.first_behind(&hi)
                || run.damage().any(|range| range.clip(&lo, &hi).is_some())
        };
        Ok(self.basement_pairs(&pieces)?.iter().any(shows_some))
    }

    /// Installs a version of a node with other edges, in one step with the rest of a change.
    fn with_edges(&self, node: &Node, edges: Vec<Edge>, mut change: TreeChange) -> Arc<Node> {
        let node = self.with_body(node, Body::Interior(edges));
        change.changed.push(node.clone());
        self.install(change);
        node
    }

    /// A version of an interior node with as few edges as show the same: no edge shows only one other edge,
    /// neighbours that show little are merged, and if edges are still too many, low ones go below a new node
    /// that is lower than the highest child.
    pub(super) fn compact_edges(&self, node: &Arc<Node>) -> Result<Arc<Node>> {
        let mut node = node.clone();
        let mut at = 0;
        while let Some(edge) = node.edges().get(at) {
            if let Some(id) = edge.child
                && let Some(seen) = self.collapse_edge(&node, at, &*self.node(id)?)?
            {
                // Joining null edges may have moved it down by one.
                at = at.saturating_sub(1);
                node = seen;
                continue;
            }
            let next = next_live(&node, at);
            match next.filter(|_| !is_nothing(edge)) {
                Some(next) if self.may_merge(&node, at, next)? => match self.merge(&node, at, next)? {
                    Some(merged) => node = merged,
                    None => at += 1,
                },
                _ => at += 1,
            }
        }
        self.bundle_low_edges(node)
    }

    /// Whether the children of an edge and the next can be merged: the higher child is rewritten, so no other
    /// node may name it.
    fn may_merge(&self, node: &Node, from: usize, to: usize) -> Result<bool> {
        let pair = node.edges().get(from..=to).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        let height = |edge: &Edge| edge.child.and_then(|id| self.table.lock().height(id));
        let highest = pair.iter().filter_map(height).max();
        let mut higher = pair.iter().filter(|edge| edge.child.is_some() && height(edge) == highest);
        Ok(higher.all(|edge| edge.child.is_none_or(|id| self.is_named_by_only(node, id))))
    }

    /// A version of a node in which runs of low edges lie below nodes of their own, the lowest first, until
    /// edges are few enough.
    fn bundle_low_edges(&self, node: Arc<Node>) -> Result<Arc<Node>> {
        let enough = self.geometry.fanout_max as usize * 3 / 4;
        let run_max = self.geometry.fanout_max as usize / 2;
        let mut node = node;
        // A new node's children are at least two levels lower than this node.
        for level in 1..node.height {
            if live(node.edges()) <= enough {
                break;
            }
            let mut all: Vec<Edge> = Vec::new();
            let mut change = TreeChange::default();
            for run in node.edges().chunk_by(|a, b| {
                self.height_above(core::slice::from_ref(a)) <= level
                    && self.height_above(core::slice::from_ref(b)) <= level
            }) {
                for part in run.chunks(run_max) {
                    match part {
                        [first, .., last] if self.height_above(part) <= level && live(part) > 1 => {
                            let height = self.height_above(part);
                            let built = self.build_interior(height, &first.lo, &last.hi, part);
                            let (below, edge) = built.map_err(|error| self.undone(&change, error))?;
                            change.added.push(below);
                            all.push(edge);
                        }
                        _ => all.extend_from_slice(part),
                    }
                }
            }
            if !change.added.is_empty() {
                node = self.with_edges(&node, all, change);
            }
        }
        Ok(node)
    }
}
