//! Nodes whose blocks others claim too: which are left, and new places for those that are there.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashSet;

use super::{Finding, Place};
use crate::env::Env;
use crate::error::Result;
use crate::node_id::NodeId;
use crate::table::DisputedNode;
use crate::tree::read;

impl Env {
    /// Tells of disputed nodes that have no blocks of their own yet.
    pub(crate) fn check_disputed(&self, tell: &mut dyn FnMut(Finding)) {
        let nodes = self.opened.disputed.nodes.iter();
        nodes.filter(|node| self.is_disputed(node)).for_each(|node| tell(Finding::disputed(node)));
    }

    /// Whether the node is in the table, and the next checkpoint would leave it where it is.
    pub(super) fn is_disputed(&self, node: &DisputedNode) -> bool {
        let is_changed = |id| self.engine.dicts.iter().any(|dict| dict.state.read().is_dirty_node(id));
        let table = self.engine.table.lock();
        let is_there = match (&node.extent, table.place(node.id)) {
            (Ok(extent), Some(place)) => Arc::ptr_eq(extent, &place.extent),
            (Err(_), None) => table.holds(node.id),
            _ => false,
        };
        drop(table);
        is_there && !is_changed(node.id)
    }

    /// Has the next checkpoint write disputed nodes of trees, `seen`, to blocks of their own. Each of them
    /// can be read. Returns their places so far. Called with the structures locked.
    ///
    /// # Errors
    /// Those of the device that are no damage.
    pub(super) fn move_disputed(&self, seen: &HashSet<NodeId>) -> Result<Vec<Place>> {
        let mut moved = Vec::new();
        for disputed in &self.opened.disputed.nodes {
            if !seen.contains(&disputed.id) || !self.is_disputed(disputed) {
                continue;
            }
            for dict in &self.engine.dicts {
                let tree = self.engine.tree_of(dict);
                if let Some(node) = read(tree.find(disputed.id))?.flatten() {
                    tree.rewrite(&node);
                    moved.push(Place::node(disputed.id, Some(disputed.offset)));
                    break;
                }
            }
        }
        Ok(moved)
    }
}
