//! Values as they are stored: nearly all as they are, and large ones as a reference to their parts.

use std::borrow::Cow;

/// What a stored value that is not the user's begins with. A user's own that begins so is marked.
pub(crate) const MARK: [u8; 8] = [0x9e, 0xd1, 0x5c, 0x3b, 0xa4, 0x07, 0xf2, 0x68];
/// What follows the mark.
const LITERAL: u8 = 0;
const PARTS: u8 = 1;
pub(crate) const UNMERGED: u8 = 2;

/// A value in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Which value of its key it is.
    pub generation: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// A stored value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Whole(Vec<u8>),
    Parts(Reference),
    /// One with deltas that could not be merged into it, as it is stored.
    Unmerged(Vec<u8>),
    /// It begins with the mark, and goes on as nothing that is known.
    Unknown,
}

/// The stored form of a value.
pub(crate) fn stored(value: &[u8]) -> Cow<'_, [u8]> {
    if value.starts_with(&MARK) {
        return Cow::Owned([&MARK[..], &[LITERAL], value].concat());
    }
    Cow::Borrowed(value)
}

/// The value in its stored form, if it is stored whole.
pub(crate) fn whole(stored: &[u8]) -> Option<&[u8]> {
    match stored.strip_prefix(&MARK) {
        None => Some(stored),
        Some(rest) => rest.split_first().filter(|(kind, _)| **kind == LITERAL).map(|(_, value)| value),
    }
}

impl Reference {
    /// The stored form.
    pub fn stored(&self) -> Vec<u8> {
        [&MARK[..], &[PARTS], &self.generation.to_le_bytes(), &self.len.to_le_bytes()].concat()
    }
}

impl Stored {
    /// The value in its stored form.
    pub fn of(mut stored: Vec<u8>) -> Stored {
        let Some(rest) = stored.strip_prefix(&MARK) else { return Stored::Whole(stored) };
        match rest.split_first() {
            Some((&LITERAL, rest)) => {
                let marked = stored.len() - rest.len();
                stored.drain(..marked);
                Stored::Whole(stored)
            }
            Some((&PARTS, rest)) => match rest.split_first_chunk() {
                Some((generation, rest)) => match rest.try_into() {
                    Ok(len) => Stored::Parts(Reference {
                        generation: u64::from_le_bytes(*generation),
                        len: u64::from_le_bytes(len),
                    }),
                    Err(_) => Stored::Unknown,
                },
                None => Stored::Unknown,
            },
            Some((&UNMERGED, _)) => Stored::Unmerged(stored),
            _ => Stored::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_also_those_that_look_like_references() {
        let reference = Reference { generation: u64::MAX, len: 7 };
        let nested = stored(&reference.stored()).into_owned();
        for value in [&b""[..], b"value", &MARK[..7], &MARK, &reference.stored(), &nested] {
            assert_eq!(Stored::of(stored(value).into_owned()), Stored::Whole(value.to_vec()));
            assert_eq!(whole(&stored(value)), Some(value));
        }
        assert_eq!(Stored::of(reference.stored()), Stored::Parts(reference));
        let forged = reference.stored();
        for len in MARK.len()..forged.len() {
            assert_eq!(Stored::of(forged[..len].to_vec()), Stored::Unknown);
        }
    }
}
