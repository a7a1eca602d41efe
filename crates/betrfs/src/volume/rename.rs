//! Renaming.

use alloc::sync::Arc;

use betree::Batch;

use crate::error::{Error, Result};
use crate::names::{Exclusive, Inode, Name, Place};
use crate::op::{Op, OpKind};
use crate::planted::{self, Bug};
use crate::rules::{check_name, count_entry, may_be_foreign, refuse_if_immutable, refuse_if_protected};
use crate::schema::{Amount, META, Record, key};
use crate::types::{FileType, InodeId, RenameFlags};
use crate::volume::Volume;
use crate::volume::charge::{refuse_other_quota, spoil_between};
use crate::volume::relocate::{Move, Spot, is_large};
use crate::volume::unlink::{Dropped, DyingName, LastContents};

/// The records of the two directories of a rename. `to` is `None` if both are the same.
struct Parents {
    from: Record,
    to: Option<Record>,
}

impl Parents {
    fn to(&mut self) -> &mut Record {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

impl Volume {
    /// Renames an entry and replaces the target, as `renameat2` does, at a cost independent of the entry's
    /// size (dissertation §4.2).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{InodeId, RenameFlags};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create(dir, b"file", &new_file)?.node;
    /// volume.rename(InodeId::ROOT, b"dir", InodeId::ROOT, b"moved", RenameFlags::default())?;
    /// assert_eq!(volume.resolve(b"/moved/file")?.node, file);
    ///
    /// volume.create_with(dir, b"other", &new_file, b"text")?;
    /// let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    /// volume.rename(dir, b"file", dir, b"other", exchange)?;
    /// assert_eq!(volume.resolve(b"/moved/other")?.node, file);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NameTooLong`] also if a key below the entry might become too long, or of a snapshot that is
    /// still to be made of a directory there ([`restore_snapshot`](Volume::restore_snapshot));
    /// [`Error::OtherQuota`] if the two directories are in different quotas.
    pub fn rename(
        &self,
        parent: InodeId,
        name: &[u8],
        new_parent: InodeId,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        if flags.exchange && (flags.no_replace || flags.whiteout) {
            return Err(Error::Invalid("exchange goes with no other flag"));
        }
        self.find_kept_dirs()?;
        let op = self.update(OpKind::Rename, 0)?;
        let names = [(parent, name), (new_parent, new_name)];
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[parent, new_parent], &names);
            let (from_dir, to_dir) =
                (self.live_dir(&exclusive, &op, parent)?, self.live_dir(&exclusive, &op, new_parent)?);
            let source = self.find_in(&op, &from_dir, name)?.ok_or(Error::NotFound)?;
            let target = self.find_in(&op, &to_dir, new_name)?;
            match target {
                Some(_) if flags.no_replace => return Err(Error::Exists),
                None if flags.exchange => return Err(Error::NotFound),
                _ => {}
            }
            let (from_path, to_path) = (op.dir_path(&from_dir)?, op.dir_path(&to_dir)?);
            let (name, new_name): (Arc<[u8]>, Arc<[u8]>) = (Arc::from(name), Arc::from(new_name));
            let from = Spot { dir: &from_dir, path: &from_path, name: &name };
            let to = Spot { dir: &to_dir, path: &to_path, name: &new_name };
            let wanted = Move { inode: &source, from: &from, to: &to };
            if wanted.is_below_itself() {
                return Err(Error::Invalid("a directory cannot be moved below itself"));
            }
            refuse_other_quota(from_path.quota(), to_path.quota())?;
            spoil_between(&op, &from_path, &to_path);
            let is_same = target.as_ref().is_some_and(|target| Arc::ptr_eq(target, &source));
            if !is_same {
                refuse_if_protected(&from_dir.state.read().record)?;
                refuse_if_protected(&source.state.read().record)?;
                match &target {
                    None => refuse_if_immutable(&to_dir.state.read().record)?,
                    Some(target) => {
                        refuse_if_protected(&to_dir.state.read().record)?;
                        refuse_if_protected(&target.state.read().record)?;
                    }
                }
            }
            if !is_same {
                self.refuse_long_kept(&op, &from.child_path(), &to.child_path())?;
                if flags.exchange {
                    self.refuse_long_kept(&op, &to.child_path(), &from.child_path())?;
                }
            }
            let done = match &target {
                Some(_) if is_same => Ok(()),
                Some(target) if flags.exchange => {
                    self.exchange(&exclusive, &op, &wanted, &Move { inode: target, from: &to, to: &from })
                }
                target => self.replace(&exclusive, &op, &wanted, target.as_ref(), flags.whiteout),
            };
            drop(exclusive);
            if let Some(target) = target {
                // It may have been released while it still had the name.
                self.closed(&target);
                self.clear_if_lost(&target);
            }
            done
        })
    }

    fn replace(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        wanted: &Move<'_>,
        target: Option<&Arc<Inode>>,
        whiteout: bool,
    ) -> Result<()> {
        let Move { inode: source, from, to } = *wanted;
        let source_is_dir = source.state.read().record.is_dir();
        let target_is_dir = match target {
            None => None,
            Some(target) => {
                // A target above the source is refused here too: it is not empty.
                let record = target.state.read().record.clone();
                match (source_is_dir, record.is_dir()) {
                    (true, false) => return Err(Error::NotADirectory),
                    (false, true) => return Err(Error::IsADirectory),
                    (true, true) => self.refuse_in_use(op, &record, &to.child_path())?,
                    (false, false) => {}
                }
                Some(record.is_dir())
            }
        };
        if source_is_dir {
            self.move_orphans_away(exclusive, op, &from.child_path())?;
            self.move_orphans_away(exclusive, op, &to.child_path())?;
        }

        let now_ns = self.platform.now_ns();
        let to_key = to.key();
        let is_kept =
            target.is_some_and(|target| target.is_open() || !target.is_idle() && self.waits_for_openings());
        let stays_behind = target.is_some_and(|target| {
            let is_file = target.state.read().record.file_type == FileType::Regular;
            is_file && is_kept && matches!(target.place(), Place::Named { .. })
        });
        let occupied = stays_behind || self.orphans.occupy(&to_key);
        let by_range = is_large(&source.state.read().record);
        let moving = self.relocate(exclusive, op, wanted, occupied, by_range, now_ns)?;
        let mut batch = moving.batch();
        let dropped = match target {
            None => None,
            Some(target) => {
                let record = target.state.read().record.clone();
                let is_covered =
                    (moving.overwrites_blocks() || planted::is(Bug::ReplacedBlocksKept)) && !occupied;
                let contents = match is_kept {
                    true => LastContents::Kept,
                    false if is_covered => LastContents::Overwritten,
                    false => LastContents::Deleted,
                };
                let dying = DyingName { inode: target, record: &record, at: &to_key, contents };
                Some(self.drop_name(op, &mut batch, dying, now_ns)?.in_quotas_of(to.path))
            }
        };
        moving.leave(&mut batch, &from.key());
        moving.add_puts(&mut batch);

        let mut parents = self.parents(from, to);
        count_entry(&mut parents.from, source_is_dir, -1, now_ns);
        count_entry(parents.to(), source_is_dir, 1, now_ns);
        if let Some(is_dir) = target_is_dir {
            count_entry(parents.to(), is_dir, -1, now_ns);
        }
        let whiteout = if whiteout { Some(self.whiteout(op, &mut batch, from, now_ns)?) } else { None };
        if whiteout.is_some() {
            count_entry(&mut parents.from, false, 1, now_ns);
        }
        put_parents(&mut batch, &parents, from, to);
        // A move adds as much as it deletes, so a full volume allows it.
        batch.mark_replacing();
        // Each in its own directory, for what is measured; the quotas are the same.
        let less = dropped.as_ref().map_or_else(Amount::default, Dropped::less);
        target.into_iter().for_each(|target| self.quotas.note_inode(target));
        let went = self.charge(op, to.path, -less, &mut batch)?;
        let came = if whiteout.is_some() { Amount::OBJECT } else { Amount::default() };
        let came = self.charge(op, from.path, came, &mut batch)?;
        op.commit(&batch)?;
        went.keep();
        came.keep();

        if source_is_dir {
            self.paths_change(exclusive);
        }
        let known = moving.name();
        if let (Some(target), Some(dropped)) = (target, dropped) {
            self.install_unlinked(target, &mut target.state.write(), dropped);
        }
        self.install_moved(exclusive, [moving]);
        self.install(from, to, parents);
        self.note_moved(source, from.dir, to.dir);
        if whiteout.is_some() {
            self.note_foreign(from.dir);
        }
        self.insert_name_at(to, known)?;
        match whiteout {
            Some(whiteout) => self.insert_name_at(from, whiteout)?,
            None => from.dir.state.write().dir_mut()?.remove(from.name),
        }
        Ok(())
    }

    /// Carries out two moves, each to the name of the other.
    fn exchange(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        there: &Move<'_>,
        back: &Move<'_>,
    ) -> Result<()> {
        let Move { inode: one, from, to } = *there;
        let other = back.inode;
        if back.is_below_itself() {
            return Err(Error::Invalid("a directory cannot be moved below itself"));
        }
        let one_is_dir = one.state.read().record.is_dir();
        let other_is_dir = other.state.read().record.is_dir();
        if one_is_dir || other_is_dir {
            self.move_orphans_away(exclusive, op, &from.child_path())?;
            self.move_orphans_away(exclusive, op, &to.child_path())?;
        }

        let now_ns = self.platform.now_ns();
        // Messages apply after clones: if one file moved as messages, they would hit the other.
        let by_range = is_large(&one.state.read().record) || is_large(&other.state.read().record);
        let relocated = |wanted: &Move<'_>, by_range| {
            let is_occupied = self.orphans.occupy(&wanted.to.key());
            self.relocate(exclusive, op, wanted, is_occupied, by_range, now_ns)
        };
        let mut both = (relocated(there, by_range)?, relocated(back, by_range)?);
        // A small file with lost blocks moves as a range too.
        if !by_range && both.0.overwrites_blocks() != both.1.overwrites_blocks() {
            both = (relocated(there, true)?, relocated(back, true)?);
        }
        let (there, back) = both;
        let mut batch = Batch::new();
        there.leave(&mut batch, &from.key());
        back.leave(&mut batch, &to.key());
        there.add_puts(&mut batch);
        back.add_puts(&mut batch);
        let mut parents = self.parents(from, to);
        count_entry(&mut parents.from, one_is_dir, -1, now_ns);
        count_entry(&mut parents.from, other_is_dir, 1, now_ns);
        count_entry(parents.to(), other_is_dir, -1, now_ns);
        count_entry(parents.to(), one_is_dir, 1, now_ns);
        put_parents(&mut batch, &parents, from, to);
        // A move adds as much as it deletes, so a full volume allows it.
        batch.mark_replacing();
        op.commit(&batch)?;

        if one_is_dir || other_is_dir {
            self.paths_change(exclusive);
        }
        let (known_there, known_back) = (there.name(), back.name());
        self.install_moved(exclusive, [there, back]);
        self.install(from, to, parents);
        self.note_moved(one, from.dir, to.dir);
        self.note_moved(other, to.dir, from.dir);
        self.insert_name_at(to, known_there)?;
        self.insert_name_at(from, known_back)
    }

    /// Notes what may have come to another directory with an entry that the directory's owner could not make.
    fn note_moved(&self, inode: &Inode, from: &Arc<Inode>, to: &Arc<Inode>) {
        let record = &inode.state.read().record;
        let may_bring = || record.is_dir() || may_be_foreign(record, to.state.read().record.uid);
        if !Arc::ptr_eq(from, to) && may_bring() {
            self.note_foreign(to);
        }
    }

    /// Adds the device that marks the removed entry of a lower layer.
    fn whiteout(&self, op: &Op<'_>, batch: &mut Batch, at: &Spot<'_>, now_ns: i64) -> Result<Name> {
        let ino = self.numbers.id(op)?;
        let record = Record::new(FileType::CharDevice, 0, ino.wrapping_sub(at.path.salts), now_ns);
        batch.put(META, &at.key(), &record.encode());
        Ok(Name { node: None, ino, file_type: FileType::CharDevice, oid: None })
    }

    fn find_in(&self, op: &Op<'_>, dir: &Arc<Inode>, name: &[u8]) -> Result<Option<Arc<Inode>>> {
        self.find(op, dir, &mut dir.state.write(), name)
    }

    fn parents(&self, from: &Spot<'_>, to: &Spot<'_>) -> Parents {
        let record = |dir: &Inode| dir.state.read().record.clone();
        let to = (!Arc::ptr_eq(from.dir, to.dir)).then(|| record(to.dir));
        Parents { from: record(from.dir), to }
    }

    /// Installs the directories' records.
    fn install(&self, from: &Spot<'_>, to: &Spot<'_>, parents: Parents) {
        from.dir.state.write().record = parents.from.into();
        if let Some(record) = parents.to {
            to.dir.state.write().record = record.into();
        }
    }

    /// An existing name keeps its cookie: a listing under way must reach it.
    fn insert_name_at(&self, at: &Spot<'_>, known: Name) -> Result<()> {
        self.insert_name(at.dir, &mut at.dir.state.write(), at.name, known)
    }
}

fn put_parents(batch: &mut Batch, parents: &Parents, from: &Spot<'_>, to: &Spot<'_>) {
    batch.put(META, &key::own(&from.path.bytes), &parents.from.encode());
    if let Some(record) = &parents.to {
        batch.put(META, &key::own(&to.path.bytes), &record.encode());
    }
}
