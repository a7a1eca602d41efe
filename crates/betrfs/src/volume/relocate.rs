//! Moving an entry from one key to another in one batch, however much it holds: ranges of keys move as
//! values; small entries move as messages, which cost less.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::{Batch, DictId, PairCompression};

use crate::contents::{POINT_DELETES_MAX, delete_data};
use crate::error::{Error, Result};
use crate::names::{DirPath, Exclusive, Inode, Name, Place};
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::properties::OwnProperties;
use crate::schema::block::BLOCK;
use crate::schema::{DATA, Flags, LINKS, META, Marker, Record, Redirect, key};
use crate::types::FileType;
use crate::volume::Volume;
use crate::volume::charge::{spoil, stored_use};
use crate::volume::properties::asked;

/// Number of unlinked or open files that are moved away from below a directory while others wait. Each may be
/// a range operation.
pub(super) const FILES_AT_ONCE: usize = 16;
/// Bytes that a put takes in a batch beside key and value, about.
const PUT_OVERHEAD_BYTES: usize = 16;
/// Bytes that the records of two directories and a deletion take, about.
const DIRECTORIES_BYTES: usize = 1024;

/// A name with its directory and the directory's path.
pub(super) struct Spot<'a> {
    pub dir: &'a Arc<Inode>,
    pub path: &'a DirPath,
    pub name: &'a Arc<[u8]>,
}

impl Spot<'_> {
    pub fn key(&self) -> Vec<u8> {
        key::entry(&self.path.bytes, self.name)
    }

    /// The path that a directory of this name has.
    pub fn child_path(&self) -> Vec<u8> {
        key::child_path(&self.path.bytes, self.name)
    }
}

/// A move that is asked for: an entry, its name and its new name.
pub(super) struct Move<'a> {
    pub inode: &'a Arc<Inode>,
    pub from: &'a Spot<'a>,
    pub to: &'a Spot<'a>,
}

impl Move<'_> {
    /// Whether a directory would come below itself.
    pub fn is_below_itself(&self) -> bool {
        let (path, target) = (self.from.child_path(), &self.to.path.bytes);
        self.inode.state.read().record.is_dir() && (*target == path || key::is_below(&path, target))
    }
}

/// An entry on its way to another name.
pub(super) struct Moving {
    inode: Arc<Inode>,
    /// Its record before the move, if its keys in `data` are to be deleted at the source.
    leaves: Option<Record>,
    /// The ranges that move as a whole: dictionary and prefixes.
    ranges: Vec<(DictId, Vec<u8>, Vec<u8>)>,
    puts: Vec<(DictId, Vec<u8>, Vec<u8>)>,
    /// Its record and place after the move.
    record: Record,
    place: Place,
    /// The compression for which blocks ask that are put anew.
    asked: PairCompression,
}

impl Moving {
    fn put(&mut self, dict: DictId, at: Vec<u8>, value: Vec<u8>) {
        self.puts.push((dict, at, value));
    }

    /// Puts a redirect to the entry's object.
    pub fn put_redirect(&mut self, oid: u64, at: &[u8]) {
        let redirect = Redirect { oid, ino: self.inode.ino, file_type: self.record.file_type };
        self.put(META, at.to_vec(), redirect.encode());
        self.put(LINKS, at.to_vec(), oid.to_be_bytes().to_vec());
    }

    /// Moves the entry's own keys in `data`.
    fn relocate_data(&mut self, op: &Op<'_>, from: &[u8], to: &[u8], by_range: bool) -> Result<()> {
        let has_xattrs = self.record.flags.has(Flags::LARGE_XATTRS);
        if self.record.file_type == FileType::Regular && by_range {
            self.ranges.push((DATA, key::data(from), key::data(to)));
            return Ok(());
        }
        if self.record.file_type == FileType::Regular && self.record.size > 0 {
            let Some(blocks) = op.blocks_to_move(from)? else {
                self.ranges.push((DATA, key::data(from), key::data(to)));
                return Ok(());
            };
            self.puts.extend(blocks.into_iter().map(|(rest, block)| (DATA, [to, &rest].concat(), block)));
        }
        if has_xattrs {
            self.ranges.push((DATA, key::xattr(from, b""), key::xattr(to, b"")));
        }
        Ok(())
    }

    /// Moves everything below a directory, and its snapshots.
    fn relocate_below(&mut self, op: &Op<'_>, from: &[u8], to: &[u8]) -> Result<()> {
        // An empty range would cost later queries for nothing.
        let is_empty = |dict, bounds| Ok::<_, Error>(!op.has_any(dict, bounds)?);
        let prefix = |path| key::child_path(path, b"");
        for dict in [META, DATA, LINKS] {
            if self.record.entries > 0 && (dict == META || !is_empty(dict, key::subtree(from))?) {
                self.ranges.push((dict, prefix(from), prefix(to)));
            }
        }
        if !is_empty(META, key::snapshots(from))? && !planted::is(Bug::SnapshotsLeftBehind) {
            for dict in [META, DATA, LINKS] {
                self.ranges.push((dict, key::snapshots_path(from), key::snapshots_path(to)));
            }
        }
        Ok(())
    }

    /// Whether the file's blocks replace all blocks at the target.
    pub fn overwrites_blocks(&self) -> bool {
        self.record.file_type == FileType::Regular && !self.ranges.is_empty()
    }

    /// Adds the deletes at the source and the moves of whole ranges.
    pub fn leave(&self, batch: &mut Batch, at: &[u8]) {
        batch.delete(META, at);
        match &self.leaves {
            None => batch.delete(LINKS, at),
            // Point deletes apply after clones: one here could hit the blocks that an exchange brought.
            Some(_) if self.overwrites_blocks() => {}
            Some(record) => delete_data(batch, at, record),
        }
        batch.limit_clone_keys(key::OWN_KEY_BYTES_MAX);
        for (dict, from, to) in &self.ranges {
            batch.rename_range(*dict, from, to);
        }
    }

    /// A batch with room for the puts and the records of two directories. A batch that grew while blocks are
    /// added would be copied, and half of its memory would be unused.
    pub fn batch(&self) -> Batch {
        let put_bytes =
            |(_, at, value): &(DictId, Vec<u8>, Vec<u8>)| at.len() + value.len() + PUT_OVERHEAD_BYTES;
        Batch::with_capacity(self.puts.iter().map(put_bytes).sum::<usize>() + DIRECTORIES_BYTES)
    }

    /// Adds the puts at the target.
    pub fn add_puts(&self, batch: &mut Batch) {
        for (dict, at, value) in &self.puts {
            let asked = if *dict == DATA { self.asked } else { PairCompression::Usual };
            batch.compress_as(asked);
            batch.put(*dict, at, value);
        }
        batch.compress_as(PairCompression::Usual);
    }

    /// The entry as its new directory knows it.
    pub fn name(&self) -> Name {
        let oid = match self.place {
            Place::Object { oid, .. } => Some(oid),
            _ => None,
        };
        Name { node: Some(self.inode.id), ino: self.inode.ino, file_type: self.record.file_type, oid }
    }
}

/// Whether a file's blocks are too many to be moved one by one.
pub(super) fn is_large(record: &Record) -> bool {
    record.file_type == FileType::Regular
        && (record.size > POINT_DELETES_MAX * BLOCK || record.flags.has(Flags::LARGE_XATTRS))
}

impl Volume {
    /// Prepares an entry for its move to another name. A file's blocks move as a range if `by_range`, or else
    /// one by one. If an unlinked file's blocks occupy the target's keys, a regular file becomes an object.
    pub(super) fn relocate(
        &self,
        _: &Exclusive<'_>,
        op: &Op<'_>,
        wanted: &Move<'_>,
        to_is_occupied: bool,
        by_range: bool,
        now_ns: i64,
    ) -> Result<Moving> {
        let Move { inode, from, to } = *wanted;
        let (from_key, to_key) = (from.key(), to.key());
        if to_key.len() > key::OWN_KEY_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let mut moving = self.moving(inode, now_ns);
        if let Place::Object { oid, .. } = moving.place {
            moving.leaves = None;
            if !inode.is_lost {
                moving.put(META, key::object(oid), moving.record.encode());
            }
            moving.put_redirect(oid, &to_key);
            return Ok(moving);
        }
        if to_is_occupied && moving.record.file_type == FileType::Regular {
            // A measurement of a quota has the file without its object id.
            spoil(op, to.path);
            let oid = self.become_object(op, &mut moving, &from_key, to.path.home(), by_range)?;
            moving.put_redirect(oid, &to_key);
            return Ok(moving);
        }
        // The inode numbers of the entry and of everything below it stay.
        moving.record.id = inode.ino.wrapping_sub(to.path.salts);
        if moving.record.is_dir() {
            let salt = moving.record.salt;
            moving.record.salt = salt.wrapping_add(from.path.salts).wrapping_sub(to.path.salts);
            if planted::is(Bug::SaltAppliedTwice) {
                moving.record.salt = moving.record.salt.wrapping_add(from.path.salts);
            }
        }
        moving.asked = asked(moving.record.properties().or(to.dir.given_properties()));
        moving.place = Place::named(to.dir, to.name.clone());
        moving.put(META, to_key.clone(), moving.record.encode());
        moving.relocate_data(op, &from_key, &to_key, by_range)?;
        if let Some(quota) = inode.quota().filter(|_| moving.record.quota().is_some()) {
            let used = quota.used(|| stored_use(op, &key::quota_use(&from_key)))?;
            moving.put(DATA, key::quota_use(&to_key), used.encode());
        }
        if moving.record.is_dir() {
            moving.relocate_below(op, &from.child_path(), &to.child_path())?;
        }
        Ok(moving)
    }

    /// Prepares the file at `from_key` for its move to a new object id, below the directory `home` of its
    /// nearest quota. The caller puts the redirects.
    pub(super) fn relocate_to_object(
        &self,
        op: &Op<'_>,
        inode: &Arc<Inode>,
        from_key: &[u8],
        home: Option<Arc<Inode>>,
        nlink: u32,
        now_ns: i64,
    ) -> Result<(Moving, u64)> {
        let mut moving = self.moving(inode, now_ns);
        moving.record.nlink = nlink;
        if key::is_in_snapshot(from_key) {
            moving.record.flags.set(Flags::READ_ONLY);
        }
        let by_range = is_large(&moving.record);
        let oid = self.become_object(op, &mut moving, from_key, home, by_range)?;
        Ok((moving, oid))
    }

    /// Makes a file with one name one that is stored as those with several.
    pub(super) fn become_linked(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        inode: &Arc<Inode>,
        now_ns: i64,
    ) -> Result<()> {
        let Place::Named { parent, name, .. } = inode.place() else { return Ok(()) };
        let path = op.dir_path(&parent)?;
        let at = key::entry(&path.bytes, &name);
        let (mut moving, oid) = self.relocate_to_object(op, inode, &at, path.home(), 1, now_ns)?;
        moving.put_redirect(oid, &at);
        let mut batch = moving.batch();
        moving.leave(&mut batch, &at);
        moving.add_puts(&mut batch);
        // The removal of a tree on a full volume needs it.
        batch.mark_freeing(0);
        op.commit_aside(&batch)?;
        // Measurements have it without an object id.
        path.counting.iter().flat_map(|above| &above.counting.tallies).for_each(|tally| tally.spoil());
        let known = moving.name();
        self.install_moved(exclusive, [moving]);
        parent.state.write().dir_mut()?.insert(&name, known);
        Ok(())
    }

    fn moving(&self, inode: &Arc<Inode>, now_ns: i64) -> Moving {
        let old = inode.state.read().record.clone();
        let mut record = old.clone();
        record.atime_ns = inode.atime_ns.load(Relaxed);
        record.ctime_ns = now_ns;
        let (ranges, puts) = (Vec::new(), Vec::new());
        let (place, asked) = (inode.place(), PairCompression::Usual);
        Moving { inode: inode.clone(), leaves: Some(old), ranges, puts, record, place, asked }
    }

    fn become_object(
        &self,
        op: &Op<'_>,
        moving: &mut Moving,
        from_key: &[u8],
        home: Option<Arc<Inode>>,
        by_range: bool,
    ) -> Result<u64> {
        let oid = self.numbers.oid(op)?;
        let own = key::object(oid);
        moving.record.id = moving.inode.ino;
        // It lies in no directory from now on.
        let had = moving.inode.effective_properties(&moving.record);
        Self::keep_properties(&mut moving.record, had, OwnProperties::default())?;
        moving.asked = asked(had);
        moving.place = Place::Object { oid, home };
        if !planted::is(Bug::NameWithoutObject) {
            moving.put(META, own.clone(), moving.record.encode());
        }
        moving.relocate_data(op, from_key, &own, by_range)?;
        Ok(oid)
    }

    /// Installs entries that a committed batch moved.
    pub(super) fn install_moved(&self, exclusive: &Exclusive<'_>, moved: impl IntoIterator<Item = Moving>) {
        for moving in moved {
            if let Place::Object { oid, .. } = moving.place {
                self.table.set_object(oid, moving.inode.id);
            }
            moving.inode.set_salt(exclusive, moving.record.salt);
            moving.inode.state.write().record = moving.record.into();
            moving.inode.set_place(moving.place);
        }
    }

    /// Moves the blocks of unlinked files away from below a directory, so that they do not move with it and
    /// do not block the keys of entries that move there. Between some of them and the next, others have a
    /// turn.
    pub(super) fn move_orphans_away(&self, _: &Exclusive<'_>, op: &Op<'_>, path: &[u8]) -> Result<()> {
        if planted::is(Bug::OrphansMovedWithDirectory) {
            return Ok(());
        }
        loop {
            let some = self.orphans.below(path, FILES_AT_ONCE);
            let are_all = some.len() < FILES_AT_ONCE;
            self.move_away(op, some)?;
            if are_all {
                return Ok(());
            }
            op.give_turn()?;
        }
    }

    /// Moves the blocks of unlinked files to objects of their own.
    fn move_away(&self, op: &Op<'_>, orphans: Vec<(Arc<[u8]>, Arc<Inode>)>) -> Result<()> {
        for (old, inode) in orphans {
            let Place::Orphan { marker, .. } = inode.place() else { continue };
            op.visit(1);
            let base: Arc<[u8]> = Arc::from(key::object(self.numbers.oid(op)?));
            let mut batch = Batch::new();
            // Large attributes under this key belong to the entry that has the name now.
            let is_small = inode.state.read().record.size <= POINT_DELETES_MAX * BLOCK;
            match if is_small { op.blocks_to_move(&old)? } else { None } {
                Some(blocks) => {
                    for (rest, block) in blocks {
                        batch.delete(DATA, &[&old, rest.as_slice()].concat());
                        batch.put(DATA, &[&base, rest.as_slice()].concat(), &block);
                    }
                }
                None => batch.rename_range(DATA, &key::all_blocks(&old), &key::all_blocks(&base)),
            }
            batch.put(META, &key::marker(marker), &Marker::Unlinked { base: base.to_vec() }.encode());
            // Removals on a full volume need this move. It happens once to a file.
            batch.mark_freeing(0);
            op.commit_aside(&batch)?;
            inode.set_place(Place::Orphan { marker, base: base.clone() });
            self.orphans.move_base(&old, base);
        }
        Ok(())
    }
}
