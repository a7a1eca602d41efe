//! What is known of a directory's entries.
//!
//! Only names that exist are kept. The directory's record counts its entries exactly, so the
//! knowledge is *complete* when as many names are known, however they came: by creation, by
//! lookups or by a scan. No flag could lie about it.
//!
//! **Cookies** of listings belong to the name, not to an open directory: they are given out in the
//! order of keys to all names without one whenever a listing begins, ascending for ever. So they
//! stay valid over other changes: a removed name only leaves a gap, a new one comes last.
//! Names of a directory are not evicted while a listing has begun and has not come to its end, unless nobody
//! has gone on with it for long. After an eviction cookies go on where they were, so an older cookie leads to
//! the start of the new listing, which repeats entries and loses none.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher as _;
use core::ops::Bound;
use core::sync::atomic::Ordering::Relaxed;

use betree_sys::sync::atomic::AtomicUsize;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::types::{FileType, NodeId};

/// The first cookie: the smaller ones are left for `.` and `..`.
pub(crate) const COOKIE_FIRST: u64 = 3;

/// After how long a listing that nobody goes on with is taken to be given up.
const LISTING_IDLE_NS: i64 = 10 * 60 * 1_000_000_000;

/// What is known of one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    /// The inode, if it was in memory when last seen; it may have been dropped since.
    pub node: Option<NodeId>,
    pub ino: u64,
    pub file_type: FileType,
    /// Of a redirect.
    pub oid: Option<u64>,
}

/// A name of which something is known.
struct Known {
    /// A table that grows looks at no names for it.
    hash: u64,
    text: Arc<[u8]>,
    name: Name,
    /// 0 before it is given one.
    cookie: u64,
}

/// The known entries of a directory.
pub(crate) struct Directory {
    names: HashTable<Known>,
    hasher: DefaultHashBuilder,
    /// Cookie → name, of all that have a cookie.
    listed: BTreeMap<u64, Arc<[u8]>>,
    cookie_next: u64,
    /// Listings that have begun and not come to their end.
    listings: u32,
    /// When somebody last went on with one.
    listed_ns: i64,
    /// Whether its names were to be given up while it was listed: they are when that has come to its end.
    pub is_due: bool,
    /// The entry under which its snapshots are found, if it was in memory when last seen.
    pub snapshots: Option<NodeId>,
    /// Queries that found nothing since the directory came into memory.
    pub misses: u32,
    /// Entries that were removed since the directory came into memory, and in directories that were removed with
    /// them.
    pub removed: u64,
    /// Whether it stands in the queue of those whose names may be given up.
    pub queued: bool,
    /// Names of all directories, with a budget.
    total: Arc<AtomicUsize>,
}

impl Directory {
    pub fn new(total: Arc<AtomicUsize>) -> Directory {
        Directory {
            names: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            listed: BTreeMap::new(),
            cookie_next: COOKIE_FIRST,
            listings: 0,
            listed_ns: 0,
            is_due: false,
            snapshots: None,
            misses: 0,
            removed: 0,
            queued: false,
            total,
        }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn get(&self, name: &[u8]) -> Option<Name> {
        let hash = self.hasher.hash_one(name);
        self.names.find(hash, |known| *known.text == *name).map(|known| known.name)
    }

    /// Adds a name, or updates what is known of it.
    pub fn insert(&mut self, text: &Arc<[u8]>, name: Name) {
        let hash = self.hasher.hash_one(&**text);
        match self.names.entry(hash, |known| known.text == *text, |known| known.hash) {
            Entry::Occupied(mut known) => known.get_mut().name = name,
            Entry::Vacant(room) => {
                room.insert(Known { hash, text: text.clone(), name, cookie: 0 });
                self.total.fetch_add(1, Relaxed);
            }
        }
    }

    pub fn remove(&mut self, name: &[u8]) {
        self.removed = self.removed.saturating_add(1);
        let hash = self.hasher.hash_one(name);
        if let Ok(known) = self.names.find_entry(hash, |known| *known.text == *name) {
            self.listed.remove(&known.remove().0.cookie);
            self.total.fetch_sub(1, Relaxed);
        }
    }

    /// Forgets the names for which `keep` is false; what is left is no longer complete. Gives how many went.
    pub fn evict(&mut self, mut keep: impl FnMut(&Name) -> bool) -> usize {
        let (before, listed) = (self.names.len(), &mut self.listed);
        self.names.retain(|known| {
            let kept = keep(&known.name);
            if !kept {
                listed.remove(&known.cookie);
            }
            kept
        });
        let gone = before - self.names.len();
        self.total.fetch_sub(gone, Relaxed);
        gone
    }

    /// Notes that somebody begins to list it.
    pub fn begin_listing(&mut self) {
        self.listings = self.listings.saturating_add(1);
    }

    /// Notes that somebody begins to list it or goes on.
    pub fn go_on_listing(&mut self, now_ns: i64) {
        self.listed_ns = now_ns;
    }

    /// Notes that somebody has come to the end.
    pub fn end_listing(&mut self) {
        self.listings = self.listings.saturating_sub(1);
    }

    /// Whether somebody may go on listing it.
    pub fn is_being_listed(&mut self, now_ns: i64) -> bool {
        if now_ns.saturating_sub(self.listed_ns) > LISTING_IDLE_NS {
            self.listings = 0;
        }
        self.listings > 0
    }

    /// Gives a cookie to each name that has none.
    pub fn number(&mut self) {
        if self.listed.len() == self.names.len() {
            return;
        }
        let mut fresh: Vec<&mut Known> = self.names.iter_mut().filter(|known| known.cookie == 0).collect();
        fresh.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        for known in fresh {
            known.cookie = self.cookie_next;
            self.listed.insert(self.cookie_next, known.text.clone());
            self.cookie_next += 1;
        }
    }

    /// The first entry behind a cookie.
    pub fn after(&self, cookie: u64) -> Option<(u64, Arc<[u8]>, Name)> {
        let (cookie, name) = self.listed.range((Bound::Excluded(cookie), Bound::Unbounded)).next()?;
        Some((*cookie, name.clone(), self.get(name)?))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.total.fetch_sub(self.names.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name { node: None, ino: 9, file_type: FileType::Regular, oid: None }
    }

    fn listing(dir: &mut Directory, mut cookie: u64) -> Vec<(u64, Vec<u8>)> {
        dir.number();
        let mut all = Vec::new();
        while let Some((next, name, _)) = dir.after(cookie) {
            all.push((next, name.to_vec()));
            cookie = next;
        }
        all
    }

    #[test]
    fn cookies_survive_other_changes_and_evictions_lose_nothing() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut dir = Directory::new(total.clone());
        for text in [b"c", b"a", b"b"] {
            dir.insert(&Arc::from(&text[..]), name());
        }
        let first = listing(&mut dir, 0);
        assert_eq!(first, [(3, b"a".to_vec()), (4, b"b".to_vec()), (5, b"c".to_vec())]);
        dir.remove(b"b");
        dir.insert(&Arc::from(&b"0"[..]), name());
        assert_eq!(listing(&mut dir, 3), [(5, b"c".to_vec()), (6, b"0".to_vec())]);
        dir.evict(|_| false);
        assert_eq!((dir.len(), total.load(Relaxed)), (0, 0));
        dir.insert(&Arc::from(&b"c"[..]), name());
        assert_eq!(listing(&mut dir, 3), [(7, b"c".to_vec())]);
        drop(dir);
        assert_eq!(total.load(Relaxed), 0);
    }
}
