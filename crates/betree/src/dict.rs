//! One dictionary: its memtables, its root and the versions of its nodes that are in memory.

mod history;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, Ordering};
use betree_platform::sync::{Mutex, RwLock};
use hashbrown::{HashMap, HashSet};

use crate::events;
use crate::memtable::Memtable;
use crate::merge_yield::MergeYield;
use crate::message::Msn;
use crate::node::Node;
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::store::NodePlace;
use crate::views::{Epoch, Moment, Named};
pub(crate) use history::{History, Old};

/// A dictionary of an environment.
pub(crate) struct Dict {
    /// Its place in the environment's list.
    pub index: usize,
    /// The state that readers see. Locked only for moments: to take a message, to walk the nodes in memory,
    /// to install new versions.
    pub state: RwLock<DictState>,
    /// Held while the shape of the tree is changed, from reading the old versions to installing the new ones.
    /// Taken before `state`.
    pub structure: Mutex<()>,
    /// Nodes without references that are still to be freed. Locked after the node table.
    pub dead: Mutex<Vec<NodeId>>,
    /// Nodes without references that a failing device kept from being freed: the next checkpoint and the next
    /// check have them tried again. Locked alone.
    pub unread_dead: Mutex<Vec<NodeId>>,
    /// Nodes of which was told that they hold up messages, because they cannot be read. Locked alone.
    pub held_told: Mutex<HashSet<NodeId>>,
    /// The epochs that live views name. Locked last.
    pub named: Mutex<Named>,
    /// The yield of recent merges in leaves, noted by the threads that change leaves.
    pub merge_yield: MergeYield,
}

/// The state of a dictionary that readers see as one.
pub(crate) struct DictState {
    /// The memtable that takes messages.
    pub active: Memtable,
    /// Full memtables that have not arrived at the root yet, oldest first.
    pub frozen: VecDeque<Arc<Memtable>>,
    pub root: NodeId,
    /// Every message up to this one is in the tree.
    pub applied_msn: Msn,
    nodes: HashMap<NodeId, Resident>,
    /// The epoch at hand: see [`views`](crate::views).
    pub epoch: Epoch,
    /// What views alone see.
    pub history: History,
}

/// How a version in memory relates to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The node table points to it.
    Clean,
    /// It is in memory alone.
    Dirty,
    /// A checkpoint is writing it.
    Writing,
}

struct Resident {
    node: Arc<Node>,
    kept: Kept,
    touched: AtomicBool,
}

impl Resident {
    /// The version, no longer current and no longer owed to the device, unless a checkpoint is writing it.
    fn with_edges(self) -> Arc<Node> {
        self.node.charge.set_current(false);
        if self.kept == Kept::Dirty {
            self.node.charge.set_unwritten(false);
        }
        self.node
    }
}

impl Dict {
    /// A dictionary whose tree is on the device.
    pub fn new(index: usize, root: NodeId, applied_msn: Msn) -> Dict {
        Dict {
            index,
            state: RwLock::new(DictState {
                active: Memtable::default(),
                frozen: VecDeque::new(),
                root,
                applied_msn,
                nodes: HashMap::new(),
                epoch: 0,
                history: History::default(),
            }),
            structure: Mutex::new(()),
            dead: Mutex::default(),
            unread_dead: Mutex::default(),
            held_told: Mutex::default(),
            named: Mutex::default(),
            merge_yield: MergeYield::default(),
        }
    }

    /// Whether a memtable waits to arrive at the root.
    pub fn is_full(&self) -> bool {
        !self.state.read().frozen.is_empty()
    }

    /// Whether nodes are to be freed.
    pub fn has_dead(&self) -> bool {
        !self.dead.lock().is_empty()
    }

    /// Has the nodes tried again that could not be read when they were to be freed.
    pub fn retry_unread_dead(&self) {
        let unread = core::mem::take(&mut *self.unread_dead.lock());
        if !unread.is_empty() {
            self.dead.lock().extend(unread);
        }
    }

    /// Drops nodes that are on the device and were not touched since the last call; interior ones only while
    /// no thread changes the shape of the tree. Such a thread counts the references of the versions that it
    /// replaces, so they must stay in memory.
    pub fn evict_headers(&self) {
        let unchanging = self.structure.try_lock();
        let with_interior = unchanging.is_some() || planted::is(Bug::OldVersionsForgotten);
        let headers = self.state.write().evict_headers(with_interior);
        if headers > 0 {
            events::headers_evicted(self.index, headers);
        }
    }
}

impl DictState {
    /// The current version of a node, if it is in memory.
    pub fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        let resident = self.nodes.get(&id)?;
        resident.touched.store(true, Ordering::Relaxed);
        Some(&resident.node)
    }

    /// The version of a node as of a moment, if it is in memory.
    pub fn node_at(&self, id: NodeId, at: &Moment<'_>) -> Option<&Arc<Node>> {
        if at.epoch < self.epoch {
            match self.history.version(id, at.epoch) {
                Some(Old::Node(node)) => return Some(node),
                Some(Old::Place(_)) => return None,
                None => {}
            }
        }
        self.node(id)
    }

    /// The version of a node as of a moment, in memory and on the device, as far as it is there; `place` is
    /// where the node table has it now.
    pub fn places_at(
        &self,
        id: NodeId,
        at: &Moment<'_>,
        place: Option<NodePlace>,
    ) -> (Option<Arc<Node>>, Option<NodePlace>) {
        if at.epoch < self.epoch
            && let Some(old) = self.history.places_of(id, at.epoch)
        {
            return old;
        }
        let resident = self.nodes.get(&id);
        // The table points to an older version of a dirty node.
        let place = place.filter(|_| resident.is_none_or(|resident| resident.kept == Kept::Clean));
        (self.node(id).cloned(), place)
    }

    /// The root as of a moment.
    pub fn root_at(&self, at: &Moment<'_>) -> NodeId {
        let old = if at.epoch < self.epoch { self.history.root(at.epoch) } else { None };
        old.unwrap_or(self.root)
    }

    /// The memtables over the tree as of a moment, newest first, without those that are newer.
    pub fn memtables<'s>(&'s self, at: &'s Moment<'_>) -> impl Iterator<Item = &'s Memtable> {
        let arrived = (at.epoch < self.epoch).then(|| self.history.memtables(at.epoch));
        let all = core::iter::once(&self.active).chain(self.frozen.iter().rev().map(|m| &**m));
        all.chain(arrived.into_iter().flatten()).filter(|memtable| !memtable.is_newer_than(at.msn))
    }

    /// Ends the epoch at hand; `arrived` is the memtable that comes to the root by that.
    pub fn end_epoch(&mut self, arrived: Option<&Arc<Memtable>>, named: &Named) {
        self.history.end_epoch(self.epoch, self.root, arrived, named);
        self.epoch += 1;
    }

    /// Keeps a version that was read from the device.
    pub fn keep_clean(&mut self, node: Arc<Node>) {
        node.charge.set_current(true);
        let id = node.id;
        self.nodes.insert(id, Resident { node, kept: Kept::Clean, touched: AtomicBool::new(true) });
    }

    /// Installs the first version of a new node.
    pub fn install_new(&mut self, node: Arc<Node>, named: &Named) {
        self.history.born(node.id, self.epoch, named);
        self.put(node);
    }

    /// Installs a new version and returns the old one, if it was in memory; `place` is where that is on the
    /// device, if it was written.
    pub fn install(&mut self, node: Arc<Node>, place: Option<NodePlace>, named: &Named) -> Option<Arc<Node>> {
        let id = node.id;
        let old = self.put(node);
        self.retire(id, old, place, named)
    }

    /// Removes a node that the tree no longer has and returns its version, if it was in memory; `place` as
    /// for [`install`](DictState::install).
    pub fn remove(&mut self, id: NodeId, place: Option<NodePlace>, named: &Named) -> Option<Arc<Node>> {
        let old = self.nodes.remove(&id);
        self.retire(id, old, place, named)
    }

    fn put(&mut self, node: Arc<Node>) -> Option<Resident> {
        node.charge.set_unwritten(true);
        node.charge.set_current(true);
        let id = node.id;
        self.nodes.insert(id, Resident { node, kept: Kept::Dirty, touched: AtomicBool::new(true) })
    }

    /// Keeps a version for views that see it.
    fn retire(
        &mut self,
        id: NodeId,
        old: Option<Resident>,
        place: Option<NodePlace>,
        named: &Named,
    ) -> Option<Arc<Node>> {
        // The table points to an older version of a dirty node.
        let place = place.filter(|_| old.as_ref().is_none_or(|old| old.kept == Kept::Clean));
        let node = old.map(Resident::with_edges);
        self.history.retire(id, node.clone(), place, self.epoch, named);
        node
    }

    /// The dirty versions, marked from now on as being written by a checkpoint.
    pub fn capture_dirty(&mut self) -> HashMap<NodeId, Arc<Node>> {
        let dirty = self.nodes.iter_mut().filter(|(_, r)| r.kept == Kept::Dirty);
        dirty
            .map(|(id, resident)| {
                resident.kept = Kept::Writing;
                (*id, resident.node.clone())
            })
            .collect()
    }

    /// Notes that a captured version was written to `place` or, without a place, is dirty again.
    pub fn capture_done(&mut self, node: &Arc<Node>, place: Option<&NodePlace>) {
        let resident = self.nodes.get_mut(&node.id).filter(|resident| Arc::ptr_eq(&resident.node, node));
        if place.is_some() || resident.is_none() {
            node.charge.set_unwritten(false);
        }
        match resident {
            Some(resident) if resident.kept == Kept::Writing => {
                resident.kept = if place.is_some() { Kept::Clean } else { Kept::Dirty };
            }
            Some(_) => {}
            None => {
                if let Some(place) = place {
                    self.history.written(node, place);
                }
            }
        }
    }

    /// Whether the version of a node is in memory alone.
    pub fn is_dirty_node(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|resident| resident.kept != Kept::Clean)
    }

    /// Whether any version is in memory alone.
    pub fn is_dirty(&self) -> bool {
        self.nodes.values().any(|resident| resident.kept == Kept::Dirty)
    }

    /// As [`Dict::evict_headers`]. Returns how many.
    fn evict_headers(&mut self, with_interior: bool) -> usize {
        let before = self.nodes.len();
        self.nodes.retain(|_, r| {
            let touched = r.touched.swap(false, Ordering::Relaxed);
            r.kept != Kept::Clean || touched || r.node.height > 0 && !with_interior
        });
        self.history.evict_headers();
        before - self.nodes.len()
    }

    /// The bytes of messages that have not arrived at the root.
    pub fn memtable_bytes(&self) -> usize {
        self.active.bytes() + self.frozen.iter().map(|m| m.bytes()).sum::<usize>()
    }
}
