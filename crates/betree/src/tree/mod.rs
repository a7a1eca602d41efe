//! The Bε-tree: queries and changes of shape, one operation a file.

mod apply_messages;
mod basement;
mod build;
mod clone;
mod compact_edges;
mod cursor;
mod flush;
mod free;
mod get;
mod get_many;
mod goto;
mod ingest;
#[cfg(test)]
mod install_work;
mod leaf_builder;
mod merge;
mod note_damage;
mod put_back;
mod rebalance;
mod reclaim_hidden;
mod sharing;
mod split;

#[cfg(test)]
mod tests;

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::Mutex;
use hashbrown::HashMap;

pub use cursor::{Cursor, Unreadable};
pub(crate) use ingest::{BuiltTree, TreeBuilder};
pub(crate) use note_damage::read;
pub(crate) use put_back::{Replacement, Replacements};
pub(crate) use rebalance::{Drain, FLUSH_NODES, PASSING_FLUSH_NODES, Rebalanced};

use crate::cache::Piece;
use crate::dict::{Dict, Old};
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::key::Cut;
use crate::memtable::{ChangeSource, Memtable};
use crate::message::Goto;
use crate::node::{Body, Edge, Node};
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::run::{Layers, Run};
use crate::settings::{DictId, Geometry};
use crate::store::{NodePlace, ReadScope, Store};
use crate::table::Table;
use crate::transaction::{Overlay, Recent};
use crate::upsert::Upsert;
use crate::views::{Moment, Views};
use ingest::WrittenNode;

/// Memory of an edge without its keys, and of a header without its entries, in bytes.
const EDGE_BYTES: usize = 160;
/// The invariant of all that is done to an edge of a node: its index is of this version.
const EDGE_IS_THERE: &str = "an edge of a node is among its edges";
/// Memory of a GOTO beyond its size in a buffer, in bytes.
const GOTO_BYTES: usize = size_of::<Goto>();

/// The context of every operation on a tree.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'e> {
    pub dict: &'e Dict,
    pub store: &'e Store,
    pub table: &'e Mutex<Table>,
    pub geometry: &'e Geometry,
    pub upsert: &'e dyn Upsert,
    pub views: &'e Mutex<Views>,
    pub recent: &'e Mutex<Recent>,
    /// Private changes that reads see before all else.
    pub overlay: Overlay<'e>,
    /// The moment that reads are as of. Changes of shape are made of the newest one.
    pub at: Moment<'e>,
    /// Where queries may read.
    pub reach: Reach,
}

/// Where a query may read, or a change of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In memory and on the device.
    Device,
    /// Likewise, ahead of another query: what it comes to is counted there.
    Ahead,
    /// In memory alone. What is not there is [`Error::NotInMemory`].
    Memory,
}

/// The end of an epoch, with a change that makes it.
struct EpochEnd<'e> {
    views: &'e mut Views,
    /// The memtable that comes to the root.
    arrived: Option<&'e Arc<Memtable>>,
}

/// New versions of nodes, to be installed in one step. Reference counts follow from the nodes that the
/// versions name.
#[derive(Default)]
pub(crate) struct TreeChange {
    /// New versions of nodes in the table.
    pub changed: Vec<Arc<Node>>,
    /// Nodes with reserved ids.
    pub added: Vec<Arc<Node>>,
    /// Nodes with reserved ids that are on the device already. Others may share the list, until the change is
    /// installed.
    pub written: Arc<Vec<WrittenNode>>,
    /// Nodes whose contents moved to others, each before those below it. They are removed with this step
    /// unless other nodes still name them. Other nodes that lose their last reference are freed later, with
    /// all below them.
    pub removed: Vec<NodeId>,
    /// The new root, if it changes.
    pub root: Option<NodeId>,
}

pub(crate) fn dangling(id: NodeId) -> Error {
    let why = alloc::format!("it leads to node {id}, which the node table does not hold");
    Error::Corrupt { what: "an edge", offset: 0, len: 0, why }
}

/// The error of a search that came to a node by an edge that shows more than the node has.
pub(crate) fn astray(id: NodeId) -> Error {
    let why = alloc::format!("it shows more than node {id} has");
    Error::Corrupt { what: "an edge", offset: 0, len: 0, why }
}

/// Checks that a node as read from its place agrees with the node table and leads strictly down.
///
/// # Errors
/// If its height is not the table's, or it names a node that is no lower: a walk might never end.
pub(crate) fn fits(table: &Table, node: &Node, place: &NodePlace) -> Result<()> {
    if table.height(node.id) != Some(node.height) {
        return Err(place.corrupt("its height differs from the node table's"));
    }
    leads_down(table, node, place)
}

/// Checks that a node as read from its place leads strictly down.
///
/// # Errors
/// If it names a node that is no lower.
pub(crate) fn leads_down(table: &Table, node: &Node, place: &NodePlace) -> Result<()> {
    if node.references().any(|id| table.height(id).is_some_and(|height| height >= node.height)) {
        return Err(place.corrupt("it leads to a node that is no lower"));
    }
    Ok(())
}

/// The error of a search that gets no further: bounds that do not fit would keep it in place for ever.
fn nowhere() -> Error {
    let why = "its window does not hold the place that a search came for".into();
    Error::Corrupt { what: "an edge", offset: 0, len: 0, why }
}

impl Tree<'_> {
    /// What has expired for a reader.
    fn expiry(&self) -> Expiry<'_> {
        match self.at.time_ns {
            Some(time_ns) => Expiry::at(self.upsert, Some(time_ns)),
            None => Expiry::now(self.upsert, &self.store.clock),
        }
    }

    /// What has expired for every reader, now and later: a view that begins later reads by a later time.
    fn expired_for_all(&self) -> Expiry<'_> {
        // The clock is looked at first: a view that begins meanwhile has a time no earlier.
        let time_ns = self.store.clock.now_ns().map(|now_ns| {
            let earliest_ns = self.views.lock().earliest_ns();
            let earliest_ns = earliest_ns.filter(|_| !planted::is(Bug::ExpiredDroppedUnderViews));
            earliest_ns.map_or(now_ns, |view_ns| view_ns.min(now_ns))
        });
        Expiry::at(self.upsert, time_ns)
    }

    /// The current version of a node, read from the device if need be; `None` if it is no longer in the tree.
    pub fn find(&self, id: NodeId) -> Result<Option<Arc<Node>>> {
        loop {
            if let Some(node) = self.dict.state.read().node(id) {
                return Ok(Some(node.clone()));
            }
            if self.reach == Reach::Memory {
                return Err(Error::NotInMemory);
            }
            // Its reader, which reads the node whole, installs it.
            if self.store.wait_for_reader(id) {
                continue;
            }
            let (place, lost) = {
                let table = self.table.lock();
                (table.place(id), table.why_lost(id))
            };
            let Some(place) = place else { return lost.map_or(Ok(None), Err) };
            let node = self.store.read_node(id, &place, ReadScope::Header, Some(self.dict.index as u8))?;
            let kept = self.keep_read(node, &place)?;
            self.forget_unused_headers();
            if kept.is_some() {
                return Ok(kept);
            }
        }
    }

    /// Reads a node with all its pieces at once. `false` if the node is gone, or another thread reads it.
    fn find_whole(&self, id: NodeId) -> Result<bool> {
        let Some(place) = self.table.lock().place(id) else { return Ok(false) };
        let read = || -> Result<()> {
            let node = self.store.read_node(id, &place, ReadScope::Whole, Some(self.dict.index as u8))?;
            // Before the waiting threads look again, or they would read it themselves.
            self.keep_read(node, &place)?;
            self.forget_unused_headers();
            Ok(())
        };
        Ok(self.store.read_alone(id, read).transpose()?.is_some())
    }

    /// Keeps a node as read from a place, or returns the newer version that came meanwhile. `None` if the
    /// place is out of date: during the read the node may have been loaded, changed, written and evicted by
    /// other threads.
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
        Ok(Some(node))
    }

    fn forget_unused_headers(&self) {
        if self.store.cache.has_too_many_headers() {
            self.dict.evict_headers();
            self.store.cache.headers_were_evicted();
        }
    }

    /// The current version of a node that is in the tree. Called with the structure lock held.
    pub fn node(&self, id: NodeId) -> Result<Arc<Node>> {
        self.find(id)?.ok_or_else(|| dangling(id))
    }

    /// Reads a node for a search that then begins anew. A node that is gone was merged or split away
    /// meanwhile, and the next walk takes the new way. No id is reused, so a walk that comes to the same
    /// missing id twice would do so for ever.
    fn find_for_search(&self, id: NodeId, gone: &mut Option<NodeId>) -> Result<()> {
        if self.reach == Reach::Memory {
            return Err(Error::NotInMemory);
        }
        if !self.find_at(id)? && gone.replace(id) == Some(id) {
            return Err(dangling(id));
        }
        Ok(())
    }

    /// Reads the version of a node as of the moment at hand. `false` if there is none.
    fn find_at(&self, id: NodeId) -> Result<bool> {
        let place = {
            let state = self.dict.state.read();
            self.at.refuse_if_ended()?;
            match state.history.version(id, self.at.epoch) {
                Some(Old::Node(_)) => return Ok(true),
                Some(Old::Place(place)) => place.clone(),
                None => {
                    drop(state);
                    return Ok(self.find(id)?.is_some());
                }
            }
        };
        let node = self.store.read_node(id, &place, ReadScope::Header, Some(self.dict.index as u8))?;
        leads_down(&self.table.lock(), &node, &place)?;
        self.dict.state.write().history.keep_read(&node, &place);
        self.forget_unused_headers();
        Ok(true)
    }

    /// The version of a node as of the moment at hand, read if need be, and where it is on the device, if it
    /// was written. `None` if there is none.
    pub fn version_at(&self, id: NodeId) -> Result<Option<(Arc<Node>, Option<NodePlace>)>> {
        loop {
            {
                let state = self.dict.state.read();
                self.at.refuse_if_ended()?;
                let place = self.table.lock().place(id);
                if let (Some(node), place) = state.places_at(id, &self.at, place) {
                    return Ok(Some((node, place)));
                }
            }
            if !self.find_at(id)? {
                return Ok(None);
            }
        }
    }

    /// Refuses a piece that has to be read from the device, if the query may not do that.
    fn refuse_out_of_reach(&self, piece: &Piece) -> Result<()> {
        match self.reach {
            Reach::Memory if !piece.is_resident() => Err(Error::NotInMemory),
            _ => Ok(()),
        }
    }

    /// Counts an error of a query, if it is known damage.
    fn count_damage(&self, error: &Error) {
        if self.reach != Reach::Ahead {
            self.store.disk.health.count_known_damage(error);
        }
    }

    /// The contents of a piece as one run.
    fn run(&self, piece: &Arc<Piece>) -> Result<Arc<Run>> {
        self.refuse_out_of_reach(piece)?;
        self.store.run(piece)
    }

    /// The contents of pieces, which are read together.
    fn all_layers(&self, pieces: &[Arc<Piece>]) -> Result<Vec<Layers>> {
        pieces.iter().try_for_each(|piece| self.refuse_out_of_reach(piece))?;
        self.store.all_layers(pieces)
    }

    /// The root as of the moment at hand.
    pub fn root(&self) -> Result<NodeId> {
        let state = self.dict.state.read();
        self.at.refuse_if_ended()?;
        Ok(state.root_at(&self.at))
    }

    /// The number of references to a node as of the moment at hand.
    pub fn references_at(&self, id: NodeId) -> u32 {
        let state = self.dict.state.read();
        let now = self.table.lock().references(id);
        state.history.references(id, self.at.epoch, now)
    }

    /// A new node with a reserved id. It gets pieces of its own in place of those of other nodes, which may
    /// be evicted or freed without it.
    pub fn new_node(&self, height: u8, lo: Cut, hi: Cut, body: Body) -> Arc<Node> {
        let id = self.table.lock().reserve();
        self.version(id, height, lo, hi, self.with_own_pieces(body))
    }

    /// The same version with pieces of its own: writing it changes no piece of another version.
    pub fn copy_of(&self, node: &Node) -> Arc<Node> {
        self.with_body(node, self.with_own_pieces(node.body.clone()))
    }

    fn with_own_pieces(&self, mut body: Body) -> Body {
        match &mut body {
            Body::Leaf(basements) => {
                basements.iter_mut().for_each(|b| b.piece = b.piece.fork(&self.store.cache));
            }
            Body::Interior(edges) => {
                let pieces = edges.iter_mut().filter_map(|edge| edge.partition.as_mut());
                pieces.for_each(|piece| *piece = piece.fork(&self.store.cache));
            }
        }
        body
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

    /// A version of the same node with another body.
    pub fn with_body(&self, node: &Node, body: Body) -> Arc<Node> {
        self.version(node.id, node.height, node.lo.clone(), node.hi.clone(), body)
    }

    /// Makes the volume read-only if the node table does not agree with the tree: blocks could be freed while
    /// still in use.
    fn refuse_changes_if_misfit(&self, table: &mut Table) {
        if let Some(error) = table.misfit() {
            self.store.disk.health.fail(&error.to_string());
        }
    }

    /// Makes the first root of a dictionary.
    pub fn set_root(&self, root: Arc<Node>) {
        self.install(TreeChange { root: Some(root.id), added: alloc::vec![root], ..TreeChange::default() });
    }

    /// Installs new versions of the same contents. Readers see all of the change or nothing of it, and so
    /// does a checkpoint.
    pub fn install(&self, change: TreeChange) {
        self.install_step(change, None);
    }

    /// As [`install`](Tree::install), for a change of the contents.
    pub fn install_ranges(&self, views: &mut Views, change: TreeChange) {
        self.install_step(change, Some(EpochEnd { views, arrived: None }));
    }

    /// As [`install`](Tree::install), where the oldest frozen memtable comes to the root.
    fn install_memtable(&self, change: TreeChange, memtable: &Arc<Memtable>) {
        let views = &mut self.views.lock();
        // Whoever looks for changes holds the views' lock, and finds it in one place.
        self.recent.lock().memtable_arrives(DictId(self.dict.index as u8), memtable);
        self.install_step(change, Some(EpochEnd { views, arrived: Some(memtable) }));
    }

    fn install_step(&self, change: TreeChange, end: Option<EpochEnd<'_>>) {
        let mut state = self.dict.state.write();
        let mut table = self.table.lock();
        let named = self.dict.named.lock();
        #[cfg(test)]
        install_work::begin();
        let step = || {
            #[cfg(test)]
            install_work::step();
        };
        if let Some(EpochEnd { views, arrived }) = end {
            if arrived.is_some() || !planted::is(Bug::EpochGoesOnPastClones) {
                state.end_epoch(arrived, &named);
            }
            if let Some(epoch) = views.epochs.get_mut(self.dict.index) {
                *epoch = state.epoch;
            }
            if let Some(memtable) = arrived {
                state.frozen.pop_front();
                state.applied_msn = memtable.last_msn();
            }
        }
        let mut counts: HashMap<NodeId, i64> = HashMap::new();
        let mut added = Vec::with_capacity(change.added.len());
        let mut count = |id: NodeId, more: i64| {
            step();
            *counts.entry(id).or_default() += more;
        };
        if let Some(root) = change.root {
            count(root, 1);
            count(state.root, -1);
            state.root = root;
        }
        let epoch = state.epoch;
        for WrittenNode { id, height, place, references } in change.written.iter() {
            step();
            table.add_written(*id, *height, place);
            state.history.counted(*id, i64::from(*references), epoch, &named);
            table.count(*id, i64::from(*references));
            state.history.born(*id, epoch, &named);
        }
        for node in change.added {
            step();
            table.add(node.id, node.height);
            added.push(node.id);
            node.references().for_each(|id| count(id, 1));
            if planted::is(Bug::GotosOfNewNodeNotCounted) {
                node.edges().iter().flat_map(|e| &e.gotos).for_each(|goto| count(goto.target, -1));
            }
            state.install_new(node, &named);
        }
        for node in change.changed {
            step();
            table.touch(node.id);
            node.references().for_each(|id| count(id, 1));
            let place = table.place(node.id);
            if let Some(old) = state.install(node, place, &named) {
                old.references().for_each(|id| count(id, -1));
            }
        }
        for id in change.removed {
            step();
            let more = counts.remove(&id).unwrap_or(0);
            state.history.counted(id, more, epoch, &named);
            let is_named = table.count(id, more).is_some_and(|references| references > 0);
            if is_named && !planted::is(Bug::SharedNodeRemoved) {
                continue;
            }
            let place = table.place(id);
            if let Some(old) = state.remove(id, place, &named) {
                old.references().for_each(|id| {
                    step();
                    *counts.entry(id).or_default() -= 1;
                });
            }
            table.remove(id);
        }
        let mut unnamed = |(id, more): (NodeId, i64)| {
            step();
            state.history.counted(id, more, epoch, &named);
            (more != 0 && table.count(id, more) == Some(0)).then_some(id)
        };
        let mut dead: Vec<NodeId> = counts.into_iter().filter_map(&mut unnamed).collect();
        // A node that this change adds and a later part of the same batch covers.
        for id in added {
            if table.references(id) == 0 && !dead.contains(&id) {
                dead.push(id);
            }
        }
        self.refuse_changes_if_misfit(&mut table);
        drop(named);
        // With the node table locked: a node without references is always in the list.
        if !dead.is_empty() {
            self.dict.dead.lock().extend(dead);
        }
        drop(table);
        drop(state);
        self.store.cache.evict();
    }
}
