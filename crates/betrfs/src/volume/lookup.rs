//! Names to inodes: in memory, then in the tree.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::{Error, Result};
use crate::names::{DirPath, Directory, InNamespace, Inode, Name, Place, Shared, State, ino_of};
use crate::op::{Op, OpKind, refuse_in_snapshot};
use crate::planted::{self, Bug};
use crate::rules::check_looked_up;
use crate::schema::{META, Record, Redirect, Stored, damaged, key};
use crate::types::SNAPSHOTS_NAME;
use crate::types::{Entry, InodeId};
use crate::volume::Volume;
use crate::volume::lost_files::{is_lost_for_good, lost_at};

impl Volume {
    /// Looks a name up.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{Error, InodeId};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create(dir, b"file", &new_file)?;
    /// assert_eq!(volume.lookup(dir, b"file")?, file);
    /// assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none; [`Error::NotADirectory`].
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Entry> {
        let op = self.query_for_objects(OpKind::Lookup);
        check_looked_up(name)?;
        self.give_up_names();
        let parent = self.inode(parent)?;
        self.know_names(&op, &parent, name);
        op.without_waiting(|| {
            let shared = self.namespace.shared();
            let inode = self.child(&shared, &op, &parent, name)?;
            if inode.is_lost {
                Err(lost_at(&op, &parent, name))
            } else {
                Ok(inode.looked_up(&self.allocations))
            }
        })
    }

    /// The inode of a name that was checked.
    pub(super) fn child(
        &self,
        shared: &Shared<'_>,
        op: &Op<'_>,
        parent: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Arc<Inode>> {
        let is_removed = self.is_removed(shared, parent);
        if !is_removed {
            let state = parent.state.read();
            // A removed directory has no names.
            if let Some(known) = state.dir.as_ref().and_then(|dir| dir.get(name))
                && let Some(inode) = self.in_memory(&known, parent, name)
            {
                return Ok(inode);
            }
        }
        if name == SNAPSHOTS_NAME {
            return self.snapshots_of(shared, op, parent);
        }
        {
            let state = parent.state.read();
            let names = state.dir()?;
            if is_removed {
                return Err(Error::NotFound);
            }
            let is_complete = state.is_complete() || planted::is(Bug::EvictedNamesTakenForAbsent);
            if names.get(name).is_none() && is_complete {
                return Err(Error::NotFound);
            }
        }
        let mut state = parent.state.write();
        self.find(op, parent, &mut state, name)?.ok_or(Error::NotFound)
    }

    /// The name of an object. `None` for an object without one, and for a file that has or had several names.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create(InodeId::ROOT, b"file", &new_file)?.node;
    /// assert_eq!(volume.name(file).as_deref(), Some(b"file".as_slice()));
    /// volume.link(file, InodeId::ROOT, b"other")?;
    /// assert_eq!(volume.name(file), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self, node: InodeId) -> Option<Arc<[u8]>> {
        match self.table.get(node)?.place() {
            Place::Named { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Walks a path from the root. Empty components are ignored, symbolic links are not followed. Counts one
    /// lookup of the entry it returns.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create(dir, b"file", &new_file)?;
    /// assert_eq!(volume.resolve(b"/dir/file")?, file);
    /// assert_eq!(volume.resolve(b"dir//file/")?, file);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn resolve(&self, path: &[u8]) -> Result<Entry> {
        let op = self.query_for_objects(OpKind::Lookup);
        self.give_up_names();
        op.without_waiting(|| {
            let shared = self.namespace.shared();
            let mut inode = self.root.clone();
            for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                check_looked_up(name)?;
                let found = self.child(&shared, &op, &inode, name)?;
                if found.is_lost {
                    return Err(lost_at(&op, &inode, name));
                }
                inode = found;
            }
            Ok(inode.looked_up(&self.allocations))
        })
    }

    /// Gives back lookups. An object that nobody holds any more may leave memory; if it is an unlinked file,
    /// it is deleted.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{Error, InodeId};
    ///
    /// let file = volume.create(InodeId::ROOT, b"file", &new_file)?.node;
    /// volume.resolve(b"/file")?;
    /// volume.unlink(InodeId::ROOT, b"file")?;
    ///
    /// // The creation and the look-up count.
    /// volume.forget(file, 1);
    /// assert!(volume.getattr(file).is_ok());
    /// volume.forget(file, 1);
    /// assert_eq!(volume.getattr(file), Err(Error::Stale));
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&self, node: InodeId, lookups: u64) {
        let Some(inode) = self.table.get(node) else { return };
        let less = |held: u64| Some(held.saturating_sub(lookups));
        // The closure always returns `Some`, so the update cannot fail.
        let before = inode.lookups.fetch_update(Relaxed, Relaxed, less).unwrap_or(0);
        if before <= lookups {
            self.release(&inode);
        }
    }

    /// Counts an opening: the file stays readable and writable even if it is unlinked.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{Error, InodeId};
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// volume.open_inode(file)?;
    /// volume.unlink(InodeId::ROOT, b"file")?;
    ///
    /// let mut bytes = Vec::new();
    /// volume.read(file, 0, 100, &mut bytes)?;
    /// assert_eq!(bytes, b"text");
    ///
    /// // Its last holder deletes it.
    /// volume.release_node(file);
    /// volume.forget(file, 1);
    /// assert_eq!(volume.getattr(file), Err(Error::Stale));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`] if it was already removed.
    pub fn open_inode(&self, node: InodeId) -> Result<()> {
        // The removal of a tree, which holds the namespace alone, looks for open files in it.
        let shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let _state = inode.state.read();
        if inode.is_gone() || !inode.is_unlinked() && self.is_removed(&shared, &inode) {
            self.refused_late_open();
            return Err(Error::Stale);
        }
        inode.open(&shared);
        Ok(())
    }

    /// Counts a closing.
    pub fn release_node(&self, node: InodeId) {
        let Some(inode) = self.table.get(node) else { return };
        if inode.close() {
            self.closed(&inode);
        }
    }

    /// Called when an inode may have lost its last opening. If it is unlinked, it is deleted now, even if it
    /// is looked up, unless a late opening is waited for.
    pub(super) fn closed(&self, inode: &Arc<Inode>) {
        if !inode.is_open() && inode.is_unlinked() && !self.waits_for_openings() {
            // A failure leaves the marker, and the next opening of the volume deletes the file.
            let _ = self.reap(inode);
        }
        self.release(inode);
    }

    /// Called when an inode may have lost its last holder: it may leave memory, and an unlinked file is
    /// deleted.
    pub(super) fn release(&self, inode: &Arc<Inode>) {
        if !inode.is_idle() {
            return;
        }
        if inode.is_unlinked() {
            // A failure leaves the marker, as above.
            let _ = self.reap(inode);
            self.table.drop_gone(inode);
        }
        self.table.queue(inode);
    }

    /// The directory `node`, for a change, if it still has a path.
    pub(super) fn live_dir(&self, held: &impl InNamespace, op: &Op<'_>, node: InodeId) -> Result<Arc<Inode>> {
        let inode = self.inode(node)?;
        let state = inode.state.read();
        state.dir()?;
        refuse_in_snapshot(op, &inode, &state.record)?;
        drop(state);
        if self.is_removed(held, &inode) { Err(Error::NotFound) } else { Ok(inode) }
    }

    /// The inode of a name, from memory if it is there. The caller holds `state`, the parent's.
    pub(super) fn find(
        &self,
        op: &Op<'_>,
        parent: &Arc<Inode>,
        state: &mut State,
        name: &[u8],
    ) -> Result<Option<Arc<Inode>>> {
        if state.dir()?.get(name).is_none() && !state.is_complete() {
            return self.load(op, parent, state, name);
        }
        let Some(known) = state.dir()?.get(name) else { return Ok(None) };
        match self.in_memory(&known, parent, name) {
            Some(inode) => Ok(Some(inode)),
            None => self.load(op, parent, state, name),
        }
    }

    /// The inode of a known name in a directory, if it is in memory.
    pub(super) fn in_memory(&self, known: &Name, dir: &Arc<Inode>, name: &[u8]) -> Option<Arc<Inode>> {
        let by_node = known.node.and_then(|node| self.table.get(node));
        match known.oid {
            None => by_node.filter(|inode| inode.is_named(dir, name)),
            Some(oid) => by_node.filter(|inode| inode.is_object(oid)).or_else(|| self.table.object(oid)),
        }
    }

    /// Queries the tree for a name.
    fn load(
        &self,
        op: &Op<'_>,
        parent: &Arc<Inode>,
        state: &mut State,
        name: &[u8],
    ) -> Result<Option<Arc<Inode>>> {
        let path = op.dir_path(parent)?;
        let at = key::entry(&path.bytes, name);
        if at.len() > key::OWN_KEY_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let Some(bytes) = op.get(META, &at)? else {
            let dir = state.dir_mut()?;
            dir.misses = dir.misses.saturating_add(u32::from(!op.is_again()));
            return if dir.get(name).is_some() { Err(damaged(&at, "its record is lost")) } else { Ok(None) };
        };
        let name: Arc<[u8]> = Arc::from(name);
        let (inode, known) = match Stored::decode(&at, &bytes)? {
            Stored::Inode(record) => self.adopt(op, parent, &path, &name, record),
            Stored::Redirect(redirect) => {
                let inode = self.object_of(op, &at, redirect, &path)?;
                let known = name_of_redirect(redirect, Some(inode.id));
                (inode, known)
            }
        };
        self.insert_name(parent, state, &name, known)?;
        Ok(Some(inode))
    }

    /// Adds the record of an entry to the inodes in memory.
    pub(super) fn adopt(
        &self,
        op: &Op<'_>,
        parent: &Arc<Inode>,
        path: &DirPath,
        name: &Arc<[u8]>,
        record: Record,
    ) -> (Arc<Inode>, Name) {
        let ino = ino_of(record.id, path.salts);
        let file_type = record.file_type;
        let place = Place::named(parent, name.clone());
        let dir = record.is_dir().then(|| Directory::new(self.names_total.clone()));
        let inode = self.keep(op, Inode::new(ino, place, record, dir));
        let known = Name { node: Some(inode.id), ino, file_type, oid: None };
        (inode, known)
    }

    /// The object of the redirect at `at`. If it is lost, what is returned stands for its name alone.
    fn object_of(&self, op: &Op<'_>, at: &[u8], redirect: Redirect, path: &DirPath) -> Result<Arc<Inode>> {
        let inode = match self.load_object(op, redirect.oid, path.home()) {
            Ok(Some(inode)) => inode,
            Ok(None) => return self.lost_object(op, redirect, path.home()),
            Err(error) if is_lost_for_good(&error) => return self.lost_object(op, redirect, path.home()),
            Err(error) => return Err(error),
        };
        if inode.is_lost {
            return Ok(inode);
        }
        // The type never changes.
        let file_type = inode.state.read().record.file_type;
        if file_type != redirect.file_type {
            return Err(damaged(at, "what it links to is of another type"));
        }
        Ok(inode)
    }

    /// The object of this id, from memory if it is there; `home` is the directory of the nearest quota above
    /// its names.
    pub(super) fn load_object(
        &self,
        op: &Op<'_>,
        oid: u64,
        home: Option<Arc<Inode>>,
    ) -> Result<Option<Arc<Inode>>> {
        let _one = self.object_loads.lock();
        if let Some(inode) = self.table.object(oid) {
            return Ok(Some(inode));
        }
        let own = key::object(oid);
        let Some(bytes) = op.get(META, &own)? else { return Ok(None) };
        match Stored::decode(&own, &bytes)? {
            Stored::Inode(record) if !record.is_dir() => {
                let ino = ino_of(record.id, 0);
                Ok(Some(self.keep(op, Inode::new(ino, Place::Object { oid, home }, record, None))))
            }
            _ => Err(damaged(&own, "it is not the record of a file")),
        }
    }
}

pub(super) fn name_of_redirect(redirect: Redirect, node: Option<InodeId>) -> Name {
    Name { node, ino: redirect.ino, file_type: redirect.file_type, oid: Some(redirect.oid) }
}
