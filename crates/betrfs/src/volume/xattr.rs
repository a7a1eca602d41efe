//! Extended attributes: small values in the inode's record, large ones under keys of their own; the record
//! holds their names and lengths. So only a large value needs a query.

use alloc::vec::Vec;

use betree::Batch;

use crate::contents::{get_xattr, position, put_xattr, take};
use crate::error::{Error, Result};
use crate::op::OpKind;
use crate::rules::{is_for_privileged, refuse_if_protected};
use crate::schema::{Acl, Record};
use crate::types::{AclKind, InodeId, SetGroupId, XattrMode};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;

const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 64 << 10;
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

fn check_xattr_name(name: &[u8]) -> Result<()> {
    if AclKind::of_name(name).is_some() {
        return Ok(());
    }
    let rest = NAMESPACES.iter().find_map(|prefix| name.strip_prefix(*prefix));
    match rest {
        None => Err(Error::NotSupported),
        Some([]) => Err(Error::Invalid("the attribute has no name")),
        Some(_) if name.len() > NAME_BYTES_MAX => Err(Error::RangeTooSmall),
        Some(rest) if rest.contains(&0) => Err(Error::Invalid("the attribute's name holds a 0 byte")),
        Some(_) => Ok(()),
    }
}

/// Refuses to set an attribute that must exist and does not, or the other way round.
pub(super) fn check_mode(mode: XattrMode, record: &Record, name: &[u8]) -> Result<()> {
    match (mode, position(record, name)) {
        (XattrMode::Create, Some(_)) => Err(Error::Exists),
        (XattrMode::Replace, None) => Err(Error::NoData),
        _ => Ok(()),
    }
}

impl Volume {
    /// The value of an extended attribute.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use betrfs::{Error, InodeId, XattrMode};
    ///
    /// volume.set_xattr(InodeId::ROOT, b"user.color", b"red", XattrMode::Any)?;
    /// assert_eq!(volume.get_xattr(InodeId::ROOT, b"user.color")?, b"red");
    /// assert_eq!(volume.get_xattr(InodeId::ROOT, b"user.none"), Err(Error::NoData));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoData`] if there is none; [`Error::NotSupported`] outside of `user.`, `trusted.` and
    /// `security.`, but for the names of access control lists ([`AclKind::name`]).
    pub fn get_xattr(&self, node: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        let op = self.query(OpKind::Xattr);
        op.without_waiting(|| {
            let _shared = self.namespace.shared();
            let inode = self.inode(node)?;
            let state = inode.state.read();
            get_xattr(&op, &inode, &state.record, name)?.ok_or(Error::NoData)
        })
    }

    /// Sets an extended attribute. An access control list is set as by [`set_acl`](Volume::set_acl).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use betrfs::{Error, InodeId, XattrMode};
    ///
    /// volume.set_xattr(InodeId::ROOT, b"user.color", b"red", XattrMode::Create)?;
    /// let again = volume.set_xattr(InodeId::ROOT, b"user.color", b"green", XattrMode::Create);
    /// assert_eq!(again, Err(Error::Exists));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoData`] by the mode; [`Error::RangeTooSmall`] over 255 bytes of name
    /// or 64 KiB of value; [`Error::NoSpace`] if all names together take over 64 KiB, or all values over 256
    /// KiB; those of [`Acl::parse`] and [`set_acl`](Volume::set_acl).
    pub fn set_xattr(&self, node: InodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        check_xattr_name(name)?;
        if let Some(kind) = AclKind::of_name(name) {
            return self.set_acl(node, kind, &Acl::parse(value)?, mode, SetGroupId::Kept);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::RangeTooSmall);
        }
        let op = self.update(OpKind::Xattr, value.len())?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        refuse_if_protected(&state.record)?;
        let mut record = with_atime(&inode, &state);
        check_mode(mode, &record, name)?;
        let mut batch = Batch::new();
        put_xattr(&mut batch, &inode, &mut record, name, value)?;
        record.ctime_ns = self.platform.now_ns();
        self.commit_record(&op, batch, &inode, &mut state, record)?;
        if is_for_privileged(name) {
            self.note_foreign(&inode);
        }
        Ok(())
    }

    /// The names of all extended attributes.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use betrfs::{InodeId, XattrMode};
    ///
    /// volume.set_xattr(InodeId::ROOT, b"user.color", b"red", XattrMode::Any)?;
    /// assert_eq!(volume.list_xattrs(InodeId::ROOT)?, [b"user.color"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn list_xattrs(&self, node: InodeId) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(node)?;
        let state = inode.state.read();
        Ok(state.record.xattrs.iter().map(|attr| attr.name.clone()).collect())
    }

    /// Removes an extended attribute.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use betrfs::{InodeId, XattrMode};
    ///
    /// volume.set_xattr(InodeId::ROOT, b"user.color", b"red", XattrMode::Any)?;
    /// volume.remove_xattr(InodeId::ROOT, b"user.color")?;
    /// assert!(volume.list_xattrs(InodeId::ROOT)?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoData`] if there is none, unless it is an access control list.
    pub fn remove_xattr(&self, node: InodeId, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        let op = self.update(OpKind::Xattr, 0)?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        refuse_if_protected(&state.record)?;
        let mut record = with_atime(&inode, &state);
        let Some(at) = position(&record, name) else {
            // As Linux has it: then permission bits say all already.
            return if AclKind::of_name(name).is_some() { Ok(()) } else { Err(Error::NoData) };
        };
        let mut batch = Batch::new();
        take(&mut batch, &inode, &mut record, at)?;
        batch.mark_freeing(0);
        record.ctime_ns = self.platform.now_ns();
        self.commit_record(&op, batch, &inode, &mut state, record)
    }
}
