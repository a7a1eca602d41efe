//! The known entries of a directory.
//!
//! Only names of existing entries are kept. The directory's record counts its entries exactly, so the
//! directory is *complete* when that number of names is known, whether from creations, lookups or a scan. No
//! flag could go wrong.
//!
//! **Cookies** of listings belong to the name, not to an open directory. When a listing begins, each name
//! without a cookie gets the next one, in the order of keys; they only ever ascend. So they stay valid over
//! other changes: a removed name leaves a gap, a new one comes last. Names of a directory are not evicted
//! between the beginning and the end of a listing, unless it has paused for long. After an eviction, cookies
//! continue where they were, so an older cookie leads to the start of the new listing, which repeats entries
//! and loses none.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher as _;
use core::ops::Bound;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::atomic::AtomicUsize;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::Error;
use crate::types::{FileType, InodeId, NAMES_AT_ONCE};

/// The first cookie: the smaller ones are left for `.` and `..`.
pub(crate) const COOKIE_FIRST: u64 = 3;

/// Number of queries for absent names after which a directory is read whole.
const MISSES_MAX: u32 = 2;

/// The first capacity for names.
const NAMES_MIN: usize = 4;

/// The largest capacity made in advance, whatever a record counts.
const ROOM_MAX: u64 = 1 << 16;

/// A listing that has paused for longer counts as given up.
const LISTING_IDLE_NS: i64 = 10 * 60 * 1_000_000_000;

/// The known facts about one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    /// The inode, if it was in memory when last seen; it may have been evicted since.
    pub node: Option<InodeId>,
    pub ino: u64,
    pub file_type: FileType,
    /// Of a redirect.
    pub oid: Option<u64>,
}

/// A known name, in few bytes: a mount may have a million of them in memory.
struct Known {
    text: Arc<[u8]>,
    ino: u64,
    /// 0 for none: no inode has this identity.
    node: u64,
    oid: u64,
    /// 0 for none yet.
    cookie: u64,
    /// Kept so that the table can grow without a look at the texts.
    hash: u32,
    file_type: FileType,
    is_redirect: bool,
}

const _: () = assert!(size_of::<Known>() <= 7 * size_of::<u64>());

impl Known {
    fn name(&self) -> Name {
        Name {
            node: (self.node != 0).then_some(InodeId(self.node)),
            ino: self.ino,
            file_type: self.file_type,
            oid: self.is_redirect.then_some(self.oid),
        }
    }

    fn set(&mut self, name: Name) {
        self.ino = name.ino;
        self.node = name.node.map_or(0, |node| node.0);
        self.oid = name.oid.unwrap_or(0);
        self.file_type = name.file_type;
        self.is_redirect = name.oid.is_some();
    }
}

/// A hash for the table, which uses its first and its last bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << u32::BITS | u64::from(hash)
}

/// The known entries of a directory.
pub(crate) struct Directory {
    /// In no order. Grows by a quarter: doubling would leave up to half of a million names' memory unused.
    names: Vec<Known>,
    /// The index of a name in `names`, by its hash.
    places: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Cookie → name, for all names with a cookie.
    listed: BTreeMap<u64, Arc<[u8]>>,
    cookie_next: u64,
    /// Number of listings that have begun and not ended.
    listings: u32,
    /// The time of the last call of a listing.
    listed_ns: i64,
    /// Whether eviction was postponed because of a listing; it is done when the listing ends.
    pub is_due: bool,
    /// The entry with its snapshots, if it was in memory when last seen.
    pub snapshots: Option<InodeId>,
    /// Number of queries for absent names since the directory came into memory.
    pub misses: u32,
    /// The number of them at which all names are read.
    pub misses_max: u32,
    /// The error behind the names, if all that can be read are known and others are lost; with the turn of
    /// the directory in which they were read.
    losses: Option<(u32, Box<Error>)>,
    /// Number of entries removed since the directory came into memory, including those in removed
    /// directories.
    pub removed: u64,
    /// Whether the directory is in the name LRU.
    pub queued: bool,
    /// Number of names of all directories, which has a budget.
    total: Arc<AtomicUsize>,
}

impl Directory {
    pub fn new(total: Arc<AtomicUsize>) -> Directory {
        Directory {
            names: Vec::new(),
            places: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            listed: BTreeMap::new(),
            cookie_next: COOKIE_FIRST,
            listings: 0,
            listed_ns: 0,
            is_due: false,
            snapshots: None,
            misses: 0,
            misses_max: MISSES_MAX,
            losses: None,
            removed: 0,
            queued: false,
            total,
        }
    }

    /// Notes that all names were read that are there. One that has lost some stays incomplete, so it is read
    /// again only after as many queries as it has names, and once in a listing.
    pub fn all_were_read(&mut self, is_complete: bool, losses: Option<(u32, Error)>) {
        let many = u32::try_from(self.len()).unwrap_or(u32::MAX);
        (self.misses, self.misses_max) = (0, if is_complete { MISSES_MAX } else { MISSES_MAX.max(many) });
        self.losses = losses.map(|(turn, error)| (turn, Box::new(error)));
    }

    /// The error behind the names in a turn of the directory, if all that can be read are known and others
    /// are lost.
    pub fn losses(&self, turn: u32) -> Option<&Error> {
        self.losses.as_ref().filter(|(of, _)| *of == turn).map(|(_, error)| &**error)
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    fn hash(&self, text: &[u8]) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    fn known(&self, text: &[u8]) -> Option<&Known> {
        let is_it = |at: &u32| self.names.get(*at as usize).is_some_and(|known| *known.text == *text);
        let at = self.places.find(spread(self.hash(text)), is_it)?;
        self.names.get(*at as usize)
    }

    pub fn get(&self, name: &[u8]) -> Option<Name> {
        self.known(name).map(Known::name)
    }

    /// Makes room for a number of names, which need not be exact.
    pub fn make_room(&mut self, names: u64) {
        let more = names.min(ROOM_MAX).saturating_sub(self.names.len() as u64) as usize;
        self.names.reserve_exact(more);
        let names = &self.names;
        self.places.reserve(more, |at| names.get(*at as usize).map_or(0, |known| spread(known.hash)));
    }

    /// Adds a name, or updates it.
    pub fn insert(&mut self, text: &Arc<[u8]>, name: Name) {
        let hash = self.hash(text);
        // Names beyond the range of an index stay unknown, like evicted ones.
        let Ok(next) = u32::try_from(self.names.len()) else { return };
        let (names, places) = (&mut self.names, &mut self.places);
        let known = |at: &u32| names.get(*at as usize);
        let is_it = |at: &u32| known(at).is_some_and(|known| known.text == *text);
        let hash_of = |at: &u32| known(at).map_or(0, |known| spread(known.hash));
        match places.entry(spread(hash), is_it, hash_of) {
            Entry::Occupied(at) => {
                if let Some(known) = names.get_mut(*at.get() as usize) {
                    known.set(name);
                }
            }
            Entry::Vacant(room) => {
                room.insert(next);
                if names.len() == names.capacity() {
                    names.reserve_exact((names.len() / 4).max(NAMES_MIN));
                }
                let file_type = name.file_type;
                let mut known = Known {
                    text: text.clone(),
                    ino: 0,
                    node: 0,
                    oid: 0,
                    cookie: 0,
                    hash,
                    file_type,
                    is_redirect: false,
                };
                known.set(name);
                names.push(known);
                self.total.fetch_add(1, Relaxed);
            }
        }
    }

    pub fn remove(&mut self, name: &[u8]) {
        self.removed = self.removed.saturating_add(1);
        let hash = self.hash(name);
        let names = &self.names;
        let is_it = |at: &u32| names.get(*at as usize).is_some_and(|known| *known.text == *name);
        if let Ok(place) = self.places.find_entry(spread(hash), is_it) {
            let at = place.remove().0;
            self.take(at);
        }
    }

    /// Takes out the name of an index whose place was removed.
    fn take(&mut self, at: u32) {
        let known = self.names.swap_remove(at as usize);
        // The last name has moved to this index.
        let last = self.names.len() as u32;
        if let Some(moved) = self.names.get(at as usize)
            && let Some(place) = self.places.find_mut(spread(moved.hash), |place| *place == last)
        {
            *place = at;
        }
        self.listed.remove(&known.cookie);
        self.total.fetch_sub(1, Relaxed);
    }

    /// Evicts the names for which `keep` returns false, among some of those whose index is below `end`: the
    /// directory is no longer complete. Returns the index below which it has not looked, and the number of
    /// names evicted. At 0 their memory is freed.
    pub fn evict(&mut self, end: usize, mut keep: impl FnMut(&Name) -> bool) -> (usize, usize) {
        let end = end.min(self.names.len());
        let begin = end.saturating_sub(NAMES_AT_ONCE);
        self.losses = None;
        let before = self.names.len();
        // Backwards: a name that takes the place of an evicted one has been looked at.
        for at in (begin..end).rev() {
            let Some(known) = self.names.get(at).filter(|known| !keep(&known.name())) else { continue };
            let hash = spread(known.hash);
            if let Ok(place) = self.places.find_entry(hash, |place| *place as usize == at) {
                let at = place.remove().0;
                self.take(at);
            }
        }
        if begin == 0 && self.names.len() <= self.names.capacity() / 2 {
            self.names.shrink_to_fit();
            let names = &self.names;
            let hash = |at: &u32| names.get(*at as usize).map_or(0, |known| spread(known.hash));
            self.places.shrink_to_fit(hash);
        }
        (begin, before - self.names.len())
    }

    /// Takes all names at once, at a cost independent of their number, and returns them.
    pub fn take_names(&mut self) -> Directory {
        let mut rest = Directory::new(self.total.clone());
        (rest.cookie_next, rest.listings, rest.listed_ns) = (self.cookie_next, self.listings, self.listed_ns);
        (rest.is_due, rest.queued, rest.removed) = (self.is_due, self.queued, self.removed);
        rest.snapshots = self.snapshots;
        core::mem::replace(self, rest)
    }

    /// The inodes of its names that were in memory when last seen.
    pub fn nodes(&self) -> impl Iterator<Item = InodeId> {
        self.names.iter().filter_map(|known| known.name().node)
    }

    /// Its names whose objects may be in memory.
    pub fn known_objects(&self) -> impl Iterator<Item = Arc<[u8]>> {
        let may_be = |known: &&Known| known.node != 0 || known.is_redirect;
        self.names.iter().filter(may_be).map(|known| known.text.clone())
    }

    /// Counts the beginning of a listing.
    pub fn begin_listing(&mut self) {
        self.listings = self.listings.saturating_add(1);
    }

    /// Notes the time of a call of a listing.
    pub fn go_on_listing(&mut self, now_ns: i64) {
        self.listed_ns = now_ns;
    }

    /// Counts the end of a listing.
    pub fn end_listing(&mut self) {
        self.listings = self.listings.saturating_sub(1);
    }

    /// Whether a listing may be under way.
    pub fn is_being_listed(&mut self, now_ns: i64) -> bool {
        if now_ns.saturating_sub(self.listed_ns) > LISTING_IDLE_NS {
            self.listings = 0;
        }
        self.listings > 0
    }

    /// Adds to `fresh` the names without a cookie, among some of those whose index is below `end`. Returns
    /// the index below which it has not looked. Names that were evicted or removed between two calls let none
    /// be missed: the name that takes such a place comes from the end.
    pub fn collect_unnumbered(&self, end: usize, fresh: &mut Vec<Arc<[u8]>>) -> usize {
        if self.listed.len() == self.names.len() {
            return 0;
        }
        let end = end.min(self.names.len());
        let begin = end.saturating_sub(NAMES_AT_ONCE);
        let some = self.names.get(begin..end).unwrap_or_default();
        fresh.extend(some.iter().filter(|known| known.cookie == 0).map(|known| known.text.clone()));
        begin
    }

    /// Gives a cookie to each of these names that is there and has none.
    pub fn number(&mut self, fresh: &[Arc<[u8]>]) {
        for text in fresh {
            let hash = self.hash(text);
            let names = &self.names;
            let is_it = |at: &u32| names.get(*at as usize).is_some_and(|known| known.text == *text);
            let Some(at) = self.places.find(spread(hash), is_it) else { continue };
            if let Some(known) = self.names.get_mut(*at as usize).filter(|known| known.cookie == 0) {
                known.cookie = self.cookie_next;
                self.listed.insert(self.cookie_next, text.clone());
                self.cookie_next += 1;
            }
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
    use seeded::Rng;

    use super::*;

    fn name() -> Name {
        Name { node: None, ino: 9, file_type: FileType::Regular, oid: None }
    }

    fn listing(dir: &mut Directory, mut cookie: u64) -> Vec<(u64, Vec<u8>)> {
        let mut fresh = Vec::new();
        assert_eq!(dir.collect_unnumbered(usize::MAX, &mut fresh), 0);
        fresh.sort_unstable();
        dir.number(&fresh);
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
        assert_eq!(dir.evict(usize::MAX, |_| false), (0, 3));
        assert_eq!((dir.len(), total.load(Relaxed)), (0, 0));
        dir.insert(&Arc::from(&b"c"[..]), name());
        assert_eq!(listing(&mut dir, 3), [(7, b"c".to_vec())]);
        drop(dir);
        assert_eq!(total.load(Relaxed), 0);
    }

    #[test]
    fn names_are_numbered_and_evicted_in_pieces_and_none_is_missed_whatever_goes_meanwhile() {
        let mut dir = Directory::new(Arc::new(AtomicUsize::new(0)));
        let text = |number: usize| number.to_be_bytes();
        (0..3 * NAMES_AT_ONCE).for_each(|number| dir.insert(&Arc::from(&text(number)[..]), name()));
        let (mut end, mut fresh, mut pieces) = (usize::MAX, Vec::new(), 0);
        while end > 0 {
            let before = fresh.len();
            end = dir.collect_unnumbered(end, &mut fresh);
            assert!(fresh.len() - before <= NAMES_AT_ONCE);
            // One of those that were not looked at: the last name comes to its place.
            dir.remove(&text(pieces));
            pieces += 1;
        }
        fresh.sort_unstable();
        dir.number(&fresh);
        assert_eq!((pieces, dir.listed.len()), (3, dir.names.len()));

        let (mut end, mut calls) = (usize::MAX, 0);
        while end > 0 {
            let gone;
            (end, gone) = dir.evict(end, |_| false);
            assert!(gone <= NAMES_AT_ONCE);
            calls += 1;
        }
        assert_eq!((calls, dir.len(), dir.listed.len()), (3, 0, 0));
    }

    #[test]
    fn names_are_found_as_in_a_map_and_take_no_room_that_they_do_not_use() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut dir = Directory::new(total.clone());
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut rng = Rng::new(1);
        let mut below = |n: u64| rng.below_u64(n);
        for step in 1..=20_000u64 {
            let text = below(2000).to_be_bytes();
            match below(10) {
                0..3 => {
                    dir.remove(&text);
                    model.remove(&text[..]);
                }
                _ => {
                    let node = (step % 3 > 0).then_some(InodeId(step));
                    let oid = (step % 5 == 0).then_some(step % 2);
                    dir.insert(&Arc::from(&text[..]), Name { node, oid, ino: step, ..name() });
                    model.insert(text.to_vec(), step);
                }
            }
            if step % 5000 == 0 {
                let (begin, gone) = dir.evict(usize::MAX, |name| name.ino % 2 == 0);
                assert_eq!(begin, 0);
                let before = model.len();
                model.retain(|_, ino| *ino % 2 == 0);
                assert_eq!(gone, before - model.len());
            }
            let text = below(2000).to_be_bytes();
            let found = dir.get(&text);
            assert_eq!(found.map(|name| name.ino), model.get(&text[..]).copied(), "step {step}");
            if let Some(Name { node, ino, oid, .. }) = found {
                assert_eq!(node, (ino % 3 > 0).then_some(InodeId(ino)));
                assert_eq!(oid, (ino % 5 == 0).then_some(ino % 2));
            }
        }
        assert_eq!((dir.len(), total.load(Relaxed)), (model.len(), model.len()));
        assert!(model.len() > 500);
        assert!(model.iter().all(|(text, ino)| dir.get(text).is_some_and(|name| name.ino == *ino)));
        dir.evict(usize::MAX, |_| false);
        assert_eq!((dir.names.capacity(), dir.places.capacity()), (0, 0));
        for number in 1..=1000usize {
            dir.insert(&Arc::from(&number.to_be_bytes()[..]), name());
            assert!(dir.names.capacity() <= number * 5 / 4 + NAMES_MIN, "{number}");
        }
    }
}
