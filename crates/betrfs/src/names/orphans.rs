//! Files that were unlinked while they were open.
//!
//! Their blocks stay where they are, under the key of the name that is gone: so unlinking costs
//! the same whatever the size, and works on a full volume. A marker under a reserved key names the
//! place, so that a crash leaves nothing behind: they are deleted at the last close, or when the
//! volume is opened next. The record is kept in memory alone.
//!
//! Until then the name's block keys are occupied. A regular file that comes to be there, by
//! creation or by rename, is stored under an object id instead, as a file with several names
//! would be, with a redirect at the name. Entries of other types have no blocks and may be there.
//! Before a directory above moves, is cloned or goes, they are moved to a key of their own.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::sync::atomic::Ordering::{Acquire, Release};

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::AtomicUsize;

use crate::names::Inode;
use crate::schema::key;

/// The unlinked files by the key under which their blocks are.
#[derive(Default)]
pub(crate) struct Orphans {
    by_base: Mutex<BTreeMap<Arc<[u8]>, Arc<Inode>>>,
    /// Their count, to be asked without the lock.
    count: AtomicUsize,
}

impl Orphans {
    pub fn insert(&self, base: Arc<[u8]>, inode: Arc<Inode>) {
        let mut by_base = self.by_base.lock();
        by_base.insert(base, inode);
        self.count.store(by_base.len(), Release);
    }

    pub fn remove(&self, base: &[u8]) {
        let mut by_base = self.by_base.lock();
        let removed = by_base.remove(base);
        self.count.store(by_base.len(), Release);
        drop(by_base);
        drop(removed);
    }

    /// Whether the blocks of an unlinked file are under this key.
    pub fn occupy(&self, own: &[u8]) -> bool {
        self.count.load(Acquire) != 0 && self.by_base.lock().contains_key(own)
    }

    /// Those with blocks below a directory.
    pub fn below(&self, path: &[u8]) -> Vec<(Arc<[u8]>, Arc<Inode>)> {
        if self.count.load(Acquire) == 0 {
            return Vec::new();
        }
        let first = key::child_path(path, b"");
        let by_base = self.by_base.lock();
        let from = by_base.range::<[u8], _>((Bound::Included(first.as_slice()), Bound::Unbounded));
        from.take_while(|(base, _)| key::is_below(path, base))
            .map(|(base, inode)| (base.clone(), inode.clone()))
            .collect()
    }
}
