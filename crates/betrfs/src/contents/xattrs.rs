//! Values of extended attributes: small ones in the record, large ones as keys of `data`.

use alloc::vec::Vec;

use betree::Batch;

use crate::error::{Error, Result};
use crate::names::{Inode, Place};
use crate::op::Op;
use crate::schema::{Acl, DATA, Flags, Record, Xattr, XattrValue, damaged, key};
use crate::types::AclKind;

/// A value up to this size may be in the record,
const INLINE_BYTES_MAX: usize = 256;
/// as long as all of them take no more than this.
const INLINE_TOTAL_MAX: usize = 1024;

/// The most bytes that all names of an inode take, each with a 0 byte: the limit of `listxattr`.
const LIST_BYTES_MAX: usize = 64 << 10;
/// The most bytes that all values of an inode take: those of an unlinked file are in memory while it is open.
const VALUES_BYTES_MAX: usize = 256 << 10;

/// The attribute with a program's privileges beyond its caller's.
const CAPABILITIES: &[u8] = b"security.capability";

pub(crate) fn position(record: &Record, name: &[u8]) -> Option<usize> {
    record.xattrs.iter().position(|attr| attr.name == name)
}

/// The value of an attribute, if there is one. A large one takes a query.
pub(crate) fn get_xattr(op: &Op<'_>, inode: &Inode, record: &Record, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match record.xattrs.iter().find(|attr| attr.name == name).map(|attr| &attr.value) {
        None => Ok(None),
        Some(XattrValue::Inline(value)) => Ok(Some(value.clone())),
        Some(XattrValue::Stored(len)) => {
            let at = key::xattr(&inode.own_key()?, name);
            let value = op.get(DATA, &at)?.ok_or_else(|| damaged(&at, "its value is lost"))?;
            if value.len() == *len as usize {
                Ok(Some(value))
            } else {
                Err(damaged(&at, "its length is wrong"))
            }
        }
    }
}

/// Sets an attribute in the record, and a large value in `data`.
///
/// # Errors
/// [`Error::NoSpace`] if all names together take over 64 KiB, or the new value is longer than that before and
/// all values take over 256 KiB.
pub(crate) fn put_xattr(
    batch: &mut Batch,
    inode: &Inode,
    record: &mut Record,
    name: &[u8],
    value: &[u8],
) -> Result<()> {
    let old = position(record, name).map(|at| record.xattrs.remove(at));
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
    Ok(())
}

/// An access control list of an object, if it has that. A long one takes a query.
pub(crate) fn acl_of(op: &Op<'_>, inode: &Inode, record: &Record, kind: AclKind) -> Result<Option<Acl>> {
    let Some(value) = get_xattr(op, inode, record, kind.name())? else { return Ok(None) };
    match Acl::parse(&value) {
        Ok(acl) => Ok(Some(acl)),
        Err(_) => Err(damaged(&inode.own_key()?, "its access control list is none")),
    }
}

/// Drops a program's privileges. Every change of a file's contents or owner does so, even the superuser's.
pub(crate) fn drop_capabilities(batch: &mut Batch, inode: &Inode, record: &mut Record) -> Result<()> {
    position(record, CAPABILITIES).map_or(Ok(()), |at| take(batch, inode, record, at))
}

/// Removes one attribute from the record, and a large value from `data`.
pub(crate) fn take(batch: &mut Batch, inode: &Inode, record: &mut Record, at: usize) -> Result<()> {
    let old = record.xattrs.remove(at);
    if let XattrValue::Stored(_) = old.value {
        batch.delete(DATA, &key::xattr(&inode.own_key()?, &old.name));
    }
    if !record.xattrs.iter().any(|attr| matches!(attr.value, XattrValue::Stored(_))) {
        record.flags.clear(Flags::LARGE_XATTRS);
    }
    Ok(())
}

/// Stores the large values in `data`, for an object whose record was in memory only until now.
pub(crate) fn store_xattrs(batch: &mut Batch, own: &[u8], record: &mut Record) {
    let mut inlined = 0;
    for attr in &mut record.xattrs {
        let XattrValue::Inline(value) = &attr.value else { continue };
        if value.len() <= INLINE_BYTES_MAX && inlined + value.len() <= INLINE_TOTAL_MAX {
            inlined += value.len();
            continue;
        }
        batch.put(DATA, &key::xattr(own, &attr.name), value);
        attr.value = XattrValue::Stored(value.len() as u32);
        record.flags.set(Flags::LARGE_XATTRS);
    }
}
