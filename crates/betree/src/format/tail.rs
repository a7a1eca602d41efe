//! Tagged values behind a record: room for values of later versions.
//!
//! ```text
//! (tag u16 | length u16 | value) of each, in ascending order of tags
//! ```
//! A program that does not know a tag keeps its value through every rewrite of the record. A value that every
//! reader must understand is no tag: it takes a feature bit or a flag.

use alloc::vec::Vec;

/// The bytes before a value: tag and length.
const HEAD_BYTES: usize = 4;

/// Tagged values, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaggedTail {
    bytes: Vec<u8>,
}

/// A tag and its value.
type Tagged<'b> = (u16, &'b [u8]);

/// The first value in `bytes`, and what follows it.
fn first(bytes: &[u8]) -> Option<(Tagged<'_>, &[u8])> {
    let (&[t0, t1, l0, l1], rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([l0, l1])))?;
    Some(((u16::from_le_bytes([t0, t1]), value), rest))
}

impl TaggedTail {
    /// A tail without values.
    pub const fn new() -> TaggedTail {
        TaggedTail { bytes: Vec::new() }
    }

    /// Parses the bytes of a tail; `None` if they are cut off or their tags are out of order.
    pub fn parse(bytes: &[u8]) -> Option<TaggedTail> {
        let mut rest = bytes;
        let mut last = None;
        while !rest.is_empty() {
            let ((tag, _), behind) = first(rest)?;
            if last.is_some_and(|last| tag <= last) {
                return None;
            }
            (last, rest) = (Some(tag), behind);
        }
        Some(TaggedTail { bytes: bytes.to_vec() })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values with their tags, in order.
    pub fn iter(&self) -> impl Iterator<Item = Tagged<'_>> {
        let mut rest = self.bytes.as_slice();
        core::iter::from_fn(move || {
            let (found, behind) = first(rest)?;
            rest = behind;
            Some(found)
        })
    }

    /// Sets the value of a tag. `false`, without a change, if the value or the tail would be over 65535
    /// bytes.
    #[must_use]
    pub fn set(&mut self, tag: u16, value: &[u8]) -> bool {
        let mut bytes = Vec::with_capacity(self.bytes.len() + HEAD_BYTES + value.len());
        let mut put = |tag: u16, value: &[u8]| {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
            bytes.extend_from_slice(value);
        };
        self.iter().filter(|(other, _)| *other < tag).for_each(|(tag, value)| put(tag, value));
        put(tag, value);
        self.iter().filter(|(other, _)| *other > tag).for_each(|(tag, value)| put(tag, value));
        let fits = value.len() <= usize::from(u16::MAX) && bytes.len() <= usize::from(u16::MAX);
        if fits {
            self.bytes = bytes;
        }
        fits
    }

    /// The values but that of a tag.
    #[must_use]
    pub fn without(&self, tag: u16) -> TaggedTail {
        let mut others = TaggedTail::new();
        for (other, value) in self.iter().filter(|(other, _)| *other != tag) {
            // A part of a tail is no longer than the tail.
            let _fits = others.set(other, value);
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_in_the_order_of_their_tags() {
        let mut tail = TaggedTail::default();
        for (tag, value) in [(7, &b"seven"[..]), (0, b""), (u16::MAX, b"last"), (7, b"another")] {
            assert!(tail.set(tag, value));
        }
        let read = TaggedTail::parse(tail.as_bytes()).unwrap();
        let expected = [(0, &b""[..]), (7, b"another"), (u16::MAX, b"last")];
        assert_eq!(read.iter().collect::<Vec<_>>(), expected);
        assert!(!tail.set(8, &[0; 1 << 16]) && tail == read);
        assert!(!tail.set(8, &[0; u16::MAX as usize]) && tail == read);
    }

    #[test]
    fn a_tail_that_is_cut_off_or_out_of_order_is_none() {
        let mut tail = TaggedTail::default();
        assert!(tail.set(1, b"one") && tail.set(2, b""));
        let whole = tail.as_bytes();
        for len in 0..whole.len() {
            assert_eq!(TaggedTail::parse(&whole[..len]).is_some(), len == 0 || len == 7, "cut at {len}");
        }
        assert!(TaggedTail::parse(b"\x02\0\0\0\x01\0\0\0").is_none());
        assert!(TaggedTail::parse(b"\x02\0\0\0\x02\0\0\0").is_none());
    }
}
