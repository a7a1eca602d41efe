//! Applies GOTOs to an interior node: each waits above a child, or becomes an edge.

use alloc::vec::Vec;

use super::{Tree, TreeChange, dangling};
use crate::cache::Piece;
use crate::error::Result;
use crate::key::Cut;
use crate::message::{Goto, RangeDelete, outside, subtract};
use crate::node::Edge;
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::run::RunBuilder;

impl Tree<'_> {
    /// The edges of a node after it received a GOTO newer than all its messages. The GOTO waits above a child
    /// if it lies whole in that child's window and the child is higher than its target. Otherwise it becomes
    /// an edge (§4.2.1): the edges that it covers are dropped, and those at its ends are narrowed. `change`
    /// holds the new nodes that the table does not know yet.
    pub(super) fn place_goto(&self, edges: Vec<Edge>, goto: &Goto, change: &TreeChange) -> Result<Vec<Edge>> {
        let from = edges.partition_point(|e| e.hi <= goto.lo);
        let to = edges.partition_point(|e| e.lo < goto.hi);
        let mut edges = edges;
        if from + 1 == to
            && let Some(edge) = edges.get_mut(from)
            && let Some(child) = edge.child
            && (self.height_of(child, change)? > self.height_of(goto.target, change)?
                || planted::is(Bug::GotoStandsAtAnyHeight))
        {
            self.purge(edge, &goto.lo, &goto.hi)?;
            let at = edge.gotos.partition_point(|other| other.hi <= goto.lo);
            edge.longest_key = edge.longest_key.max(edge.lifted_len(goto.longest_key_here()));
            edge.gotos.insert(at, goto.clone());
            return Ok(edges);
        }
        self.insert_edges(&edges, &goto.lo, &goto.hi, Vec::from([Edge::of_goto(goto)]))
    }

    /// The edges of a node after other edges took `[lo, hi)`: edges inside are dropped, and edges across the
    /// bounds keep the rest with its pending messages.
    pub(super) fn insert_edges(
        &self,
        edges: &[Edge],
        lo: &Cut,
        hi: &Cut,
        new: Vec<Edge>,
    ) -> Result<Vec<Edge>> {
        let mut all = Vec::with_capacity(edges.len() + new.len() + 1);
        for edge in edges.iter().filter(|e| e.lo < *lo) {
            all.extend(self.narrow(edge, &Cut::LOW, lo)?);
        }
        all.extend(new);
        for edge in edges.iter().filter(|e| e.hi > *hi) {
            all.extend(self.narrow(edge, hi, &Cut::HIGH)?);
        }
        Ok(all)
    }

    /// Drops the messages pending for `[lo, hi)`; ranges and GOTOs across the bounds are cut.
    fn purge(&self, edge: &mut Edge, lo: &Cut, hi: &Cut) -> Result<()> {
        edge.gotos = outside(&edge.gotos, lo, hi);
        let Some(piece) = &edge.partition else { return Ok(()) };
        let run = self.store.run(piece)?;
        let mut out = RunBuilder::with_room(run.as_bytes().len());
        let (from, to) = (run.first_behind(lo), run.first_behind(hi));
        for p in run.points(0, from).chain(run.points(to, run.len())) {
            out.push(&p.key, p.msn, p.kind, p.value);
        }
        let gone = RangeDelete { lo: lo.clone(), hi: hi.clone(), msn: 0 };
        let gone = if planted::is(Bug::OlderRangeKeptBesideGoto) { &[][..] } else { &[gone] };
        out.set_ranges(subtract(run.ranges(), gone));
        edge.partition = (!out.is_empty()).then(|| Piece::new(&self.store.cache, out.finish()));
        Ok(())
    }

    /// The height of a node that will name these nodes, some of which `change` may add.
    ///
    /// # Errors
    /// As [`height_of`](Tree::height_of).
    pub(super) fn height_over(
        &self,
        mut named: impl Iterator<Item = NodeId>,
        change: &TreeChange,
    ) -> Result<u8> {
        named.try_fold(1, |height: u8, id| Ok(height.max(self.height_of(id, change)?.saturating_add(1))))
    }

    /// The height of a node of the table or of `change`.
    ///
    /// # Errors
    /// If neither holds it.
    pub(super) fn height_of(&self, id: NodeId, change: &TreeChange) -> Result<u8> {
        let added = change.added.iter().find(|node| node.id == id).map(|node| node.height);
        // A tree's top is written last, and nothing else of it is asked for.
        let written = || change.written.last().filter(|node| node.id == id).map(|node| node.height);
        added.or_else(written).or_else(|| self.table.lock().height(id)).ok_or_else(|| dangling(id))
    }
}
