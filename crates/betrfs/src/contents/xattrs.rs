//! Values of extended attributes: small ones in the record, large ones as keys of `data`.

use betree::Batch;

use crate::error::Result;
use crate::names::Inode;
use crate::schema::{DATA, Flags, Record, XattrValue, key};

/// A value up to this size may be in the record,
pub(crate) const INLINE_BYTES_MAX: usize = 256;
/// as long as all of them take no more than this.
pub(crate) const INLINE_TOTAL_MAX: usize = 1024;

/// The attribute with a program's privileges beyond its caller's.
const CAPABILITIES: &[u8] = b"security.capability";

pub(crate) fn position(record: &Record, name: &[u8]) -> Option<usize> {
    record.xattrs.iter().position(|attr| attr.name == name)
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

/// Stores the large values in `data`, for a file whose record was in memory only.
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
