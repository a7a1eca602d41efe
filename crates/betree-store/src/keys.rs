//! Where keys of users stand among the keys of the engine.
//!
//! All dictionaries share one dictionary of the engine. Each has a prefix of four bytes that no other ever
//! had, and a byte for the kind of what follows. That byte is zero for pairs, so it ends a component of the
//! engine's key, and a tree that holds one dictionary alone leaves the five bytes away.

use std::ops::{Bound, RangeBounds};

use betree::{Batch, Cut, DictId};

use crate::file::NODE_BYTES_MAX;

/// The one dictionary of the engine.
pub(crate) const ENGINE_DICT: DictId = DictId(0);
/// What the engine's keys begin with.
pub(crate) type Prefix = [u8; 4];
/// The prefix of the catalogue; no dictionary has it.
pub(crate) const CATALOGUE: u32 = 0;
/// The kind of a dictionary's pairs.
const PAIRS: u8 = 0;
/// The bytes of prefix and kind.
const HEAD_BYTES: usize = 5;

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = betree::KEY_BYTES_MAX - HEAD_BYTES;
/// The longest name of a dictionary, or of a merge, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The bytes before a dictionary's pairs.
pub(crate) fn head(number: u32) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = number.to_be_bytes();
    [a, b, c, d, PAIRS]
}

/// The engine's key of a user's key.
pub(crate) fn pair_key(number: u32, key: &[u8]) -> Vec<u8> {
    [&head(number), key].concat()
}

/// The user's key in an engine's key.
pub(crate) fn user_key(engine_key: &[u8]) -> &[u8] {
    engine_key.get(HEAD_BYTES..).unwrap_or_default()
}

/// The cuts around the pairs of a range.
pub(crate) fn cuts<K: AsRef<[u8]>>(number: u32, range: &impl RangeBounds<K>) -> (Cut, Cut) {
    let at = |key: &K| pair_key(number, key.as_ref());
    let lo = match range.start_bound() {
        Bound::Included(key) => Cut::before(at(key)),
        Bound::Excluded(key) => Cut::just_after(&at(key)),
        Bound::Unbounded => Cut::before(head(number)),
    };
    let hi = match range.end_bound() {
        Bound::Included(key) => Cut::just_after(&at(key)),
        Bound::Excluded(key) => Cut::before(at(key)),
        Bound::Unbounded => Cut::after(head(number)),
    };
    (lo, hi)
}

/// The cuts around the pairs whose keys begin with a prefix.
pub(crate) fn prefix_cuts(number: u32, prefix: &[u8]) -> (Cut, Cut) {
    let prefix = pair_key(number, prefix);
    (Cut::before(prefix.clone()), Cut::after(prefix))
}

/// The cuts around all that a dictionary has.
pub(crate) fn dict_cuts(number: u32) -> (Cut, Cut) {
    let prefix: Prefix = number.to_be_bytes();
    (Cut::before(prefix), Cut::after(prefix))
}

/// Deletes a range in a batch of deletes alone. The engine is told that it frees something: how much is not
/// known, but for what seems to be less than a node it would not go and free it.
pub(crate) fn delete_range(batch: &mut Batch, (lo, hi): &(Cut, Cut)) {
    batch.delete_range(ENGINE_DICT, lo, hi);
    batch.mark_freeing(NODE_BYTES_MAX as u64);
}
