//! Moves pending messages to a child.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::apply_messages::{Applied, Messages};
use super::{EDGE_IS_THERE, Tree, TreeChange};
use crate::error::{Error, Result};
use crate::events;
use crate::invariant::internal;
use crate::key::Cut;
use crate::memtable::Memtable;
use crate::message::Msn;
use crate::node::{Body, Node};
use crate::node_id::NodeId;

/// Messages of a partition or a memtable that are for one grandchild pass its parent if they are at least
/// this part of a node: otherwise they would be flushed next, and copied once more.
const PASSING_PARTS: usize = 8;

impl Tree<'_> {
    /// Moves all pending messages of an edge to the child, in one step for all readers. A null edge with
    /// pending pairs gets a leaf. The parent must be private. Returns the nodes that messages reached, which
    /// are private too.
    pub fn flush(&self, parent: &Node, index: usize, may_pass: bool) -> Result<Vec<NodeId>> {
        let edges = parent.edges();
        let edge = edges.get(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        if !edge.has_pending() {
            return Ok(edge.child.into_iter().collect());
        }
        let bytes = edge.pending_bytes();
        let run = edge.partition.as_ref().map(|piece| self.store.run(piece)).transpose()?;
        let mut applied = Applied { may_pass, ..Applied::default() };
        let messages = Messages::of(run.as_deref(), edge.gotos.clone());
        let new = match self.pass(edge, &messages, true, &mut applied) {
            Ok(new) => new,
            Err(error) => return Err(self.undone(&applied.change, error)),
        };
        let mut edges = edges.to_vec();
        *edges.get_mut(index).ok_or_else(|| internal!(EDGE_IS_THERE))? = new;
        applied.change.changed.push(self.with_body(parent, Body::Interior(edges)));
        self.install(applied.change);
        events::flushed(self.dict.index, parent.id, bytes, applied.reached.len());
        Ok(applied.reached)
    }

    /// Merges the runs of an edge's partition if the result has at most half their size: the rest was
    /// overwritten, and keys that are overwritten again and again need not go down. `false` if the result
    /// would be larger.
    pub(super) fn shrink(&self, node: &Node, index: usize) -> Result<bool> {
        let edge = node.edges().get(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        let Some(piece) = &edge.partition else { return Ok(false) };
        let run = self.store.run(piece)?;
        if run.as_bytes().len() * 2 > piece.raw_bytes() {
            return Ok(false);
        }
        let piece = piece.as_one_run(&self.store.cache, run);
        let mut edges = node.edges().to_vec();
        edges.get_mut(index).ok_or_else(|| internal!(EDGE_IS_THERE))?.partition = Some(piece);
        let changed = Vec::from([self.with_body(node, Body::Interior(edges))]);
        self.install(TreeChange { changed, ..TreeChange::default() });
        Ok(true)
    }

    /// Applies the oldest frozen memtable to the root. Returns the nodes that messages reached.
    pub fn flush_memtable(&self, memtable: &Arc<Memtable>, may_pass: bool) -> Result<Vec<NodeId>> {
        let root = self.dict.state.read().root;
        let root = self.node(root)?;
        let points: Vec<_> = memtable.points_within(&Cut::LOW, &Cut::HIGH, Msn::MAX).collect();
        let ranges = memtable.ranges_within(&Cut::LOW, &Cut::HIGH, Msn::MAX);
        let messages = Messages { points, ranges, gotos: Vec::new() };
        let mut applied = Applied { may_pass, ..Applied::default() };
        let body = match self.apply_messages(&root, &messages, true, &mut applied) {
            Ok(body) => body,
            // The root may take what cannot go further.
            Err(error) if may_pass && error.is_unreadable() => {
                self.undone(&applied.change, error);
                return self.flush_memtable(memtable, false);
            }
            Err(error) => return Err(self.undone(&applied.change, error)),
        };
        applied.change.changed.push(self.with_body(&root, body));
        self.install_memtable(applied.change, memtable);
        events::memtable_flushed(self.dict.index, root.id, memtable.bytes(), applied.reached.len());
        Ok(applied.reached)
    }

    /// Gives back the names of nodes that an error has kept from being made: what cannot be read is tried
    /// again and again.
    pub(super) fn undone(&self, change: &TreeChange, error: Error) -> Error {
        let mut table = self.table.lock();
        change.added.iter().for_each(|node| table.release_reserved(node.id));
        error
    }

    /// Whether this many bytes are enough to pass a node at once.
    pub(super) fn is_passing(&self, bytes: usize) -> bool {
        bytes > self.geometry.node_bytes as usize / PASSING_PARTS
    }
}
