//! Fences: a sample of a run's keys, small enough for the processor's cache, in which a search begins.
//!
//! A binary search over the entries waits for memory twice a step. Fences hold eight bytes of every key, or
//! of every few where entries are small: the bytes behind the prefix that all keys of the run share. Only a
//! few entries between two fences remain to be compared, and often none.
//!
//! Over the fences stands every eighth of them, over these every eighth again, and so on: a search reads one
//! line of the processor's cache a level, and those of the upper levels stay there (the directory of a
//! CSS-tree: Rao and Ross, *Cache Conscious Indexing for Decision-Support in Main Memory*, VLDB 1999, §4).

use alloc::vec::Vec;

use crate::key::Cut;

/// The fences alone take at most this part of the size of their entries.
const PARTS: usize = 16;
/// Runs with fewer entries have no fences.
const ENTRIES_MIN: usize = 16;
/// How many words of a level one word of the level above stands for: those of a line of the cache.
const FANOUT: usize = 8;
/// The levels of more fences than a run can have entries.
const LEVELS_MAX: usize = 12;
const _: () = assert!(FANOUT.pow(LEVELS_MAX as u32 - 1) > u32::MAX as usize);

/// The fences of a run.
#[derive(Default)]
pub(super) struct Fences {
    /// The prefix of all keys.
    shared: Vec<u8>,
    /// Every how many keys there is a fence.
    step: usize,
    /// The number of fences.
    len: usize,
    /// The fences, then every [`FANOUT`]th of them, and so on to a level of no more than that.
    words: Vec<u64>,
    /// The word of the last key, which may have no fence.
    last: u64,
}

/// The words of a cut: of a key with a word below `low` the cut is above, of one with a word above `high` it
/// is not.
#[derive(Clone, Copy)]
struct CutWords {
    low: u64,
    high: u64,
}

/// Where a cut stands among the keys of a run.
enum Place {
    /// Behind all.
    Behind,
    /// Before all.
    Before,
    /// It shares their prefix.
    Among(CutWords),
    /// The fences do not tell.
    Unknown,
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
        let fences = len.div_ceil(step);
        let mut words = Vec::with_capacity(fences + fences / (FANOUT - 1) + LEVELS_MAX);
        words.extend((0..len).step_by(step).map(behind));
        let mut level = 0..fences;
        while level.len() > FANOUT {
            let above: Vec<u64> =
                words.get(level.clone()).unwrap_or_default().iter().step_by(FANOUT).copied().collect();
            level = words.len()..words.len() + above.len();
            words.extend(above);
        }
        Fences { shared, step, len: fences, words, last: behind(len - 1) }
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>() + self.shared.len()
    }

    fn place(&self, bytes: &[u8], after: bool) -> Place {
        if self.words.is_empty() {
            return Place::Unknown;
        }
        let shared = self.shared.as_slice();
        if let Some(behind) = bytes.strip_prefix(shared) {
            let high = word(behind, if after { 0xff } else { 0 });
            return Place::Among(CutWords { low: word(behind, 0), high });
        }
        match bytes.get(..shared.len()) {
            Some(head) if head > shared => Place::Behind,
            Some(_) => Place::Before,
            // It ends within the prefix.
            None => Place::Unknown,
        }
    }

    /// How many fences are below a word.
    fn below(&self, low: u64) -> usize {
        // Where each level begins, and behind the last one where it ends.
        let (mut borders, mut levels, mut len) = ([0; LEVELS_MAX + 1], 0, self.len);
        loop {
            levels += 1;
            if let [.., start, end] = borders.get_mut(..=levels).unwrap_or_default() {
                *end = *start + len;
            }
            if len <= FANOUT || levels == LEVELS_MAX {
                break;
            }
            len = len.div_ceil(FANOUT);
        }
        let mut from = 0;
        for level in borders.get(..=levels).unwrap_or_default().windows(2).rev() {
            let [start, end] = *level else { break };
            let line = self.words.get(start + from..end.min(start + from + FANOUT)).unwrap_or_default();
            let below = from + line.iter().filter(|word| **word < low).count();
            if start == 0 || below == 0 {
                return below;
            }
            from = (below - 1) * FANOUT;
        }
        0
    }

    /// Two indices of `len` keys that enclose the border between the keys below `bytes` and the others; with
    /// `after`, the keys that begin with `bytes` count as below.
    pub fn around(&self, len: usize, bytes: &[u8], after: bool) -> (usize, usize) {
        let CutWords { low, high } = match self.place(bytes, after) {
            Place::Behind => return (len, len),
            Place::Before => return (0, 0),
            Place::Unknown => return (0, len),
            Place::Among(words) => words,
        };
        // The key of a smaller fence differs within its eight bytes, so it is smaller too.
        let from = self.below(low);
        // Mostly none or one: these are found without a look far ahead.
        let rest = self.words.get(from..self.len).unwrap_or_default();
        let mut same = rest.iter().take(FANOUT).take_while(|fence| **fence <= high).count();
        if same == FANOUT {
            same = rest.partition_point(|fence| *fence <= high);
        }
        let first = from.checked_sub(1).map_or(0, |smaller| smaller * self.step + 1);
        (first, ((from + same) * self.step).min(len))
    }

    /// Whether the key at an index of `len` keys lies before a cut, if the fences tell.
    pub fn is_before(&self, len: usize, index: usize, cut: &Cut) -> Option<bool> {
        let CutWords { low, high } = match self.place(cut.bytes(), cut.is_after()) {
            Place::Behind => return Some(true),
            Place::Before => return Some(false),
            Place::Unknown => return None,
            Place::Among(words) => words,
        };
        let (least, most) = if index + 1 == len {
            (self.last, self.last)
        } else {
            let fence = index / self.step;
            let least = *self.words.get(fence)?;
            let is_at_fence = fence * self.step == index;
            let next = self.words.get(fence + 1).filter(|_| fence + 1 < self.len).unwrap_or(&self.last);
            (least, if is_at_fence { least } else { *next })
        };
        if most < low {
            Some(true)
        } else if least > high {
            Some(false)
        } else {
            None
        }
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
                    check_sides(&keys, &fences, &all);
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

    /// What the fences tell of a key and a cut is true, and they tell it of most.
    fn check_sides(keys: &[Vec<u8>], fences: &Fences, all: &[Vec<u8>]) {
        let (mut told, mut asked) = (0, 0);
        for cut in all.iter().flat_map(|bytes| [Cut::before(bytes.clone()), Cut::after(bytes.clone())]) {
            for (index, key) in keys.iter().enumerate() {
                let is_before = fences.is_before(keys.len(), index, &cut);
                asked += 1;
                told += usize::from(is_before.is_some());
                assert_ne!(is_before, Some(!cut.is_above(key)), "{key:?} {cut:?}");
            }
        }
        assert!(told * 4 > asked * 3, "{told} of {asked}");
    }

    /// As many keys as several levels have, some of them with equal words: each border is found, and nearly.
    #[test]
    fn levels_over_the_fences_lead_to_the_border() {
        for count in [16, 17, 63, 64, 65, 511, 512, 513, 5000] {
            let key =
                |number: u32| [&(number / 3).to_be_bytes()[..], &[0; 8], &[(number % 3) as u8]].concat();
            let keys: Vec<Vec<u8>> = (0..count).map(key).collect();
            let fences = Fences::new(keys.len(), 1 << 20, |index| &keys[index]);
            assert!(fences.words.len() <= keys.len() + keys.len() / (FANOUT - 1) + LEVELS_MAX);
            for number in (0..count + 2).flat_map(|number| [key(number), number.to_be_bytes().to_vec()]) {
                let border = keys.partition_point(|k| *k < number);
                let (from, to) = fences.around(keys.len(), &number, false);
                assert!(from <= border && border <= to, "{border} in {from}..{to} of {count}");
                assert!(to - from <= 3, "no more than the keys of one word remain, not {from}..{to}");
            }
        }
    }
}
