//! Keys and values that were read.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

/// A byte string that was read from a store. It dereferences to a slice, and is shown as text where it is
/// one.
#[derive(Clone, Default, Eq, PartialOrd, Ord, Hash)]
// It is equal to what the derived order and hash say: the bytes decide.
#[allow(clippy::derived_hash_with_manual_eq, clippy::derive_ord_xor_partial_ord)]
pub struct Bytes(Vec<u8>);

/// A key as it was read, without anything that the store puts before it.
pub type Key = Bytes;
/// A value as it was read.
pub type Value = Bytes;

impl Bytes {
    /// The bytes as a vector, without a copy.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(bytes)
    }
}

impl From<Bytes> for Vec<u8> {
    fn from(bytes: Bytes) -> Vec<u8> {
        bytes.0
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Bytes {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}
