//! The value of a message in memory.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, Range};

/// A value of at least this size shares the record that it came in, in bytes. A smaller one is cheaper to
/// copy than its record is to keep.
const SHARED_BYTES_MIN: usize = 1024;

/// Bytes of its own, or a shared part of a record.
pub(crate) enum Bytes {
    Own(Vec<u8>),
    Shared { record: Arc<Vec<u8>>, start: usize, end: usize },
}

impl Bytes {
    /// A part of a record; small ones are copied.
    pub fn of(record: &Arc<Vec<u8>>, part: Range<usize>) -> Bytes {
        if part.len() < SHARED_BYTES_MIN {
            return Bytes::Own(record.get(part).unwrap_or_default().to_vec());
        }
        Bytes::Shared { record: record.clone(), start: part.start, end: part.end }
    }

    /// The same part of the same record; `None` for bytes of its own.
    pub fn share(&self) -> Option<Bytes> {
        match self {
            Bytes::Own(_) => None,
            Bytes::Shared { record, start, end } => {
                Some(Bytes::Shared { record: record.clone(), start: *start, end: *end })
            }
        }
    }

    /// The record that it keeps in memory.
    pub fn record(&self) -> Option<&Arc<Vec<u8>>> {
        match self {
            Bytes::Own(_) => None,
            Bytes::Shared { record, .. } => Some(record),
        }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        Bytes::Own(bytes.to_vec())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared { record, start, end } => record.get(*start..*end).unwrap_or_default(),
        }
    }
}
