//! Merges neighbours that are too small, and drops empty children.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::apply_messages::over_nothing;
use super::build::{Lift, Share};
use super::leaf_builder::LeafBuilder;
use super::{EDGE_IS_THERE, Tree, TreeChange};
use crate::cache::Piece;
use crate::error::Result;
use crate::events;
use crate::invariant::internal;
use crate::node::{Body, Edge, Node, live, shown_edges};
use crate::planted::{self, Bug};
use crate::run::RunBuilder;

impl Tree<'_> {
    /// Replaces an edge that shows nothing of its child by a null edge.
    pub(super) fn drop_child(&self, parent: &Node, index: usize) -> Result<Option<Arc<Node>>> {
        let edge = parent.edges().get(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        if !edge.gotos.is_empty() {
            return Ok(None);
        }
        let null = Edge {
            partition: self.without_ranges(edge.partition.as_ref())?,
            longest_key: edge.longest_key_here(),
            ..Edge::null(edge.lo.clone(), edge.hi.clone())
        };
        let removed = edge.child.into_iter().collect();
        let mut edges = parent.edges().to_vec();
        edges.splice(index..=index, [null]);
        let parent = self.with_body(parent, Body::Interior(edges));
        self.install(TreeChange { changed: alloc::vec![parent.clone()], removed, ..TreeChange::default() });
        Ok(Some(parent))
    }

    /// The partition of a null edge: range deletes do not count.
    fn without_ranges(&self, partition: Option<&Arc<Piece>>) -> Result<Option<Arc<Piece>>> {
        let Some(piece) = partition else { return Ok(None) };
        let run = self.store.run(piece)?;
        if run.ranges().is_empty() {
            return Ok(Some(piece.clone()));
        }
        let run = over_nothing(&run);
        Ok((!run.is_empty()).then(|| Piece::new(&self.store.cache, run)))
    }

    /// Merges the children of the edges from `from` to `to` if the parts that these show are together at most
    /// half a node. The edge to a lower child moves into the merged node. Returns the parent's new version.
    pub fn merge(&self, parent: &Node, from: usize, to: usize) -> Result<Option<Arc<Node>>> {
        let Some(merged @ [first, .., last]) = parent.edges().get(from..=to) else {
            return Err(internal!("two edges at least are merged"));
        };
        let mut children = Vec::with_capacity(merged.len());
        for edge in merged {
            let child = edge.child.map(|id| self.node(id)).transpose()?;
            children.push((edge, child));
        }
        let highest =
            |found: Option<u8>, child: &Option<Arc<Node>>| found.max(child.as_ref().map(|c| c.height));
        let Some(height) = children.iter().map(|(_, child)| child).fold(None, highest) else {
            let mut edge = Edge::null(first.lo.clone(), last.hi.clone());
            edge.partition = self.joined_partition(merged)?;
            edge.longest_key = merged.iter().map(Edge::longest_key_here).max().unwrap_or(0);
            return Ok(Some(self.with_one_edge(parent, from, to, edge, TreeChange::default())));
        };
        // A lower child stays; its edge moves.
        for (_, child) in &mut children {
            child.take_if(|child| child.height < height);
        }
        let (mut bytes, mut edges) = (0, 0);
        for (edge, child) in &children {
            match child {
                Some(child) => {
                    let (lo, hi) = edge.shown();
                    bytes += child.content_bytes_within(&lo, &hi);
                    edges += live(shown_edges(child, edge));
                }
                None => edges += live(core::slice::from_ref(edge)),
            }
        }
        if bytes > self.geometry.node_bytes as usize / 2
            || height > 0 && edges > self.geometry.fanout_max as usize / 2
        {
            return Ok(None);
        }
        let into = Lift::into_child(&first.lo, &last.hi);
        let (lo, hi) = (into.to.cut(&first.lo), into.to.cut(&last.hi));
        let mut change = TreeChange::default();
        let gotos: Vec<_> = merged.iter().flat_map(|edge| &edge.gotos).cloned().collect();
        let partition = self.joined_partition(merged)?;
        let (node, longest) = if height == 0 {
            let mut leaf = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
            for (edge, child) in &children {
                let Some(child) = child else { continue };
                let lift = Lift::out_of_child(edge).then(&into);
                self.store.load(&child.pieces())?;
                let hides = !planted::is(Bug::HiddenPairsMerged);
                let (lo, hi) = if hides { edge.shown() } else { (child.lo.clone(), child.hi.clone()) };
                self.copy_pairs(child, &lo, &hi, &lift, Share::Nothing, &mut leaf)?;
            }
            let (basements, longest) = leaf.finish();
            (self.new_node(0, lo, hi, Body::Leaf(basements)), longest)
        } else {
            let mut all = Vec::new();
            for (edge, child) in &children {
                match child {
                    Some(child) => {
                        let lift = Lift::out_of_child(edge).then(&into);
                        all.extend(self.edges_of(child, edge, &lift)?);
                    }
                    // Its pending messages stay above, in the joined partition.
                    None => {
                        let edge = Edge { partition: None, gotos: Vec::new(), ..(*edge).clone() };
                        all.push(self.lift_edge(&edge, &into)?);
                    }
                }
            }
            let node = self.new_node(self.height_below(&all, &gotos), lo, hi, Body::Interior(all));
            let longest = node.longest_key();
            (node, longest)
        };
        let (node, mut edge) = self.edge_to(node, &first.lo, &last.hi, into, longest);
        edge.partition = partition;
        edge.gotos = gotos;
        let pending = merged.iter().map(Edge::longest_key_here).max().unwrap_or(0);
        edge.longest_key = edge.longest_key.max(pending.saturating_sub(edge.translation.strip_len as u32));
        let made = (node.id, node.content_bytes());
        change.added.push(node);
        change.removed.extend(children.iter().filter_map(|(_, child)| Some(child.as_ref()?.id)));
        // Two windows may have shown the same child.
        change.removed.dedup();
        let edges = merged.len();
        let parent = self.with_one_edge(parent, from, to, edge, change);
        events::merged(self.dict.index, made.0, made.1, edges);
        Ok(Some(parent))
    }

    /// Puts one edge in the place of those from `from` to `to`, in one step with the rest of a change.
    fn with_one_edge(
        &self,
        parent: &Node,
        from: usize,
        to: usize,
        edge: Edge,
        mut change: TreeChange,
    ) -> Arc<Node> {
        let mut edges = parent.edges().to_vec();
        edges.splice(from..=to, [edge]);
        let parent = self.with_body(parent, Body::Interior(edges));
        change.changed.push(parent.clone());
        self.install(change);
        parent
    }

    /// The partitions of neighbouring edges, joined.
    fn joined_partition(&self, edges: &[Edge]) -> Result<Option<Arc<Piece>>> {
        let mut out = RunBuilder::default();
        let mut ranges = Vec::new();
        for piece in edges.iter().filter_map(|e| e.partition.as_ref()) {
            let run = self.store.run(piece)?;
            run.points(0, run.len()).for_each(|p| out.push(&p.key, p.msn, p.kind, p.value));
            ranges.extend_from_slice(run.ranges());
        }
        out.set_ranges(ranges);
        Ok((!out.is_empty()).then(|| Piece::new(&self.store.cache, out.finish())))
    }
}
