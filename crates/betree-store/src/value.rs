//! Values as they are stored: nearly all as they are, and large ones as a reference to their parts.

use std::borrow::Cow;

use crate::expiring::{self, Deltas, TimeNs, Timed};

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
    /// When it expires, with its parts; `None` if never.
    pub expires_ns: Option<TimeNs>,
}

/// A stored value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Whole(Vec<u8>),
    Parts(Reference),
    /// One with deltas that could not be merged into it, as it is stored without a time.
    Unmerged(Vec<u8>),
    /// None: a merge has removed it, and its time is still to come.
    Absent,
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

/// The stored form of a value that expires, or does not.
pub(crate) fn stored_until(value: &[u8], expires_ns: Option<TimeNs>, deltas: Deltas) -> Cow<'_, [u8]> {
    match expires_ns {
        None => stored(value),
        Some(at_ns) => Cow::Owned(expiring::expiring(at_ns, deltas, &stored(value))),
    }
}

/// Whether a value is the user's as it is stored.
pub(crate) fn is_plain(stored: &[u8]) -> bool {
    !stored.starts_with(&MARK)
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
        let bare = [&MARK[..], &[PARTS], &self.generation.to_le_bytes(), &self.len.to_le_bytes()].concat();
        // Where there are parts, there are no deltas.
        self.expires_ns.map_or_else(|| bare.clone(), |at_ns| expiring::expiring(at_ns, Deltas::Never, &bare))
    }
}

impl Stored {
    /// The value in its stored form.
    pub fn of(mut stored: Vec<u8>) -> Stored {
        let Timed { expires_ns, inner } = Timed::of(&stored);
        let Some(inner) = inner else { return Stored::Absent };
        let time_bytes = stored.len() - inner.len();
        let Some(rest) = inner.strip_prefix(&MARK) else {
            stored.drain(..time_bytes);
            return Stored::Whole(stored);
        };
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
                        expires_ns,
                    }),
                    Err(_) => Stored::Unknown,
                },
                None => Stored::Unknown,
            },
            Some((&UNMERGED, _)) => {
                stored.drain(..time_bytes);
                Stored::Unmerged(stored)
            }
            _ => Stored::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_also_those_that_look_like_references() {
        let reference = Reference { generation: u64::MAX, len: 7, expires_ns: None };
        let nested = stored(&reference.stored()).into_owned();
        for value in [&b""[..], b"value", &MARK[..7], &MARK, &reference.stored(), &nested] {
            assert_eq!(Stored::of(stored(value).into_owned()), Stored::Whole(value.to_vec()));
            assert_eq!(whole(&stored(value)), Some(value));
        }
        assert_eq!(Stored::of(reference.stored()), Stored::Parts(reference));
        let expiring = Reference { expires_ns: Some(9), ..reference };
        assert_eq!(Stored::of(expiring.stored()), Stored::Parts(expiring));
        for value in [&b""[..], b"value", &MARK, &expiring.stored()] {
            let stored = stored_until(value, Some(9), Deltas::Perhaps);
            assert_eq!(expiring::expires_ns(&stored), Some(9));
            assert_eq!(Stored::of(stored.into_owned()), Stored::Whole(value.to_vec()));
        }
        // A time before a time is none of ours.
        let twice = expiring::expiring(9, Deltas::Never, &expiring::expiring(9, Deltas::Never, b""));
        assert_eq!(Stored::of(twice), Stored::Unknown);
        assert_eq!(Stored::of(expiring::absent_until(9)), Stored::Absent);
        let forged = reference.stored();
        for len in MARK.len()..forged.len() {
            assert_eq!(Stored::of(forged[..len].to_vec()), Stored::Unknown);
        }
    }
}
