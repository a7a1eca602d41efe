//! Snapshots: read-only copies of a directory, found under its entry `.betrfs-snapshots`.
//!
//! They have a key space of their own, so that a directory does not contain its snapshots, nor a snapshot
//! earlier ones. `.betrfs-snapshots` itself is not stored: it is an inode in memory whose entries are the
//! directory's snapshots. Making a directory there makes a snapshot of that name; removing one removes the
//! snapshot with everything in it. Changes below it are refused: the path leads through `.betrfs-snapshots`,
//! and linked files in a snapshot carry a flag.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::Batch;

use crate::contents::{acl_of, delete_data};
use crate::error::{Error, Result};
use crate::names::{Directory, Exclusive, InNamespace, Inode, Name, Place, ino_of};
use crate::op::{Op, OpKind, is_in_snapshot};
use crate::rules::{check_name, with_snapshot_counted};
use crate::schema::{Flags, META, Record, Stored, Xattr, XattrValue, damaged, key};
use crate::types::{AclKind, Entry, FileType, Held, InodeId, Owned, SNAPSHOTS_NAME};
use crate::volume::Volume;
use crate::volume::clone::{Ahead, Copy, use_of_copy};
use crate::volume::detached::CopyWanted;
use crate::volume::measure::Measuring;
use crate::volume::remove_tree::Emptied;
use crate::volume::unlink::Dropped;

/// The bit by which the inode number of `.betrfs-snapshots` differs from its directory's.
const INO_BIT: u64 = 1 << 62;

impl Volume {
    /// Whether an object is a snapshot or in one, and so cannot be changed.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{Error, InodeId, SNAPSHOTS_NAME};
    ///
    /// // Making a directory in `.betrfs-snapshots` takes a snapshot.
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// let snapshots = volume.lookup(InodeId::ROOT, SNAPSHOTS_NAME)?.node;
    /// volume.create(snapshots, b"monday", &new_dir)?;
    ///
    /// volume.write(file, 0, b"changed")?;
    /// let old = volume.resolve(b"/.betrfs-snapshots/monday/file")?;
    /// assert_eq!(old.attr.size, 4);
    /// assert!(volume.is_read_only(old.node)? && !volume.is_read_only(file)?);
    /// assert_eq!(volume.write(old.node, 0, b"x"), Err(Error::InSnapshot));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn is_read_only(&self, node: InodeId) -> Result<bool> {
        let inode = self.inode(node)?;
        let op = self.query(OpKind::Internal);
        let record = &inode.state.read().record;
        Ok(is_in_snapshot(&op, &inode, record))
    }

    /// The entry `.betrfs-snapshots` of a directory.
    pub(super) fn snapshots_of(
        &self,
        held: &impl InNamespace,
        op: &Op<'_>,
        of: &Arc<Inode>,
    ) -> Result<Arc<Inode>> {
        let mut state = of.state.write();
        state.dir()?;
        if self.is_removed(held, of) || is_in_snapshot(op, of, &state.record) {
            return Err(Error::NotFound);
        }
        let known = self.snapshots_in_memory(of, state.dir()?);
        let inode = match known {
            Some(inode) => inode,
            None => {
                let inode = self.load_snapshots(op, of, &state.record)?;
                state.dir_mut()?.snapshots = Some(inode.id);
                inode
            }
        };
        let acl = acl_of(op, of, &state.record, AclKind::Access)?;
        {
            let mut snapshots = inode.state.write();
            let mut record = snapshots.record.clone();
            (record.perm, record.uid, record.gid) = (state.record.perm, state.record.uid, state.record.gid);
            let acl = acl.map(|acl| (AclKind::Access.name().to_vec(), XattrValue::Inline(acl.encode())));
            record.xattrs = acl.into_iter().map(|(name, value)| Xattr { name, value }).collect();
            snapshots.record = record.into();
        }
        Ok(inode)
    }

    /// The entry `.betrfs-snapshots` of a directory with these names, if it is in memory.
    pub(super) fn snapshots_in_memory(&self, of: &Arc<Inode>, names: &Directory) -> Option<Arc<Inode>> {
        names.snapshots.and_then(|node| self.table.get(node)).filter(|inode| inode.holds_snapshots_of(of))
    }

    fn load_snapshots(&self, op: &Op<'_>, of: &Arc<Inode>, of_record: &Record) -> Result<Arc<Inode>> {
        let path = key::snapshots_path(&op.dir_path(of)?.bytes);
        let mut dir = Directory::new(self.names_total.clone());
        let mut entries = op.scan(META, key::entries(&path));
        while let Some((at, bytes)) = entries.next()? {
            let (_, name) = key::split_entry(at).ok_or_else(|| damaged(at, "it is no name"))?;
            let Stored::Inode(record) = Stored::decode(at, bytes)? else {
                return Err(damaged(at, "it is no directory"));
            };
            let (ino, file_type) = (ino_of(record.id, 0), record.file_type);
            dir.insert(&Arc::from(name), Name { node: None, ino, file_type, oid: None });
        }
        let mut record = Record::new(FileType::Directory, 0, 0, of_record.ctime_ns);
        (record.entries, record.subdirs) = (dir.len() as u64, dir.len() as u64);
        let place = Place::Snapshots { of: of.clone() };
        Ok(self.keep(op, Inode::new(ino_of(of.ino ^ INO_BIT, 0), place, record, Some(dir))))
    }

    /// Makes a snapshot, in the entry `snapshots`, of a directory that is a user's as a whole. The user may
    /// remove it later ([`remove_snapshot_as`](Volume::remove_snapshot_as)).
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if `snapshots` is not that directory's entry for snapshots; [`Error::Exists`];
    /// [`Error::QuotaExceeded`] in a quota, because snapshots do not count;
    /// [`Error::Busy`] if something may have come into the directory that is not the user's: it is to be
    /// looked through again.
    pub fn snapshot_as(&self, owned: &Owned, snapshots: InodeId, name: &[u8]) -> Result<Entry> {
        check_name(name)?;
        let snapshots = self.inode(snapshots)?;
        let Place::Snapshots { of } = snapshots.place() else { return Err(Error::NotPermitted) };
        self.make_snapshot(&snapshots, &of, name, Some(owned))
    }

    /// Removes a snapshot that this user has made by [`snapshot_as`](Volume::snapshot_as). Returns its
    /// objects that the caller still holds.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if somebody else has made it, or `snapshots` is no entry for snapshots;
    /// [`Error::NotFound`].
    pub fn remove_snapshot_as(&self, uid: u32, snapshots: InodeId, name: &[u8]) -> Result<Vec<InodeId>> {
        check_name(name)?;
        let snapshots = self.inode(snapshots)?;
        let Place::Snapshots { of } = snapshots.place() else { return Err(Error::NotPermitted) };
        self.remove_snapshot(&snapshots, &of, name, Some(uid))
    }

    /// The directory whose snapshots an object has as its entries; `None` for any other object.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn snapshots_are_of(&self, node: InodeId) -> Result<Option<InodeId>> {
        match self.inode(node)?.place() {
            Place::Snapshots { of } => Ok(Some(of.id)),
            _ => Ok(None),
        }
    }

    /// Makes a snapshot of the directory `of`, whose `.betrfs-snapshots` is `snapshots`.
    pub(super) fn make_snapshot(
        &self,
        snapshots: &Arc<Inode>,
        of: &Arc<Inode>,
        name: &[u8],
        by: Option<&Owned>,
    ) -> Result<Entry> {
        let wanted = CopyWanted { flags: Flags::READ_ONLY, target: None, counts_in: None, by };
        self.with_copy(of.id, wanted, &Measuring::default(), |ahead| {
            self.make_snapshot_of(snapshots, of, name, by, ahead)
        })
    }

    fn make_snapshot_of(
        &self,
        snapshots: &Arc<Inode>,
        of: &Arc<Inode>,
        name: &[u8],
        by: Option<&Owned>,
        ahead: Ahead<'_>,
    ) -> Result<Entry> {
        let op = self.update(OpKind::Clone, 0)?;
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[of.id, snapshots.id], &[(snapshots.id, name)]);
            if let Some(owned) = by {
                if !matches!(ahead, Ahead::Made(_)) {
                    self.still_owned(&exclusive, &op, of, owned)?;
                }
                // It would not count.
                self.refuse_in_quota(&op, of)?;
            }
            let path = op.dir_path(snapshots)?;
            let to_key = key::entry(&path.bytes, name);
            if to_key.len() > key::OWN_KEY_BYTES_MAX {
                return Err(Error::NameTooLong);
            }
            let is_there = self.find(&op, snapshots, &mut snapshots.state.write(), name)?.is_some();
            if is_there || self.is_kept_name(of, name) {
                return Err(Error::Exists);
            }
            let (ino, now_ns) = (self.numbers.id(&op)?, self.platform.now_ns());
            let mut record = self.copied_record(of, ahead, ino, now_ns);
            record.set_maker(by.map(|owned| owned.uid));
            let to_path = key::child_path(&path.bytes, name);
            let used = match ahead {
                Ahead::Made(copy) => copy.used,
                _ => use_of_copy(&op, of, &record)?,
            };
            let copy = Copy { to_key: &to_key, to_path: &to_path, flags: Flags::READ_ONLY, used, ahead };
            let inode = self.put_snapshot(&exclusive, &op, (snapshots, of), name, &copy, record)?;
            Ok(inode.looked_up(&self.allocations))
        })
    }

    /// Commits a copy of the directory `of` with this record as its snapshot of a name that is free.
    pub(super) fn put_snapshot(
        &self,
        exclusive: &Exclusive<'_>,
        op: &Op<'_>,
        (snapshots, of): (&Arc<Inode>, &Arc<Inode>),
        name: &[u8],
        copy: &Copy<'_>,
        mut record: Record,
    ) -> Result<Arc<Inode>> {
        let mut of_record = of.state.read().record.clone();
        of_record.snapshots = of_record.snapshots.saturating_add(1);
        let mut batch = Batch::new();
        batch.put(META, &key::own(&op.dir_path(of)?.bytes), &of_record.encode());
        self.commit_copy(exclusive, op, batch, of, copy, &mut record)?;
        of.state.write().record = of_record.into();
        self.insert_snapshot(op, snapshots, name, record)
    }

    /// Notes a committed snapshot with this record.
    pub(super) fn insert_snapshot(
        &self,
        op: &Op<'_>,
        snapshots: &Arc<Inode>,
        name: &[u8],
        record: Record,
    ) -> Result<Arc<Inode>> {
        let (name, ino, now_ns): (Arc<[u8]>, _, _) = (Arc::from(name), record.id, self.platform.now_ns());
        let place = Place::named(snapshots, name.clone());
        let dir = Directory::new(self.names_total.clone());
        let inode = self.keep(op, Inode::new(ino, place, record, Some(dir)));
        let mut state = snapshots.state.write();
        state.record = with_snapshot_counted(&state.record, 1, now_ns).into();
        let known = Name { node: Some(inode.id), ino, file_type: FileType::Directory, oid: None };
        self.insert_name(snapshots, &mut state, &name, known)?;
        drop(state);
        Ok(inode)
    }

    /// Removes a snapshot with everything in it, `by` a user only if that one has made it. Returns its
    /// objects that the caller still holds.
    pub(super) fn remove_snapshot(
        &self,
        snapshots: &Arc<Inode>,
        of: &Arc<Inode>,
        name: &[u8],
        by: Option<u32>,
    ) -> Result<Vec<InodeId>> {
        let op = self.update(OpKind::RemoveTree, 0)?;
        let taken = snapshots.state.read().dir()?.get(name).and_then(|known| known.node);
        taken.into_iter().for_each(|node| self.strike_closed(node));
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[of.id, snapshots.id], &[(snapshots.id, name)]);
            let path = op.dir_path(snapshots)?;
            let found = self.find(&op, snapshots, &mut snapshots.state.write(), name)?;
            let inode = found.ok_or(Error::NotFound)?;
            let now_ns = self.platform.now_ns();
            let to_key = key::entry(&path.bytes, name);
            let mut record = inode.state.read().record.clone();
            if by.is_some() && by != record.maker() {
                return Err(Error::NotPermitted);
            }
            let mut of_record = of.state.read().record.clone();
            of_record.snapshots = of_record.snapshots.saturating_sub(1);
            let mut batch = Batch::new();
            let inside = key::child_path(&path.bytes, name);
            let emptied = Emptied::entries_of(&inode, &inside);
            let removal = self.remove_contents(&exclusive, &op, &mut batch, &emptied, now_ns)?;
            batch.delete(META, &to_key);
            delete_data(&mut batch, &to_key, &record);
            batch.put(META, &key::own(&op.dir_path(of)?.bytes), &of_record.encode());
            op.commit(&batch)?;

            of.state.write().record = of_record.into();
            let mut state = snapshots.state.write();
            state.record = with_snapshot_counted(&state.record, -1, now_ns).into();
            state.dir_mut()?.remove(name);
            drop(state);
            (record.nlink, record.entries, record.subdirs) = (0, 0, 0);
            let dropped = Dropped::gone(record, Place::Gone, Vec::new());
            self.install_unlinked(&inode, &mut inode.state.write(), dropped);
            self.table.drop_gone(&inode);
            let cut_off = self.cut_off(&exclusive, &inode).into_iter().collect();
            Ok(self.removed(exclusive, removal, cut_off, now_ns))
        })
    }

    /// Refuses the removal of a directory that is not empty, or has snapshots or is to get one (`kept.rs`).
    /// The caller has it in memory. The record of a copied directory counts its source's snapshots, which the
    /// copy does not have.
    pub(super) fn refuse_in_use(&self, op: &Op<'_>, record: &Record, path: &[u8]) -> Result<()> {
        if record.entries > 0 {
            return Err(Error::NotEmpty);
        }
        if record.snapshots > 0 && op.scan(META, key::entries(&key::snapshots_path(path))).next()?.is_some() {
            return Err(Error::HeldBySnapshots);
        }
        if self.is_held_by_kept(path) {
            return Err(Error::HeldBySnapshots);
        }
        Ok(())
    }

    /// Whether a directory may have snapshots of its own: its record counts those that it has, and in a copy
    /// those of the source.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn may_have_snapshots(&self, node: InodeId) -> Result<bool> {
        Ok(self.inode(node)?.state.read().record.snapshots > 0)
    }

    /// Whether the object is the entry `.betrfs-snapshots` of a directory.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use betrfs::{InodeId, SNAPSHOTS_NAME};
    ///
    /// let snapshots = volume.lookup(InodeId::ROOT, SNAPSHOTS_NAME)?.node;
    /// assert!(volume.holds_snapshots(snapshots)?);
    /// assert!(!volume.holds_snapshots(InodeId::ROOT)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn holds_snapshots(&self, node: InodeId) -> Result<bool> {
        Ok(matches!(self.inode(node)?.place(), Place::Snapshots { .. }))
    }

    /// The snapshots of a directory and of all directories below it, at the cost of one query for each
    /// directory that has any.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, new_dir) = doc::volume()?;
    /// use betrfs::{InodeId, SNAPSHOTS_NAME};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let snapshots = volume.lookup(dir, SNAPSHOTS_NAME)?.node;
    /// volume.create(snapshots, b"monday", &new_dir)?;
    /// assert_eq!(volume.snapshots_below(InodeId::ROOT)?.paths, [b"dir/.betrfs-snapshots/monday"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotFound`] if it was removed.
    pub fn snapshots_below(&self, node: InodeId) -> Result<Held> {
        let op = self.query(OpKind::Lookup);
        let (path, view) = {
            let _shared = self.namespace.shared();
            let dir = self.inode(node)?;
            dir.state.read().dir()?;
            (dir.dir_path()?.bytes, self.env.view())
        };
        let mut held = Held::default();
        let mut pairs = op.scan_of(&view, META, key::snapshots(&path));
        while let Some((at, _)) = pairs.next()? {
            let (of, name) = key::split_entry(at).ok_or_else(|| damaged(at, "it is no name"))?;
            let Some(dir) = key::snapshots_of(of) else {
                // Inside a snapshot: on to the next directory that has any.
                let dir = key::snapshots_holder(at).ok_or_else(|| damaged(at, "it is in no snapshot"))?;
                let beyond = key::subtree(&key::snapshots_path(dir)).1;
                pairs.seek(&beyond);
                continue;
            };
            if held.paths.len() < Held::PATHS_MAX {
                let below = dir.get(path.len()..).unwrap_or_default();
                let components = below.split(|byte| *byte == 0).skip(1).chain([SNAPSHOTS_NAME, name]);
                held.paths.push(components.collect::<Vec<_>>().join(&b'/'));
            }
            held.count += 1;
            if held.count == Held::COUNT_MAX {
                break;
            }
        }
        Ok(held)
    }
}
