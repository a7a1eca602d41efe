//! Files that were unlinked while they were open.
//!
//! Their blocks stay under the key of the lost name: so unlinking costs the same at any size, and works on a
//! full volume. A marker under a reserved key names that key, so that a crash leaves nothing behind: the
//! blocks are deleted at the last close, or when the volume is opened next. The record is in memory only.
//!
//! Until then the name's block keys are occupied. A regular file that is created there, or renamed to there,
//! is stored under an object id instead, like a file with several names, with a redirect at the name. Entries
//! of other types have no blocks and can take the name. Before a directory above moves, is cloned or is
//! removed, the blocks are moved to a key of their own.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use core::sync::atomic::Ordering::{Acquire, Release};

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::AtomicUsize;

use crate::error::Result;
use crate::names::{Counter, Held, Inode};
use crate::planted::{self, Bug};
use crate::schema::{Amount, key};

/// The unlinked files by the key of their blocks.
#[derive(Default)]
pub(crate) struct Orphans {
    by_base: Mutex<BTreeMap<Arc<[u8]>, Orphan>>,
    /// Their number, readable without the lock.
    count: AtomicUsize,
}

struct Orphan {
    inode: Arc<Inode>,
    /// What it takes of the quotas that it was in, where it no longer counts.
    held: Held,
}

impl Orphans {
    pub fn insert(&self, base: Arc<[u8]>, inode: Arc<Inode>, held: Held) {
        let mut by_base = self.by_base.lock();
        by_base.insert(base, Orphan { inode, held });
        self.count.store(by_base.len(), Release);
    }

    pub fn remove(&self, base: &[u8]) {
        let mut by_base = self.by_base.lock();
        let removed = by_base.remove(base);
        self.count.store(by_base.len(), Release);
        drop(by_base);
        drop(removed);
    }

    /// Notes that the blocks of a file have another key.
    pub fn move_base(&self, from: &[u8], to: Arc<[u8]>) {
        let mut by_base = self.by_base.lock();
        if let Some(orphan) = by_base.remove(from) {
            by_base.insert(to, orphan);
        }
    }

    /// Has a file hold more of its quotas, or less.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded).
    pub fn hold_more(&self, base: &[u8], more: Amount) -> Result<()> {
        self.by_base.lock().get_mut(base).map_or(Ok(()), |orphan| orphan.held.change(more))
    }

    /// Has a file hold nothing of its quotas any more; returns them.
    pub fn let_go(&self, base: &[u8]) -> Vec<Arc<Counter>> {
        let mut by_base = self.by_base.lock();
        by_base.get_mut(base).map_or_else(Vec::new, |orphan| core::mem::take(&mut orphan.held).let_go())
    }

    /// Whether an unlinked file's blocks are under this key.
    pub fn occupy(&self, own: &[u8]) -> bool {
        !planted::is(Bug::OccupiedKeyTaken)
            && self.count.load(Acquire) != 0
            && self.by_base.lock().contains_key(own)
    }

    /// Whether any unlinked file has blocks below a directory.
    pub fn are_below(&self, path: &[u8]) -> bool {
        !self.below(path, 1).is_empty()
    }

    /// The unlinked files with blocks below a directory, this many at most.
    pub fn below(&self, path: &[u8], most: usize) -> Vec<(Arc<[u8]>, Arc<Inode>)> {
        if self.count.load(Acquire) == 0 {
            return Vec::new();
        }
        let first = key::child_path(path, b"");
        let by_base = self.by_base.lock();
        let from = by_base.range::<[u8], _>((Bound::Included(first.as_slice()), Bound::Unbounded));
        from.take_while(|(base, _)| key::is_below(path, base))
            .take(most)
            .map(|(base, orphan)| (base.clone(), orphan.inode.clone()))
            .collect()
    }
}
