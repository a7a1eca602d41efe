//! Copies of files and directories at a cost independent of their size (dissertation §4.2): ranges of keys
//! are cloned, and the engine copies shared nodes when they are changed.
//!
//! The copy's inode numbers differ from the source's by a fresh salt in its root. Files with several names
//! are the exception, because they lie outside of their directories: each of them with names inside gets a
//! new object, to which its names inside the copy lead. These objects are copied ahead, under markers; if a
//! crash comes in between, the next opening deletes the objects by them. If the names are many, the whole
//! copy is made ahead (`detached.rs`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use betree::Batch;

use crate::FILE_BYTES_MAX;
use crate::contents::{copy_data, drop_capabilities, store_xattrs};
use crate::error::{Error, Result};
use crate::names::{DirPath, Directory, Exclusive, Inode, Place};
use crate::op::{Op, OpKind, refuse_in_snapshot};
use crate::planted::{self, Bug};
use crate::properties::OwnProperties;
use crate::rules::{
    check_file, check_name, count_entry, refuse_if_immutable, refuse_if_protected, refuse_overwrite,
    unprotect,
};
use crate::schema::block::BLOCK;
use crate::schema::{Amount, DATA, Flags, LINKS, META, Record, Redirect, XattrValue, block, key};
use crate::types::{Entry, FileType, InodeId, Owned};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;
use crate::volume::charge::{Charge, spoil, stored_use};
use crate::volume::detached::{CopyWanted, DetachedCopy};
use crate::volume::linked_copies::LinkedCopy;
use crate::volume::measure::Measuring;

/// The place of a copy, and its difference from the source.
pub(super) struct Copy<'a> {
    pub to_key: &'a [u8],
    /// For a directory.
    pub to_path: &'a [u8],
    /// Flags that copies of linked files get.
    pub flags: Flags,
    /// What is used of its quota, if it has one that is new.
    pub used: Option<Amount>,
    pub ahead: Ahead<'a>,
}

/// Whether a copy is made ahead, which does not keep others waiting for its files with several names.
#[derive(Clone, Copy)]
pub(super) enum Ahead<'a> {
    /// It was.
    Made(&'a DetachedCopy),
    /// It is to be, if it has many of these: then the operation ends with an error, and notes that here.
    IfMany(&'a Cell<bool>),
    /// It is not.
    Never,
}

impl Volume {
    /// Makes `name` a copy of an object as it is now, with everything below it. Both can be changed
    /// afterwards, and neither sees the other's changes.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create_with(dir, b"file", &new_file, b"text")?.node;
    /// volume.clone_inode(dir, InodeId::ROOT, b"copy")?;
    ///
    /// volume.write(file, 0, b"changed")?;
    /// let mut bytes = Vec::new();
    /// volume.read(volume.resolve(b"/copy/file")?.node, 0, 100, &mut bytes)?;
    /// assert_eq!(bytes, b"text");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken; [`Error::NameTooLong`] also if a key below the copy might
    /// become too long.
    pub fn clone_inode(&self, source: InodeId, parent: InodeId, name: &[u8]) -> Result<Entry> {
        check_name(name)?;
        self.measured(|measuring| {
            let parent_dir = self.inode(parent)?;
            let wanted =
                CopyWanted { flags: Flags::default(), target: None, counts_in: Some(&parent_dir), by: None };
            self.with_copy(source, wanted, measuring, |ahead| {
                self.make_copy(source, parent, name, ahead, measuring)
            })
        })
    }

    fn make_copy(
        &self,
        source: InodeId,
        parent: InodeId,
        name: &[u8],
        ahead: Ahead<'_>,
        measuring: &Measuring<'_>,
    ) -> Result<Entry> {
        let op = self.update(OpKind::Clone, 0)?;
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[parent, source], &[(parent, name)]);
            let source = self.inode(source)?;
            let dir = self.live_dir(&exclusive, &op, parent)?;
            let path = op.dir_path(&dir)?;
            let to_key = key::entry(&path.bytes, name);
            if to_key.len() > key::OWN_KEY_BYTES_MAX {
                return Err(Error::NameTooLong);
            }
            if self.find(&op, &dir, &mut dir.state.write(), name)?.is_some() {
                return Err(Error::Exists);
            }
            refuse_if_immutable(&dir.state.read().record)?;
            let more = self.copied_amount(&op, &path, &source, ahead, measuring)?;
            let now_ns = self.platform.now_ns();
            let ino = self.numbers.id(&op)?;
            let mut record = self.copied_record(&source, ahead, ino.wrapping_sub(path.salts), now_ns);
            unprotect(&mut record);
            let becomes_object = record.file_type == FileType::Regular && self.orphans.occupy(&to_key);
            if record.is_dir() {
                let had = source.effective_properties(&record);
                Self::keep_properties(&mut record, had, dir.given_properties())?;
            } else if becomes_object {
                let had = source.effective_properties(&record);
                Self::keep_properties(&mut record, had, OwnProperties::default())?;
            }
            let mut batch = Batch::new();
            let mut dir_record = dir.state.read().record.clone();
            count_entry(&mut dir_record, record.is_dir(), 1, now_ns);
            let mut place = Place::named(&dir, Arc::from(name));
            let mut oid = None;
            let mut own = to_key.clone();
            if becomes_object {
                let new = self.numbers.oid(&op)?;
                record.id = ino;
                own = key::object(new);
                let redirect = Redirect { oid: new, ino, file_type: record.file_type };
                batch.put(META, &to_key, &redirect.encode());
                batch.put(LINKS, &to_key, &new.to_be_bytes());
                (place, oid) = (Place::Object { oid: new, home: path.home() }, Some(new));
            }
            let child_path = key::child_path(&path.bytes, name);
            batch.put(META, &key::own(&path.bytes), &dir_record.encode());
            // Before it counts, which may be in its source.
            let used = match ahead {
                Ahead::Made(ahead) => ahead.used,
                _ => use_of_copy(&op, &source, &record)?,
            };
            let copy = Copy { to_key: &own, to_path: &child_path, flags: Flags::default(), used, ahead };
            // A measurement of the directory does not know all files with several names in the copy.
            spoil(&op, &path);
            let charge = self.charge(&op, &path, more, &mut batch)?;
            self.commit_copy(&exclusive, &op, batch, &source, &copy, &mut record)?;
            charge.keep();

            let (file_type, is_dir) = (record.file_type, record.is_dir());
            let known_dir = is_dir.then(|| Directory::new(self.names_total.clone()));
            let inode = self.keep(&op, Inode::new(ino, place, record, known_dir));
            self.note_foreign(&dir);
            let mut state = dir.state.write();
            state.record = dir_record.into();
            let known = crate::names::Name { node: Some(inode.id), ino, file_type, oid };
            self.insert_name(&dir, &mut state, &Arc::from(name), known)?;
            drop(state);
            Ok(inode.looked_up(&self.allocations))
        })
    }

    /// Makes an empty file or directory a copy of another, as [`clone_inode`](Volume::clone_inode) does:
    /// contents, owner, permissions, times of changes, extended attributes. The copy leaves out a target
    /// below its source.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{Error, InodeId};
    ///
    /// let from = volume.create_with(InodeId::ROOT, b"from", &new_file, b"text")?.node;
    /// let to = volume.create(InodeId::ROOT, b"to", &new_file)?.node;
    /// volume.clone_onto(from, to)?;
    /// assert_eq!(volume.getattr(to)?.size, 4);
    /// assert_eq!(volume.clone_onto(from, to), Err(Error::NotEmpty));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if the target has contents; [`Error::HeldBySnapshots`]; [`Error::Invalid`] if the
    /// two are not both files or both directories; [`Error::NameTooLong`] as in
    /// [`clone_inode`](Volume::clone_inode).
    pub fn clone_onto(&self, source: InodeId, target: InodeId) -> Result<()> {
        self.measured(|measuring| self.fill_with_copy(source, target, None, measuring))
    }

    /// Does the same for a user whose the source is as a whole; the target must be the user's too.
    ///
    /// # Errors
    /// Those of `clone_onto`; [`Error::NotPermitted`] if the target belongs to somebody else; [`Error::Busy`]
    /// if something may have come into the source that is not the user's: it is to be looked through again.
    pub fn clone_onto_as(&self, owned: &Owned, target: InodeId) -> Result<()> {
        self.measured(|measuring| self.fill_with_copy(owned.node, target, Some(owned), measuring))
    }

    fn fill_with_copy(
        &self,
        source: InodeId,
        target: InodeId,
        by: Option<&Owned>,
        measuring: &Measuring<'_>,
    ) -> Result<()> {
        let left_out = self.inode(target)?;
        let wanted =
            CopyWanted { flags: Flags::default(), target: Some(&left_out), counts_in: Some(&left_out), by };
        self.with_copy(source, wanted, measuring, |ahead| self.fill(source, target, by, ahead, measuring))
    }

    fn fill(
        &self,
        source: InodeId,
        target: InodeId,
        by: Option<&Owned>,
        ahead: Ahead<'_>,
        measuring: &Measuring<'_>,
    ) -> Result<()> {
        let op = self.update(OpKind::Clone, 0)?;
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[target, source], &[]);
            let (source, target) = (self.inode(source)?, self.inode(target)?);
            if self.is_removed(&exclusive, &target) {
                return Err(Error::NotFound);
            }
            refuse_in_snapshot(&op, &target, &target.state.read().record)?;
            let old = target.state.read().record.clone();
            if let Some(owned) = by {
                if !matches!(ahead, Ahead::Made(_)) {
                    self.still_owned(&exclusive, &op, &source, owned)?;
                }
                if old.uid != owned.uid {
                    return Err(Error::NotPermitted);
                }
            }
            let file_type = source.state.read().record.file_type;
            if file_type != old.file_type || !matches!(file_type, FileType::Regular | FileType::Directory) {
                return Err(Error::Invalid("the two are not both files or both directories"));
            }
            if Arc::ptr_eq(&source, &target) || target.id == InodeId::ROOT {
                return Err(Error::Invalid("it cannot become a copy"));
            }
            let own = op.own_key(&target)?;
            let path = if old.is_dir() { op.dir_path(&target)?.bytes } else { Vec::new() };
            if old.size > 0 {
                return Err(Error::NotEmpty);
            }
            if old.is_dir() {
                self.refuse_in_use(&op, &old, &path)?;
            }
            refuse_if_protected(&old)?;
            if old.quota().is_some() {
                return Err(Error::Invalid("a directory with a quota cannot become a copy"));
            }
            let counted = match old.is_dir() {
                true => Some(op.dir_path(&target)?),
                false => self.counted_path(&op, &target, old.nlink)?,
            };
            let more = match &counted {
                Some(path) => self.copied_amount(&op, path, &source, ahead, measuring)? - Amount::of(&old),
                None => Amount::default(),
            };
            let mut record = self.copied_record(&source, ahead, old.id, self.platform.now_ns());
            unprotect(&mut record);
            // It is the object that it was, for handles of it too.
            (record.nlink, record.crtime_ns) = (old.nlink, old.crtime_ns);
            record.change_rare(|rare| rare.generation = old.rare().generation);
            if record.is_dir() {
                let had = source.effective_properties(&record);
                let there =
                    target.place().parent().map_or_else(OwnProperties::default, |dir| dir.given_properties());
                Self::keep_properties(&mut record, had, there)?;
            }
            let mut batch = Batch::new();
            if old.flags.has(Flags::LARGE_XATTRS) {
                let (lo, hi) = key::xattrs(&own);
                batch.delete_range(DATA, &lo, &hi);
            }
            let (left_out, used) = match ahead {
                // There it was left out.
                Ahead::Made(ahead) => (Amount::default(), ahead.used),
                _ => {
                    let left_out = leave_out(&op, &mut batch, &mut record, &source, &target, (&path, &path))?;
                    (left_out, use_of_copy(&op, &source, &record)?.map(|used| used - left_out))
                }
            };
            let copy = Copy { to_key: &own, to_path: &path, flags: Flags::default(), used, ahead };
            let charge = match &counted {
                // What is not counted for a quota was not measured either.
                Some(path) if path.quota().is_none() => {
                    spoil(&op, path);
                    None
                }
                Some(path) => {
                    spoil(&op, path);
                    Some(self.charge(&op, path, more - left_out, &mut batch)?)
                }
                None => None,
            };
            self.quotas.note_inode(&target);
            self.commit_copy(&exclusive, &op, batch, &source, &copy, &mut record)?;
            charge.into_iter().for_each(Charge::keep);

            self.paths_change(&exclusive);
            target.set_counter(record.quota());
            target.set_salt(&exclusive, record.salt);
            target.set_own_properties(record.properties());
            target.atime_ns.store(record.atime_ns, Relaxed);
            target.state.write().record = record.into();
            self.note_foreign(&target);
            Ok(())
        })
    }

    /// Carries out an operation that makes a copy. If it meets too many names of files with several, the copy
    /// is made ahead, and the operation carried out with it.
    pub(super) fn with_copy<T>(
        &self,
        source: InodeId,
        wanted: CopyWanted<'_>,
        measuring: &Measuring<'_>,
        operation: impl Fn(Ahead<'_>) -> Result<T>,
    ) -> Result<T> {
        let are_many = Cell::new(false);
        let done = operation(Ahead::IfMany(&are_many));
        if !are_many.get() {
            return done;
        }
        let copy = self.detach_copy(source, wanted, measuring)?;
        operation(Ahead::Made(&copy)).inspect_err(|_| self.give_up_copy(&copy))
    }

    /// The record of a copy, which may have been made ahead.
    pub(super) fn copied_record(&self, source: &Inode, ahead: Ahead<'_>, id: u64, now_ns: i64) -> Record {
        let mut record = match ahead {
            Ahead::Made(copy) => copy.record.clone(),
            _ => with_atime(source, &source.state.read()),
        };
        (record.id, record.nlink, record.snapshots) = (id, 1, 0);
        record.flags.clear(Flags::READ_ONLY);
        record.set_maker(None);
        (record.ctime_ns, record.crtime_ns) = (now_ns, now_ns);
        if record.is_dir() && !planted::is(Bug::SaltOfCloneKept) {
            record.salt = self.platform.random_u64();
        }
        record
    }

    /// What a copy of an object brings to the quotas above its place; nothing is measured without any.
    fn copied_amount(
        &self,
        op: &Op<'_>,
        to: &DirPath,
        source: &Arc<Inode>,
        ahead: Ahead<'_>,
        measuring: &Measuring<'_>,
    ) -> Result<Amount> {
        if let (Ahead::Made(copy), Some(_)) = (ahead, to.quota()) {
            return copy.more.ok_or(Error::Uncounted);
        }
        let own = {
            let record = &source.state.read().record;
            if !record.is_dir() {
                return Ok(Amount::of(record));
            }
            Amount::of(record)
        };
        if to.quota().is_none() {
            return Ok(Amount::default());
        }
        Ok(own + measuring.content(op, source)?.copied)
    }

    /// Adds to the batch the copy of `source` with this record, and commits it.
    pub(super) fn commit_copy(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        mut batch: Batch,
        source: &Arc<Inode>,
        copy: &Copy<'_>,
        record: &mut Record,
    ) -> Result<()> {
        let linked = self.add_copy(exclusive, op, &mut batch, source, copy, record)?;
        op.commit(&batch).inspect_err(|_| self.discard(op, &linked))
    }

    /// Adds to the batch the copy of `source` with this record. Returns the linked files copied ahead, which
    /// the caller discards if the batch is not committed.
    pub(super) fn add_copy(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        batch: &mut Batch,
        source: &Arc<Inode>,
        copy: &Copy<'_>,
        record: &mut Record,
    ) -> Result<Vec<LinkedCopy>> {
        let Copy { to_key, to_path, flags, used, ahead } = *copy;
        batch.limit_clone_keys(key::OWN_KEY_BYTES_MAX);
        if let Ahead::Made(made) = ahead {
            self.move_orphans_away(exclusive, op, to_path)?;
            self.attach(op, batch, made, record, (to_key, to_path))?;
            put_copy(batch, record, to_key, used);
            return Ok(Vec::new());
        }
        let from_key = op.own_key(source)?;
        copy_data(op, batch, record, &from_key, to_key)?;
        if matches!(source.place(), Place::Orphan { .. }) {
            // Its record is in memory only, with all values in it.
            store_xattrs(batch, to_key, record);
        }
        let mut linked = Vec::new();
        if record.is_dir() {
            let from_path = op.dir_path(source)?.bytes;
            self.move_orphans_away(exclusive, op, &from_path)?;
            self.move_orphans_away(exclusive, op, to_path)?;
            if record.entries > 0 {
                let (from, to) = (key::child_path(&from_path, b""), key::child_path(to_path, b""));
                batch.clone_range(META, &from, &to);
                if op.has_any(DATA, key::subtree(&from_path))? {
                    batch.clone_range(DATA, &from, &to);
                }
                if !planted::is(Bug::LinkedFilesShared) {
                    linked = self.copy_linked(op, &from_path, to_path, flags, ahead)?;
                }
            }
        }
        for copy in &linked {
            match copy.lost {
                Some(lost) => batch.clone_range(META, &key::object(lost), &key::object(copy.oid)),
                None => batch.put(META, &key::object(copy.oid), &copy.record.encode()),
            }
            batch.delete(META, &key::marker(copy.marker));
            let (oid, ino, file_type) = (copy.oid, copy.record.id, copy.record.file_type);
            for name in &copy.names {
                batch.put(META, name, &Redirect { oid, ino, file_type }.encode());
                batch.put(LINKS, name, &oid.to_be_bytes());
            }
        }
        put_copy(batch, record, to_key, used);
        Ok(linked)
    }

    /// Makes a range of one file share the blocks of another, if no bytes need to be copied for it: as far as
    /// whole blocks go, or up to the ends of both. Returns the number of bytes shared; `None` if they are too
    /// few.
    pub(super) fn share_range(
        &self,
        from: InodeId,
        to: InodeId,
        offset: u64,
        len: u64,
    ) -> Result<Option<u64>> {
        if from == to || !offset.is_multiple_of(BLOCK) || len < SHARED_BYTES_MIN {
            return Ok(None);
        }
        let op = self.update(OpKind::Clone, 0)?;
        let _exclusive = self.exclusive(&op, &[to, from], &[]);
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        let source = from.state.read().record.clone();
        let mut state = to.state.write();
        let mut record = with_atime(&to, &state);
        check_file(&source)?;
        check_file(&record)?;
        refuse_overwrite(&record, offset)?;
        let wanted = offset.saturating_add(len).min(FILE_BYTES_MAX);
        let end = if wanted >= source.size && record.size <= source.size {
            source.size
        } else {
            wanted.min(source.size) / BLOCK * BLOCK
        };
        if end.saturating_sub(offset) < SHARED_BYTES_MIN {
            return Ok(None);
        }
        let (from_key, to_key) = (op.own_key(&from)?, op.own_key(&to)?);
        let mut batch = Batch::new();
        let (first, last) = key::block_numbers(offset / BLOCK, end.div_ceil(BLOCK));
        batch.clone_part(DATA, &key::data(&from_key), &key::data(&to_key), &first, &last);
        if source.is_sparse() || record.is_sparse() || offset > record.size {
            record.make_sparse().share(source.extents(), offset / BLOCK, end.div_ceil(BLOCK));
        }
        record.size = record.size.max(end);
        let now_ns = self.platform.now_ns();
        (record.mtime_ns, record.ctime_ns) = (now_ns, now_ns);
        drop_capabilities(&mut batch, &to, &mut record)?;
        self.commit_record_at(&to_key, &op, batch, &to, &mut state, record)?;
        self.end_allocation(&to, &(offset / BLOCK..end.div_ceil(BLOCK)));
        Ok(Some(end - offset))
    }
}

/// Adds to a batch the record of a copy, and what is used of its quota.
fn put_copy(batch: &mut Batch, record: &Record, to_key: &[u8], used: Option<Amount>) {
    if let Some(used) = used {
        batch.put(DATA, &key::quota_use(to_key), &used.encode());
    }
    batch.put(META, to_key, &record.encode());
}

/// What is used of the quota of a copy, if its record has one.
pub(super) fn use_of_copy(op: &Op<'_>, source: &Arc<Inode>, record: &Record) -> Result<Option<Amount>> {
    let Some(quota) = source.quota().filter(|_| record.quota().is_some()) else { return Ok(None) };
    quota.used(|| stored_use(op, &key::quota_use(&op.own_key(source)?))).map(Some)
}

/// Adds to a batch the removal of a copy's target from the copy, if the target is below its source: the paths
/// are those of the target and, for now, of the copy. Point changes apply after clones. `record` is the
/// copy's own. Returns what the copy has less.
pub(super) fn leave_out(
    op: &Op<'_>,
    batch: &mut Batch,
    record: &mut Record,
    source: &Arc<Inode>,
    target: &Arc<Inode>,
    (target_path, to_path): (&[u8], &[u8]),
) -> Result<Amount> {
    let Place::Named { parent, name, .. } = target.place() else { return Ok(Amount::default()) };
    if !record.is_dir() {
        return Ok(Amount::default());
    }
    let source_path = op.dir_path(source)?.bytes;
    if !key::is_below(&source_path, target_path) {
        return Ok(Amount::default());
    }
    let parent_path = target_path.get(..target_path.len().saturating_sub(name.len() + 1)).unwrap_or_default();
    let rest = parent_path.get(source_path.len()..).unwrap_or_default();
    let copied_parent = [to_path, rest].concat();
    let copied = key::entry(&copied_parent, &name);
    batch.delete(META, &copied);
    let is_dir = {
        let left_out = &target.state.read().record;
        let stored = left_out.xattrs.iter().filter(|attr| matches!(attr.value, XattrValue::Stored(_)));
        stored.for_each(|attr| batch.delete(DATA, &key::xattr(&copied, &attr.name)));
        left_out.is_dir()
    };
    let less = |record: &mut Record| {
        record.entries = record.entries.saturating_sub(1);
        record.subdirs = record.subdirs.saturating_sub(u64::from(is_dir));
    };
    if Arc::ptr_eq(&parent, source) {
        less(record);
    } else {
        let mut record = parent.state.read().record.clone();
        less(&mut record);
        batch.put(META, &key::own(&copied_parent), &record.encode());
    }
    let left_out = Amount::of(&target.state.read().record);
    for above in &op.dir_path(&parent)?.counting {
        let inside = parent_path.get(source_path.len()..above.path_bytes).filter(|inside| !inside.is_empty());
        if let (Some(_), Some(inside)) = (&above.counting.quota, inside) {
            let of = key::own(&[to_path, inside].concat());
            batch.upsert(DATA, &key::quota_use(&of), &block::add(-left_out));
        }
    }
    Ok(left_out)
}

/// A smaller range is copied faster.
const SHARED_BYTES_MIN: u64 = 1 << 20;
