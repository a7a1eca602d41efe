//! Files with several names whose record was lost. Their names are there still, and can be renamed and
//! removed, or copied with their directory; whatever else is asked of such a file is an error. Nothing counts
//! its names any more: what is left of the file goes when none is listed.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use betree::{Batch, Cut};

use crate::error::{Error, Result};
use crate::names::{Inode, Place, ino_of};
use crate::op::{Op, OpKind};
use crate::rules::check_looked_up;
use crate::schema::{DATA, LINKS, META, Record, Redirect, Stored, damaged, key};
use crate::types::{Entry, FileType, InodeId};
use crate::volume::Volume;
use crate::volume::linked_copies::stored_object;

/// Whether an error of who looks for the record of a linked file says that it was lost for good: it is not
/// there, makes no sense, or a repair has noted its loss.
pub(super) fn is_lost_for_good(error: &Error) -> bool {
    matches!(error, Error::Damaged { .. }) || error.is_known_damage()
}

/// What a linked file is by one of its names; a regular file if that was lost too.
///
/// # Errors
/// The engine's.
pub(super) fn type_of_name(op: &Op<'_>, at: &[u8]) -> Result<FileType> {
    let bytes = match op.get(META, at) {
        Err(error) if error.is_loss() => None,
        read => read?,
    };
    match bytes.map(|bytes| Stored::decode(at, &bytes)) {
        Some(Ok(Stored::Redirect(redirect))) => Ok(redirect.file_type),
        _ => Ok(FileType::Regular),
    }
}

/// The error of who looks up this name of a lost file.
pub(super) fn lost_at(op: &Op<'_>, dir: &Inode, name: &[u8]) -> Error {
    match op.dir_path(dir) {
        Ok(path) => damaged(&key::entry(&path.bytes, name), "the file that it links to is lost"),
        Err(error) => error,
    }
}

impl Volume {
    /// Looks up a name that leads to a file whose record was lost, for a caller that can remove and rename
    /// only what it has looked up: the attributes mean nothing, and all that is asked of the object is an
    /// error. [`lookup`](Volume::lookup) has failed.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name leads to no such file; those of `lookup`.
    pub fn lookup_lost(&self, parent: InodeId, name: &[u8]) -> Result<Entry> {
        let op = self.query_for_objects(OpKind::Lookup);
        check_looked_up(name)?;
        let parent = self.inode(parent)?;
        op.without_waiting(|| {
            let shared = self.namespace.shared();
            let inode = self.child(&shared, &op, &parent, name)?;
            if inode.is_lost { Ok(inode.looked_up(&self.allocations)) } else { Err(Error::NotFound) }
        })
    }

    /// Whether a name that the list of the names of linked files has was lost itself, as one may be whose
    /// directory is lost. A copy has it neither in its list nor anywhere else: it would count a file that
    /// what it is made of does not.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn is_lost_name(&self, op: &Op<'_>, at: &[u8]) -> Result<bool> {
        if !self.env.may_have_known_damage() {
            return Ok(false);
        }
        match op.get(META, at) {
            Err(error) if error.is_loss() => Ok(error.is_known_damage()),
            read => read.map(|_| false),
        }
    }

    /// The lost file of a redirect, which stands for its names alone.
    pub(super) fn lost_object(
        &self,
        op: &Op<'_>,
        redirect: Redirect,
        home: Option<Arc<Inode>>,
    ) -> Result<Arc<Inode>> {
        let Redirect { oid, ino, file_type } = redirect;
        if file_type == FileType::Directory {
            return Err(damaged(&key::object(oid), "it is not the record of a file"));
        }
        let _one = self.object_loads.lock();
        Ok(self.table.object(oid).unwrap_or_else(|| {
            let record = Record::new(file_type, 0, ino, 0);
            let mut inode = Inode::new(ino_of(ino, 0), Place::Object { oid, home }, record, None);
            inode.is_lost = true;
            self.keep(op, inode)
        }))
    }

    /// Called when an inode has lost a name: as `clear_lost`, if it stands for a lost file.
    pub(super) fn clear_if_lost(&self, inode: &Inode) {
        if inode.is_lost
            && let Place::Object { oid, .. } = inode.place()
        {
            self.clear_lost([oid].into());
        }
    }

    /// Deletes what is left of these lost files if none of their names is listed any more. They get no new
    /// ones. Where that fails, or a crash comes before, it stays until a repair. The caller holds no lock.
    pub(super) fn clear_lost(&self, lost: BTreeSet<u64>) {
        if !lost.is_empty() {
            let _ = self.clear_nameless(lost);
        }
    }

    fn clear_nameless(&self, mut lost: BTreeSet<u64>) -> Result<()> {
        {
            let (op, view) = (self.query(OpKind::Internal), self.env.view());
            let mut links = op.scan_of(&view, LINKS, (Cut::LOW, Cut::HIGH));
            while !lost.is_empty() {
                let Some((_, oid)) = links.next()? else { break };
                if let Ok(oid) = oid.try_into().map(u64::from_be_bytes) {
                    lost.remove(&oid);
                }
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let op = self.update(OpKind::Internal, 0)?;
        lost.retain(|oid| stored_object(&op, *oid).is_err_and(|error| is_lost_for_good(&error)));
        let mut batch = Batch::new();
        for oid in &lost {
            let own = key::object(*oid);
            let (lo, hi) = key::within(key::data(&own));
            batch.delete(META, &own);
            batch.delete_range(DATA, &lo, &hi);
        }
        batch.mark_freeing(0);
        op.commit(&batch)?;
        for oid in lost {
            if let Some(inode) = self.table.object(oid).filter(|inode| inode.is_lost) {
                let state = inode.state.write();
                inode.set_place(Place::Gone);
                self.table.remove_object(oid);
                drop(state);
                self.table.drop_gone(&inode);
            }
        }
        Ok(())
    }
}

impl Inode {
    /// Refuses one that stands for the names of a lost file.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(super) fn refuse_lost(&self) -> Result<()> {
        if self.is_lost { Err(damaged(&self.own_key()?, "its record is lost")) } else { Ok(()) }
    }
}
