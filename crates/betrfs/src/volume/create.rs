//! New entries.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::{Batch, PairCompression};

use crate::contents::{acl_of, contents_bytes, put_bytes, store_xattrs};
use crate::error::{Error, Result};
use crate::names::{Directory, Inode, Name, Place};
use crate::op::{Op, OpKind};
use crate::properties::OwnProperties;
use crate::rules::{
    check_name, count_entry, may_be_foreign, new_record, refuse_if_immutable, refuse_key_in_snapshot,
};
use crate::schema::{Amount, LINKS, META, Marker, Redirect, TARGET_BYTES_MAX, key};
use crate::types::{Access, AclKind, Entry, FileType, InodeId, NewNode};
use crate::volume::charge::spoil;
use crate::volume::properties::asked;
use crate::volume::{CHANGE_BYTES, Volume};

/// Bytes that the records of an entry and of its directory take in a batch, about.
const BATCH_BYTES: usize = 512;

impl Volume {
    /// Makes an entry of any type but a symbolic link. A directory made in `.betrfs-snapshots` is a snapshot
    /// of the directory of that entry.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use betrfs::{Error, FileType, InodeId, NewNode};
    ///
    /// let new_dir =
    ///     NewNode { file_type: FileType::Directory, perm: 0o755, uid: 1000, gid: 1000, rdev: 0, umask: 0 };
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?;
    /// assert_eq!((dir.attr.file_type, dir.attr.perm), (FileType::Directory, 0o755));
    /// assert_eq!(volume.create(InodeId::ROOT, b"dir", &new_dir), Err(Error::Exists));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken; [`Error::QuotaExceeded`].
    pub fn create(&self, parent: InodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        if new.file_type == FileType::Symlink {
            return Err(Error::Invalid("a symbolic link needs a target"));
        }
        self.make(parent, name, new, &[], &[])
    }

    /// Makes a file with its contents, at a lower cost than [`create`](Volume::create) and
    /// [`write`](Volume::write). After a crash it has all of them or does not exist.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"greeting", &new_file, b"hello")?;
    /// assert_eq!(file.attr.size, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken; [`Error::Invalid`] for anything but a regular file;
    /// [`Error::FileTooLarge`] beyond 1 MiB, or less where the log is small.
    pub fn create_with(&self, parent: InodeId, name: &[u8], new: &NewNode, contents: &[u8]) -> Result<Entry> {
        if new.file_type != FileType::Regular {
            return Err(Error::Invalid("only a regular file has contents"));
        }
        if contents.len() as u64 > self.piece_bytes {
            return Err(Error::FileTooLarge);
        }
        self.make(parent, name, new, &[], contents)
    }

    /// Makes a symbolic link.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let link = volume.symlink(InodeId::ROOT, b"link", b"some/file", 1000, 1000)?;
    /// assert_eq!(volume.readlink(link.node)?, b"some/file");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken.
    pub fn symlink(&self, parent: InodeId, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Entry> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("the target is empty or holds a 0 byte"));
        }
        let new = NewNode { file_type: FileType::Symlink, perm: 0o777, uid, gid, rdev: 0, umask: 0 };
        self.make(parent, name, &new, target, &[])
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the object is no symbolic link.
    pub fn readlink(&self, node: InodeId) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        let state = inode.state.read();
        match state.record.file_type {
            FileType::Symlink => {
                self.was_accessed(&inode, &state, Access::Counts);
                Ok(state.record.target.to_vec())
            }
            _ => Err(Error::Invalid("it is no symbolic link")),
        }
    }

    /// Makes a file without a name, for the caller to open. Like a file that was unlinked while open, it is
    /// deleted with its last close unless [`Volume::link`] has named it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create_unnamed(InodeId::ROOT, &new_file)?.node;
    /// volume.open_inode(file)?;
    /// volume.write(file, 0, b"complete")?;
    ///
    /// // The name appears with all contents.
    /// volume.link(file, InodeId::ROOT, b"file")?;
    /// volume.release_node(file);
    /// assert_eq!(volume.resolve(b"/file")?.attr.size, 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::Invalid`] for anything but a regular file.
    pub fn create_unnamed(&self, parent: InodeId, new: &NewNode) -> Result<Entry> {
        if new.file_type != FileType::Regular {
            return Err(Error::Invalid("only a regular file can be without a name"));
        }
        let op = self.update(OpKind::Create, CHANGE_BYTES)?;
        let shared = self.namespace.shared();
        let parent = self.live_dir(&shared, &op, parent)?;
        refuse_if_immutable(&parent.state.read().record)?;
        let ino = self.numbers.id(&op)?;
        let mut record = {
            let dir = &parent.state.read().record;
            let default_acl = acl_of(&op, &parent, dir, AclKind::Default)?;
            new_record(new, dir, default_acl.as_ref(), ino, self.platform.now_ns())
        };
        record.nlink = 0;
        let (oid, marker) = (self.numbers.oid(&op)?, self.numbers.oid(&op)?);
        let base: Arc<[u8]> = Arc::from(key::object(oid));
        let path = parent.dir_path()?;
        let held = self.hold(&op, &path, Amount::of(&record))?;
        let mut batch = Batch::new();
        batch.put(META, &key::marker(marker), &Marker::Unlinked { base: base.to_vec() }.encode());
        op.commit(&batch)?;
        let place = Place::Orphan { marker, base: base.clone() };
        let inode = self.keep(&op, Inode::new(ino, place, record, None));
        self.orphans.insert(base, inode.clone(), held);
        Ok(inode.looked_up(&self.allocations))
    }

    /// Makes an entry with a link's target or a file's contents, in one batch.
    fn make(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewNode,
        target: &[u8],
        contents: &[u8],
    ) -> Result<Entry> {
        check_name(name)?;
        let parent = self.inode(parent)?;
        if let Place::Snapshots { of } = parent.place()
            && new.file_type == FileType::Directory
        {
            return self.make_snapshot(&parent, &of, name, None);
        }
        let op = self.update(OpKind::Create, CHANGE_BYTES + target.len() + contents.len())?;
        self.give_up_names();
        self.know_names(&op, &parent, name);
        op.without_waiting(|| self.make_in(&op, &parent, name, new, target, contents))
    }

    /// Makes an entry in a directory.
    fn make_in(
        &self,
        op: &Op<'_>,
        parent: &Arc<Inode>,
        name: &[u8],
        new: &NewNode,
        target: &[u8],
        contents: &[u8],
    ) -> Result<Entry> {
        let _shared = self.namespace.shared();
        let mut state = parent.state.write();
        state.dir()?;
        let path = parent.dir_path()?;
        refuse_key_in_snapshot(&path.bytes, &state.record)?;
        let at = key::entry(&path.bytes, name);
        if at.len() > key::OWN_KEY_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if self.find(op, parent, &mut state, name)?.is_some() {
            return Err(Error::Exists);
        }
        refuse_if_immutable(&state.record)?;

        let now_ns = self.platform.now_ns();
        let default_acl = acl_of(op, parent, &state.record, AclKind::Default)?;
        let ino = self.numbers.id(op)?;
        let id = ino.wrapping_sub(path.salts);
        let mut record = new_record(new, &state.record, default_acl.as_ref(), id, now_ns);
        record.target = target.into();
        record.size = (target.len() + contents.len()) as u64;
        let mut dir_record = state.record.clone();
        count_entry(&mut dir_record, record.is_dir(), 1, now_ns);
        let is_foreign = may_be_foreign(&record, dir_record.uid);

        let name: Arc<[u8]> = Arc::from(name);
        let mut batch = Batch::with_capacity(BATCH_BYTES + target.len() + contents_bytes(&at, contents));
        // The properties above cost a walk up; only data is compressed.
        let asked =
            if contents.is_empty() { PairCompression::Usual } else { asked(parent.given_properties()) };
        let mut place = Place::named(parent, name.clone());
        let mut linked = None;
        if record.file_type == FileType::Regular && self.orphans.occupy(&at) {
            // An unlinked file's blocks still occupy this key.
            let oid = self.numbers.oid(op)?;
            record.id = ino;
            // It lies in no directory.
            Self::keep_properties(&mut record, parent.given_properties(), OwnProperties::default())?;
            let redirect = Redirect { oid, ino, file_type: record.file_type };
            let own = key::object(oid);
            put_bytes(&mut batch, &own, 0, (0, contents), &[], asked);
            store_xattrs(&mut batch, &own, &mut record);
            batch.put(META, &own, &record.encode());
            batch.put(META, &at, &redirect.encode());
            batch.put(LINKS, &at, &oid.to_be_bytes());
            (place, linked) = (Place::Object { oid, home: path.home() }, Some(oid));
            spoil(op, &path);
        } else {
            put_bytes(&mut batch, &at, 0, (0, contents), &[], asked);
            store_xattrs(&mut batch, &at, &mut record);
            batch.put(META, &at, &record.encode());
        }
        batch.put(META, &key::own(&path.bytes), &dir_record.encode());
        let charge = self.charge(op, &path, Amount::of(&record), &mut batch)?;
        op.commit(&batch)?;
        charge.keep();

        self.install_record(parent, &mut state, dir_record);
        let file_type = record.file_type;
        let dir = record.is_dir().then(|| Directory::new(self.names_total.clone()));
        let inode = self.keep(op, Inode::new(ino, place, record, dir));
        if is_foreign {
            self.note_foreign(&inode);
        }
        let known = Name { node: Some(inode.id), ino, file_type, oid: linked };
        self.insert_name(parent, &mut state, &name, known)?;
        Ok(inode.looked_up(&self.allocations))
    }
}
