//! What views see of a dictionary and its present state has not: versions of nodes, roots, memtables.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, Ordering};
use hashbrown::HashMap;

use crate::memtable::Memtable;
use crate::node::Node;
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::store::NodePlace;
use crate::views::{Epoch, Named};

/// A version of a node that was current at the ends of the epochs in `[born, died)`.
struct OldVersion {
    born: Epoch,
    died: Epoch,
    /// It, if it is in memory.
    node: Option<Arc<Node>>,
    /// Where it is on the device, if it is.
    place: Option<NodePlace>,
    /// Whether a reader came since headers were evicted last.
    touched: AtomicBool,
}

impl OldVersion {
    /// What of it is nowhere but in memory, in bytes, at most.
    fn unwritten_bytes(&self) -> usize {
        match (&self.node, &self.place) {
            (Some(node), None) => node.content_bytes(),
            _ => 0,
        }
    }
}

/// A version as of an epoch.
pub(crate) enum Old<'h> {
    Node(&'h Arc<Node>),
    /// Not in memory.
    Place(&'h NodePlace),
}

/// What views see alone. It is empty while no view is older than an epoch.
#[derive(Default)]
pub(crate) struct History {
    /// By node, in the order in which they died.
    versions: HashMap<NodeId, Vec<OldVersion>>,
    /// When nodes came that are younger than a live view.
    births: HashMap<NodeId, Epoch>,
    /// The roots at the ends of epochs.
    roots: Vec<(Epoch, NodeId)>,
    /// Memtables that came to the root, each with the epoch that this ended.
    memtables: Vec<(Epoch, Arc<Memtable>)>,
    /// Changes of the numbers of nodes' references since a view began, each with its epoch.
    references: HashMap<NodeId, Vec<(Epoch, i64)>>,
    unwritten_bytes: usize,
}

impl History {
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
            && self.births.is_empty()
            && self.roots.is_empty()
            && self.memtables.is_empty()
            && self.references.is_empty()
    }

    /// Keeps what the end of `epoch` takes away: the root, and the memtable that comes to it.
    pub fn end_epoch(&mut self, epoch: Epoch, root: NodeId, arrived: Option<&Arc<Memtable>>, named: &Named) {
        if named.between(epoch, epoch + 1) && !planted::is(Bug::RootsOfViewsForgotten) {
            self.roots.push((epoch, root));
        }
        let is_seen =
            |memtable: &&Arc<Memtable>| memtable.first_msn().is_some_and(|first| named.sees(epoch, first));
        if !planted::is(Bug::MemtablesOfViewsDropped) {
            self.memtables.extend(arrived.filter(is_seen).map(|memtable| (epoch, memtable.clone())));
        }
    }

    /// Notes the epoch in which a node came.
    pub fn born(&mut self, id: NodeId, epoch: Epoch, named: &Named) {
        if named.between(0, epoch) {
            self.births.insert(id, epoch);
        }
    }

    /// Keeps a version that another takes the place of, or that leaves the tree, in epoch `died`, if a view
    /// names an epoch at whose end it was current. Of a version that is not in memory, `place` is where it
    /// is.
    pub fn retire(
        &mut self,
        id: NodeId,
        node: Option<Arc<Node>>,
        place: Option<NodePlace>,
        died: Epoch,
        named: &Named,
    ) {
        if !named.between(0, died) {
            return;
        }
        // The next version comes now. Of a version without a note no view is older.
        let born = self.births.insert(id, died).unwrap_or(0);
        let is_lost = planted::is(Bug::VersionsOfViewsDropped)
            || node.is_none() && planted::is(Bug::UnreadNodesFreedForViews);
        if !named.between(born, died) || is_lost {
            return;
        }
        let version = OldVersion { born, died, node, place, touched: AtomicBool::new(false) };
        self.unwritten_bytes += version.unwritten_bytes();
        self.versions.entry(id).or_default().push(version);
    }

    /// Notes that a node has `more` references since `epoch`, if a view names an earlier one.
    pub fn counted(&mut self, id: NodeId, more: i64, epoch: Epoch, named: &Named) {
        if more == 0 || !named.between(0, epoch) {
            return;
        }
        let changes = self.references.entry(id).or_default();
        match changes.last_mut() {
            // No view sees one of the two without the other.
            Some((last, sum)) if !named.between(*last, epoch) => *sum += more,
            _ => changes.push((epoch, more)),
        }
    }

    /// The number of references to a node at the end of an epoch; now there are `now`.
    pub fn references(&self, id: NodeId, epoch: Epoch, now: u32) -> u32 {
        let since = self.references.get(&id).into_iter().flatten().filter(|(changed, _)| *changed > epoch);
        let more: i64 = since.map(|(_, more)| more).sum();
        u32::try_from(i64::from(now).saturating_sub(more)).unwrap_or(0)
    }

    /// Whether the number of references to a node has changed since the end of an epoch.
    pub fn has_counted(&self, id: NodeId, epoch: Epoch) -> bool {
        self.references.get(&id).into_iter().flatten().any(|(changed, _)| *changed > epoch)
    }

    /// Notes where a checkpoint has written a version that has died meanwhile.
    pub fn written(&mut self, node: &Arc<Node>, place: &NodePlace) {
        self.write(node, place, true);
    }

    /// Drops a version from memory of which a copy was written to a place.
    pub fn spilled(&mut self, node: &Arc<Node>, place: &NodePlace) {
        self.write(node, place, false);
    }

    /// A change of ranges that changes nothing installs a version again, which then dies more than once.
    fn write(&mut self, node: &Arc<Node>, place: &NodePlace, stays_in_memory: bool) {
        let is_it =
            |version: &&mut OldVersion| version.node.as_ref().is_some_and(|own| Arc::ptr_eq(own, node));
        for version in self.versions.get_mut(&node.id).into_iter().flatten().filter(is_it) {
            self.unwritten_bytes -= version.unwritten_bytes();
            version.place = Some(place.clone());
            if !stays_in_memory {
                version.node = None;
            }
        }
    }

    /// Keeps a version in memory that was read from its place.
    pub fn keep_read(&mut self, node: &Arc<Node>, place: &NodePlace) {
        let is_it = |version: &&mut OldVersion| {
            version.place.as_ref().is_some_and(|own| Arc::ptr_eq(&own.extent, &place.extent))
        };
        for version in self.versions.get_mut(&node.id).into_iter().flatten().filter(is_it) {
            version.node = Some(node.clone());
            version.touched.store(true, Ordering::Relaxed);
        }
    }

    /// Drops versions that are on the device and were not touched since the last call.
    pub fn evict_headers(&mut self) {
        for version in self.versions.values_mut().flatten().filter(|version| version.place.is_some()) {
            if !version.touched.swap(false, Ordering::Relaxed) {
                version.node = None;
            }
        }
    }

    /// The version of a node as of the end of an epoch, unless that is the current one.
    pub fn version(&self, id: NodeId, epoch: Epoch) -> Option<Old<'_>> {
        let version = self.versions.get(&id)?.iter().find(|version| version.died > epoch)?;
        version.touched.store(true, Ordering::Relaxed);
        version.node.as_ref().map(Old::Node).or(version.place.as_ref().map(Old::Place))
    }

    /// As [`version`](History::version), in memory and on the device, as far as it is there.
    pub fn places_of(&self, id: NodeId, epoch: Epoch) -> Option<(Option<Arc<Node>>, Option<NodePlace>)> {
        let version = self.versions.get(&id)?.iter().find(|version| version.died > epoch)?;
        version.touched.store(true, Ordering::Relaxed);
        Some((version.node.clone(), version.place.clone()))
    }

    /// The root at the end of an epoch, unless that is the current one.
    pub fn root(&self, epoch: Epoch) -> Option<NodeId> {
        self.roots.iter().find(|(ended, _)| *ended == epoch).map(|(_, root)| *root)
    }

    /// The number of memtables.
    #[cfg(test)]
    pub fn memtables_len(&self) -> usize {
        self.memtables.len()
    }

    /// The memtables that came to the root at the end of an epoch or later, newest first.
    pub fn memtables(&self, epoch: Epoch) -> impl Iterator<Item = &Memtable> {
        self.memtables
            .iter()
            .rev()
            .take_while(move |(ended, _)| *ended >= epoch)
            .map(|(_, memtable)| &**memtable)
    }

    /// What of it is nowhere but in memory, in bytes, at most.
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// The largest version that is nowhere but in memory.
    pub fn largest_unwritten(&self) -> Option<Arc<Node>> {
        let unwritten = self.versions.values().flatten().filter(|version| version.unwritten_bytes() > 0);
        unwritten.max_by_key(|version| version.unwritten_bytes())?.node.clone()
    }

    /// Whether it holds versions of nodes, and so space on the device.
    pub fn holds_versions(&self) -> bool {
        !self.versions.is_empty()
    }

    /// Takes out what no view names any more. The caller drops it outside of the state's lock.
    pub fn take_unnamed(&mut self, named: &Named) -> History {
        if named.is_empty() {
            return core::mem::take(self);
        }
        let mut unnamed = History::default();
        self.versions.retain(|id, all| {
            let mut kept = Vec::with_capacity(all.len());
            for version in all.drain(..) {
                if named.between(version.born, version.died) {
                    kept.push(version);
                } else {
                    self.unwritten_bytes -= version.unwritten_bytes();
                    unnamed.versions.entry(*id).or_default().push(version);
                }
            }
            *all = kept;
            !all.is_empty()
        });
        self.births.retain(|_, born| named.between(0, *born));
        self.references.retain(|_, changes| {
            changes.retain(|(changed, _)| named.between(0, *changed));
            !changes.is_empty()
        });
        self.roots.retain(|(ended, _)| named.between(*ended, ended + 1));
        let is_seen = |(ended, memtable): &(Epoch, Arc<Memtable>)| {
            memtable.first_msn().is_some_and(|first| named.sees(*ended, first))
        };
        (self.memtables, unnamed.memtables) =
            core::mem::take(&mut self.memtables).into_iter().partition(is_seen);
        unnamed
    }
}
