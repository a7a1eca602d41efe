//! Where keys of users stand among the keys of the engine.
//!
//! All dictionaries share one dictionary of the engine. Each has a prefix of four bytes that no other ever
//! had, and a byte for the kind of what follows. That byte is zero for pairs, so it ends a component of the
//! engine's key, and a tree that holds one dictionary alone leaves the five bytes away.
//!
//! A large value is stored in parts, under the second kind: the key, escaped so that no key begins with
//! another and all stand in the order of the keys; the generation, which is another for each value; the
//! number of the part.

use std::ops::{Bound, RangeBounds};

use betree::{Cut, DictId};

/// The one dictionary of the engine.
pub(crate) const ENGINE_DICT: DictId = DictId(0);
/// The prefix of the catalogue; no dictionary has it.
pub(crate) const CATALOGUE: u32 = 0;
/// The kinds of what a dictionary has.
const PAIRS: u8 = 0;
const PARTS: u8 = 1;
/// The bytes of prefix and kind.
const HEAD_BYTES: usize = 5;
/// A zero in an escaped key is followed by this, and its end is two zeros.
const ESCAPED: [u8; 2] = [0, 0xff];
const END: [u8; 2] = [0, 0];
/// The bytes behind an escaped key: its end, generation and number.
const PART_TAIL_BYTES: usize = 14;

/// The longest key in bytes. For a value in parts, each zero in it counts twice, and it has 14 bytes less.
pub const KEY_BYTES_MAX: usize = betree::KEY_BYTES_MAX - HEAD_BYTES;
/// The longest name of a dictionary, or of a merge, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

fn head(number: u32, kind: u8) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = number.to_be_bytes();
    [a, b, c, d, kind]
}

/// The engine's key of a user's key.
pub(crate) fn pair_key(number: u32, key: &[u8]) -> Vec<u8> {
    [&head(number, PAIRS), key].concat()
}

/// The dictionary's number and the user's key in an engine's key of a pair.
pub(crate) fn user_key(engine_key: &[u8]) -> (u32, &[u8]) {
    let (head, key) = engine_key.split_at_checked(HEAD_BYTES).unwrap_or_default();
    (head.first_chunk().map_or(CATALOGUE, |number| u32::from_be_bytes(*number)), key)
}

/// What a key of the engine stands for.
pub(crate) enum Meaning {
    /// The name of a dictionary.
    Name(String),
    /// All of a dictionary.
    Dict(u32),
    /// A key of a dictionary, or of its values in parts.
    Pair(u32, Vec<u8>),
}

/// What a key of the engine, or the place where a range of them begins, stands for.
pub(crate) fn meaning(engine_key: &[u8]) -> Meaning {
    let Some((number, rest)) = engine_key.split_first_chunk() else { return Meaning::Dict(CATALOGUE) };
    match (u32::from_be_bytes(*number), rest.split_first()) {
        (number, None) => Meaning::Dict(number),
        (CATALOGUE, Some((_, name))) => Meaning::Name(String::from_utf8_lossy(name).into_owned()),
        (number, Some((&PARTS, escaped))) => Meaning::Pair(number, unescaped(escaped)),
        (number, Some((_, key))) => Meaning::Pair(number, key.to_vec()),
    }
}

/// The key in one that was escaped.
fn unescaped(escaped: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    let mut rest = escaped;
    while let Some((byte, behind)) = rest.split_first() {
        rest = match rest.strip_prefix(&ESCAPED) {
            Some(behind) => behind,
            None if *byte == 0 => break,
            None => behind,
        };
        key.push(*byte);
    }
    key
}

/// The cuts around all that a dictionary has.
pub(crate) fn dict_cuts(number: u32) -> (Cut, Cut) {
    (Cut::before(number.to_be_bytes()), Cut::after(number.to_be_bytes()))
}

/// What the parts of all keys with a prefix begin with.
pub(crate) fn part_prefix(number: u32, prefix: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(HEAD_BYTES + prefix.len() + PART_TAIL_BYTES);
    escaped.extend(head(number, PARTS));
    for byte in prefix {
        match byte {
            0 => escaped.extend(ESCAPED),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

/// What the parts of a key begin with.
fn parts_of_key(number: u32, key: &[u8]) -> Vec<u8> {
    let mut escaped = part_prefix(number, key);
    escaped.extend(END);
    escaped
}

/// What the parts of a value begin with.
pub(crate) fn parts_of_value(number: u32, key: &[u8], generation: u64) -> Vec<u8> {
    let mut parts = parts_of_key(number, key);
    parts.extend(generation.to_be_bytes());
    parts
}

/// The key of a part.
pub(crate) struct PartKey {
    /// The user's key.
    pub key: Vec<u8>,
    /// Which value of that key it is a part of.
    pub generation: u64,
    /// What the keys of all parts of the value begin with.
    pub value: Vec<u8>,
}

/// The part that a key of the engine stands for, if it stands for one.
pub(crate) fn part_key(engine_key: &[u8]) -> Option<PartKey> {
    let (value, _number) = engine_key.split_last_chunk::<4>()?;
    let (_, generation) = value.split_last_chunk()?;
    match (engine_key.get(HEAD_BYTES - 1), meaning(engine_key)) {
        (Some(&PARTS), Meaning::Pair(_, key)) => {
            Some(PartKey { key, generation: u64::from_be_bytes(*generation), value: value.to_vec() })
        }
        _ => None,
    }
}

/// How long a key may be that has a value in parts, in bytes.
pub(crate) fn key_bytes_max_of_parts(key: &[u8]) -> usize {
    let zeros = key.iter().filter(|byte| **byte == 0).count();
    KEY_BYTES_MAX.saturating_sub(PART_TAIL_BYTES + zeros)
}

/// The engine's keys of some of the user's.
pub(crate) fn pair_keys<K: AsRef<[u8]>>(number: u32, keys: &[K]) -> Vec<Vec<u8>> {
    keys.iter().map(|key| pair_key(number, key.as_ref())).collect()
}

/// Some keys of a dictionary.
#[derive(Clone)]
pub(crate) enum Keys {
    One(Vec<u8>),
    Prefix(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Keys {
    /// Those of a range.
    pub fn of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Keys {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Keys::Range(owned(range.start_bound()), owned(range.end_bound()))
    }

    /// Whether a key is among them.
    pub fn hold(&self, key: &[u8]) -> bool {
        let ((lo, hi), key) = (self.pairs(CATALOGUE), pair_key(CATALOGUE, key));
        !lo.is_above(&key) && hi.is_above(&key)
    }

    /// The cuts around their pairs.
    pub fn pairs(&self, number: u32) -> (Cut, Cut) {
        let at = |key: &Vec<u8>| pair_key(number, key);
        match self {
            Keys::One(key) => (Cut::before(at(key)), Cut::just_after(&at(key))),
            Keys::Prefix(prefix) => (Cut::before(at(prefix)), Cut::after(at(prefix))),
            Keys::Range(from, to) => {
                let from = match from {
                    Bound::Included(key) => Cut::before(at(key)),
                    Bound::Excluded(key) => Cut::just_after(&at(key)),
                    Bound::Unbounded => Cut::before(head(number, PAIRS)),
                };
                let to = match to {
                    Bound::Included(key) => Cut::just_after(&at(key)),
                    Bound::Excluded(key) => Cut::before(at(key)),
                    Bound::Unbounded => Cut::after(head(number, PAIRS)),
                };
                (from, to)
            }
        }
    }

    /// The cuts around the parts of their values.
    pub fn parts(&self, number: u32) -> (Cut, Cut) {
        let at = |key: &Vec<u8>| parts_of_key(number, key);
        match self {
            Keys::One(key) => (Cut::before(at(key)), Cut::after(at(key))),
            Keys::Prefix(prefix) => {
                let prefix = part_prefix(number, prefix);
                (Cut::before(prefix.clone()), Cut::after(prefix))
            }
            Keys::Range(from, to) => {
                let from = match from {
                    Bound::Included(key) => Cut::before(at(key)),
                    Bound::Excluded(key) => Cut::after(at(key)),
                    Bound::Unbounded => Cut::before(head(number, PARTS)),
                };
                let to = match to {
                    Bound::Included(key) => Cut::after(at(key)),
                    Bound::Excluded(key) => Cut::before(at(key)),
                    Bound::Unbounded => Cut::after(head(number, PARTS)),
                };
                (from, to)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<Vec<u8>> {
        let mut words = vec![vec![]];
        for _ in 0..3 {
            let longer = words
                .iter()
                .flat_map(|word: &Vec<u8>| [0, 1, 0xff].map(|byte| [&word[..], &[byte]].concat()));
            words = longer.chain([vec![]]).collect();
        }
        words.sort();
        words.dedup();
        words
    }

    #[test]
    fn parts_stand_in_the_order_of_their_keys_and_none_in_those_of_another() {
        for a in words() {
            for b in words() {
                let (first, second) = (parts_of_value(7, &a, 1), parts_of_value(7, &b, 0));
                assert_eq!(a.cmp(&b).then(1.cmp(&0)), first.cmp(&second), "{a:?} {b:?}");
                assert_eq!(a.starts_with(&b), first.starts_with(&part_prefix(7, &b)), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn cuts_hold_the_pairs_and_the_parts_of_the_same_keys() {
        let holds = |(lo, hi): &(Cut, Cut), key: &[u8]| !lo.is_above(key) && hi.is_above(key);
        let bounds = |word: Vec<u8>| [Bound::Included(word.clone()), Bound::Excluded(word), Bound::Unbounded];
        let mut all: Vec<Keys> =
            words().into_iter().flat_map(|w| [Keys::One(w.clone()), Keys::Prefix(w)]).collect();
        for from in words().into_iter().step_by(3).flat_map(bounds) {
            all.extend(
                words().into_iter().step_by(4).flat_map(bounds).map(|to| Keys::Range(from.clone(), to)),
            );
        }
        for keys in all {
            for word in words() {
                let is_in = match &keys {
                    Keys::One(key) => *key == word,
                    Keys::Prefix(prefix) => word.starts_with(prefix),
                    Keys::Range(from, to) => (from.as_ref(), to.as_ref()).contains(&word),
                };
                assert_eq!(holds(&keys.pairs(7), &pair_key(7, &word)), is_in);
                let part = [parts_of_value(7, &word, u64::MAX), vec![0; 4]].concat();
                assert_eq!(holds(&keys.parts(7), &part), is_in, "{word:?}");
                assert!(
                    !holds(&keys.pairs(8), &pair_key(7, &word))
                        && !holds(&keys.parts(7), &pair_key(7, &word))
                );
            }
        }
    }
}
