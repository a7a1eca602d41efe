//! Removing everything below a directory, at a cost independent of how much that is.
//!
//! Everything is removed in one batch. Two kinds of files do not fit into ranges and are looked at one by
//! one: files with several names, whose count of names lies outside of the directory, and open files, whose
//! contents are moved away so that they live on until they are closed. If the names of the former are many,
//! the tree is detached, and they are taken from their files while others go on (`detached.rs`). No other
//! object in memory is looked at while others wait (`exclusive.rs`, `removed_inodes.rs`).

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::{Batch, Cut};

use crate::contents::{POINT_DELETES_MAX, delete_data};
use crate::error::{Error, Result};
use crate::names::{Counter, Exclusive, Inode, Place};
use crate::op::{Op, OpKind};
use crate::rules::refuse_if_protected;
use crate::schema::block::BLOCK;
use crate::schema::{Amount, DATA, Detached, LINKS, META, Marker, Record, key};
use crate::types::{FileType, InodeId, Owned, RemovedBelow, SnapshotsBelow};
use crate::volume::Volume;
use crate::volume::charge::{NamesOfFiles, spoil};
use crate::volume::lost_files::is_lost_for_good;
use crate::volume::measure::{Measuring, object_id};
use crate::volume::relocate::FILES_AT_ONCE;
use crate::volume::removed_inodes::CutOff;
use crate::volume::unlink::Dropped;

/// A removal is assumed to free this fraction of the volume, so that `statfs` looks for what it freed.
const TREE_PART: u64 = 8;

/// Size of a batch up to which small contents are kept as messages: more would be too much for one batch, and
/// for a full volume.
const KEPT_PUTS_BYTES_MAX: u64 = 32 << 10;

/// What a removal leaves to be done once it is committed.
pub(super) struct Removal {
    now_ns: i64,
    /// The quotas above, of which open files hold their contents.
    quotas: Vec<Arc<Counter>>,
    /// The new states of inodes that it looked at one by one; the others are swept.
    pub dropped: Vec<(Arc<Inode>, Dropped)>,
    /// The files with several names that it takes some from at once.
    linked: Vec<u64>,
    /// The tree whose names are still to be taken from their files.
    detached: Option<u64>,
    /// How many names the files in it have there, if it was in a quota.
    names: Option<Arc<NamesOfFiles>>,
    /// Lost files that have lost names.
    lost: BTreeSet<u64>,
}

impl Removal {
    /// A removal that has come to nothing yet.
    pub fn begin(quotas: Vec<Arc<Counter>>, now_ns: i64) -> Removal {
        Removal {
            now_ns,
            quotas,
            dropped: Vec::new(),
            linked: Vec::new(),
            detached: None,
            names: None,
            lost: BTreeSet::new(),
        }
    }
}

/// A directory that loses its contents.
pub(super) struct Emptied<'a> {
    dir: &'a Arc<Inode>,
    path: &'a [u8],
    has_snapshots: bool,
    /// The quotas above, of which open files hold their contents.
    quotas: Vec<Arc<Counter>>,
    /// Of a directory in a quota, what was measured.
    measuring: Option<&'a Measuring<'a>>,
}

impl<'a> Emptied<'a> {
    /// The directory of this path loses everything below it. Its snapshots stay.
    pub fn entries_of(dir: &'a Arc<Inode>, path: &'a [u8]) -> Emptied<'a> {
        Emptied { dir, path, has_snapshots: false, quotas: Vec::new(), measuring: None }
    }

    /// The same, in these quotas.
    pub fn in_quotas(self, quotas: Vec<Arc<Counter>>) -> Emptied<'a> {
        Emptied { quotas, ..self }
    }

    /// The same, in a quota, measured so.
    pub fn measured(self, measuring: &'a Measuring<'a>) -> Emptied<'a> {
        Emptied { measuring: Some(measuring), ..self }
    }

    /// The same; its snapshots and those of directories below it go too.
    pub fn with_snapshots(self) -> Emptied<'a> {
        Emptied { has_snapshots: true, ..self }
    }

    /// The keys that go.
    fn ranges(&self) -> impl Iterator<Item = (Cut, Cut)> {
        let snapshots = self.has_snapshots.then(|| key::snapshots(self.path));
        [key::subtree(self.path)].into_iter().chain(snapshots)
    }

    /// The prefixes of the keys that go, and those in the detached tree of this number.
    fn moves(&self, number: u64) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let entries = (key::child_path(self.path, b""), key::child_path(&key::detached_path(number), b""));
        let snapshots =
            self.has_snapshots.then(|| (key::snapshots_path(self.path), key::detached_snapshots(number)));
        [entries].into_iter().chain(snapshots)
    }
}

impl Volume {
    /// Empties a directory: everything below it is removed at once, and after a crash all of it is there or
    /// nothing. Open files live on until they are closed; their other names, outside, stay.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{InodeId, SnapshotsBelow};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// for i in 0..100 {
    ///     volume.create(dir, format!("file{i}").as_bytes(), &new_file)?;
    /// }
    /// volume.remove_below(dir, SnapshotsBelow::Hold)?;
    /// volume.rmdir(InodeId::ROOT, b"dir")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotFound`] if the directory itself was removed;
    /// [`Error::Protected`] by the directory's own flags (those below it are not checked);
    /// [`Error::HeldBySnapshots`] if it or a directory below it has snapshots and they are to hold it.
    pub fn remove_below(&self, node: InodeId, snapshots: SnapshotsBelow) -> Result<RemovedBelow> {
        self.measured(|measuring| self.empty(node, snapshots, None, measuring))
    }

    /// Does the same, with [`SnapshotsBelow::Hold`], for a user whose the directory is as a whole.
    ///
    /// # Errors
    /// Those of `remove_below`; [`Error::Busy`] if something may have come into the directory that is not the
    /// user's: it is to be looked through again.
    pub fn remove_below_as(&self, owned: &Owned) -> Result<RemovedBelow> {
        self.measured(|measuring| self.empty(owned.node, SnapshotsBelow::Hold, Some(owned), measuring))
    }

    fn empty(
        &self,
        node: InodeId,
        snapshots: SnapshotsBelow,
        by: Option<&Owned>,
        measuring: &Measuring<'_>,
    ) -> Result<RemovedBelow> {
        self.find_kept_dirs()?;
        let op = self.update(OpKind::RemoveTree, 0)?;
        self.strike_closed(node);
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[node], &[]);
            let dir = self.live_dir(&exclusive, &op, node)?;
            if let Some(owned) = by {
                self.still_owned(&exclusive, &op, &dir, owned)?;
            }
            refuse_if_protected(&dir.state.read().record)?;
            let path = op.dir_path(&dir)?;
            let has_snapshots = match op.scan(META, key::snapshots(&path.bytes)).next() {
                Ok(found) => found.is_some(),
                // Those that were lost go too: nobody will ever read them.
                Err(betree::Error::KnownDamage { .. }) if snapshots == SnapshotsBelow::Go => true,
                Err(error) => return Err(error.into()),
            };
            let kept = self.kept_within(&op, &path.bytes);
            if (has_snapshots || !kept.is_empty()) && snapshots == SnapshotsBelow::Hold {
                return Err(Error::HeldBySnapshots);
            }
            let mut record = dir.state.read().record.clone();
            if record.entries == 0 && !has_snapshots && kept.is_empty() {
                return Ok(RemovedBelow::default());
            }
            let now_ns = self.platform.now_ns();
            let mut emptied = Emptied::entries_of(&dir, &path.bytes).in_quotas(path.quotas());
            if has_snapshots {
                emptied = emptied.with_snapshots();
            }
            // It spoils what was measured.
            self.few_open_files(&exclusive, &op, &emptied, now_ns)?;
            let less = match path.quota() {
                Some(_) => {
                    emptied = emptied.measured(measuring);
                    measuring.content(&op, &dir)?.removed
                }
                None => Amount::default(),
            };
            spoil(&op, &path);
            (record.entries, record.subdirs, record.snapshots) = (0, 0, 0);
            (record.mtime_ns, record.ctime_ns) = (now_ns, now_ns);
            let mut batch = Batch::new();
            let removal = self.remove_contents(&exclusive, &op, &mut batch, &emptied, now_ns)?;
            batch.put(META, &key::own(&path.bytes), &record.encode());
            Self::give_up_kept(&mut batch, &kept);
            let charge = self.charge(&op, &path, -less, &mut batch)?;
            op.commit(&batch)?;
            charge.keep();
            self.note_given_up(&exclusive, &kept);

            let own_snapshots = {
                let mut state = dir.state.write();
                state.record = record.into();
                self.snapshots_in_memory(&dir, state.dir()?)
            };
            let mut cut_off: Vec<CutOff> = self.cut_off(&exclusive, &dir).into_iter().collect();
            if let Some(own) = own_snapshots {
                let mut record = own.state.read().record.clone();
                (record.entries, record.subdirs) = (0, 0);
                own.state.write().record = record.into();
                cut_off.extend(self.cut_off(&exclusive, &own));
            }
            let names_of = |(dir, names): &CutOff| {
                let dir = dir.id;
                names.known_objects().map(move |name| (dir, name)).collect::<Vec<_>>()
            };
            let names = cut_off.iter().flat_map(names_of).collect();
            let mut changed = self.removed(exclusive, removal, cut_off, now_ns);
            if !kept.is_empty() {
                changed.extend(self.clear_given_up());
            }
            Ok(RemovedBelow { changed, names })
        })
    }

    /// Adds to a batch the removal of a directory's contents, and marks it as one that frees space.
    pub(super) fn remove_contents(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        batch: &mut Batch,
        emptied: &Emptied<'_>,
        now_ns: i64,
    ) -> Result<Removal> {
        let removal = self.take_contents(exclusive, op, batch, emptied, now_ns)?;
        batch.mark_freeing(self.env.space().total_bytes / TREE_PART);
        Ok(removal)
    }

    /// Adds to a batch the removal of a directory's contents, of which a copy may stay.
    pub(super) fn take_contents(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        batch: &mut Batch,
        emptied: &Emptied<'_>,
        now_ns: i64,
    ) -> Result<Removal> {
        let open = self.few_open_files(exclusive, op, emptied, now_ns)?;
        let mut removal = Removal::begin(emptied.quotas.clone(), now_ns);
        for inode in open {
            let mut record = inode.state.read().record.clone();
            (record.nlink, record.ctime_ns) = (0, now_ns);
            let place = self.keep_contents(op, batch, &op.own_key(&inode)?, &mut record)?;
            removal.dropped.push((inode, Dropped::gone(record, place, emptied.quotas.clone())));
        }
        let mut names = NamesOfFiles::new();
        let (mut seen, mut one_by_one) = (0, false);
        for range in emptied.ranges() {
            let mut links = op.scan(LINKS, range);
            while let Some((at, oid)) = links.next()? {
                seen += 1;
                if seen > self.links_alone_max && !one_by_one {
                    one_by_one = !self.may_detach(op, emptied)?;
                }
                if seen > self.links_alone_max && !one_by_one {
                    let measuring = emptied.measuring;
                    removal.names = measuring.map(|measuring| measuring.names(emptied.dir)).transpose()?;
                    removal.detached = Some(self.detach(op, batch, emptied)?);
                    return Ok(removal);
                }
                *names.entry(object_id(at, oid)?).or_default() += 1;
            }
        }
        for (oid, names) in names {
            match self.object_record(op, oid) {
                Ok(record) => self.take_names(op, batch, (oid, record), names, &mut removal)?,
                Err(error) if is_lost_for_good(&error) => {
                    removal.lost.insert(oid);
                    continue;
                }
                Err(error) => return Err(error),
            }
            removal.linked.push(oid);
        }
        for (lo, hi) in emptied.ranges() {
            for dict in [META, DATA, LINKS] {
                batch.delete_range(dict, &lo, &hi);
            }
        }
        Ok(removal)
    }

    /// Moves the blocks of unlinked files away from below a directory, and makes open files such that are
    /// stored elsewhere, until few are left. Returns these. Between some files and the next, others have a
    /// turn.
    pub(super) fn few_open_files(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        emptied: &Emptied<'_>,
        now_ns: i64,
    ) -> Result<Vec<Arc<Inode>>> {
        self.move_orphans_away(exclusive, op, emptied.path)?;
        loop {
            let open = self.open_below(exclusive, op, emptied.dir, emptied.has_snapshots, FILES_AT_ONCE);
            if open.len() < FILES_AT_ONCE {
                return Ok(open);
            }
            open.iter().try_for_each(|inode| self.become_linked(exclusive, op, inode, now_ns))?;
            op.give_turn()?;
        }
    }

    /// Whether a directory's contents can become a detached tree: the prefix of its keys may be some bytes
    /// longer than that of a short path, and then the longest keys would be over the limit.
    fn may_detach(&self, op: &Op<'_>, emptied: &Emptied<'_>) -> Result<bool> {
        let mut moves = Batch::new();
        for (from, to) in emptied.moves(0).filter(|(from, to)| from.len() < to.len()) {
            for dict in [META, DATA, LINKS] {
                if op.has_any(dict, key::within(from.clone()))? {
                    moves.clone_range(dict, &from, &to);
                }
            }
        }
        match op.try_clones(&moves) {
            Err(Error::NameTooLong) => Ok(false),
            tried => tried.map(|()| true),
        }
    }

    /// Adds to a batch that a directory's contents become a detached tree. Returns its number.
    fn detach(&self, op: &Op<'_>, batch: &mut Batch, emptied: &Emptied<'_>) -> Result<u64> {
        let number = self.numbers.oid(op)?;
        batch.put(META, &key::marker(number), &Marker::Detached(Detached::Removed).encode());
        for (from, to) in emptied.moves(number) {
            for dict in [META, DATA, LINKS] {
                // An empty range would cost later queries for nothing.
                if op.has_any(dict, key::within(from.clone()))? {
                    batch.rename_range(dict, &from, &to);
                }
            }
        }
        Ok(number)
    }

    /// Takes a number of its names from a file with several; the caller removes the names themselves.
    pub(super) fn take_names(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        (oid, mut record): (u64, Record),
        names: u32,
        removal: &mut Removal,
    ) -> Result<()> {
        op.visit(1);
        let own = key::object(oid);
        (record.nlink, record.ctime_ns) = (record.nlink.saturating_sub(names), removal.now_ns);
        let inode = self.table.object(oid);
        let mut place = None;
        if record.nlink > 0 {
            batch.put(META, &own, &record.encode());
        } else {
            batch.delete(META, &own);
            let is_open = inode.as_ref().is_some_and(|inode| inode.is_open());
            if is_open && record.file_type == FileType::Regular {
                place = Some(self.keep_in_place(op, batch, &own, &mut record)?);
            } else {
                delete_data(batch, &own, &record);
                place = Some(Place::Gone);
            }
        }
        let quotas = removal.quotas.clone();
        // What quotas have less is known of the tree as a whole.
        let is_out_of_sight = false;
        let dropped = inode.map(|inode| (inode, Dropped { record, place, is_out_of_sight, quotas }));
        removal.dropped.extend(dropped);
        Ok(())
    }

    /// Moves the blocks of an open file to an object of their own.
    fn keep_contents(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        own: &[u8],
        record: &mut Record,
    ) -> Result<Place> {
        self.take_xattrs(op, own, record)?;
        let (marker, base) = (self.numbers.oid(op)?, key::object(self.numbers.oid(op)?));
        batch.put(META, &key::marker(marker), &Marker::Unlinked { base: base.clone() }.encode());
        let is_large = record.size > POINT_DELETES_MAX * BLOCK;
        let is_large = is_large || batch.bytes() as u64 + record.size > KEPT_PUTS_BYTES_MAX;
        match if is_large { None } else { op.blocks_to_move(own)? } {
            None => batch.rename_range(DATA, &key::all_blocks(own), &key::all_blocks(&base)),
            Some(blocks) => {
                for (rest, block) in blocks {
                    batch.put(DATA, &[base.as_slice(), &rest].concat(), &block);
                }
            }
        }
        Ok(Place::Orphan { marker, base: Arc::from(base) })
    }

    /// Installs a committed removal, and then releases the namespace. Returns the objects that the volume's
    /// caller holds.
    pub(super) fn removed(
        &self,
        exclusive: Exclusive<'_>,
        removal: Removal,
        cut_off: Vec<CutOff>,
        now_ns: i64,
    ) -> Vec<InodeId> {
        self.paths_change(&exclusive);
        let touched = self.install_removed(&exclusive, removal.dropped);
        // Not before: an attempt that is made again would have spoiled what was measured for it.
        removal.linked.iter().for_each(|oid| self.quotas.note_object(*oid));
        if let Some(number) = removal.detached {
            self.quotas.hide(number, removal.names);
        }
        self.sweeps.fetch_add(1, Relaxed);
        drop(exclusive);
        let mut held = self.sweep(cut_off, now_ns);
        self.sweeps.fetch_sub(1, Relaxed);
        held.extend(self.closed_all(touched));
        held.extend(self.clear_put_off());
        let detached = removal.detached.into_iter();
        held.extend(detached.flat_map(|number| self.clear_or_put_off(number, Detached::Removed)));
        self.clear_lost(removal.lost);
        held
    }

    /// Installs the new states of inodes that a committed batch took names from. Returns the inodes.
    pub(super) fn install_removed(
        &self,
        _: &Exclusive<'_>,
        removed: Vec<(Arc<Inode>, Dropped)>,
    ) -> Vec<Arc<Inode>> {
        let mut touched = Vec::with_capacity(removed.len());
        for (inode, dropped) in removed {
            self.install_unlinked(&inode, &mut inode.state.write(), dropped);
            self.table.drop_gone(&inode);
            touched.push(inode);
        }
        touched
    }

    /// Deletes those that are no longer open: they may have been closed while they were removed. Returns
    /// those that the volume's caller holds. The caller holds no lock.
    pub(super) fn closed_all(&self, inodes: Vec<Arc<Inode>>) -> Vec<InodeId> {
        inodes.iter().for_each(|inode| self.closed(inode));
        inodes.iter().filter(|inode| !inode.is_idle()).map(|inode| inode.id).collect()
    }
}
