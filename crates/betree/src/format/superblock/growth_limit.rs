//! The size up to which a volume grows by itself, in bytes: a u64 in the superblock's tail.
//!
//! A program that does not know the tag keeps it, and finds the volume full at the size that it has.

use super::raw::TAIL_BYTES_MAX;
use crate::format::tail::TaggedTail;

/// The superblock's tag of the limit.
const TAG: u16 = 4;

/// The limit in a superblock's tail; 0 if there is none.
pub(crate) fn of(tail: &TaggedTail) -> u64 {
    let value = tail.iter().find(|(tag, _)| *tag == TAG).and_then(|(_, value)| value.try_into().ok());
    value.map_or(0, u64::from_le_bytes)
}

/// The tail with this limit; `None` if values of later versions leave no room for it.
pub(crate) fn put(bytes: u64, tail: &TaggedTail) -> Option<TaggedTail> {
    let mut with = tail.clone();
    let fits = with.set(TAG, &bytes.to_le_bytes()) && with.as_bytes().len() <= TAIL_BYTES_MAX;
    fits.then_some(with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_back_beside_other_values() {
        let mut tail = TaggedTail::default();
        assert_eq!(of(&tail), 0);
        assert!(tail.set(9, b"of a later version"));
        let with = put(5 << 30, &tail).unwrap();
        assert_eq!((of(&with), with.iter().count()), (5 << 30, 2));
        assert_eq!(of(&put(u64::MAX, &with).unwrap()), u64::MAX);
        // A length that none of this version has.
        assert!(tail.set(TAG, &[1; 7]));
        assert_eq!(of(&tail), 0);
        assert!(tail.set(9, &[7; TAIL_BYTES_MAX - 12]));
        assert_eq!(put(1, &tail), None);
    }
}
