//! Fences: a sample of a run's keys, small enough for the processor's cache, in which a search begins.
//!
//! A binary search over the entries waits for memory twice a step. Fences hold eight bytes of every key, or
//! of every few where entries are small: the bytes behind the prefix that all keys of the run share. Only a
//! few entries between two fences remain to be compared.

use alloc::vec::Vec;

/// Fences take at most this part of the size of their entries.
const PARTS: usize = 16;
/// Runs with fewer entries have no fences.
const ENTRIES_MIN: usize = 16;

/// The fences of a run.
#[derive(Default)]
pub(super) struct Fences {
    /// The prefix of all keys.
    shared: Vec<u8>,
    /// Every how many keys there is a fence.
    step: usize,
    words: Vec<u64>,
}

/// The first eight bytes as a number of the same order; `padding` stands for bytes past the end.
fn word(bytes: &[u8], padding: u8) -> u64 {
    let mut word = [padding; 8];
    let len = bytes.len().min(8);
    if let (Some(to), Some(from)) = (word.get_mut(..len), bytes.get(..len)) {
        to.copy_from_slice(from);
    }
    u64::from_be_bytes(word)
}

impl Fences {
    /// The fences of `len` keys in order, whose entries take `bytes`.
    pub fn new<'k>(len: usize, bytes: usize, key: impl Fn(usize) -> &'k [u8]) -> Fences {
        if len < ENTRIES_MIN {
            return Fences::default();
        }
        let step = (size_of::<u64>() * PARTS * len).div_ceil(bytes.max(1)).max(1);
        let (first, last) = (key(0), key(len - 1));
        let shared_len = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let behind = |index| word(key(index).get(shared_len..).unwrap_or_default(), 0);
        let shared = first.get(..shared_len).unwrap_or_default().to_vec();
        Fences { shared, step, words: (0..len).step_by(step).map(behind).collect() }
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>() + self.shared.len()
    }

    /// Two indices of `len` keys that enclose the border between the keys below `bytes` and the others; with
    /// `after`, the keys that begin with `bytes` count as below.
    pub fn around(&self, len: usize, bytes: &[u8], after: bool) -> (usize, usize) {
        let Some(behind) = bytes.strip_prefix(self.shared.as_slice()).filter(|_| !self.words.is_empty())
        else {
            // Another prefix: all keys are on one side, which the caller's comparisons find.
            return (0, len);
        };
        let (low, high) = (word(behind, 0), word(behind, if after { 0xff } else { 0 }));
        // The key of a smaller fence differs within its eight bytes, so it is smaller too.
        let from = self.words.partition_point(|fence| *fence < low);
        // Mostly none.
        let same = self.words.get(from..).unwrap_or_default();
        let same = match same.first() {
            Some(fence) if *fence <= high => same.partition_point(|fence| *fence <= high),
            _ => 0,
        };
        let first = from.checked_sub(1).map_or(0, |smaller| smaller * self.step + 1);
        (first, ((from + same) * self.step).min(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys of up to three letters of a small alphabet behind a prefix: the fences' result encloses the
    /// border, for each key and for places between two keys.
    #[test]
    fn the_border_lies_between_the_fences() {
        let letters = [0u8, 1, b'a', 0xff];
        let mut tails: Vec<Vec<u8>> = Vec::from([Vec::new()]);
        for len in 1..=3 {
            let of_len: Vec<Vec<u8>> = tails.iter().filter(|t| t.len() == len - 1).cloned().collect();
            tails.extend(of_len.iter().flat_map(|t| letters.map(|l| [t.as_slice(), &[l]].concat())));
        }
        tails.sort();
        for prefix in [&b""[..], b"\0dir\0long prefix\0", b"\xff\xff"] {
            let all: Vec<Vec<u8>> = tails.iter().map(|t| [prefix, t].concat()).collect();
            for keys in [all.clone(), all.iter().step_by(3).cloned().collect(), all[40..].to_vec()] {
                for bytes in [1 << 20, keys.len() * 30] {
                    let fences = Fences::new(keys.len(), bytes, |index| &keys[index]);
                    check(&keys, &fences, &all);
                }
            }
        }
    }

    fn check(keys: &[Vec<u8>], fences: &Fences, all: &[Vec<u8>]) {
        let others = [&b""[..], b"\0", b"zzz", b"\xff\xff\xff\xff"].map(Vec::from);
        for bytes in all.iter().chain(&others) {
            let below = keys.partition_point(|k| k < bytes);
            let upto = keys.partition_point(|k| k < bytes || k.starts_with(bytes));
            for (border, after) in [(below, false), (upto, true)] {
                let (from, to) = fences.around(keys.len(), bytes, after);
                assert!(from <= border && border <= to, "{bytes:?} {after}: {border} in {from}..{to}");
            }
        }
    }
}
