//! All inodes in memory.
//!
//! An inode stays as long as somebody holds it: the caller (lookups, opens) or an inode below it.
//! Of the rest, the table keeps up to a bound, and drops those first that have been idle longest.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;

use betree_sys::sync::Mutex;
use hashbrown::HashMap;

use crate::node::{Inode, Place};
use crate::types::NodeId;

/// How many idle inodes are tried for each that comes in.
const TRIES: usize = 4;

/// The inodes by identity, and those of linked files by object id.
pub(crate) struct Table {
    inner: Mutex<Inner>,
    inodes_max: usize,
}

struct Inner {
    nodes: HashMap<NodeId, Arc<Inode>>,
    objects: HashMap<u64, NodeId>,
    /// May hold inodes that are in use again; those are passed over.
    idle: VecDeque<NodeId>,
    node_next: u64,
}

impl Table {
    pub fn new(inodes_max: usize) -> Table {
        let inner = Inner {
            nodes: HashMap::new(),
            objects: HashMap::new(),
            idle: VecDeque::new(),
            node_next: NodeId::ROOT.0,
        };
        Table { inner: Mutex::new(inner), inodes_max }
    }

    pub fn get(&self, id: NodeId) -> Option<Arc<Inode>> {
        self.inner.lock().nodes.get(&id).cloned()
    }

    pub fn object(&self, oid: u64) -> Option<Arc<Inode>> {
        let inner = self.inner.lock();
        inner.nodes.get(inner.objects.get(&oid)?).cloned()
    }

    /// Adds the inode that `make` makes of its identity; the first is the root.
    pub fn insert(&self, make: impl FnOnce(NodeId) -> Inode) -> Arc<Inode> {
        let mut dropped = Vec::new();
        let mut inner = self.inner.lock();
        let id = NodeId(inner.node_next);
        inner.node_next += 1;
        let inode = Arc::new(make(id));
        if let Place::Object { oid } = inode.place() {
            inner.objects.insert(oid, id);
        }
        inner.nodes.insert(id, inode.clone());
        inner.queue(&inode);
        for _ in 0..TRIES {
            if inner.nodes.len() > self.inodes_max {
                dropped.extend(inner.evict_one());
            }
        }
        drop(inner);
        // Directories are large: they are torn down after the lock is given up.
        drop(dropped);
        inode
    }

    /// All inodes in memory.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.inner.lock().nodes.values().cloned().collect()
    }

    /// Notes that a file lies under an object id from now on.
    pub fn set_object(&self, oid: u64, id: NodeId) {
        self.inner.lock().objects.insert(oid, id);
    }

    /// Notes that an object id leads nowhere any more.
    pub fn remove_object(&self, oid: u64) {
        self.inner.lock().objects.remove(&oid);
    }

    /// Drops an inode that is not stored any more, if nobody holds it.
    pub fn drop_gone(&self, inode: &Arc<Inode>) {
        let mut inner = self.inner.lock();
        if inode.is_idle() && inode.is_gone() {
            inner.nodes.remove(&inode.id);
        }
    }

    /// Notes that an inode may have become idle.
    pub fn queue(&self, inode: &Arc<Inode>) {
        self.inner.lock().queue(inode);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inner.lock().nodes.len()
    }
}

impl Inner {
    fn queue(&mut self, inode: &Arc<Inode>) {
        if !inode.queued.swap(true, Relaxed) {
            self.idle.push_back(inode.id);
        }
    }

    /// Tries the inode that has been idle longest.
    fn evict_one(&mut self) -> Option<Arc<Inode>> {
        let id = self.idle.pop_front()?;
        let inode = self.nodes.get(&id)?;
        // Holders first: who was one may have counted a lookup before it let go. The fence pairs with
        // its letting go.
        let is_held = Arc::strong_count(inode) > 1;
        fence(Acquire);
        if !inode.is_idle() || id == NodeId::ROOT {
            inode.queued.store(false, Relaxed);
            return None;
        }
        let place = inode.place();
        // One holder: the table. Others could come only through the table, which is locked. An
        // inode with inodes below it comes here again.
        if is_held || matches!(place, Place::Orphan { .. }) {
            self.idle.push_back(id);
            return None;
        }
        if let Place::Object { oid } = place {
            self.objects.remove(&oid);
        }
        self.nodes.remove(&id)
    }
}
