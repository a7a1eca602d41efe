//! All inodes in memory.
//!
//! An inode stays as long as it is held: by the caller (lookups, opens) or by an inode below it. The table
//! keeps idle inodes up to a bound, and evicts those first that have been idle longest.
//!
//! An identity is the object's inode number, so that it means the same object after an eviction and in a
//! later mount. Sums of salts may give two objects one number, in principle, and a forged volume does. Then
//! the one that comes into memory later gets a random *alias*, for as long as it stays there. So an identity
//! has one inode at a time. An identity that was kept while its inode could be evicted is a hint: its user
//! checks that it leads to the expected place.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;

use betree_platform::Platform;
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
    platform: Arc<dyn Platform>,
    inodes_max: usize,
    dropped: AtomicUsize,
    /// The length of `leaving`.
    leaving: AtomicUsize,
}

#[derive(Default)]
struct Inner {
    inodes: HashMap<InodeId, Arc<Inode>>,
    objects: HashMap<u64, InodeId>,
    /// May contain inodes that are in use again; these are skipped.
    idle: VecDeque<InodeId>,
    /// Inodes that leave when their times of access have been put.
    leaving: Vec<InodeId>,
}

impl InodeTable {
    /// A table for up to `inodes_max` idle inodes. The random numbers of aliases come from `platform`.
    pub fn new(inodes_max: usize, platform: Arc<dyn Platform>) -> InodeTable {
        InodeTable {
            inner: Mutex::default(),
            platform,
            inodes_max,
            dropped: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
        }
    }

    pub fn get(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.inner.lock().inodes.get(&id).cloned()
    }

    pub fn object(&self, oid: u64) -> Option<Arc<Inode>> {
        let inner = self.inner.lock();
        inner.inodes.get(inner.objects.get(&oid)?).cloned()
    }

    /// Adds an inode; under an alias if its number is taken. Returns also the inodes evicted to make room,
    /// for the caller to tear down, which takes time because directories are large.
    pub fn insert(&self, mut inode: Inode) -> (Arc<Inode>, Vec<Arc<Inode>>) {
        let mut dropped = Vec::new();
        let mut inner = self.inner.lock();
        if inner.inodes.contains_key(&inode.id) {
            inode.id = inner.alias(self.platform.random_u64());
        }
        let inode = Arc::new(inode);
        inode.bind_quota();
        if let Place::Object { oid, .. } = inode.place() {
            inner.objects.insert(oid, inode.id);
        }
        inner.inodes.insert(inode.id, inode.clone());
        inner.queue(&inode);
        for _ in 0..TRIES {
            if inner.inodes.len() > self.inodes_max {
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
        self.inner.lock().inodes.values().cloned().collect()
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
        let is_here = inner.inodes.get(&inode.id).is_some_and(|here| Arc::ptr_eq(here, inode));
        if is_here && inode.is_idle() && inode.is_gone() {
            // The caller holds a reference, so nothing is torn down under the lock.
            inner.inodes.remove(&inode.id);
        }
    }

    /// Notes that an inode may have become idle.
    pub fn queue(&self, inode: &Arc<Inode>) {
        self.inner.lock().queue(inode);
    }

    /// Whether inodes wait to leave.
    pub fn has_leaving(&self) -> bool {
        self.leaving.load(Relaxed) != 0
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
        self.inner.lock().inodes.len()
    }
}

impl Inner {
    /// An unused identity, the first one from `random` on. None is 0.
    fn alias(&self, random: u64) -> InodeId {
        let mut id = random;
        while id == 0 || self.inodes.contains_key(&InodeId(id)) {
            id = id.wrapping_add(1);
        }
        InodeId(id)
    }

    fn queue(&mut self, inode: &Arc<Inode>) {
        if inode.queued.swap(true, Relaxed) {
            return;
        }
        self.idle.push_back(inode.id);
        // The queue still has inodes that were removed meanwhile.
        if self.idle.len() > 2 * self.inodes.len() + 64 {
            let mut idle = core::mem::take(&mut self.idle);
            idle.retain(|id| self.inodes.contains_key(id));
            self.idle = idle;
        }
    }

    /// Tries the inode that has been idle longest.
    fn evict_one(&mut self) -> Option<Arc<Inode>> {
        let id = self.idle.pop_front()?;
        let inode = self.inodes.get(&id)?;
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
        if let Place::Object { oid, .. } = place {
            self.objects.remove(&oid);
        }
        self.inodes.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Record;
    use crate::types::FileType;

    /// A platform whose random numbers are all the same.
    struct Constant;

    impl Platform for Constant {
        fn now_ns(&self) -> i64 {
            0
        }

        fn random_u64(&self) -> u64 {
            u64::MAX
        }
    }

    fn table(inodes_max: usize) -> InodeTable {
        InodeTable::new(inodes_max, Arc::new(Constant))
    }

    fn file(number: u64) -> Inode {
        Inode::new(number, Place::Root, Record::new(FileType::Regular, 0o644, number, 0), None)
    }

    #[test]
    fn inodes_that_have_been_idle_longest_leave_and_come_back_under_their_numbers() {
        let table = table(10);
        assert_eq!(table.insert(file(1)).0.id, InodeId::ROOT);
        let numbers: Vec<u64> = (2..1000).map(|i| i * 1_000_003).collect();
        for number in &numbers {
            assert_eq!(table.insert(file(*number)).0.id, InodeId(*number));
        }
        let here: Vec<u64> = numbers.iter().copied().filter(|id| table.get(InodeId(*id)).is_some()).collect();
        assert_eq!(here, numbers[numbers.len() - 9..], "the root and the last ones are kept");
        assert!(here.iter().all(|id| table.get(InodeId(*id)).is_some_and(|inode| inode.ino == *id)));
        assert_eq!(table.insert(file(numbers[0])).0.id, InodeId(numbers[0]));
        assert!(table.get(InodeId(0)).is_none() && table.get(InodeId(u64::MAX)).is_none());
    }

    #[test]
    fn files_that_come_and_go_leave_nothing_behind() {
        let table = table(10);
        table.insert(file(1));
        for number in 2..10_000 {
            let inode = table.insert(file(number)).0;
            inode.set_place(Place::Gone);
            table.drop_gone(&inode);
        }
        let inner = table.inner.lock();
        assert_eq!(inner.inodes.len(), 1);
        assert!(inner.idle.len() < 100, "{} wait to be dropped", inner.idle.len());
        assert!(inner.idle.contains(&InodeId::ROOT), "what is there stays in it");
    }

    #[test]
    fn objects_of_one_number_get_different_identities_and_one_that_goes_takes_no_other_along() {
        let table = table(10);
        table.insert(file(1));
        let ids: Vec<InodeId> = (0..4).map(|_| table.insert(file(7)).0.id).collect();
        // From the random number on, without 0 and the root's.
        assert_eq!(ids, [7, u64::MAX, 2, 3].map(InodeId));
        assert!(ids.iter().all(|id| table.get(*id).is_some_and(|inode| inode.id == *id && inode.ino == 7)));
        let first = table.get(InodeId(7)).unwrap();
        first.set_place(Place::Gone);
        table.drop_gone(&first);
        let second = table.insert(file(7)).0;
        assert_eq!(second.id, InodeId(7));
        table.drop_gone(&first);
        assert!(table.get(InodeId(7)).is_some_and(|here| Arc::ptr_eq(&here, &second)));
    }

    /// What the table had before, slots found by their index, took 16 to 32 bytes for each inode.
    #[test]
    fn an_inode_takes_few_bytes_in_the_table() {
        let table = table(1 << 20);
        let mut bytes_max = 0.0f64;
        for number in 1..=200_000u64 {
            table.insert(file(number));
            if number >= 1000 {
                let bytes = table.inner.lock().inodes.allocation_size();
                bytes_max = bytes_max.max(bytes as f64 / number as f64);
            }
        }
        assert!(bytes_max <= 32.0 + 8.0, "{bytes_max}");
    }
}
