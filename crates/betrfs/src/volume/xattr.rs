//! Extended attributes: small values in the inode's record, large ones under keys of their own; the record
//! holds their names and lengths. So only a large value needs a query.

use alloc::vec::Vec;

use betree::Batch;

use crate::contents::{INLINE_BYTES_MAX, INLINE_TOTAL_MAX, position, take};
use crate::error::{Error, Result};
use crate::names::Place;
use crate::op::OpKind;
use crate::rules::refuse_if_protected;
use crate::schema::{DATA, Flags, Xattr, XattrValue, damaged, key};
use crate::types::{InodeId, XattrMode};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;

const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The most bytes that all names of an inode take, each with a 0 byte: the limit of `listxattr`.
const LIST_BYTES_MAX: usize = 64 << 10;
/// The most bytes that all values of an inode take: those of an unlinked file are in memory while it is open.
const VALUES_BYTES_MAX: usize = 256 << 10;
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

fn check_xattr_name(name: &[u8]) -> Result<()> {
    let rest = NAMESPACES.iter().find_map(|prefix| name.strip_prefix(*prefix));
    match rest {
        None => Err(Error::NotSupported),
        Some([]) => Err(Error::Invalid("the attribute has no name")),
        Some(_) if name.len() > NAME_BYTES_MAX => Err(Error::RangeTooSmall),
        Some(rest) if rest.contains(&0) => Err(Error::Invalid("the attribute's name holds a 0 byte")),
        Some(_) => Ok(()),
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
    /// [`Error::NoData`] if there is none; [`Error::NotSupported`] outside of `user.`, `trusted.`
    /// and `security.`.
    pub fn get_xattr(&self, node: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        let op = self.query(OpKind::Xattr);
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let state = inode.state.read();
        match state.record.xattrs.iter().find(|attr| attr.name == name).map(|attr| &attr.value) {
            None => Err(Error::NoData),
            Some(XattrValue::Inline(value)) => Ok(value.clone()),
            Some(XattrValue::Stored(len)) => {
                let at = key::xattr(&inode.own_key()?, name);
                let value = op.get(DATA, &at)?.ok_or_else(|| damaged(&at, "its value is lost"))?;
                if value.len() == *len as usize {
                    Ok(value)
                } else {
                    Err(damaged(&at, "its length is wrong"))
                }
            }
        }
    }

    /// Sets an extended attribute.
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
    /// KiB.
    pub fn set_xattr(&self, node: InodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        check_xattr_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::RangeTooSmall);
        }
        let op = self.update(OpKind::Xattr, value.len())?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        refuse_if_protected(&state.record)?;
        let mut record = with_atime(&inode, &state);
        let old = position(&record, name).map(|at| record.xattrs.remove(at));
        match (mode, &old) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists),
            (XattrMode::Replace, None) => return Err(Error::NoData),
            _ => {}
        }
        let names: usize = record.xattrs.iter().map(|attr| attr.name.len() + 1).sum();
        if names + name.len() + 1 > LIST_BYTES_MAX {
            return Err(Error::NoSpace);
        }
        let values = record.xattrs.iter().map(|attr| attr.value.len()).fold(0, usize::saturating_add);
        let old_len = old.as_ref().map_or(0, |old| old.value.len());
        if value.len() > old_len && values.saturating_add(value.len()) > VALUES_BYTES_MAX {
            return Err(Error::NoSpace);
        }
        let inlined: usize = record.xattrs.iter().map(|attr| attr.value.inline_len()).sum();
        let fits = value.len() <= INLINE_BYTES_MAX && inlined + value.len() <= INLINE_TOTAL_MAX;
        let in_memory = matches!(inode.place(), Place::Orphan { .. } | Place::Gone);
        let mut batch = Batch::new();
        if old.is_some() && value.len() <= old_len {
            batch.mark_replacing();
        }
        let value = if fits || in_memory {
            if let Some(Xattr { value: XattrValue::Stored(_), .. }) = old {
                batch.delete(DATA, &key::xattr(&inode.own_key()?, name));
            }
            XattrValue::Inline(value.to_vec())
        } else {
            batch.put(DATA, &key::xattr(&inode.own_key()?, name), value);
            record.flags.set(Flags::LARGE_XATTRS);
            XattrValue::Stored(value.len() as u32)
        };
        record.xattrs.push(Xattr { name: name.to_vec(), value });
        record.ctime_ns = self.platform.now_ns();
        self.commit_record(&op, batch, &inode, &mut state, record)
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
    /// [`Error::NoData`] if there is none.
    pub fn remove_xattr(&self, node: InodeId, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        let op = self.update(OpKind::Xattr, 0)?;
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        refuse_if_protected(&state.record)?;
        let mut record = with_atime(&inode, &state);
        let at = position(&record, name).ok_or(Error::NoData)?;
        let mut batch = Batch::new();
        take(&mut batch, &inode, &mut record, at)?;
        batch.mark_freeing(0);
        record.ctime_ns = self.platform.now_ns();
        self.commit_record(&op, batch, &inode, &mut state, record)
    }
}
