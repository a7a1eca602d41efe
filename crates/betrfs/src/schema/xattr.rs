//! Extended attributes in an inode record.

use alloc::vec::Vec;

/// An extended attribute: a small one with its value, a large one with its length (the value is
/// in `data`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Xattr {
    pub name: Vec<u8>,
    pub value: XattrValue,
}

/// The value of an extended attribute, or its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum XattrValue {
    /// In the record.
    Inline(Vec<u8>),
    /// In `data`, of this length.
    Stored(u32),
}

impl XattrValue {
    /// The value's length in bytes.
    pub fn len(&self) -> usize {
        match self {
            XattrValue::Inline(value) => value.len(),
            XattrValue::Stored(len) => *len as usize,
        }
    }

    /// Bytes of the value in the record.
    pub fn inline_len(&self) -> usize {
        match self {
            XattrValue::Inline(value) => value.len(),
            XattrValue::Stored(_) => 0,
        }
    }
}

/// The bit that marks the length of a stored value.
const STORED: u32 = 1 << 31;

/// Appends name length, value length, name, value.
pub(crate) fn encode(attr: &Xattr, out: &mut Vec<u8>) {
    out.push(attr.name.len() as u8);
    let (len, value): (u32, &[u8]) = match &attr.value {
        XattrValue::Inline(value) => (value.len() as u32, value),
        XattrValue::Stored(len) => (STORED | *len, &[]),
    };
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&attr.name);
    out.extend_from_slice(value);
}

/// Takes one attribute off the front.
pub(crate) fn parse(bytes: &mut &[u8]) -> Option<Xattr> {
    let (&[name_len, a, b, c, d], rest) = bytes.split_first_chunk::<5>()?;
    let len = u32::from_le_bytes([a, b, c, d]);
    let (name, rest) = rest.split_at_checked(usize::from(name_len))?;
    let (value, rest) = if len & STORED != 0 {
        (XattrValue::Stored(len & !STORED), rest)
    } else {
        let (value, rest) = rest.split_at_checked(len as usize)?;
        (XattrValue::Inline(value.to_vec()), rest)
    };
    *bytes = rest;
    (!name.is_empty()).then(|| Xattr { name: name.to_vec(), value })
}
