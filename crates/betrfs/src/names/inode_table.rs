//! All inodes in memory.
//!
//! An inode stays as long as it is held: by the caller (lookups, opens) or by an inode below it. The table
//! keeps idle inodes up to a bound, and evicts those first that have been idle longest.
//!
//! An identity consists of the slot in the table (lower half) and the number of inodes that were in the slot
//! before, its turn (upper half). So an inode is found at one place in memory, and no identity is used twice.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::AtomicUsize;
use hashbrown::HashMap;

use crate::names::{Inode, Place};
use crate::types::InodeId;

/// Number of idle inodes tried for each new one.
const TRIES: usize = 4;

/// The inodes by identity, and those of linked files by object id.
pub(crate) struct InodeTable {
    inner: Mutex<Inner>,
    inodes_max: usize,
    dropped: AtomicUsize,
    /// The length of `leaving`.
    leaving: AtomicUsize,
}

#[derive(Default)]
struct Inner {
    /// The first is unused: no identity is 0, and the root's is 1.
    slots: Vec<Slot>,
    /// Slots without an inode.
    free: Vec<u32>,
    objects: HashMap<u64, InodeId>,
    /// May contain inodes that are in use again; these are skipped.
    idle: VecDeque<InodeId>,
    /// Inodes that leave when their times of access have been put.
    leaving: Vec<InodeId>,
}

#[derive(Default)]
struct Slot {
    turn: u32,
    inode: Option<Arc<Inode>>,
}

/// The slot and the turn of an identity.
fn place_of(id: InodeId) -> (usize, u32) {
    (id.0 as u32 as usize, (id.0 >> u32::BITS) as u32)
}

impl InodeTable {
    pub fn new(inodes_max: usize) -> InodeTable {
        let inner = Inner { slots: alloc::vec![Slot::default()], ..Inner::default() };
        InodeTable {
            inner: Mutex::new(inner),
            inodes_max,
            dropped: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
        }
    }

    pub fn get(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.inner.lock().get(id).cloned()
    }

    pub fn object(&self, oid: u64) -> Option<Arc<Inode>> {
        let inner = self.inner.lock();
        inner.get(*inner.objects.get(&oid)?).cloned()
    }

    /// Adds the inode that `make` makes for its identity; the first one is the root. Returns also the inodes
    /// evicted to make room, for the caller to tear down, which takes time because directories are large.
    pub fn insert(&self, make: impl FnOnce(InodeId) -> Inode) -> (Arc<Inode>, Vec<Arc<Inode>>) {
        let mut dropped = Vec::new();
        let mut inner = self.inner.lock();
        let id = inner.next_id();
        let inode = Arc::new(make(id));
        if let Place::Object { oid } = inode.place() {
            inner.objects.insert(oid, id);
        }
        inner.put(id, inode.clone());
        inner.queue(&inode);
        for _ in 0..TRIES {
            if inner.len() > self.inodes_max {
                dropped.extend(inner.evict_one());
            }
        }
        self.leaving.store(inner.leaving.len(), Relaxed);
        drop(inner);
        if !dropped.is_empty() {
            self.dropped.fetch_add(dropped.len(), Relaxed);
        }
        (inode, dropped)
    }

    /// All inodes in memory, for a check.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.inner.lock().slots.iter().filter_map(|slot| slot.inode.clone()).collect()
    }

    /// Notes that a file is stored under an object id from now on.
    pub fn set_object(&self, oid: u64, id: InodeId) {
        self.inner.lock().objects.insert(oid, id);
    }

    /// Notes that an object id is unused from now on.
    pub fn remove_object(&self, oid: u64) {
        self.inner.lock().objects.remove(&oid);
    }

    /// Drops the inode of a removed object, if nobody holds it.
    pub fn drop_gone(&self, inode: &Arc<Inode>) {
        let mut inner = self.inner.lock();
        if inode.is_idle() && inode.is_gone() {
            // The caller holds a reference, so nothing is torn down under the lock.
            inner.take(inode.id);
        }
    }

    /// Notes that an inode may have become idle.
    pub fn queue(&self, inode: &Arc<Inode>) {
        self.inner.lock().queue(inode);
    }

    /// Takes up to `most` of the inodes that leave when their times of access have been put.
    pub fn take_leaving(&self, most: usize) -> Vec<InodeId> {
        if self.leaving.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut inner = self.inner.lock();
        let rest = inner.leaving.len().saturating_sub(most);
        let taken = inner.leaving.split_off(rest);
        self.leaving.store(rest, Relaxed);
        taken
    }

    /// Number of inodes evicted since the volume was opened.
    pub fn dropped(&self) -> usize {
        self.dropped.load(Relaxed)
    }

    /// Number of inodes.
    pub fn len(&self) -> usize {
        self.inner.lock().len()
    }
}

impl Inner {
    fn len(&self) -> usize {
        self.slots.len() - 1 - self.free.len()
    }

    fn get(&self, id: InodeId) -> Option<&Arc<Inode>> {
        let (slot, turn) = place_of(id);
        let slot = self.slots.get(slot).filter(|slot| slot.turn == turn)?;
        slot.inode.as_ref()
    }

    /// An unused identity, in a free slot.
    fn next_id(&mut self) -> InodeId {
        if let Some(free) = self.free.pop() {
            let turn = self.slots.get(free as usize).map_or(0, |slot| slot.turn);
            return InodeId(u64::from(turn) << u32::BITS | u64::from(free));
        }
        self.slots.push(Slot::default());
        InodeId(self.slots.len() as u64 - 1)
    }

    fn put(&mut self, id: InodeId, inode: Arc<Inode>) {
        if let Some(slot) = self.slots.get_mut(place_of(id).0) {
            slot.inode = Some(inode);
        }
    }

    /// Takes an inode out and begins the next turn of its slot.
    fn take(&mut self, id: InodeId) -> Option<Arc<Inode>> {
        let (at, turn) = place_of(id);
        let slot = self.slots.get_mut(at).filter(|slot| slot.turn == turn)?;
        let inode = slot.inode.take()?;
        // A slot after its last turn stays empty.
        if let Some(next) = turn.checked_add(1) {
            slot.turn = next;
            self.free.push(at as u32);
        }
        Some(inode)
    }

    fn queue(&mut self, inode: &Arc<Inode>) {
        if inode.queued.swap(true, Relaxed) {
            return;
        }
        self.idle.push_back(inode.id);
        // The queue still has inodes that were removed meanwhile.
        if self.idle.len() > 2 * self.len() + 64 {
            let mut idle = core::mem::take(&mut self.idle);
            idle.retain(|id| self.get(*id).is_some());
            self.idle = idle;
        }
    }

    /// Tries the inode that has been idle longest.
    fn evict_one(&mut self) -> Option<Arc<Inode>> {
        let id = self.idle.pop_front()?;
        let inode = self.get(id)?;
        // The references first: a holder may have counted a lookup before it released its reference. The
        // fence pairs with that release.
        let is_held = Arc::strong_count(inode) > 1;
        fence(Acquire);
        if !inode.is_idle() || id == InodeId::ROOT {
            inode.queued.store(false, Relaxed);
            return None;
        }
        let place = inode.place();
        // One reference: the table's. New ones come only through the table, which is locked. An inode with
        // inodes below it comes here again.
        if is_held || matches!(place, Place::Orphan { .. }) {
            self.idle.push_back(id);
            return None;
        }
        if inode.accessed.load(Relaxed) {
            self.leaving.push(id);
            self.idle.push_back(id);
            return None;
        }
        if let Place::Named { parent, .. } = &place {
            parent.last_change.inherit(&inode.last_change);
        }
        inode.drop_note();
        if let Place::Object { oid } = place {
            self.objects.remove(&oid);
        }
        self.take(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Record;
    use crate::types::FileType;

    fn file(id: InodeId) -> Inode {
        Inode::new(id, id.0, Place::Root, Record::new(FileType::Regular, 0o644, id.0, 0), None)
    }

    #[test]
    fn a_slot_that_is_used_again_gives_another_identity() {
        let table = InodeTable::new(10);
        assert_eq!(table.insert(file).0.id, InodeId::ROOT);
        let ids: Vec<InodeId> = (0..1000).map(|_| table.insert(file).0.id).collect();
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)));
        let here: Vec<InodeId> = ids.iter().copied().filter(|id| table.get(*id).is_some()).collect();
        assert_eq!(here, ids[ids.len() - 9..], "the root and the last ones are kept");
        assert!(here.iter().all(|id| table.get(*id).is_some_and(|inode| inode.id == *id)));
        assert_eq!(table.inner.lock().slots.len(), 12, "those that went left their slots");
        assert!(table.get(InodeId(0)).is_none() && table.get(InodeId(u64::MAX)).is_none());
    }

    #[test]
    fn files_that_come_and_go_leave_nothing_behind() {
        let table = InodeTable::new(10);
        table.insert(file);
        for _ in 0..10_000 {
            let inode = table.insert(file).0;
            inode.set_place(Place::Gone);
            table.drop_gone(&inode);
        }
        let inner = table.inner.lock();
        assert_eq!((inner.len(), inner.slots.len()), (1, 3));
        assert!(inner.idle.len() < 100, "{} wait to be dropped", inner.idle.len());
        assert!(inner.idle.contains(&InodeId::ROOT), "what is there stays in it");
    }

    #[test]
    fn a_slot_stays_empty_when_it_has_had_all_its_turns() {
        let table = InodeTable::new(1);
        let root = table.insert(file).0;
        let first = table.insert(file).0.id;
        table.inner.lock().slots[first.0 as usize].turn = u32::MAX;
        let last = InodeId(u64::from(u32::MAX) << u32::BITS | first.0);
        assert!(table.inner.lock().take(last).is_some());
        assert_ne!(table.insert(file).0.id.0 as u32, first.0 as u32);
        assert!(table.get(root.id).is_some() && table.get(last).is_none());
    }
}
