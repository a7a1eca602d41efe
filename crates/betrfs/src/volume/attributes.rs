//! Attributes: reading and changing them.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::Batch;

use crate::FILE_BYTES_MAX;
use crate::contents::{acl_of, drop_capabilities, put_xattr, resize};
use crate::error::{Error, Result};
use crate::names::{Inode, Place, State};
use crate::op::{Op, OpKind};
use crate::rules::{
    kill_set_id, refuse_if_immutable, refuse_if_protected, refuse_key_in_snapshot, runs_as_group,
};
use crate::schema::block::BLOCK;
use crate::schema::{Amount, META, Record};
use crate::types::{AclKind, Attr, FileType, InodeId, SetAttr, TimeSet};
use crate::volume::Volume;

impl Volume {
    /// The attributes of an object, also of a removed one that the caller still holds.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// let attr = volume.getattr(file)?;
    /// assert_eq!((attr.size, attr.perm, attr.nlink), (4, 0o644, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`] if the caller does not hold it.
    pub fn getattr(&self, node: InodeId) -> Result<Attr> {
        let inode = self.inode(node)?;
        let state = inode.state.read();
        Ok(inode.attr(&state.record, &self.allocations))
    }

    /// Changes attributes.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{InodeId, SetAttr, TimeSet};
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// let set = SetAttr {
    ///     perm: Some(0o600),
    ///     size: Some(2),
    ///     mtime_ns: Some(TimeSet::At(0)),
    ///     ..SetAttr::default()
    /// };
    /// let attr = volume.setattr(file, &set)?;
    /// assert_eq!((attr.perm, attr.size, attr.mtime_ns), (0o600, 2, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::FileTooLarge`]; [`Error::Protected`]; with a size, [`Error::IsADirectory`] or
    /// [`Error::Invalid`] for anything but a regular file.
    pub fn setattr(&self, node: InodeId, set: &SetAttr) -> Result<Attr> {
        let op = self.update(OpKind::SetAttr, 0)?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        if changes_old_state(set) {
            refuse_if_protected(&state.record)?;
        } else {
            refuse_if_immutable(&state.record)?;
        }
        let now_ns = self.platform.now_ns();
        let time = |set| match set {
            TimeSet::Now => now_ns,
            TimeSet::At(ns) => ns,
        };
        let mut record = with_atime(&inode, &state);
        let mut batch = Batch::new();
        if let Some(size) = set.size {
            match record.file_type {
                FileType::Regular if size > FILE_BYTES_MAX => return Err(Error::FileTooLarge),
                FileType::Regular => {
                    let asked = Self::asked_by(&inode, &record);
                    resize(&mut batch, &self.key_by_name(&inode)?, &mut record, size, asked);
                }
                FileType::Directory => return Err(Error::IsADirectory),
                _ => return Err(Error::Invalid("it has no size to set")),
            }
            record.mtime_ns = now_ns;
        }
        if set.uid.is_some() || set.gid.is_some() || set.kill_set_id {
            kill_set_id(&mut record, set.outside_group);
        }
        if set.size.is_some() || set.uid.is_some() || set.gid.is_some() || set.kill_set_id {
            drop_capabilities(&mut batch, &inode, &mut record)?;
        }
        if let Some(perm) = set.perm {
            record.perm = perm & 0o7777;
            if let Some(mut acl) = acl_of(&op, &inode, &record, AclKind::Access)? {
                acl.set_perm(perm);
                put_xattr(&mut batch, &inode, &mut record, AclKind::Access.name(), &acl.encode())?;
            }
        }
        record.uid = set.uid.unwrap_or(record.uid);
        record.gid = set.gid.unwrap_or(record.gid);
        record.atime_ns = set.atime_ns.map_or(record.atime_ns, time);
        record.mtime_ns = set.mtime_ns.map_or(record.mtime_ns, time);
        record.ctime_ns = set.ctime_ns.unwrap_or(now_ns);
        // A full volume still allows changes of attributes, shorter files and a hole at the end, which takes
        // no room.
        if record.size <= state.record.size {
            let fewer = state.record.blocks().saturating_sub(record.blocks());
            batch.mark_freeing(fewer.saturating_mul(BLOCK));
        } else {
            batch.mark_replacing();
        }
        let old_size = state.record.size;
        self.commit_record(&op, batch, &inode, &mut state, record)?;
        if set.uid.is_some() || set.perm.is_some() && runs_as_group(&state.record) {
            self.note_foreign(&inode);
        }
        if let Some(size) = set.size
            && size <= old_size
        {
            // This includes blocks allocated behind the end and left there, as on other file systems.
            self.end_allocation(&inode, &(size.div_ceil(BLOCK)..u64::MAX));
        }
        Ok(inode.attr(&state.record, &self.allocations))
    }

    /// Commits a batch with the inode's new record, and installs the record, which counts for the quotas
    /// above it. That of an unlinked inode is in memory only.
    pub(super) fn commit_record(
        &self,
        op: &Op<'_>,
        batch: Batch,
        inode: &Inode,
        state: &mut State,
        record: Record,
    ) -> Result<()> {
        let own = if inode.is_unlinked() { Vec::new() } else { inode.own_key()? };
        self.commit_record_at(&own, op, batch, inode, state, record)
    }

    /// [`commit_record`](Self::commit_record) for an inode with the key `own`.
    pub(super) fn commit_record_at(
        &self,
        own: &[u8],
        op: &Op<'_>,
        mut batch: Batch,
        inode: &Inode,
        state: &mut State,
        record: Record,
    ) -> Result<()> {
        refuse_key_in_snapshot(own, &state.record)?;
        if !inode.is_unlinked() {
            batch.put(META, own, &record.encode());
        }
        let more = Amount::of(&record) - Amount::of(&state.record);
        let charge = self.charge_inode(op, (inode, state.record.nlink), more, &mut batch)?;
        let orphan = match inode.place() {
            Place::Orphan { base, .. } if !more.is_zero() => Some(base),
            _ => None,
        };
        orphan.iter().try_for_each(|base| self.orphans.hold_more(base, more))?;
        // It held that much before, so it may again.
        let give_back = |_: &Error| orphan.iter().for_each(|base| drop(self.orphans.hold_more(base, -more)));
        op.commit(&batch).inspect_err(give_back)?;
        charge.keep();
        inode.atime_ns.store(record.atime_ns, Relaxed);
        self.install_record(inode, state, record);
        Ok(())
    }
}

/// Whether a change is refused for append-only objects: everything but setting times to the present, which
/// appending does as well.
fn changes_old_state(set: &SetAttr) -> bool {
    let at = |time| matches!(time, Some(TimeSet::At(_)));
    let is_set =
        [set.perm.is_some(), set.uid.is_some(), set.gid.is_some(), set.size.is_some()].contains(&true);
    is_set || at(set.atime_ns) || at(set.mtime_ns)
}

/// A copy of the record, for a change, with the time of the last read.
pub(super) fn with_atime(inode: &Inode, state: &State) -> Record {
    let mut record = state.record.clone();
    record.atime_ns = inode.atime_ns.load(Relaxed);
    record
}
