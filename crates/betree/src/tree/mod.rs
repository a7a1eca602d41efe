//! The Bε-tree: what is asked of it and what is done to its shape, one operation a file.

mod apply_messages;
mod basement;
mod build;
mod clone;
mod compact_edges;
mod cursor;
mod flush;
mod free;
mod get;
mod goto;
mod leaf_builder;
mod merge;
mod rebalance;
mod reclaim_hidden;
mod split;

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::Mutex;
use hashbrown::HashMap;

pub use cursor::{Cursor, Unreadable};
pub(crate) use rebalance::{FLUSH_NODES, PASSING_FLUSH_NODES};

use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::key::Cut;
use crate::node::{Body, Edge, Goto, Node, NodeId};
use crate::planted::{self, Bug};
use crate::settings::Geometry;
use crate::store::{NodePlace, ReadScope, Store};
use crate::table::Table;
use crate::upsert::Upsert;

/// What an edge takes in memory besides its keys, in bytes; a header as much besides its entries.
const EDGE_BYTES: usize = 160;
/// What a GOTO takes in memory besides what it takes in a buffer, in bytes.
const GOTO_BYTES: usize = size_of::<Goto>();

/// What every operation on a tree needs.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'e> {
    pub dict: &'e Dict,
    pub store: &'e Store,
    pub table: &'e Mutex<Table>,
    pub dead: &'e Mutex<Vec<NodeId>>,
    pub geometry: &'e Geometry,
    pub upsert: &'e dyn Upsert,
}

/// New versions of nodes, to be put in place in one step. References follow from what the versions
/// name.
#[derive(Default)]
pub(crate) struct TreeChange {
    /// New versions of nodes that the table holds.
    pub changed: Vec<Arc<Node>>,
    /// Nodes under reserved names.
    pub added: Vec<Arc<Node>>,
    /// Nodes whose contents have moved into others, each before those below it: they go with this
    /// step, unless others still name them. What else is not named any more goes later, and all that
    /// is below it.
    pub removed: Vec<NodeId>,
    /// The new root, if it is another.
    pub root: Option<NodeId>,
}

pub(crate) fn dangling(id: NodeId) -> Error {
    let why = alloc::format!("it leads to node {id}, which the node table does not hold");
    Error::Corrupt { what: "an edge", offset: 0, len: 0, why }
}

/// A search came to a node by an edge that shows more than the node has.
pub(crate) fn astray(id: NodeId) -> Error {
    let why = alloc::format!("it shows more than node {id} has");
    Error::Corrupt { what: "an edge", offset: 0, len: 0, why }
}

/// Whether a node that was read from a place is what the node table says of it, and leads strictly down.
///
/// # Errors
/// Where it is not as high as the node table says, or leads to a node that is no lower: then whoever goes
/// from node to node might never come to an end.
pub(crate) fn fits(table: &Table, node: &Node, place: &NodePlace) -> Result<()> {
    if table.height(node.id) != Some(node.height) {
        return Err(place.corrupt("its height is not the one that the node table has"));
    }
    if node.references().any(|id| table.height(id).is_some_and(|height| height >= node.height)) {
        return Err(place.corrupt("it leads to a node that is no lower"));
    }
    Ok(())
}

/// A search comes no further: bounds that do not fit together would keep it where it is for ever.
fn nowhere() -> Error {
    let why = "what it shows does not hold the place that was looked for".into();
    Error::Corrupt { what: "an edge", offset: 0, len: 0, why }
}

impl Tree<'_> {
    /// The current version of a node, read from the device if need be; `None` if the tree no longer
    /// has it.
    pub fn find(&self, id: NodeId) -> Result<Option<Arc<Node>>> {
        loop {
            if let Some(node) = self.dict.state.read().node(id) {
                return Ok(Some(node.clone()));
            }
            // Whoever reads it whole brings it.
            if self.store.wait_for_reader(id) {
                continue;
            }
            let (place, lost) = {
                let table = self.table.lock();
                (table.place(id), table.why_lost(id))
            };
            let Some(place) = place else { return lost.map_or(Ok(None), Err) };
            let node = self.store.read_node(id, &place, ReadScope::Header, None)?;
            if let Some(node) = self.keep_read(node, &place)? {
                return Ok(Some(node));
            }
        }
    }

    /// Brings a node that is not in memory there with all its pieces, in one read. `false` if it is not
    /// there any more, or another is reading it.
    fn find_whole(&self, id: NodeId) -> Result<bool> {
        let Some(place) = self.table.lock().place(id) else { return Ok(false) };
        let read = || -> Result<()> {
            let node = self.store.read_node(id, &place, ReadScope::Whole, None)?;
            // Before those who wait for it look again, or they would read it themselves.
            self.keep_read(node, &place)?;
            Ok(())
        };
        Ok(self.store.read_alone(id, read).transpose()?.is_some())
    }

    /// Keeps a node that was read from a place, unless there is a version of it by now, which is given
    /// then. `None` if the place is out of date: while it was read it may have been read, changed, written
    /// and forgotten by others.
    ///
    /// # Errors
    /// As [`fits`].
    fn keep_read(&self, node: Arc<Node>, place: &NodePlace) -> Result<Option<Arc<Node>>> {
        let mut state = self.dict.state.write();
        if let Some(node) = state.node(node.id) {
            return Ok(Some(node.clone()));
        }
        let table = self.table.lock();
        if table.place(node.id).is_none_or(|now| !Arc::ptr_eq(&now.extent, &place.extent)) {
            return Ok(None);
        }
        fits(&table, &node, place)?;
        drop(table);
        state.keep_clean(node.clone());
        drop(state);
        if self.store.cache.has_too_many_headers() {
            self.dict.evict_headers();
            self.store.cache.headers_were_evicted();
        }
        Ok(Some(node))
    }

    /// The current version of a node that the tree has, for whoever holds the structure lock.
    pub fn node(&self, id: NodeId) -> Result<Arc<Node>> {
        self.find(id)?.ok_or_else(|| dangling(id))
    }

    /// Brings a node into memory for a search that then begins anew. One that is gone was merged or split
    /// away meanwhile, and the next look shows how. No name comes back: a look that leads to the same one
    /// again would do so for ever.
    fn find_for_search(&self, id: NodeId, gone: &mut Option<NodeId>) -> Result<()> {
        if self.find(id)?.is_none() && gone.replace(id) == Some(id) {
            return Err(dangling(id));
        }
        Ok(())
    }

    /// A new node under a reserved name. What it has of other nodes' pieces it has for itself: these
    /// may stay, or go, without it.
    pub fn new_node(&self, height: u8, lo: Cut, hi: Cut, body: Body) -> Arc<Node> {
        let id = self.table.lock().reserve();
        let mut body = body;
        match &mut body {
            Body::Leaf(basements) => {
                basements.iter_mut().for_each(|b| b.piece = b.piece.fork(&self.store.cache));
            }
            Body::Interior(edges) => {
                let pieces = edges.iter_mut().filter_map(|edge| edge.partition.as_mut());
                pieces.for_each(|piece| *piece = piece.fork(&self.store.cache));
            }
        }
        self.version(id, height, lo, hi, body)
    }

    /// A version of a node.
    pub fn version(&self, id: NodeId, height: u8, lo: Cut, hi: Cut, body: Body) -> Arc<Node> {
        let header = match &body {
            Body::Leaf(basements) => basements.iter().map(|b| b.first.len() + 64).sum::<usize>(),
            Body::Interior(edges) => {
                let gotos = |e: &Edge| e.gotos.iter().map(|goto| goto.bytes() + GOTO_BYTES).sum::<usize>();
                edges.iter().map(|e| e.lo.bytes().len() * 2 + EDGE_BYTES + gotos(e)).sum()
            }
        };
        let charge = self.store.cache.charge(header + EDGE_BYTES, body.content_bytes(), body.gotos());
        Arc::new(Node { id, height, lo, hi, body, charge })
    }

    /// Another version of the same node with another body.
    pub fn with_body(&self, node: &Node, body: Body) -> Arc<Node> {
        self.version(node.id, node.height, node.lo.clone(), node.hi.clone(), body)
    }

    /// Makes the volume read-only if a node had fewer references than edges: what is freed next could still be in use.
    fn refuse_changes_if_miscounted(&self, table: &mut Table) {
        if let Some(id) = table.miscounted() {
            let (slot, generation) = (id.slot, id.generation);
            self.store.disk.health.fail(&alloc::format!(
                "the node table counts fewer references to node {slot} (generation {generation}) than there are edges"
            ));
        }
    }

    /// Makes the first root of a dictionary.
    pub fn set_root(&self, root: Arc<Node>) {
        self.install(TreeChange { root: Some(root.id), added: alloc::vec![root], ..TreeChange::default() });
    }

    /// Puts new versions in place. Readers see all of it or nothing, and so does a checkpoint.
    pub fn install(&self, change: TreeChange) {
        self.install_with(change, |_| ());
    }

    /// As [`install`](Tree::install), with something else in the same step.
    pub fn install_with(&self, change: TreeChange, also: impl FnOnce(&mut crate::dict::DictState)) {
        let mut state = self.dict.state.write();
        let mut table = self.table.lock();
        let mut counts: HashMap<NodeId, i64> = HashMap::new();
        let mut added = Vec::with_capacity(change.added.len());
        let mut count = |id: NodeId, more: i64| *counts.entry(id).or_default() += more;
        if let Some(root) = change.root {
            count(root, 1);
            count(state.root, -1);
            state.root = root;
        }
        for node in change.added {
            table.add(node.id, node.height);
            added.push(node.id);
            node.references().for_each(|id| count(id, 1));
            if planted::is(Bug::GotosOfNewNodeNotCounted) {
                node.edges().iter().flat_map(|e| &e.gotos).for_each(|goto| count(goto.target, -1));
            }
            state.install(node);
        }
        for node in change.changed {
            table.touch(node.id.slot);
            node.references().for_each(|id| count(id, 1));
            if let Some(old) = state.install(node) {
                old.references().for_each(|id| count(id, -1));
            }
        }
        for id in change.removed {
            let more = counts.remove(&id).unwrap_or(0);
            let is_named = table.count(id, more).is_some_and(|references| references > 0);
            if is_named && !planted::is(Bug::SharedNodeRemoved) {
                continue;
            }
            if let Some(old) = state.remove(id) {
                old.references().for_each(|id| *counts.entry(id).or_default() -= 1);
            }
            table.remove(id);
        }
        let unnamed =
            |(id, more): (NodeId, i64)| (more != 0 && table.count(id, more) == Some(0)).then_some(id);
        let mut dead: Vec<NodeId> = counts.into_iter().filter_map(unnamed).collect();
        // What was made and then covered by a later change of the same batch.
        for id in added {
            if table.references(id) == 0 && !dead.contains(&id) {
                dead.push(id);
            }
        }
        also(&mut state);
        self.refuse_changes_if_miscounted(&mut table);
        drop(table);
        drop(state);
        if !dead.is_empty() {
            self.dead.lock().extend(dead);
        }
        self.store.cache.evict();
    }
}
