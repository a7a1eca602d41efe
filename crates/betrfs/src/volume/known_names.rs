//! The names of a directory come to memory, and leave it.
//!
//! A directory may have millions of names, and any user can make one. So all that is done to each name goes
//! in pieces: nobody waits for more than [`NAMES_AT_ONCE`] names, neither in the directory nor for the
//! namespace.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::Cut;

use crate::error::{Error, Result};
use crate::names::{Directory, Inode, Name, State, ino_of};
use crate::op::Op;
use crate::schema::{META, Stored, damaged, key};
use crate::types::{NAMES_AT_ONCE, Objects, SNAPSHOTS_NAME};
use crate::volume::Volume;
use crate::volume::lookup::name_of_redirect;

/// Number of directories whose names one call evicts, at most.
const DIRS_AT_ONCE: usize = 8;

/// How far the names of a directory were read.
enum Names {
    /// There may be more behind this one.
    Some {
        last: Arc<[u8]>,
    },
    AllKnown,
    /// To the end, and the directory counts more.
    AllThatAreLeft,
}

impl Volume {
    /// Reads all names of a directory if `name` is unknown and it is time to read all. The caller holds no
    /// lock.
    pub(super) fn know_names(&self, op: &Op<'_>, dir: &Arc<Inode>, name: &[u8]) {
        if name != SNAPSHOTS_NAME
            && self.should_read_all(&dir.state.read(), name)
            && self.read_names(op, dir, Objects::None).is_err()
        {
            // A failure to read other names is no failure to find this one.
            if let Ok(names) = dir.state.write().dir_mut() {
                names.misses = 0;
            }
        }
    }

    fn should_read_all(&self, state: &State, name: &[u8]) -> bool {
        let is_small = state.record.entries <= self.names_max as u64 / 2;
        let is_wanted = |dir: &Directory| dir.get(name).is_none() && dir.misses >= dir.misses_max;
        is_small && !state.is_complete() && state.dir.as_deref().is_some_and(is_wanted)
    }

    /// Reads the names of a directory that are not known; loads the inodes of the entries that `objects`
    /// includes. The caller holds no lock. Behind it the directory is complete, unless names were evicted
    /// meanwhile, which they are not while it is being listed, or were lost. Passes over known damage, and
    /// returns the error of who meets it, if the directory lacks names.
    pub(super) fn read_names(
        &self,
        op: &Op<'_>,
        dir: &Arc<Inode>,
        objects: Objects,
    ) -> Result<Option<Error>> {
        let mut turn = dir.turn();
        let mut last: Option<Arc<[u8]>> = None;
        let mut lost = None;
        loop {
            let read = op.without_waiting(|| {
                let shared = self.namespace.shared();
                let mut state = dir.state.write();
                if state.is_complete() || self.is_removed(&shared, dir) {
                    return Ok(Names::AllKnown);
                }
                if dir.turn() != turn {
                    // It has other names since.
                    (turn, last) = (dir.turn(), None);
                    lost = None;
                }
                self.read_some_names(op, dir, &mut state, last.as_deref(), (objects, &mut lost))
            })?;
            match read {
                Names::Some { last: name } => last = Some(name),
                Names::AllKnown => return Ok(None),
                Names::AllThatAreLeft => return Ok(lost),
            }
        }
    }

    /// Reads a directory's names behind `last`, as many as may be read at once; `lost` gets the error of
    /// known damage.
    fn read_some_names(
        &self,
        op: &Op<'_>,
        dir: &Arc<Inode>,
        state: &mut State,
        last: Option<&[u8]>,
        (objects, lost): (Objects, &mut Option<Error>),
    ) -> Result<Names> {
        let path = op.dir_path(dir)?;
        let mut epoch = self.epochs.begin();
        let (mut lo, hi) = key::entries(&path.bytes);
        match last {
            Some(last) => lo = Cut::just_after(&key::entry(&path.bytes, last)),
            None => {
                let entries = state.record.entries;
                state.dir_mut()?.make_room(entries);
            }
        }
        let mut entries = op.scan_of_whole(META, (lo, hi), None, NAMES_AT_ONCE);
        let mut read = 0;
        loop {
            let (at, bytes) = match entries.next() {
                Ok(Some(pair)) => pair,
                Ok(None) => break,
                Err(error @ betree::Error::KnownDamage { .. }) => match entries.pass_unreadable() {
                    Some(passed) if passed.errors.iter().all(betree::Error::is_known_damage) => {
                        lost.get_or_insert(error.into());
                        continue;
                    }
                    _ => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            };
            let (_, name) = key::split_entry(at).ok_or_else(|| damaged(at, "it is no name"))?;
            let name: Arc<[u8]> = Arc::from(name);
            let live = state
                .dir()?
                .get(&name)
                .is_some_and(|known| known.node.is_some_and(|node| self.table.get(node).is_some()));
            if !live {
                if dir.last_change.is_since(epoch) {
                    let again = Cut::before(at);
                    epoch = self.epochs.begin();
                    entries.seek(&again);
                    continue;
                }
                let known = match Stored::decode(at, bytes)? {
                    Stored::Inode(record) if objects.include(record.file_type) => {
                        self.adopt(op, dir, &path, &name, record).1
                    }
                    Stored::Inode(record) => {
                        let (ino, file_type) = (ino_of(record.id, path.salts), record.file_type);
                        Name { node: None, ino, file_type, oid: None }
                    }
                    Stored::Redirect(redirect) => {
                        name_of_redirect(redirect, self.table.object(redirect.oid).map(|inode| inode.id))
                    }
                };
                self.insert_name(dir, state, &name, known)?;
            }
            read += 1;
            if read == NAMES_AT_ONCE {
                return Ok(Names::Some { last: name });
            }
        }
        let is_complete = state.is_complete();
        let losses = lost.clone().filter(|_| !is_complete).map(|error| (dir.turn(), error));
        state.dir_mut()?.all_were_read(is_complete, losses);
        Ok(if is_complete { Names::AllKnown } else { Names::AllThatAreLeft })
    }

    /// Gives a cookie to each name of a directory that has none, in the order of the names. The caller holds
    /// no lock. Names that come meanwhile may be left out.
    pub(super) fn number_names(&self, dir: &Inode) {
        let mut fresh = Vec::new();
        let mut end = usize::MAX;
        while end > 0 {
            let state = dir.state.read();
            let Ok(names) = state.dir() else { return };
            end = names.collect_unnumbered(end, &mut fresh);
        }
        fresh.sort_unstable();
        for some in fresh.chunks(NAMES_AT_ONCE) {
            if let Ok(names) = dir.state.write().dir_mut() {
                names.number(some);
            }
        }
    }

    /// Adds a name to the known names of a directory.
    pub(super) fn insert_name(
        &self,
        dir: &Inode,
        state: &mut State,
        name: &Arc<[u8]>,
        known: Name,
    ) -> Result<()> {
        let names = state.dir_mut()?;
        names.insert(name, known);
        if !names.queued {
            names.queued = true;
            let mut name_lru = self.name_lru.lock();
            name_lru.push_back(dir.id);
            if name_lru.len() > 2 * self.table.len() + 64 {
                name_lru.retain(|node| self.table.get(*node).is_some());
            }
        }
        Ok(())
    }

    /// Evicts names until they are within their budget. The caller holds no lock.
    pub(super) fn give_up_names(&self) {
        let names = || self.names_total.load(Relaxed);
        if names() <= self.names_max || !self.eviction_backoff.is_over(names(), self.table.dropped()) {
            return;
        }
        let now_ns = self.platform.now_ns();
        let (mut looked_at, mut freed) = (0, 0);
        // A few at a time: directories with a listing under way are passed over.
        for _ in 0..DIRS_AT_ONCE {
            if names() <= self.names_max {
                break;
            }
            let Some(node) = self.name_lru.lock().pop_front() else { break };
            let Some(inode) = self.table.get(node) else { continue };
            let (seen, gone) = self.evict_names(&inode, now_ns);
            looked_at += seen;
            freed += gone;
            let mut state = inode.state.write();
            let Some(dir) = &mut state.dir else { continue };
            dir.queued = dir.len() > 0;
            if dir.queued {
                self.name_lru.lock().push_back(node);
            }
        }
        self.eviction_backoff.looked_at(looked_at, freed, names(), self.table.dropped());
    }

    /// Evicts the names of a directory without an inode in memory; if it is being listed, when that ends.
    /// Returns the number of names that were looked at, and of those evicted. The caller holds no lock.
    fn evict_names(&self, inode: &Inode, now_ns: i64) -> (usize, usize) {
        let (mut end, mut looked_at, mut freed) = (usize::MAX, 0, 0);
        while end > 0 {
            let mut state = inode.state.write();
            let Some(dir) = &mut state.dir else { break };
            dir.is_due = dir.is_being_listed(now_ns);
            if dir.is_due {
                break;
            }
            let before = end.min(dir.len());
            let gone;
            let is_in_memory = |name: &Name| name.node.is_some_and(|node| self.table.get(node).is_some());
            (end, gone) = dir.evict(end, is_in_memory);
            looked_at += before - end;
            freed += gone;
        }
        (looked_at, freed)
    }

    /// Notes the end of a listing. Evicts the names if they were kept for it alone. The caller holds no lock.
    pub(super) fn end_listing(&self, inode: &Inode, now_ns: i64) {
        let is_due = {
            let mut state = inode.state.write();
            let Some(dir) = &mut state.dir else { return };
            dir.end_listing();
            dir.is_due && !dir.is_being_listed(now_ns)
        };
        if is_due {
            self.evict_names(inode, now_ns);
        }
    }
}
