//! Removing entries.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::Batch;

use crate::contents::delete_data;
use crate::error::{Error, Result};
use crate::names::{Counter, DirPath, Held, Inode, Place, State};
use crate::op::{Op, OpKind};
use crate::planted::{self, Bug};
use crate::rules::{check_name, count_entry, refuse_if_protected, refuse_key_in_snapshot};
use crate::schema::{Amount, DATA, Flags, LINKS, META, Marker, Record, XattrValue, key};
use crate::types::{FileType, InodeId};
use crate::volume::Volume;

/// Bytes that the deletes of an entry and its blocks take in a partition, about.
const DELETES_BYTES: u64 = 1024;

/// The state of an inode that loses a name, once the batch is committed.
pub(super) struct Dropped {
    pub record: Record,
    /// `None` while other names are left.
    pub place: Option<Place>,
    /// Whether its last name that can be seen has gone.
    pub is_out_of_sight: bool,
    /// The quotas of which it holds its contents if they can still be read.
    pub quotas: Vec<Arc<Counter>>,
}

impl Dropped {
    /// Of an inode that has lost its last name.
    pub fn gone(record: Record, place: Place, quotas: Vec<Arc<Counter>>) -> Dropped {
        Dropped { record, place: Some(place), is_out_of_sight: true, quotas }
    }

    /// With the quotas above the place where the name was.
    pub fn in_quotas_of(self, path: &DirPath) -> Dropped {
        Dropped { quotas: path.quotas(), ..self }
    }

    /// What its quotas have less: nothing while other names can be seen, all of which are in the same ones.
    pub fn less(&self) -> Amount {
        if self.is_out_of_sight { Amount::of(&self.record) } else { Amount::default() }
    }
}

/// The fate of the contents of a file that loses its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastContents {
    /// They can be read until nobody holds the file.
    Kept,
    Deleted,
    /// The same batch moves another file's blocks over all of them.
    Overwritten,
}

/// A name that is to go.
pub(super) struct DyingName<'a> {
    pub inode: &'a Inode,
    /// The inode's record before.
    pub record: &'a Record,
    /// The key of the name.
    pub at: &'a [u8],
    /// The fate of the contents if it is the last name.
    pub contents: LastContents,
}

impl Volume {
    /// Removes a name of anything but a directory. An open file stays readable and writable.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{Error, InodeId};
    ///
    /// volume.create(InodeId::ROOT, b"file", &new_file)?;
    /// volume.unlink(InodeId::ROOT, b"file")?;
    /// assert_eq!(volume.resolve(b"/file"), Err(Error::NotFound));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::IsADirectory`]; [`Error::NotFound`].
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        self.remove(parent, name, OpKind::Unlink).map(|_| ())
    }

    /// Removes an empty directory or, in `.betrfs-snapshots`, a snapshot. Returns the objects in the snapshot
    /// that the caller holds; open files among them live on until they are closed.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{Error, InodeId};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// volume.create(dir, b"file", &new_file)?;
    /// assert_eq!(volume.rmdir(InodeId::ROOT, b"dir"), Err(Error::NotEmpty));
    /// volume.unlink(dir, b"file")?;
    /// volume.rmdir(InodeId::ROOT, b"dir")?;
    /// assert_eq!(volume.resolve(b"/dir"), Err(Error::NotFound));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotEmpty`]; [`Error::HeldBySnapshots`]; [`Error::NotFound`].
    pub fn rmdir(&self, parent: InodeId, name: &[u8]) -> Result<Vec<InodeId>> {
        self.remove(parent, name, OpKind::Rmdir)
    }

    fn remove(&self, parent: InodeId, name: &[u8], kind: OpKind) -> Result<Vec<InodeId>> {
        check_name(name)?;
        let parent = self.inode(parent)?;
        if let Place::Snapshots { of } = parent.place()
            && kind == OpKind::Rmdir
        {
            return self.remove_snapshot(&parent, &of, name, None);
        }
        let op = self.update(kind, 0)?;
        self.give_up_names();
        self.know_names(&op, &parent, name);
        op.without_waiting(|| self.remove_from(&op, &parent, name, kind))
    }

    /// Removes an entry from a directory.
    fn remove_from(
        &self,
        op: &Op<'_>,
        parent: &Arc<Inode>,
        name: &[u8],
        kind: OpKind,
    ) -> Result<Vec<InodeId>> {
        let shared = self.namespace.shared();
        let mut dir = parent.state.write();
        dir.dir()?;
        let path = parent.dir_path()?;
        refuse_key_in_snapshot(&path.bytes, &dir.record)?;
        let inode = self.find(op, parent, &mut dir, name)?.ok_or(Error::NotFound)?;
        let mut state = inode.state.write();
        refuse_if_protected(&dir.record)?;
        refuse_if_protected(&state.record)?;
        match (kind, state.record.is_dir()) {
            (OpKind::Rmdir, false) => return Err(Error::NotADirectory),
            (OpKind::Rmdir, true) => {
                self.refuse_in_use(op, &state.record, &key::child_path(&path.bytes, name))?;
            }
            (_, false) => {}
            (_, true) => return Err(Error::IsADirectory),
        }

        let now_ns = self.platform.now_ns();
        let mut dir_record = dir.record.clone();
        count_entry(&mut dir_record, state.record.is_dir(), -1, now_ns);
        let mut batch = Batch::new();
        let at = key::entry(&path.bytes, name);
        let contents = if inode.is_open() { LastContents::Kept } else { LastContents::Deleted };
        let dying = DyingName { inode: &inode, record: &state.record, at: &at, contents };
        let dropped = self.drop_name(op, &mut batch, dying, now_ns)?.in_quotas_of(&path);
        let removed_below = state.dir.as_ref().map_or(0, |names| names.removed);
        if removed_below.saturating_mul(DELETES_BYTES) >= self.env.range_weight_bytes() as u64 {
            self.delete_emptied(&mut batch, &key::child_path(&path.bytes, name));
        }
        batch.put(META, &key::own(&path.bytes), &dir_record.encode());
        batch.mark_freeing(0);
        self.quotas.note_inode(&inode);
        let less = if planted::is(Bug::RemovalNotTakenBack) { Amount::default() } else { dropped.less() };
        let charge = self.charge(op, &path, -less, &mut batch)?;
        op.commit(&batch)?;
        charge.keep();

        self.install_record(parent, &mut dir, dir_record);
        let names = dir.dir_mut()?;
        names.remove(name);
        names.removed = names.removed.saturating_add(removed_below);
        self.install_unlinked(&inode, &mut state, dropped);
        drop(state);
        drop(dir);
        drop(shared);
        // It may have been closed while it still had the name.
        self.closed(&inode);
        self.clear_if_lost(&inode);
        Ok(Vec::new())
    }

    /// Adds to the batch a range delete of all keys below a directory that has become empty. They are deleted
    /// already, one by one; but the range delete absorbs these deletes and the range deletes of its
    /// subdirectories, and whole leaves below it need not be read. So the removal of a tree from its leaves
    /// up sends little more than one range through the tree of nodes.
    ///
    /// The caller holds the directory's state, so that no entry comes or goes.
    fn delete_emptied(&self, batch: &mut Batch, path: &[u8]) {
        if self.orphans.are_below(path) {
            return;
        }
        let (lo, hi) = key::subtree(path);
        for dict in [META, DATA] {
            batch.delete_range(dict, &lo, &hi);
        }
    }

    /// Adds to the batch the removal of a name from its inode, and of the inode with its last name. The
    /// caller holds the inode's state.
    pub(super) fn drop_name(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        dying: DyingName<'_>,
        now_ns: i64,
    ) -> Result<Dropped> {
        let DyingName { inode, record, at, contents } = dying;
        let mut record = record.clone();
        record.ctime_ns = now_ns;
        batch.delete(META, at);
        if inode.is_lost {
            batch.delete(LINKS, at);
            let is_out_of_sight = false;
            return Ok(Dropped { record, place: None, is_out_of_sight, quotas: Vec::new() });
        }
        let own = match inode.place() {
            Place::Object { oid, .. } => {
                batch.delete(LINKS, at);
                record.nlink = record.nlink.saturating_sub(1);
                let own = key::object(oid);
                if record.nlink > 0 {
                    if !planted::is(Bug::RedirectNotCounted) {
                        batch.put(META, &own, &record.encode());
                    }
                    let is_out_of_sight = !self.quotas.hidden(oid).counts(record.nlink);
                    return Ok(Dropped { record, place: None, is_out_of_sight, quotas: Vec::new() });
                }
                batch.delete(META, &own);
                own
            }
            _ => at.to_vec(),
        };
        record.nlink = 0;
        let is_file = record.file_type == FileType::Regular;
        if contents != LastContents::Kept || !is_file {
            if contents != LastContents::Overwritten || own != at {
                delete_data(batch, &own, &record);
            }
            return Ok(Dropped::gone(record, Place::Gone, Vec::new()));
        }
        let place = self.keep_in_place(op, batch, &own, &mut record)?;
        Ok(Dropped::gone(record, place, Vec::new()))
    }

    /// Keeps the blocks of a file without a name where they are, and its attributes in memory.
    pub(super) fn keep_in_place(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        own: &[u8],
        record: &mut Record,
    ) -> Result<Place> {
        if record.flags.has(Flags::LARGE_XATTRS) {
            self.take_xattrs(op, own, record)?;
            let (lo, hi) = key::xattrs(own);
            batch.delete_range(DATA, &lo, &hi);
        }
        let marker = self.numbers.oid(op)?;
        if !planted::is(Bug::MarkerNotMade) {
            batch.put(META, &key::marker(marker), &Marker::Unlinked { base: own.to_vec() }.encode());
        }
        Ok(Place::Orphan { marker, base: Arc::from(own) })
    }

    /// Takes large extended attributes into the record, which is in memory only from then on; without those
    /// that were lost, so that the file can be unlinked.
    pub(super) fn take_xattrs(&self, op: &Op<'_>, own: &[u8], record: &mut Record) -> Result<()> {
        for mut attr in core::mem::take(&mut record.xattrs) {
            if let XattrValue::Stored(_) = attr.value {
                match op.get(DATA, &key::xattr(own, &attr.name)) {
                    Ok(Some(value)) => attr.value = XattrValue::Inline(value),
                    Ok(None) => continue,
                    Err(error) if error.is_loss() => continue,
                    Err(error) => return Err(error),
                }
            }
            record.xattrs.push(attr);
        }
        record.flags.clear(Flags::LARGE_XATTRS);
        Ok(())
    }

    /// Installs the result of a committed [`drop_name`](Self::drop_name).
    pub(super) fn install_unlinked(&self, inode: &Arc<Inode>, state: &mut State, dropped: Dropped) {
        let amount = Amount::of(&dropped.record);
        self.install_record(inode, state, dropped.record);
        if let Some(place) = dropped.place {
            if matches!(place, Place::Gone) {
                self.end_allocation(inode, &(0..u64::MAX));
            }
            if let Place::Object { oid, .. } = inode.place() {
                self.table.remove_object(oid);
            }
            if let Place::Orphan { base, .. } = &place {
                let held = Held::at_once(dropped.quotas, amount);
                self.orphans.insert(base.clone(), inode.clone(), held);
            }
            inode.set_place(place);
        }
    }

    /// Deletes an unlinked file unless it is open. The caller holds no lock.
    pub(super) fn reap(&self, inode: &Arc<Inode>) -> Result<()> {
        if !matches!(inode.place(), Place::Orphan { .. }) {
            return Ok(());
        }
        // During a freeze it stays.
        let Some(_going) = self.own_changes.begin_with(inode) else { return Ok(()) };
        let op = self.update(OpKind::Internal, 0)?;
        let _shared = self.namespace.shared();
        let state = inode.state.write();
        let Place::Orphan { marker, base } = inode.place() else { return Ok(()) };
        if inode.is_open() {
            return Ok(());
        }
        let mut batch = Batch::new();
        delete_data(&mut batch, &base, &state.record);
        batch.delete(META, &key::marker(marker));
        op.commit(&batch)?;
        inode.set_place(Place::Gone);
        self.end_allocation(inode, &(0..u64::MAX));
        drop(state);
        self.orphans.remove(&base);
        Ok(())
    }
}
