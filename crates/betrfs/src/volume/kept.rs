//! What was in a directory before it went back to a snapshot, on its way to becoming a snapshot itself.
//!
//! If many of its names lead to files with several, these are not gone through while all others wait: the
//! batch that brings the directory back also copies what is there to a detached tree (`detached.rs`). After
//! that its names are led to new files, and it gets its name as a snapshot, in one batch. A crash in between
//! leaves a marker with the directory's inode number and that name, by which the next opening goes on; the
//! directory may have been moved meanwhile. Until then nobody else can take the name, and the directory stays
//! in memory: it cannot be moved to where the keys of the snapshot would be too long, and what is kept holds
//! it as a snapshot would. Who removes the directory with its snapshots gives it up, too.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::Batch;

use crate::error::{Error, Result};
use crate::names::{Exclusive, Inode};
use crate::op::{Op, OpKind};
use crate::schema::{
    Amount, DATA, Detached, Flags, KeptAs, LINKS, META, Marker, Record, Stored, damaged, key,
};
use crate::types::{Finished, InodeId, SNAPSHOTS_NAME};
use crate::volume::Volume;
use crate::volume::charge::stored_use;
use crate::volume::clone::{Ahead, Copy};
use crate::volume::detached::{DetachedCopy, LostFiles, copy_below};

/// A detached tree that becomes a snapshot.
#[derive(Clone)]
pub(super) struct Kept {
    pub number: u64,
    pub kept_as: KeptAs,
    /// Its directory, which stays in memory for it. `None` after an opening, until it was looked for.
    dir: Option<Arc<Inode>>,
    /// Whether the search for it has ended without it.
    is_not_found: bool,
    /// Whether it was given up with the snapshots of its directory.
    is_given_up: bool,
}

impl Kept {
    /// One that an opening has found.
    pub fn found(number: u64, kept_as: KeptAs) -> Kept {
        Kept { number, kept_as, dir: None, is_not_found: false, is_given_up: false }
    }
}

impl Volume {
    /// Whether more names below a directory lead to files with several than are gone through while others
    /// wait.
    pub(super) fn has_many_links(&self, op: &Op<'_>, path: &[u8]) -> Result<bool> {
        let mut links = op.scan_of_whole(LINKS, key::subtree(path), None, self.links_alone_max + 1);
        for _ in 0..=self.links_alone_max {
            if links.next()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds to a batch the copy of a directory that becomes a snapshot with this record, and of what is used
    /// of its quota. The caller has moved the blocks of unlinked files away from below it.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] if the snapshot's keys might be too long; the engine's.
    pub(super) fn begin_kept(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        dir: &Arc<Inode>,
        (record, used): (&Record, Option<Amount>),
        name: &[u8],
    ) -> Result<Kept> {
        let (own_key, path) = (op.own_key(dir)?, op.dir_path(dir)?.bytes);
        // Later it could not get its name, and what was there would be lost.
        self.refuse_long_snapshot(op, (&own_key, &path), &path, name)?;
        let number = self.numbers.oid(op)?;
        let kept_as = KeptAs { of: dir.id.0, name: name.to_vec() };
        let own = key::detached_own(number);
        batch.put(META, &key::marker(number), &Marker::Kept(kept_as.clone()).encode());
        batch.put(META, &own, &record.encode());
        if let Some(used) = used {
            batch.put(DATA, &key::quota_use(&own), &used.encode());
        }
        copy_below(op, batch, number, record, (&own_key, &path))?;
        Ok(Kept { dir: Some(dir.clone()), ..Kept::found(number, kept_as) })
    }

    /// Refuses what would make the keys of a snapshot too long: that of a directory of this path, under this
    /// name, with what is below `from`, an own key and a path.
    fn refuse_long_snapshot(
        &self,
        op: &Op<'_>,
        (from_key, from_path): (&[u8], &[u8]),
        of: &[u8],
        name: &[u8],
    ) -> Result<()> {
        let above = key::snapshots_path(of);
        let to_key = key::entry(&above, name);
        if to_key.len() > key::OWN_KEY_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let below = (key::child_path(from_path, b""), key::child_path(&key::child_path(&above, name), b""));
        let xattrs = (key::xattr(from_key, b""), key::xattr(&to_key, b""));
        let mut wanted = Batch::new();
        wanted.limit_clone_keys(key::OWN_KEY_BYTES_MAX);
        for (dict, (from, to)) in [(META, &below), (DATA, &below), (LINKS, &below), (DATA, &xattrs)] {
            if op.has_any(dict, key::within(from.clone()))? {
                wanted.clone_range(dict, from, to);
            }
        }
        op.try_clones(&wanted)
    }

    /// Refuses the move of a directory from one path to another where the keys of what becomes a snapshot of
    /// it, or of a directory below it, would become too long: it could not get its name any more. The caller
    /// has [found](Volume::find_kept_dirs) these directories.
    ///
    /// # Errors
    /// [`Error::NameTooLong`]; the engine's.
    pub(super) fn refuse_long_kept(&self, op: &Op<'_>, from: &[u8], to: &[u8]) -> Result<()> {
        for (kept, at) in self.kept_within(op, from) {
            let moved = [to, at.get(from.len()..).unwrap_or_default()].concat();
            if moved.len() > at.len() {
                let tree = (key::detached_own(kept.number), key::detached_path(kept.number));
                self.refuse_long_snapshot(op, (&tree.0, &tree.1), &moved, &kept.kept_as.name)?;
            }
        }
        Ok(())
    }

    /// The directories of which snapshots are to be made, as far as they are in memory.
    pub(super) fn kept_dirs(&self) -> Vec<Arc<Inode>> {
        self.unfinished.left.lock().kept.iter().filter_map(|kept| kept.dir.clone()).collect()
    }

    /// What becomes snapshots of a directory of this path and of those below it, with their paths. The caller
    /// has [found](Volume::find_kept_dirs) them.
    pub(super) fn kept_within(&self, op: &Op<'_>, path: &[u8]) -> Vec<(Kept, Vec<u8>)> {
        let all = self.pending_kept();
        let with_path = |kept: Kept| {
            // One that has no path was removed.
            let at = op.dir_path(kept.dir.as_ref()?).ok()?.bytes;
            (at == path || key::is_below(path, &at)).then_some((kept, at))
        };
        all.into_iter().filter_map(with_path).collect()
    }

    /// Finds the directories of which snapshots are to be made since an earlier use of the volume, and keeps
    /// them in memory. The caller holds no lock.
    ///
    /// # Errors
    /// [`Error::Busy`], and those of reads that may succeed the next time: then one may not have been found.
    pub(super) fn find_kept_dirs(&self) -> Result<()> {
        let unknown: Vec<u64> = {
            let left = self.unfinished.left.lock();
            let unknown = left.kept.iter().filter(|kept| kept.dir.is_none() && !kept.is_not_found);
            unknown.map(|kept| kept.kept_as.of).collect()
        };
        for of in unknown {
            match self.find_kept_dir(of) {
                Ok(_) => {}
                Err(Error::NotFound | Error::Stale | Error::SearchGivenUp { .. }) => self.note_not_found(of),
                // Nobody comes to what was lost, and no snapshot is made of it.
                Err(error) if error.is_loss() => self.note_not_found(of),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notes that the search for a directory has ended without it: no operation makes it again, but the one
    /// that makes the snapshots.
    fn note_not_found(&self, of: u64) {
        for kept in self.unfinished.left.lock().kept.iter_mut().filter(|kept| kept.kept_as.of == of) {
            kept.is_not_found = true;
        }
    }

    /// The directory of this inode number, of which a snapshot is to be made.
    fn find_kept_dir(&self, of: u64) -> Result<Arc<Inode>> {
        let node = self.find_inode(InodeId(of))?.node;
        let found = self.inode(node);
        if let Ok(dir) = &found {
            let mut left = self.unfinished.left.lock();
            for kept in left.kept.iter_mut().filter(|kept| kept.kept_as.of == of) {
                kept.dir.get_or_insert_with(|| dir.clone());
            }
        }
        self.forget(node, 1);
        found
    }

    /// Notes a committed one: from now on its name is taken. The caller holds the namespace alone.
    pub(super) fn note_kept(&self, _: &Exclusive<'_>, kept: Kept) {
        self.unfinished.left.lock().kept.push(kept);
    }

    /// Whether a snapshot of a directory will get this name.
    pub(super) fn is_kept_name(&self, of: &Inode, name: &[u8]) -> bool {
        let left = self.unfinished.left.lock();
        let mut pending = left.kept.iter().filter(|kept| !kept.is_given_up);
        pending.any(|kept| kept.kept_as.of == of.id.0 && kept.kept_as.name == name)
    }

    /// Whether a snapshot of the directory of this path is still to be made, which holds it as one that is
    /// there. The caller holds the namespace, and the directory is in memory.
    pub(super) fn is_held_by_kept(&self, path: &[u8]) -> bool {
        let mut pending = self.pending_kept().into_iter();
        pending.any(|kept| {
            let dir = kept.dir.or_else(|| self.table.get(InodeId(kept.kept_as.of)));
            dir.is_some_and(|dir| dir.is_at(path))
        })
    }

    /// Those that were not given up.
    fn pending_kept(&self) -> Vec<Kept> {
        let left = self.unfinished.left.lock();
        left.kept.iter().filter(|kept| !kept.is_given_up).cloned().collect()
    }

    /// Adds to a batch that some which were to become snapshots are given up.
    pub(super) fn give_up_kept(batch: &mut Batch, given_up: &[(Kept, Vec<u8>)]) {
        for (kept, _) in given_up {
            batch.put(META, &key::marker(kept.number), &Marker::Detached(Detached::Copy).encode());
        }
    }

    /// Notes those that a committed batch gives up: they hold no name and no directory any more.
    pub(super) fn note_given_up(&self, _: &Exclusive<'_>, given_up: &[(Kept, Vec<u8>)]) {
        if given_up.is_empty() {
            return;
        }
        for kept in &mut self.unfinished.left.lock().kept {
            kept.is_given_up |= given_up.iter().any(|(other, _)| other.number == kept.number);
        }
    }

    /// Clears those that were given up, unless somebody makes snapshots right now, who comes to them. The
    /// caller holds no lock. Returns what `clear_or_put_off` does.
    pub(super) fn clear_given_up(&self) -> Vec<InodeId> {
        let Some(_making) = self.unfinished.making.try_lock() else { return Vec::new() };
        let Some(_going) = self.own_changes.begin() else { return Vec::new() };
        let all = self.unfinished.left.lock().kept.clone();
        let given_up = all.iter().filter(|kept| kept.is_given_up);
        given_up.flat_map(|kept| self.clear_kept(kept)).collect()
    }

    /// Clears one that is not to become a snapshot any more.
    fn clear_kept(&self, kept: &Kept) -> Vec<InodeId> {
        let changed = self.clear_or_put_off(kept.number, Detached::Copy);
        self.unfinished.left.lock().kept.retain(|other| other.number != kept.number);
        changed
    }

    /// Makes snapshots of all detached trees that are to become such, whoever has begun with them. What fails
    /// is left for the next time. The caller holds no other lock than that of who makes them.
    pub(super) fn make_kept(&self, finished: &mut Finished) {
        let Some(_going) = self.own_changes.begin() else { return };
        let all: Vec<Kept> = self.unfinished.left.lock().kept.clone();
        for kept in all {
            let made = if kept.is_given_up { Err(Error::NotFound) } else { self.make_one_kept(&kept) };
            match made {
                Ok(snapshots) => {
                    finished.snapshots.push((snapshots, Arc::from(&*kept.kept_as.name)));
                    // `kept` holds the directory until the lock was given back.
                    self.unfinished.left.lock().kept.retain(|other| other.number != kept.number);
                }
                // Its directory is gone, or it was given up.
                Err(Error::NotFound | Error::Stale) => finished.changed.extend(self.clear_kept(&kept)),
                Err(_) => {}
            }
        }
    }

    /// Makes a snapshot of a detached tree. Returns the entry of the directory's snapshots.
    ///
    /// # Errors
    /// The engine's; [`Error::NotFound`] or [`Error::Stale`] if the directory is gone, or it was given up.
    fn make_one_kept(&self, kept: &Kept) -> Result<InodeId> {
        let of = match &kept.dir {
            Some(dir) => dir.clone(),
            None => self.find_kept_dir(kept.kept_as.of)?,
        };
        self.lead_to_new_files(kept.number, Flags::READ_ONLY, LostFiles::KeepNames)?;
        let snapshots = self.lookup(of.id, SNAPSHOTS_NAME)?.node;
        let made = self.attach_kept(of.id, snapshots, kept);
        self.forget(snapshots, 1);
        made.map(|()| snapshots)
    }

    fn attach_kept(&self, of: InodeId, snapshots: InodeId, kept: &Kept) -> Result<()> {
        let Kept { number, kept_as: KeptAs { name, .. }, .. } = kept;
        let op = self.update(OpKind::Clone, 0)?;
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[of, snapshots], &[(snapshots, name)]);
            let (of, snapshots) = (self.inode(of)?, self.inode(snapshots)?);
            let is_pending = self.pending_kept().iter().any(|pending| pending.number == *number);
            if self.is_removed(&exclusive, &of) || !is_pending {
                return Err(Error::NotFound);
            }
            let own = key::detached_own(*number);
            let bytes = op.get(META, &own)?.ok_or_else(|| damaged(&own, "its record is lost"))?;
            let Stored::Inode(record) = Stored::decode(&own, &bytes)? else {
                return Err(damaged(&own, "it is not the record of a directory"));
            };
            let used = match record.quota() {
                Some(_) => Some(stored_use(&op, &key::quota_use(&own))?),
                None => None,
            };
            let copy = DetachedCopy { number: *number, record: record.clone(), more: None, used };
            let path = op.dir_path(&snapshots)?.bytes;
            let copy = Copy {
                to_key: &key::entry(&path, name),
                to_path: &key::child_path(&path, name),
                flags: Flags::READ_ONLY,
                used,
                ahead: Ahead::Made(&copy),
            };
            self.put_snapshot(&exclusive, &op, (&snapshots, &of), name, &copy, record).map(drop)
        })
    }
}
