//! Hard links.
//!
//! A file with several names is stored under an object id, and each name is a redirect. The first link moves
//! the record and the blocks there. They stay there when the file has lost its other names.

use alloc::sync::Arc;

use betree::Batch;

use crate::contents::store_xattrs;
use crate::error::{Error, Result};
use crate::names::{Held, Name, Place};
use crate::op::{OpKind, refuse_in_snapshot};
use crate::planted::{self, Bug};
use crate::rules::{check_name, count_entry, may_be_foreign, refuse_if_immutable, refuse_if_protected};
use crate::schema::{Amount, LINKS, META, Redirect, key};
use crate::types::{Entry, InodeId};
use crate::volume::Volume;
use crate::volume::charge::{refuse_other_quota, spoil};

impl Volume {
    /// Adds a name to a file. For a file without a name it is the first.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create(InodeId::ROOT, b"file", &new_file)?.node;
    /// volume.link(file, InodeId::ROOT, b"other")?;
    /// assert_eq!(volume.resolve(b"/other")?.node, file);
    /// assert_eq!(volume.getattr(file)?.nlink, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::IsADirectory`] for a directory; [`Error::TooManyLinks`]; [`Error::OtherQuota`] if its names
    /// are in another quota.
    pub fn link(&self, node: InodeId, parent: InodeId, name: &[u8]) -> Result<Entry> {
        check_name(name)?;
        let op = self.update(OpKind::Link, 0)?;
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[parent, node], &[(parent, name)]);
            let inode = self.inode(node)?;
            let record = inode.state.read().record.clone();
            if record.is_dir() {
                return Err(Error::IsADirectory);
            }
            refuse_in_snapshot(&op, &inode, &record)?;
            let nlink = record.nlink.checked_add(1).ok_or(Error::TooManyLinks)?;
            let dir = self.live_dir(&exclusive, &op, parent)?;
            let path = op.dir_path(&dir)?;
            let at = key::entry(&path.bytes, name);
            if at.len() > key::OWN_KEY_BYTES_MAX {
                return Err(Error::NameTooLong);
            }
            let mut state = dir.state.write();
            if self.find(&op, &dir, &mut state, name)?.is_some() {
                return Err(Error::Exists);
            }
            refuse_if_immutable(&state.record)?;
            refuse_if_protected(&record)?;

            // The file's amount becomes that of one with several names, which measurements count apart.
            spoil(&op, &path);
            let place = inode.place();
            // One with names in removed trees alone counts where it gets its new name.
            let mut is_hidden = false;
            match &place {
                Place::Named { parent, .. } => {
                    let from = op.dir_path(parent)?;
                    refuse_other_quota(from.quota(), path.quota())?;
                    spoil(&op, &from);
                }
                Place::Object { oid, home } => {
                    is_hidden = !self.quotas.hidden(*oid).counts(record.nlink);
                    if !is_hidden {
                        let from = home.as_ref().and_then(|home| home.quota());
                        refuse_other_quota(from.as_ref(), path.quota())?;
                    }
                }
                _ => {}
            }
            let now_ns = self.platform.now_ns();
            let mut dir_record = state.record.clone();
            count_entry(&mut dir_record, false, 1, now_ns);
            let mut batch = Batch::new();
            let name: Arc<[u8]> = Arc::from(name);
            let oid = match place {
                Place::Object { oid, .. } => {
                    let mut record = record.clone();
                    (record.nlink, record.ctime_ns) = (nlink, now_ns);
                    let redirect = Redirect { oid, ino: inode.ino, file_type: record.file_type };
                    batch.put(META, &key::object(oid), &record.encode());
                    batch.put(META, &at, &redirect.encode());
                    batch.put(LINKS, &at, &oid.to_be_bytes());
                    batch.put(META, &key::own(&path.bytes), &dir_record.encode());
                    let more = if is_hidden { Amount::of(&record) } else { Amount::default() };
                    let charge = self.charge(&op, &path, more, &mut batch)?;
                    op.commit(&batch)?;
                    charge.keep();
                    if is_hidden {
                        inode.set_home(path.home());
                    }
                    inode.state.write().record = record.into();
                    oid
                }
                Place::Named { parent: from_dir, name: from_name, .. } => {
                    let from_path = op.dir_path(&from_dir)?;
                    let from_key = key::entry(&from_path.bytes, &from_name);
                    let home = path.home();
                    let (mut moving, oid) =
                        self.relocate_to_object(&op, &inode, &from_key, home, nlink, now_ns)?;
                    moving.put_redirect(oid, &from_key);
                    moving.put_redirect(oid, &at);
                    moving.leave(&mut batch, &from_key);
                    moving.add_puts(&mut batch);
                    batch.put(META, &key::own(&path.bytes), &dir_record.encode());
                    op.commit(&batch)?;
                    let known = moving.name();
                    self.install_moved(&exclusive, [moving]);
                    if Arc::ptr_eq(&from_dir, &dir) {
                        state.dir_mut()?.insert(&from_name, known);
                    } else {
                        from_dir.state.write().dir_mut()?.insert(&from_name, known);
                    }
                    oid
                }
                Place::Orphan { marker, base } => {
                    let oid = key::object_id(&base).ok_or(Error::NotFound)?;
                    let mut record = record.clone();
                    (record.nlink, record.ctime_ns) = (nlink, now_ns);
                    // The record of a file that was unlinked below a directory has the id less the salts
                    // above it.
                    record.id = inode.ino;
                    store_xattrs(&mut batch, &base, &mut record);
                    let redirect = Redirect { oid, ino: inode.ino, file_type: record.file_type };
                    batch.put(META, &base, &record.encode());
                    batch.put(META, &at, &redirect.encode());
                    batch.put(LINKS, &at, &oid.to_be_bytes());
                    batch.put(META, &key::own(&path.bytes), &dir_record.encode());
                    if !planted::is(Bug::MarkerNotDeleted) {
                        batch.delete(META, &key::marker(marker));
                    }
                    let amount = Amount::of(&record);
                    // It counts where it gets its name, and holds nothing any more.
                    let quotas = self.orphans.let_go(&base);
                    let counted = self.charge(&op, &path, amount, &mut batch);
                    let counted = counted.and_then(|charge| op.commit(&batch).map(|()| charge.keep()));
                    counted.inspect_err(|_| {
                        let held = Held::at_once(quotas, amount);
                        self.orphans.insert(base.clone(), inode.clone(), held);
                    })?;
                    inode.state.write().record = record.into();
                    inode.set_place(Place::Object { oid, home: path.home() });
                    self.table.set_object(oid, inode.id);
                    self.orphans.remove(&base);
                    oid
                }
                Place::Gone | Place::Root | Place::Snapshots { .. } => return Err(Error::NotFound),
            };
            if may_be_foreign(&record, dir_record.uid) {
                self.note_foreign(&dir);
            }
            state.record = dir_record.into();
            let known =
                Name { node: Some(inode.id), ino: inode.ino, file_type: record.file_type, oid: Some(oid) };
            self.insert_name(&dir, &mut state, &name, known)?;
            drop(state);
            Ok(inode.looked_up(&self.allocations))
        })
    }
}
