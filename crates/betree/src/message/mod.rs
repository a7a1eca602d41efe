//! Messages: changes to keys and to ranges of keys, which wait in buffers.
//!
//! A buffer (the memtable, or a partition of a node) is a set of disjoint *range deletes* under *points* that
//! are all newer than the range that covers them. Applying messages keeps it so: a range delete drops the
//! messages that it covers at once, and cuts the older ranges that it overlaps. Two messages of one buffer
//! therefore never have to be compared by age, except the points of one key, which are in the order of their
//! sequence numbers.

mod bytes;
mod goto;
mod pair_compression;
mod ranges;

use alloc::borrow::Cow;

pub(crate) use bytes::Bytes;
pub use goto::Goto;
pub(crate) use goto::{inside, outside};
pub use pair_compression::{PairCompression, ZstdLevel};
pub(crate) use ranges::{RangeDelete, RangeSet, subtract};

/// The message sequence number: one order over all messages of an environment.
pub type Msn = u64;

/// The effect of a point message on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sets the value. Pairs of a leaf are puts with sequence number 0.
    Put(PairCompression),
    /// Removes the key.
    Delete,
    /// Changes the value by the caller's upsert function.
    Upsert(PairCompression),
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const UPSERT: u8 = 3;
/// The bits of a code beside those of the compression.
const KIND_BITS: u32 = 2;

impl Kind {
    /// Its code in runs: the kind in the lower two bits, the code of the compression above.
    pub(crate) fn code(self) -> u8 {
        match self {
            Kind::Put(asked) => PUT | asked.code() << KIND_BITS,
            Kind::Delete => DELETE,
            Kind::Upsert(asked) => UPSERT | asked.code() << KIND_BITS,
        }
    }

    /// The kind with this code.
    pub(crate) fn from_code(code: u8) -> Option<Kind> {
        let asked = PairCompression::from_code(code >> KIND_BITS)?;
        match code & ((1 << KIND_BITS) - 1) {
            PUT => Some(Kind::Put(asked)),
            DELETE if asked == PairCompression::Usual => Some(Kind::Delete),
            UPSERT => Some(Kind::Upsert(asked)),
            _ => None,
        }
    }

    /// Whether it is an upsert.
    pub fn is_upsert(self) -> bool {
        matches!(self, Kind::Upsert(_))
    }

    /// Whether it is a put.
    pub fn is_put(self) -> bool {
        matches!(self, Kind::Put(_))
    }

    /// The compression that it asks for.
    pub fn asked(self) -> PairCompression {
        match self {
            Kind::Put(asked) | Kind::Upsert(asked) => asked,
            Kind::Delete => PairCompression::Usual,
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
