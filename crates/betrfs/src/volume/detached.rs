//! Detached trees: everything that is, or will be, below one directory, under keys that no path leads to.
//!
//! A directory is removed, cloned or moved as a few ranges of keys, but each file with several names in it
//! has to be looked at, because it is stored elsewhere. Where these are many, that would keep all others
//! waiting:
//!
//! - A *removed* tree leaves its directory as it is, in one batch; then its names are taken from their files.
//! - A *copy* is made in one batch, with a copy of all files with several names as of that moment, whoever's
//!   they are; then the names in it are led to new files, made of these; then it gets its name, in one batch.
//!
//! The work in between is done in pieces, with others between them, and costs nobody but the caller. A marker
//! tells of the tree until it is done. After a crash the next opening removes the tree, which for a copy
//! takes its new files along: they have higher numbers than the tree. What a directory held before it went
//! back to a snapshot is a copy that must not be lost: it is completed (`kept.rs`).

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::{Batch, Cut};
use betree_platform::sync::Mutex;

use crate::contents::{clone_data, copy_data, copy_readable};
use crate::error::{Error, Result};
use crate::names::{Exclusive, Inode};
use crate::op::{Op, OpKind};
use crate::planted::{self, Bug};
use crate::schema::{
    Amount, DATA, Detached, Flags, LINKS, META, Marker, Record, Redirect, Stored, damaged, key,
};
use crate::types::{Finished, InodeId, Owned};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;
use crate::volume::charge::NamesOfFiles;
use crate::volume::clone::{leave_out, use_of_copy};
use crate::volume::kept::Kept;
use crate::volume::linked_copies::stored_object;
use crate::volume::lost_files::{is_lost_for_good, type_of_name};
use crate::volume::measure::{Measuring, object_id};
use crate::volume::remove_tree::Removal;

/// Number of names that one batch of a detached tree goes through, at most.
const NAMES_AT_ONCE: usize = 64;

/// The name of a file with several: its key, and the number of the file.
type LinkedName = (Vec<u8>, u64);

/// A copy of a directory that no path leads to yet.
pub(super) struct DetachedCopy {
    pub number: u64,
    /// The record of the directory as of the moment of the copy.
    pub record: Record,
    /// What it brings to the quotas above its place; `None` if there were none on the volume.
    pub more: Option<Amount>,
    /// What is used of its own quota.
    pub used: Option<Amount>,
}

/// Detached trees that are left to be dealt with.
#[derive(Default)]
pub(super) struct Left {
    /// To be cleared.
    pub trees: Vec<(u64, Detached)>,
    /// To become snapshots.
    pub kept: Vec<Kept>,
}

/// The detached trees that could not be dealt with yet, and those that become snapshots.
#[derive(Default)]
pub(super) struct Unfinished {
    pub left: Mutex<Left>,
    /// Held by who makes snapshots of them.
    pub making: Mutex<()>,
}

/// What becomes of files in a copy of which something was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LostFiles {
    /// They are an error, as for a copy that is not made ahead, unless only a record was lost for good.
    Refuse,
    /// What is left of them is copied. Names of files whose records were lost stay, and lead to nothing, so
    /// that reading them is an error.
    KeepNames,
}

/// How the contents of a file come to the new one that is made of it.
#[derive(Clone, Copy)]
enum Contents {
    /// Small ones as messages, which reads them.
    Copied,
    /// As ranges, which brings along what cannot be read too; unless it keeps the ranges from being cloned.
    Cloned,
    /// Small ones as messages, without what cannot be read.
    Readable,
}

/// What is asked of a copy beside its source.
#[derive(Clone, Copy)]
pub(super) struct CopyWanted<'a> {
    /// Flags that files with several names get.
    pub flags: Flags,
    /// The directory that will become the copy, and is left out where it is below the source.
    pub target: Option<&'a Arc<Inode>>,
    /// The directory in whose quotas it will count.
    pub counts_in: Option<&'a Arc<Inode>>,
    /// The user whose the source must be as a whole.
    pub by: Option<&'a Owned>,
}

impl Volume {
    /// Takes the names in a detached tree from their files, and deletes the tree. Tells of the objects that
    /// the volume's caller holds and whose attributes have changed, before an error too.
    ///
    /// # Errors
    /// The engine's.
    fn clear_detached(&self, number: u64, why: Detached, changed: &mut Vec<InodeId>) -> Result<()> {
        let (mut from, end) = key::detached(number);
        let mut lost = BTreeSet::new();
        loop {
            let op = self.update(OpKind::Internal, 0)?;
            let names = linked_names(&op, (from.clone(), end.clone()))?;
            let Some((last, _)) = names.last() else { break };
            from = Cut::just_after(last);
            changed.extend(self.clear_names(&op, (number, why), &names, &mut lost)?);
        }
        let op = self.update(OpKind::Internal, 0)?;
        let mut batch = Batch::new();
        let (lo, hi) = key::detached(number);
        for dict in [META, DATA, LINKS] {
            batch.delete_range(dict, &lo, &hi);
        }
        batch.delete(META, &key::marker(number));
        batch.mark_freeing(0);
        op.commit(&batch)?;
        self.quotas.is_cleared(number);
        self.clear_lost(lost);
        Ok(())
    }

    /// Clears a detached tree that nobody needs. Where that fails,
    /// [`finish_removals`](Volume::finish_removals) or the next opening goes on with it. Returns the objects
    /// that the volume's caller holds and whose attributes have changed.
    pub(super) fn clear_or_put_off(&self, number: u64, why: Detached) -> Vec<InodeId> {
        let mut changed = Vec::new();
        match self.clear_detached(number, why, &mut changed) {
            // What is damaged stays until a repair.
            Err(error) if !error.is_loss() => self.unfinished.left.lock().trees.push((number, why)),
            _ => {}
        }
        changed
    }

    /// Goes on with removals of trees, and ways back to snapshots, that a full disk has stopped: until then
    /// files with other names still count the names that were removed, space is not given back, and the
    /// snapshot of what was there before is not there. Each further removal of a tree does so too, and the
    /// next opening.
    pub fn finish_removals(&self) -> Finished {
        let mut finished = Finished { changed: self.clear_put_off(), snapshots: Vec::new() };
        // Who makes them already tells of them.
        if let Some(_making) = self.unfinished.making.try_lock() {
            self.make_kept(&mut finished);
        }
        finished
    }

    /// Clears the detached trees that were put off. Returns what `clear_or_put_off` does.
    pub(super) fn clear_put_off(&self) -> Vec<InodeId> {
        let Some(_going) = self.own_changes.begin() else { return Vec::new() };
        let trees = core::mem::take(&mut self.unfinished.left.lock().trees);
        trees.into_iter().flat_map(|(number, why)| self.clear_or_put_off(number, why)).collect()
    }

    /// Deals with the detached trees that an earlier use of the volume has left, as far as that goes.
    pub(super) fn finish_left(&self, left: Left) {
        if !(left.trees.is_empty() && left.kept.is_empty()) {
            for (number, _) in left.trees.iter().filter(|(_, why)| *why == Detached::Removed) {
                // Without them, files with names in it too would count on.
                let names = if self.quotas.are_in_use() { self.names_in(*number).ok() } else { None };
                self.quotas.hide(*number, names.map(Arc::new));
            }
            *self.unfinished.left.lock() = left;
            // Nobody holds anything yet.
            let _ = self.finish_removals();
        }
    }

    /// How many names the files in a detached tree have there.
    fn names_in(&self, number: u64) -> Result<NamesOfFiles> {
        let (mut from, end) = key::detached(number);
        let mut of_files = NamesOfFiles::new();
        loop {
            let op = self.query_for_objects(OpKind::Internal);
            let names = linked_names(&op, (from.clone(), end.clone()))?;
            let Some((last, _)) = names.last() else { return Ok(of_files) };
            from = Cut::just_after(last);
            names.iter().for_each(|(_, oid)| *of_files.entry(*oid).or_default() += 1);
        }
    }

    /// Takes some names in a detached tree from their files, and removes them; `lost` gets files that are so.
    fn clear_names(
        &self,
        op: &Op<'_>,
        (number, why): (u64, Detached),
        names: &[LinkedName],
        lost: &mut BTreeSet<u64>,
    ) -> Result<Vec<InodeId>> {
        let mut of_files = NamesOfFiles::new();
        for (_, oid) in names.iter().filter(|(_, oid)| why.counts(number, *oid)) {
            *of_files.entry(*oid).or_default() += 1;
        }
        let touched = op.without_waiting(|| {
            let exclusive = self.exclusive(op, &[], &[]);
            let mut removal = Removal::begin(Vec::new(), self.platform.now_ns());
            let mut batch = Batch::new();
            for (oid, names) in &of_files {
                match self.object_record(op, *oid) {
                    // Whether it counts for quotas goes by its other names, and does not change.
                    Ok(record) => {
                        self.take_names(op, &mut batch, (*oid, record), *names, &mut removal)?;
                    }
                    // Of a lost file nothing counts the names.
                    Err(error) if is_lost_for_good(&error) => drop(lost.insert(*oid)),
                    Err(error) => return Err(error),
                }
            }
            names.iter().for_each(|(at, _)| batch.delete(LINKS, at));
            batch.mark_freeing(0);
            op.commit(&batch)?;
            self.quotas.have_taken(number, &of_files);
            Ok(self.install_removed(&exclusive, removal.dropped))
        })?;
        Ok(self.closed_all(touched))
    }

    /// Makes a copy of a directory that no path leads to yet: as of one moment, which is during the call. The
    /// caller attaches it or [gives it up](Volume::give_up_copy), and holds no lock.
    pub(super) fn detach_copy(
        &self,
        source: InodeId,
        wanted: CopyWanted<'_>,
        measuring: &Measuring<'_>,
    ) -> Result<DetachedCopy> {
        let op = self.update(OpKind::Clone, 0)?;
        let copy = op.without_waiting(|| {
            let nodes: Vec<InodeId> =
                [source].into_iter().chain(wanted.target.map(|target| target.id)).collect();
            let exclusive = self.exclusive(&op, &nodes, &[]);
            let source = self.inode(source)?;
            if let Some(owned) = wanted.by {
                self.still_owned(&exclusive, &op, &source, owned)?;
            }
            self.begin_copy(&exclusive, &op, &source, wanted, measuring)
        })?;
        if let Err(error) = self.lead_to_new_files(copy.number, wanted.flags, LostFiles::Refuse) {
            self.give_up_copy(&copy);
            return Err(error);
        }
        Ok(copy)
    }

    /// Copies everything below a directory, and all files with several names.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::HeldBySnapshots`] or [`Error::NotFound`] if the target, which is left
    /// out, is none any more: what has come into it would lie in the copy below no directory.
    fn begin_copy(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        source: &Arc<Inode>,
        wanted: CopyWanted<'_>,
        measuring: &Measuring<'_>,
    ) -> Result<DetachedCopy> {
        if let Some(target) = wanted.target {
            if self.is_removed(exclusive, target) {
                return Err(Error::NotFound);
            }
            let record = target.state.read().record.clone();
            self.refuse_in_use(op, &record, &op.dir_path(target)?.bytes)?;
        }
        let mut record = with_atime(source, &source.state.read());
        let mut more = None;
        if let Some(dir) = wanted.counts_in
            && op.dir_path(dir)?.quota().is_some()
        {
            more = Some(Amount::of(&record) + measuring.content(op, source)?.copied);
        }
        let (from_key, from_path) = (op.own_key(source)?, op.dir_path(source)?.bytes);
        self.move_orphans_away(exclusive, op, &from_path)?;
        let number = self.numbers.oid(op)?;
        let to_path = key::detached_path(number);
        let mut batch = Batch::new();
        if !planted::is(Bug::CopyNotMarked) {
            batch.put(META, &key::marker(number), &Marker::Detached(Detached::Copy).encode());
        }
        copy_below(op, &mut batch, number, &record, (&from_key, &from_path))?;
        let mut used = use_of_copy(op, source, &record)?;
        if let Some(target) = wanted.target {
            let target_path = op.dir_path(target)?.bytes;
            let left_out = leave_out(op, &mut batch, &mut record, source, target, (&target_path, &to_path))?;
            (more, used) = (more.map(|more| more - left_out), used.map(|used| used - left_out));
        }
        op.commit(&batch)?;
        Ok(DetachedCopy { number, record, more, used })
    }

    /// Leads the names in a detached copy to new files, which are made of those copied with it. Of a copy
    /// whose names were led in part, leads the others.
    ///
    /// # Errors
    /// The engine's. Where a record, contents or attributes were lost, [`LostFiles`] tells whether that is
    /// one.
    pub(super) fn lead_to_new_files(&self, number: u64, flags: Flags, lost: LostFiles) -> Result<()> {
        let (mut from, end) = key::subtree(&key::detached_path(number));
        // The number of each new file by that of the one that it is made of.
        let mut new_files = BTreeMap::new();
        loop {
            let op = self.update(OpKind::Clone, 0)?;
            let names = linked_names(&op, (from.clone(), end.clone()))?;
            let Some((last, _)) = names.last() else { return Ok(()) };
            let behind = Cut::just_after(last);
            match self.lead_names(&op, (number, flags), &names, Contents::Copied, &mut new_files) {
                Err(error) if lost == LostFiles::KeepNames && error.is_loss() => {
                    // Of its batches the first ones may be there, and their names lead to new files already.
                    new_files.clear();
                    for name in linked_names(&op, (from, behind.clone()))? {
                        self.lead_what_is_left(&op, (number, flags), name, &mut new_files)?;
                    }
                }
                led => led?,
            }
            from = behind;
        }
    }

    /// Leads a name to a new file of what is left of the one that it is made of. Where not even the record
    /// is, or none of the rest can be taken along, the name leads to nothing.
    fn lead_what_is_left(
        &self,
        op: &Op<'_>,
        (number, flags): (u64, Flags),
        name: LinkedName,
        new_files: &mut BTreeMap<u64, u64>,
    ) -> Result<()> {
        let name = [name];
        for contents in [Contents::Copied, Contents::Cloned, Contents::Readable] {
            match self.lead_names(op, (number, flags), &name, contents, new_files) {
                Err(error) if error.is_loss() => new_files.clear(),
                led => return led,
            }
        }
        let [(at, _)] = &name;
        let mut batch = Batch::new();
        self.lead_to_nothing(op, &mut batch, at)?;
        op.commit(&batch)
    }

    /// Leads a name in a detached copy to a file that is lost as the one is that it is made of: known damage
    /// is such in the copy too.
    fn lead_to_lost(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        at: &[u8],
        (number, old): (u64, u64),
    ) -> Result<()> {
        let oid = self.lead_to_nothing(op, batch, at)?;
        batch.clone_range(META, &copied_key(number, old), &key::object(oid));
        Ok(())
    }

    /// Leads a name in a detached copy to a file that is not there. Returns its number.
    fn lead_to_nothing(&self, op: &Op<'_>, batch: &mut Batch, at: &[u8]) -> Result<u64> {
        let file_type = type_of_name(op, at)?;
        let (oid, ino) = (self.numbers.oid(op)?, self.numbers.id(op)?);
        batch.put(META, at, &Redirect { oid, ino, file_type }.encode());
        batch.put(LINKS, at, &oid.to_be_bytes());
        Ok(oid)
    }

    /// Leads some names in a detached copy to new files, in one batch or several.
    fn lead_names(
        &self,
        op: &Op<'_>,
        (number, flags): (u64, Flags),
        names: &[LinkedName],
        contents: Contents,
        new_files: &mut BTreeMap<u64, u64>,
    ) -> Result<()> {
        let (mut batch, mut records) = (Batch::new(), BTreeMap::new());
        for (at, old) in names.iter().filter(|(_, old)| *old < number) {
            if self.is_lost_name(op, at)? {
                batch.delete(LINKS, at);
                continue;
            }
            let new = match new_files.get(old) {
                Some(new) => *new,
                None => match copied_object(op, number, *old) {
                    Err(error) if is_lost_for_good(&error) => {
                        self.lead_to_lost(op, &mut batch, at, (number, *old))?;
                        continue;
                    }
                    copied => {
                        let (new, record) =
                            self.new_file(op, &mut batch, (number, *old), copied?, flags, contents)?;
                        new_files.insert(*old, new);
                        records.extend(record.map(|record| (new, record)));
                        new
                    }
                },
            };
            let record = match records.entry(new) {
                Entry::Occupied(record) => record.into_mut(),
                Entry::Vacant(room) => room.insert(stored_object(op, new)?),
            };
            record.nlink = record.nlink.checked_add(1).ok_or(Error::TooManyLinks)?;
            let redirect = Redirect { oid: new, ino: record.id, file_type: record.file_type };
            batch.put(META, at, &redirect.encode());
            batch.put(LINKS, at, &new.to_be_bytes());
            if batch.bytes() as u64 >= self.piece_bytes {
                commit_files(op, &mut batch, &mut records)?;
            }
        }
        commit_files(op, &mut batch, &mut records)
    }

    /// A new file made of one that was copied with a detached tree: its number, and its record, yet without
    /// names. If it was made before, its number alone.
    fn new_file(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        (number, old): (u64, u64),
        copied: Stored,
        flags: Flags,
        contents: Contents,
    ) -> Result<(u64, Option<Record>)> {
        let from = copied_key(number, old);
        let mut record = match copied {
            Stored::Inode(record) => record,
            Stored::Redirect(made) => return Ok((made.oid, None)),
        };
        if let Some(inode) = self.table.object(old) {
            // The stored one may be older.
            record.atime_ns = inode.atime_ns.load(Relaxed);
        }
        let new = self.numbers.oid(op)?;
        (record.id, record.nlink) = (self.numbers.id(op)?, 0);
        record.flags.clear(Flags::READ_ONLY);
        if !planted::is(Bug::LinkedFilesOfSnapshotsWritable) {
            record.flags.set(flags);
        }
        match contents {
            Contents::Copied => copy_data(op, batch, &record, &from, &key::object(new))?,
            Contents::Cloned => clone_data(batch, &record, &from, &key::object(new)),
            Contents::Readable => {
                if !copy_readable(op, batch, &mut record, &from, &key::object(new))? {
                    return Err(damaged(&key::object(old), "its contents cannot be copied"));
                }
            }
        }
        // Who goes on after a crash leads other names of the file there too.
        let made = Redirect { oid: new, ino: record.id, file_type: record.file_type };
        batch.put(META, &from, &made.encode());
        Ok((new, Some(record)))
    }

    /// Adds to a batch that a detached copy gets a name: the directory's own key and path are these. The
    /// caller puts the directory's record, for which `record` is.
    pub(super) fn attach(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        copy: &DetachedCopy,
        record: &Record,
        (to_key, to_path): (&[u8], &[u8]),
    ) -> Result<()> {
        let number = copy.number;
        let (from, to) = (key::child_path(&key::detached_path(number), b""), key::child_path(to_path, b""));
        for dict in [META, DATA, LINKS] {
            if op.has_any(dict, key::within(from.clone()))? {
                batch.rename_range(dict, &from, &to);
            }
        }
        if record.flags.has(Flags::LARGE_XATTRS) {
            let from = key::xattr(&key::detached_own(number), b"");
            batch.rename_range(DATA, &from, &key::xattr(to_key, b""));
        }
        // Its objects, and what else is behind its entries.
        let (lo, hi) = (key::within(key::detached_objects(number)).0, key::detached(number).1);
        batch.delete_range(META, &lo, &hi);
        batch.delete_range(DATA, &lo, &hi);
        batch.delete(META, &key::marker(number));
        Ok(())
    }

    /// Clears a copy that cannot be attached.
    pub(super) fn give_up_copy(&self, copy: &DetachedCopy) {
        // Nobody holds what is in it.
        let _ = self.clear_or_put_off(copy.number, Detached::Copy);
    }
}

/// Adds to a batch the copy of a directory with this record, own key and path to a detached tree: of all that
/// is below it, of all files with several names, whoever's they are, and of its attributes.
pub(super) fn copy_below(
    op: &Op<'_>,
    batch: &mut Batch,
    number: u64,
    record: &Record,
    (from_key, from_path): (&[u8], &[u8]),
) -> Result<()> {
    let below = (key::child_path(from_path, b""), key::child_path(&key::detached_path(number), b""));
    let objects = (key::all_objects(), key::detached_objects(number));
    for (dict, (from, to)) in
        [(META, &below), (DATA, &below), (LINKS, &below), (META, &objects), (DATA, &objects)]
    {
        if op.has_any(dict, key::within(from.clone()))? {
            batch.clone_range(dict, from, to);
        }
    }
    copy_data(op, batch, record, from_key, &key::detached_own(number))
}

/// The key of the copy of a file that was made with a detached tree.
fn copied_key(number: u64, old: u64) -> Vec<u8> {
    [key::detached_objects(number), old.to_be_bytes().to_vec()].concat()
}

/// The copy of a file that was made with a detached tree, or where a new one was made of it already.
fn copied_object(op: &Op<'_>, number: u64, old: u64) -> Result<Stored> {
    let own = key::object(old);
    let bytes = op.get(META, &copied_key(number, old))?;
    Stored::decode(&own, &bytes.ok_or_else(|| damaged(&own, "its record is lost"))?)
}

/// Commits a batch with the records of files in it, and empties both.
fn commit_files(op: &Op<'_>, batch: &mut Batch, records: &mut BTreeMap<u64, Record>) -> Result<()> {
    for (oid, record) in core::mem::take(records) {
        batch.put(META, &key::object(oid), &record.encode());
    }
    op.commit(&core::mem::take(batch))
}

/// The first names in a range that lead to files with several.
fn linked_names(op: &Op<'_>, range: (Cut, Cut)) -> Result<Vec<LinkedName>> {
    let mut links = op.scan_of_whole(LINKS, range, None, NAMES_AT_ONCE);
    let (mut names, mut passed) = (Vec::new(), Vec::new());
    while names.len() < NAMES_AT_ONCE {
        let next = links.next_past(&mut |unreadable| passed.extend(unreadable.errors));
        // Of known damage, the names are lost for good.
        if let Some(error) = passed.drain(..).find(|error: &betree::Error| !error.is_known_damage()) {
            return Err(error.into());
        }
        let Some((at, oid)) = next else { break };
        names.push((at.to_vec(), object_id(at, oid)?));
    }
    Ok(names)
}
