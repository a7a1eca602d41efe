//! Bounds of key ranges.

use alloc::vec::Vec;
use core::cmp::Ordering;

/// A place between keys: just before the key `bytes`, or after every key that starts with `bytes`.
///
/// A cut is compared as its bytes, followed, if it is an *after* cut, by a symbol that is greater
/// than every byte. A key range is `[lo, hi)` for two cuts. Cuts are never normalised: `After("a")`
/// and `Before("b")` bound the same keys, but do not share the same prefixes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cut {
    bytes: Vec<u8>,
    after: bool,
}

impl Cut {
    /// Before every key.
    pub const LOW: Cut = Cut { bytes: Vec::new(), after: false };
    /// After every key.
    pub const HIGH: Cut = Cut { bytes: Vec::new(), after: true };

    /// Just before the key `bytes`.
    pub fn before(bytes: impl Into<Vec<u8>>) -> Cut {
        Cut { bytes: bytes.into(), after: false }
    }

    /// After every key that starts with `prefix`.
    pub fn after(prefix: impl Into<Vec<u8>>) -> Cut {
        Cut { bytes: prefix.into(), after: true }
    }

    /// Just after the key `key`, before every longer key that starts with it.
    pub fn just_after(key: &[u8]) -> Cut {
        let mut bytes = Vec::with_capacity(key.len() + 1);
        bytes.extend_from_slice(key);
        bytes.push(0);
        Cut { bytes, after: false }
    }

    /// Moves the cut just before a key, in the memory that it has.
    pub fn move_before(&mut self, key: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(key);
        self.after = false;
    }

    /// Moves the cut to where [`just_after`](Cut::just_after) has it, in the memory that it has.
    pub fn move_just_after(&mut self, key: &[u8]) {
        self.move_before(key);
        self.bytes.push(0);
    }

    /// The cut with a prefix before its bytes: it stands among the keys with the prefix where this cut stands
    /// among their rests.
    pub fn with_prefix(&self, prefix: &[u8]) -> Cut {
        Cut { bytes: [prefix, &self.bytes].concat(), after: self.after }
    }

    /// The bytes of the cut.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the cut lies after every key that starts with its bytes.
    pub fn is_after(&self) -> bool {
        self.after
    }

    /// Which side of the cut the key is on: `Less` before the cut, `Greater` behind it. Never `Equal`: a key
    /// that equals the bytes of a *before* cut lies behind it.
    pub fn side_of(&self, key: &[u8]) -> Ordering {
        if self.after {
            let head = key.get(..self.bytes.len()).unwrap_or(key);
            if head <= self.bytes.as_slice() { Ordering::Less } else { Ordering::Greater }
        } else if key < self.bytes.as_slice() {
            Ordering::Less
        } else {
            Ordering::Greater
        }
    }

    /// The smallest byte string behind the cut, or `None` if there is none.
    pub fn first_key_behind(&self) -> Option<Vec<u8>> {
        let mut key = self.bytes.clone();
        if !self.after {
            return Some(key);
        }
        while let Some(last) = key.pop() {
            if last < 0xff {
                key.push(last + 1);
                return Some(key);
            }
        }
        None
    }

    /// Whether the cut lies before the *before* cut of `key`: a smaller key may lie between the two.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        !self.is_above(key) && (self.after || key != self.bytes)
    }

    /// Whether `key` lies before the cut.
    pub fn is_above(&self, key: &[u8]) -> bool {
        self.side_of(key) == Ordering::Less
    }
}

impl Ord for Cut {
    fn cmp(&self, other: &Cut) -> Ordering {
        let shared = self.bytes.len().min(other.bytes.len());
        let (head, rest) = self.bytes.split_at(shared);
        let (other_head, other_rest) = other.bytes.split_at(shared);
        head.cmp(other_head).then_with(|| {
            // At most one rest is not empty. The after symbol is greater than any byte.
            match (rest.is_empty(), other_rest.is_empty()) {
                (true, true) => self.after.cmp(&other.after),
                (true, false) if self.after => Ordering::Greater,
                (true, false) => Ordering::Less,
                (false, _) if other.after => Ordering::Less,
                (false, _) => Ordering::Greater,
            }
        })
    }
}

impl PartialOrd for Cut {
    fn partial_cmp(&self, other: &Cut) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl core::fmt::Debug for Cut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let side = if self.after { "after" } else { "before" };
        write!(f, "{side} \"{}\"", self.bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// The definition: a cut as a string over 257 symbols.
    fn symbols(cut: &Cut) -> Vec<u16> {
        let mut all: Vec<u16> = cut.bytes.iter().map(|b| u16::from(*b)).collect();
        if cut.after {
            all.push(256);
        }
        all
    }

    fn universe() -> Vec<Vec<u8>> {
        let alphabet = [0u8, 1, b'a', 0xff];
        let mut all = vec![vec![]];
        let mut last = all.clone();
        for _ in 0..3 {
            let mut next = Vec::new();
            for word in &last {
                for byte in alphabet {
                    let mut longer: Vec<u8> = word.clone();
                    longer.push(byte);
                    next.push(longer);
                }
            }
            all.extend(next.iter().cloned());
            last = next;
        }
        all
    }

    #[test]
    fn the_order_of_cuts_is_that_of_strings_over_257_symbols() {
        let words = universe();
        let cuts: Vec<Cut> =
            words.iter().flat_map(|w| [Cut::before(w.clone()), Cut::after(w.clone())]).collect();
        for a in &cuts {
            for b in &cuts {
                assert_eq!(a.cmp(b), symbols(a).cmp(&symbols(b)), "{a:?} {b:?}");
            }
            for key in &words {
                let key_symbols: Vec<u16> = key.iter().map(|b| u16::from(*b)).collect();
                assert_eq!(a.is_above(key), key_symbols < symbols(a), "{a:?} {key:?}");
                let behind = a.first_key_behind().is_some_and(|first| *key >= first);
                assert_eq!(a.is_above(key), !behind, "{a:?} {key:?}");
                assert_eq!(a.is_before(key), *a < Cut::before(key.clone()), "{a:?} {key:?}");
            }
        }
    }

    #[test]
    fn a_cut_moves_to_where_a_new_one_would_be() {
        let mut moved = Cut::after(*b"a longer prefix");
        moved.move_just_after(b"k");
        assert_eq!(moved, Cut::just_after(b"k"));
        moved = Cut::HIGH;
        moved.move_before(b"key");
        assert_eq!(moved, Cut::before(*b"key"));
    }

    #[test]
    fn after_a_prefix_means_after_all_that_starts_with_it_even_0xff() {
        assert!(Cut::after(*b"p").is_above(b"p\xff\xff\xff"));
        assert!(!Cut::after(*b"p").is_above(b"q"));
        assert!(Cut::HIGH.is_above(b"\xff\xff"));
        assert!(!Cut::LOW.is_above(b""));
        assert!(Cut::just_after(b"k").is_above(b"k"));
        assert!(!Cut::just_after(b"k").is_above(b"k\0"));
    }
}
