//! Inode flags (chattr(1)): properties that the owner of an object, or root, sets beside its attributes.

use betree::Batch;

use crate::error::{Error, Result};
use crate::op::{OpKind, is_in_snapshot};
use crate::rules::{check_new_flags, is_beyond_users, refuse_if_immutable, refuse_if_protected};
use crate::types::{FlagSetter, InodeFlags, InodeId, Writing};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;

impl Volume {
    /// The flags of an object, including those unknown to this version.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn inode_flags(&self, node: InodeId) -> Result<InodeFlags> {
        Ok(self.inode(node)?.state.read().record.rare().flags)
    }

    /// The project of an object; 0 is none. It has no effect so far.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn project(&self, node: InodeId) -> Result<u32> {
        Ok(self.inode(node)?.state.read().record.rare().project)
    }

    /// The generation of an object's number, as [`Entry::generation`](crate::Entry::generation).
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn generation(&self, node: InodeId) -> Result<u32> {
        let inode = self.inode(node)?;
        let state = inode.state.read();
        Ok(inode.generation(&state.record))
    }

    /// Replaces the flags of an object. They bind everyone from then on, including root and those who have it
    /// open.
    ///
    /// A clone loses immutable and append-only at its top; objects below keep their flags, and a snapshot
    /// keeps all. [`remove_below`](Volume::remove_below) does not check flags below its directory.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{Error, FlagSetter, InodeFlags, InodeId};
    ///
    /// let log = volume.create_with(InodeId::ROOT, b"log", &new_file, b"first")?.node;
    /// volume.set_inode_flags(log, InodeFlags::APPEND, FlagSetter::ROOT)?;
    /// assert_eq!(volume.write(log, 5, b", second")?, 8);
    /// assert_eq!(volume.write(log, 0, b"other"), Err(Error::Protected));
    /// assert_eq!(volume.unlink(InodeId::ROOT, b"log"), Err(Error::Protected));
    ///
    /// volume.set_inode_flags(log, InodeFlags::NONE, FlagSetter::ROOT)?;
    /// volume.unlink(InodeId::ROOT, b"log")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if `setter` may not; [`Error::NotSupported`] for an unknown flag;
    /// [`Error::Protected`] if the object is immutable, stays so, and another flag is to change.
    pub fn set_inode_flags(&self, node: InodeId, flags: InodeFlags, setter: FlagSetter) -> Result<()> {
        self.set_flags_and_project(node, flags, None, setter)
    }

    /// As [`Volume::set_inode_flags`], and sets the project if one is given.
    ///
    /// # Errors
    /// As [`Volume::set_inode_flags`]; an immutable object also keeps its project.
    pub fn set_flags_and_project(
        &self,
        node: InodeId,
        flags: InodeFlags,
        project: Option<u32>,
        setter: FlagSetter,
    ) -> Result<()> {
        let op = self.update(OpKind::SetAttr, 0)?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        let project = project.unwrap_or(state.record.rare().project);
        check_new_flags(&state.record, flags, project, setter)?;
        let mut record = with_atime(&inode, &state);
        record.change_rare(|rare| (rare.flags, rare.project) = (flags, project));
        record.ctime_ns = self.platform.now_ns();
        let mut batch = Batch::new();
        // The new record replaces one of the same length.
        batch.mark_freeing(0);
        self.commit_record(&op, batch, &inode, &mut state, record)?;
        if is_beyond_users(&state.record) {
            self.note_foreign(&inode);
        }
        Ok(())
    }

    /// Checks whether an object may be opened for writing; for a directory, whether its entries may only be
    /// added to ([`Writing::AtEnd`]) or removed as well.
    ///
    /// # Errors
    /// [`Error::InSnapshot`]; [`Error::Protected`]; [`Error::Stale`].
    pub fn check_writable(&self, node: InodeId, writing: Writing) -> Result<()> {
        let inode = self.inode(node)?;
        let op = self.query(OpKind::Internal);
        let record = &inode.state.read().record;
        if is_in_snapshot(&op, &inode, record) {
            return Err(Error::InSnapshot);
        }
        match writing {
            Writing::AtEnd => refuse_if_immutable(record),
            Writing::Anywhere => refuse_if_protected(record),
        }
    }
}
