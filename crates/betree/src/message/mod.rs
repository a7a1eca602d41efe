//! Messages: changes to keys and to ranges of keys, which wait in buffers.
//!
//! A buffer (the memtable, or a partition of a node) is a set of disjoint *range deletes* under *points* that
//! are all newer than the range that covers them. Applying messages keeps it so: a range delete drops the
//! messages that it covers at once, and cuts the older ranges that it overlaps. Two messages of one buffer
//! therefore never have to be compared by age, except the points of one key, which are in the order of their
//! sequence numbers.

mod bytes;
mod goto;
mod ranges;

use alloc::borrow::Cow;

pub(crate) use bytes::Bytes;
pub use goto::Goto;
pub(crate) use goto::{inside, outside};
pub(crate) use ranges::{RangeDelete, RangeSet, subtract};

/// The message sequence number: one order over all messages of an environment.
pub type Msn = u64;

/// The effect of a point message on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Sets the value. Pairs of a leaf are puts with sequence number 0.
    Put = 1,
    /// Removes the key.
    Delete = 2,
    /// Changes the value by the caller's upsert function.
    Upsert = 3,
}

impl Kind {
    /// The kind with this code.
    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        match code {
            1 => Some(Kind::Put),
            2 => Some(Kind::Delete),
            3 => Some(Kind::Upsert),
            _ => None,
        }
    }
}

/// A point message (or a pair of a leaf), borrowed from where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point<'a> {
    pub key: Cow<'a, [u8]>,
    pub msn: Msn,
    pub kind: Kind,
    pub value: &'a [u8],
}

/// The cost of a point in a buffer beyond its key and value, in bytes.
pub(crate) const POINT_OVERHEAD_BYTES: usize = 17;

impl Point<'_> {
    /// Its cost in a buffer in bytes.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + POINT_OVERHEAD_BYTES
    }
}
