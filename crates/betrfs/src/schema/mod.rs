//! The stored keys, records and blocks. Nothing else makes or reads bytes of the dictionaries.

mod acl;
pub(crate) mod block;
mod extents;
pub(crate) mod key;
mod marker;
mod quota;
mod record;
mod xattr;

pub use acl::Acl;
pub(crate) use acl::Named;
pub(crate) use extents::{Extents, Recount};
pub(crate) use marker::{Detached, FIRST_OID, KeptAs, Marker, NUMBERS_MAX, QUOTAS, VolumeRecord};
pub(crate) use quota::Amount;
pub(crate) use record::{Flags, Numbers, Record, Redirect, Stored, TARGET_BYTES_MAX};
pub(crate) use xattr::{Xattr, XattrValue};

use alloc::string::String;

use betree::DictId;

use crate::error::Error;

/// Path key → inode record or redirect.
pub(crate) const META: DictId = DictId(0);
/// Path key and block number → block; path key and name → large extended attribute.
pub const DATA: DictId = DictId(1);
/// Path key of each name of a linked file → its object id.
pub(crate) const LINKS: DictId = DictId(2);

/// For users' pairs beside their files, in a later version: now empty.
pub(crate) const USER: DictId = DictId(3);
/// Number of dictionaries of a volume.
pub(crate) const DICTS: u8 = 4;

/// The error for a stored kind at `key` that only later versions know.
pub(crate) fn unknown(key: &[u8], what: &'static str, kind: u8) -> Error {
    Error::UnknownKind { at: key::describe(key), what, kind }
}

/// The error for stored data at `key` that cannot be right.
pub(crate) fn damaged(key: &[u8], why: impl Into<String>) -> Error {
    Error::Damaged { what: key::describe(key), why: why.into() }
}
