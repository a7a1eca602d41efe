//! How many copies of interior nodes a volume is to have: a u32 in the superblock's tail.
//!
//! [`Features::NODE_COPIES`](super::features::Features::NODE_COPIES) says that there may be nodes with two.

use super::raw::TAIL_BYTES_MAX;
use crate::format::tail::TaggedTail;
use crate::settings::NodeCopies;

/// The superblock's tag of the number.
const TAG: u16 = 6;

/// The number in a superblock's tail; one if there is none, or one of a later version.
pub(crate) fn of(tail: &TaggedTail) -> NodeCopies {
    let value = tail.iter().find(|(tag, _)| *tag == TAG).and_then(|(_, value)| value.try_into().ok());
    NodeCopies::of_count(value.map_or(1, u32::from_le_bytes)).unwrap_or_default()
}

/// The tail with this number; `None` if values of later versions leave no room for it.
pub(crate) fn put(copies: NodeCopies, tail: &TaggedTail) -> Option<TaggedTail> {
    let mut with = tail.without(TAG);
    let is_put = copies == NodeCopies::One || with.set(TAG, &copies.count().to_le_bytes());
    (is_put && with.as_bytes().len() <= TAIL_BYTES_MAX).then_some(with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_back_beside_other_values() {
        let mut tail = TaggedTail::default();
        assert_eq!(of(&tail), NodeCopies::One);
        assert!(tail.set(9, b"of a later version"));
        let with = put(NodeCopies::Two, &tail).unwrap();
        assert_eq!((of(&with), with.iter().count()), (NodeCopies::Two, 2));
        assert_eq!(put(NodeCopies::One, &with).unwrap(), tail);
        // Numbers that none of this version has.
        for value in [&[3, 0, 0, 0][..], &[2], &[]] {
            assert!(tail.set(TAG, value));
            assert_eq!(of(&tail), NodeCopies::One, "{value:?}");
        }
        assert!(tail.set(9, &[7; TAIL_BYTES_MAX - 10]));
        assert_eq!(put(NodeCopies::Two, &tail), None);
    }
}
