//! Neighbours that are too small become one; what is empty goes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::build::Lift;
use super::leaf_builder::LeafBuilder;
use super::{Change, Tree};
use crate::cache::Piece;
use crate::error::Result;
use crate::format::run::RunBuilder;
use crate::node::{Body, Edge, Node};

impl Tree<'_> {
    /// Replaces the child of an edge by a null edge if nothing is in or below it.
    pub fn drop_if_empty(&self, parent: &Node, index: usize, child: &Node) -> Result<Option<Arc<Node>>> {
        let empty = match &child.body {
            Body::Leaf(basements) => basements.is_empty(),
            Body::Interior(edges) => edges.iter().all(|e| e.child.is_none() && !e.has_pending()),
        };
        let Some(edge) = parent.edges().get(index).filter(|edge| empty && edge.gotos.is_empty()) else {
            return Ok(None);
        };
        let null = Edge {
            partition: self.without_ranges(edge.partition.as_ref())?,
            longest_key: edge.longest_key_here(),
            ..Edge::null(edge.lo.clone(), edge.hi.clone())
        };
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index, [null]);
        let parent = self.with_body(parent, Body::Interior(edges));
        self.apply(Change {
            changed: alloc::vec![parent.clone()],
            removed: alloc::vec![child.id],
            ..Change::default()
        });
        Ok(Some(parent))
    }

    /// A partition above nothing: its points alone.
    fn without_ranges(&self, partition: Option<&Arc<Piece>>) -> Result<Option<Arc<Piece>>> {
        let Some(piece) = partition else { return Ok(None) };
        let run = self.store.run(piece)?;
        if run.ranges().is_empty() {
            return Ok(Some(piece.clone()));
        }
        let mut out = RunBuilder::with_room(run.as_bytes().len());
        run.points(0, run.len()).for_each(|p| out.push(&p.key, p.msn, p.kind, p.value));
        Ok((!out.is_empty()).then(|| Piece::new(&self.store.cache, out.finish())))
    }

    /// Brings the single edge of an interior child up in its place, if nothing is pending above it.
    pub fn pull_up(&self, parent: &Node, index: usize, child: &Node) -> Result<Option<Arc<Node>>> {
        let Some(edge) = parent.edges().get(index) else { return Ok(None) };
        if child.edges().len() != 1 || edge.has_pending() {
            return Ok(None);
        }
        let up = self.edges_of(child, edge, &Lift::out_of_child(edge))?;
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index, up);
        let parent = self.with_body(parent, Body::Interior(edges));
        self.apply(Change {
            changed: alloc::vec![parent.clone()],
            removed: alloc::vec![child.id],
            ..Change::default()
        });
        Ok(Some(parent))
    }

    /// Merges the children of edges `index` and `index + 1`, if they are of one kind and together
    /// no more than half full. Gives the new version of the parent.
    pub fn merge(&self, parent: &Node, index: usize) -> Result<Option<Arc<Node>>> {
        let (Some(left), Some(right)) = (parent.edges().get(index), parent.edges().get(index + 1)) else {
            return Ok(None);
        };
        let mut children = Vec::new();
        for edge in [left, right] {
            if let Some(id) = edge.child {
                children.push((edge, self.node(id)?));
            }
        }
        let Some((_, first)) = children.first() else {
            return self.merge_nulls(parent, index, left, right).map(Some);
        };
        let height = first.height;
        if children.iter().any(|(_, c)| c.height != height) {
            return Ok(None);
        }
        let bytes: usize = children.iter().map(|(_, c)| c.content_bytes()).sum();
        let edges: usize = children.iter().map(|(_, c)| c.edges().len()).sum();
        if bytes > self.geometry.node_bytes as usize / 2 || edges > self.geometry.fanout_max as usize / 2 {
            return Ok(None);
        }
        let into = Lift::into_child(&left.lo, &right.hi);
        let (lo, hi) = (into.to.cut(&left.lo), into.to.cut(&right.hi));
        let mut change = Change::default();
        let (node, longest) = if height == 0 {
            let mut leaf = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
            for (edge, child) in &children {
                let lift = Lift::out_of_child(edge).then(&into);
                self.store.load(&child.pieces())?;
                let (lo, hi) = edge.shown();
                self.copy_pairs(child.basements(), &lo, &hi, &lift, true, &mut leaf)?;
            }
            let (basements, longest) = leaf.finish();
            (self.new_node(0, lo, hi, Body::Leaf(basements)), longest)
        } else {
            let mut all = Vec::new();
            for edge in [left, right] {
                match children.iter().find(|(e, _)| core::ptr::eq(*e, edge)) {
                    Some((edge, child)) => {
                        let lift = Lift::out_of_child(edge).then(&into);
                        all.extend(self.edges_of(child, edge, &lift)?);
                    }
                    // What is pending for it stays above, in the joined partition.
                    None => all.push(Edge::null(into.to.cut(&edge.lo), into.to.cut(&edge.hi))),
                }
            }
            let node = self.new_node(height, lo, hi, Body::Interior(all));
            let longest = node.longest_key();
            (node, longest)
        };
        let (node, mut edge) = self.edge_to(node, &left.lo, &right.hi, into, longest);
        edge.partition = self.joined_partition(left, right)?;
        edge.gotos = left.gotos.iter().chain(&right.gotos).cloned().collect();
        let pending = left.longest_key_here().max(right.longest_key_here());
        edge.longest_key = edge.longest_key.max(pending.saturating_sub(edge.translation.strip_len as u32));
        change.added.push(node);
        change.removed.extend(children.iter().map(|(_, child)| child.id));
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index + 1, [edge]);
        let parent = self.with_body(parent, Body::Interior(edges));
        change.changed.push(parent.clone());
        self.apply(change);
        Ok(Some(parent))
    }

    fn merge_nulls(&self, parent: &Node, index: usize, left: &Edge, right: &Edge) -> Result<Arc<Node>> {
        let mut edge = Edge::null(left.lo.clone(), right.hi.clone());
        edge.partition = self.joined_partition(left, right)?;
        edge.longest_key = left.longest_key_here().max(right.longest_key_here());
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index + 1, [edge]);
        let parent = self.with_body(parent, Body::Interior(edges));
        self.apply(Change { changed: alloc::vec![parent.clone()], ..Change::default() });
        Ok(parent)
    }

    /// The partitions of two neighbouring edges as one.
    fn joined_partition(&self, left: &Edge, right: &Edge) -> Result<Option<Arc<Piece>>> {
        let mut out = RunBuilder::default();
        let mut ranges = Vec::new();
        for piece in [left, right].into_iter().filter_map(|e| e.partition.as_ref()) {
            let run = self.store.run(piece)?;
            run.points(0, run.len()).for_each(|p| out.push(&p.key, p.msn, p.kind, p.value));
            ranges.extend_from_slice(run.ranges());
        }
        out.set_ranges(ranges);
        Ok((!out.is_empty()).then(|| Piece::new(&self.store.cache, out.finish())))
    }
}
