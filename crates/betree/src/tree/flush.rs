//! What is pending for a child goes down to it.

use alloc::vec::Vec;

use super::arrive::Batch;
use super::build::Lift;
use super::{Change, Tree};
use crate::dict::DictState;
use crate::error::Result;
use crate::key::Cut;
use crate::memtable::Memtable;
use crate::node::{Body, Edge, Node, NodeId};

impl Tree<'_> {
    /// Moves the whole partition of an edge into the child, in one step for all who look. A null
    /// edge with pairs pending gets a leaf. Gives the child.
    pub fn flush(&self, parent: &Node, index: usize) -> Result<Option<NodeId>> {
        let edges = parent.edges();
        let Some(edge) = edges.get(index) else { return Ok(None) };
        let Some(piece) = &edge.partition else { return Ok(edge.child) };
        let run = self.store.run(piece)?;
        let mut change = Change::default();
        let mut new = Edge { partition: None, ..edge.clone() };
        match edge.child {
            Some(id) => {
                let child = self.node(id)?;
                let (body, dropped, _) = self.arrive(&child, &Batch::of(&run, &edge.translation))?;
                change.changed.push(self.with_body(&child, body));
                change.dropped = dropped;
            }
            None => {
                let lift = Lift::into_child(&edge.lo, &edge.hi);
                let (lo, hi) = (lift.to.cut(&edge.lo), lift.to.cut(&edge.hi));
                let (basements, longest) = self.arrive_at_leaf(&[], &lo, &hi, &Batch::of(&run, &lift.to))?;
                if !basements.is_empty() {
                    let leaf = self.new_node(0, lo, hi, Body::Leaf(basements));
                    let (leaf, edge) = self.edge_to(leaf, &edge.lo, &edge.hi, lift, longest);
                    change.added.push(leaf);
                    new = edge;
                }
            }
        }
        let child = new.child;
        let mut edges = edges.to_vec();
        if let Some(slot) = edges.get_mut(index) {
            *slot = new;
        }
        change.changed.push(self.with_body(parent, Body::Interior(edges)));
        self.apply(change);
        Ok(child)
    }

    /// The oldest frozen memtable arrives at the root.
    pub fn flush_memtable(&self, memtable: &Memtable) -> Result<()> {
        let root = self.dict.state.read().root;
        let root = self.node(root)?;
        let points: Vec<_> = memtable.points_within(&Cut::LOW, &Cut::HIGH).collect();
        let batch = Batch { points, ranges: memtable.ranges_within(&Cut::LOW, &Cut::HIGH) };
        let (body, dropped, _) = self.arrive(&root, &batch)?;
        let change =
            Change { changed: alloc::vec![self.with_body(&root, body)], dropped, ..Change::default() };
        let last = memtable.last_msn();
        self.apply_with(change, |state: &mut DictState| {
            state.frozen.pop_front();
            state.applied_msn = last;
        });
        Ok(())
    }
}
