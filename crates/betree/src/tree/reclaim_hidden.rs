//! Reclaims hidden data along the bounds of deleted or replaced ranges: messages and windows that hide keys
//! keep these from being freed until they are carried out.

use alloc::vec::Vec;

use super::Tree;
use super::rebalance::FLUSH_NODES;
use crate::error::Result;
use crate::key::Cut;
use crate::node::Node;
use crate::node_id::NodeId;

impl Tree<'_> {
    /// Takes range messages down along the cuts, and materializes the windows beside them, down to the
    /// parents of leaves, unless other nodes name the nodes on the way. Less than a leaf stays hidden on
    /// either side of a cut. Returns the nodes on the way for a rebalance. `has_room` returns whether this
    /// many more nodes could be written.
    ///
    /// Called with the structure lock held.
    pub fn reclaim_hidden(&self, cuts: &[Cut], has_room: &dyn Fn(u32) -> bool) -> Result<Vec<NodeId>> {
        let mut reached = Vec::new();
        let mut to_visit = Vec::from([(self.dict.state.read().root, cuts.to_vec())]);
        while let Some((id, cuts)) = to_visit.pop() {
            let mut node = self.node(id)?;
            for index in 0..node.edges().len() {
                let Some(edge) = node.edges().get(index) else { break };
                let touched: Vec<Cut> =
                    cuts.iter().filter(|cut| edge.lo <= **cut && **cut <= edge.hi).cloned().collect();
                if touched.is_empty() || !has_room(FLUSH_NODES) {
                    continue;
                }
                let Some(child) = edge.child.filter(|child| self.is_named_by_only(&node, *child)) else {
                    continue;
                };
                let child = self.node(child)?;
                if child.height == 0 {
                    continue;
                }
                if let Some(materialized) = self.materialize_window(&node, index, &child)? {
                    node = materialized;
                }
                let Some(edge) = node.edges().get(index) else { break };
                let Some(child) = edge.child.filter(|child| self.is_private(*child)) else { continue };
                reached.push(child);
                to_visit.push((child, touched.iter().map(|cut| edge.translation.cut(cut)).collect()));
                if edge.pending_ranges() > 0 {
                    self.flush(&node, index, false)?;
                    node = self.node(id)?;
                }
            }
        }
        Ok(reached)
    }

    /// Whether no other node has an edge or a GOTO to a child.
    pub(super) fn is_named_by_only(&self, node: &Node, child: NodeId) -> bool {
        let named = node.references().filter(|id| *id == child).count();
        self.table.lock().references(child) as usize == named
    }
}
