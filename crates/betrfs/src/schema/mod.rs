//! What is stored: keys, records, blocks. Nothing else makes or reads bytes of the dictionaries.

pub(crate) mod block;
mod extents;
pub(crate) mod key;
mod marker;
mod record;
mod xattr;

pub(crate) use extents::{Extents, Recount};
pub(crate) use marker::{Marker, NUMBERS_MAX, VolumeRecord};
pub(crate) use record::{Flags, Record, Redirect, Stored, TARGET_BYTES_MAX};
pub(crate) use xattr::{Xattr, XattrValue};

use alloc::string::String;

use betree::DictId;

use crate::error::Error;

/// Path key → inode record or redirect.
pub(crate) const META: DictId = DictId(0);
/// Path key and block number → block; path key and name → large extended attribute.
pub(crate) const DATA: DictId = DictId(1);
/// Path key of each name of a linked file → its object id.
pub(crate) const LINKS: DictId = DictId(2);

/// For pairs of users beside their files, in a later version: nothing is in it.
pub(crate) const USER: DictId = DictId(3);
/// How many dictionaries a volume has.
pub(crate) const DICTS: u8 = 4;

/// What is stored at `key` is of a kind that only later versions know.
pub(crate) fn unknown(key: &[u8], what: &'static str, kind: u8) -> Error {
    Error::UnknownKind { at: key::describe(key), what, kind }
}

/// What is stored at `key` cannot be right.
pub(crate) fn damaged(key: &[u8], why: impl Into<String>) -> Error {
    Error::Damaged { what: key::describe(key), why: why.into() }
}
