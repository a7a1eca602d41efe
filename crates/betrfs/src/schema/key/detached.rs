//! Keys of detached trees: 04, the number of the tree, and what tells the parts of it.
//!
//! | then | what |
//! |---|---|
//! | 00 | what was, or will be, below the tree's directory, behind that byte as in the directory |
//! | 01 | in a copy, all objects of the moment in which it was made |
//! | 03 | the snapshots of a removed tree |
//! | 05 | in a copy, the own key of the directory, with its record if it becomes a snapshot by itself |

use alloc::vec::Vec;

use betree::Cut;

use super::{OBJECT, ROOT, SNAPSHOT, numbered, within};

pub(super) const DETACHED: u8 = 0x04;

/// The path of a detached tree, from which the keys of its entries are made.
pub(crate) fn detached_path(number: u64) -> Vec<u8> {
    numbered(DETACHED, number)
}

/// Bounds of all keys of a detached tree.
pub(crate) fn detached(number: u64) -> (Cut, Cut) {
    within(detached_path(number))
}

/// Bounds of all keys of detached trees.
pub(crate) fn all_detached() -> (Cut, Cut) {
    within(alloc::vec![DETACHED])
}

/// The prefix of the snapshots in a detached tree, instead of that in
/// [`snapshots_path`](super::snapshots_path).
pub(crate) fn detached_snapshots(number: u64) -> Vec<u8> {
    part(number, SNAPSHOT)
}

/// The prefix of the objects in a detached tree, instead of that of all objects.
pub(crate) fn detached_objects(number: u64) -> Vec<u8> {
    part(number, OBJECT)
}

/// The own key of the directory of a detached tree.
pub(crate) fn detached_own(number: u64) -> Vec<u8> {
    part(number, ROOT)
}

/// The number of the detached tree to which a key belongs.
pub(crate) fn detached_number(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&[DETACHED])?.get(..8)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

fn part(number: u64, first: u8) -> Vec<u8> {
    let mut prefix = detached_path(number);
    prefix.push(first);
    prefix
}
