//! Puts new nodes in the place of lost interior ones whose children were found again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};

use super::note_damage::read;
use super::{Tree, TreeChange};
use crate::error::Result;
use crate::key::Cut;
use crate::message::RangeDelete;
use crate::node::{Body, Edge, Node};
use crate::node_id::NodeId;

/// What takes the place of a lost interior node, all in its coordinates.
pub(crate) struct Replacement {
    pub height: u8,
    pub lo: Cut,
    pub hi: Cut,
    /// The edges to its children, without messages.
    pub edges: Vec<Edge>,
    /// Keys that become known damage, in order.
    pub unknown: Vec<Vec<u8>>,
}

/// What takes the place of lost nodes, by these.
pub(crate) type Replacements = HashMap<NodeId, Replacement>;

impl Tree<'_> {
    /// Puts new nodes in the place of lost ones of the tree, in memory, and takes those out of `replacements`
    /// that it has used. Called with the structure lock held.
    ///
    /// # Errors
    /// Those of the device that are no damage.
    pub fn put_back(&self, replacements: &mut Replacements) -> Result<()> {
        let mut root = self.dict.state.read().root;
        if let Some(replacement) = replacements.remove(&root) {
            let top = self.replacing(replacement);
            let (id, removed) = (top.id, Vec::from([root]));
            let added = Vec::from([top]);
            self.install(TreeChange { root: Some(id), added, removed, ..TreeChange::default() });
            root = id;
        }
        let mut seen = HashSet::new();
        let mut stack = Vec::from([root]);
        while let Some(id) = stack.pop() {
            if replacements.is_empty() {
                break;
            }
            if self.table.lock().height(id) == Some(0) {
                continue;
            }
            let Some(node) = read(self.find(id))?.flatten() else { continue };
            let node = self.with_children(&node, replacements);
            stack.extend(node.references().filter(|id| seen.insert(*id)));
        }
        Ok(())
    }

    /// The node, with new children in the place of lost ones.
    fn with_children(&self, node: &Arc<Node>, replacements: &mut Replacements) -> Arc<Node> {
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        let mut edges = Vec::with_capacity(node.edges().len());
        for edge in node.edges() {
            let mut edge = edge.clone();
            if let Some(child) = edge.child
                && let Some(replacement) = replacements.remove(&child)
            {
                let new = self.replacing(replacement);
                edge.child = Some(new.id);
                added.push(new);
                removed.push(child);
            }
            edges.push(edge);
        }
        if added.is_empty() {
            return node.clone();
        }
        let node = self.with_body(node, Body::Interior(edges));
        let changed = Vec::from([node.clone()]);
        self.install(TreeChange { changed, added, removed, ..TreeChange::default() });
        node
    }

    /// The new node in the place of a lost one.
    fn replacing(&self, replacement: Replacement) -> Arc<Node> {
        let Replacement { height, lo, hi, mut edges, unknown } = replacement;
        for edge in &mut edges {
            let (from, to) = (
                unknown.partition_point(|key| edge.lo.is_above(key)),
                unknown.partition_point(|key| edge.hi.is_above(key)),
            );
            let lost = unknown.get(from..to).unwrap_or_default().iter();
            let lost = lost.map(|key| RangeDelete::damage(Cut::before(key.as_slice()), Cut::just_after(key)));
            edge.partition = self.piece_of(None, lost.collect());
        }
        self.new_node(height, lo, hi, Body::Interior(edges))
    }
}
