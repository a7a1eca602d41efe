//! Access control lists (acl(5)). The library keeps them, has them agree with the permission bits, and lets
//! new objects inherit them; whoever judges users (the kernel of a mount) asks for them.
//!
//! A list is an extended attribute. One that says no more than the permission bits is not kept.

use betree::Batch;

use crate::contents::{acl_of, position, put_xattr, take};
use crate::error::{Error, Result};
use crate::op::OpKind;
use crate::rules::{clear_set_group_id, refuse_if_protected, with_perm_of};
use crate::schema::Acl;
use crate::types::{AclKind, FileType, InodeId, SetGroupId, XattrMode};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;
use crate::volume::xattr::check_mode;

impl Volume {
    /// An access control list of an object. Without one the permission bits say all.
    ///
    /// # Errors
    /// [`Error::Stale`]; [`Error::Damaged`].
    pub fn acl(&self, node: InodeId, kind: AclKind) -> Result<Option<Acl>> {
        let op = self.query(OpKind::Xattr);
        op.without_waiting(|| {
            let _shared = self.namespace.shared();
            let inode = self.inode(node)?;
            let state = inode.state.read();
            acl_of(&op, &inode, &state.record, kind)
        })
    }

    /// Sets an access control list. That of an object itself sets its permission bits too.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{Acl, AclKind, InodeId, SetGroupId, XattrMode};
    ///
    /// // Version 2; rwx for the owner, r-x for user 7, the group nothing, the mask r-x, others nothing.
    /// let entry = |tag: u16, perm: u16, id: u32| {
    ///     [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    /// };
    /// let none = u32::MAX;
    /// let entries = [(1, 7, none), (2, 5, 7), (4, 0, none), (0x10, 5, none), (0x20, 0, none)];
    /// let entries = entries.map(|(tag, perm, id)| entry(tag, perm, id)).concat();
    /// let acl = Acl::parse(&[vec![2, 0, 0, 0], entries].concat())?;
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// volume.set_acl(dir, AclKind::Default, &acl, XattrMode::Any, SetGroupId::Kept)?;
    /// let file = volume.create(dir, b"file", &new_file)?;
    /// assert_eq!(file.attr.perm, 0o640);
    /// let inherited = volume.acl(file.node, AclKind::Access)?.expect("it has inherited one");
    /// assert!(inherited.grants(7, |_| false, (file.attr.uid, file.attr.gid), 4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a symbolic link; [`Error::Invalid`] if a default list is for anything but
    /// a directory; [`Error::Protected`]; those of [`set_xattr`](Volume::set_xattr).
    pub fn set_acl(
        &self,
        node: InodeId,
        kind: AclKind,
        acl: &Acl,
        mode: XattrMode,
        set_group_id: SetGroupId,
    ) -> Result<()> {
        let value = acl.encode();
        let op = self.update(OpKind::Xattr, value.len())?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        match (kind, state.record.file_type) {
            (_, FileType::Symlink) => return Err(Error::NotSupported),
            (AclKind::Access, _) | (_, FileType::Directory) => {}
            _ => return Err(Error::Invalid("only a directory has a default access control list")),
        }
        refuse_if_protected(&state.record)?;
        let mut record = with_atime(&inode, &state);
        check_mode(mode, &record, kind.name())?;
        let mut batch = Batch::new();
        if kind == AclKind::Default || !acl.is_minimal() {
            put_xattr(&mut batch, &inode, &mut record, kind.name(), &value)?;
        } else if let Some(at) = position(&record, kind.name()) {
            take(&mut batch, &inode, &mut record, at)?;
            batch.mark_freeing(0);
        } else {
            batch.mark_replacing();
        }
        if kind == AclKind::Access {
            record.perm = with_perm_of(acl, record.perm);
            if set_group_id == SetGroupId::Cleared {
                clear_set_group_id(&mut record);
            }
        }
        record.ctime_ns = self.platform.now_ns();
        self.commit_record(&op, batch, &inode, &mut state, record)
    }
}
