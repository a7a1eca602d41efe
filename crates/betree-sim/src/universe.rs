//! Sets of keys to draw from.

use betree::Cut;
use seeded::Rng;

/// A way to make keys that collide, nest and sort awkwardly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Universe {
    /// Path keys of a file system: each component after 00, the last after 00 00.
    Paths,
    /// Short strings of the bytes at the edges of comparisons.
    Awkward,
    /// Long repetitions of two letters, one of them ff.
    Deep,
    /// Numbers: dense, so that ranges are long and trees are high.
    Numbered,
}

const NAMES: [&[u8]; 7] = [b"a", b"b", b"\x01", b"\xff", b"a\xff", b"ab", b"a\x01"];

impl Universe {
    /// All of them.
    pub const ALL: [Universe; 4] = [Universe::Paths, Universe::Awkward, Universe::Deep, Universe::Numbered];

    /// A key.
    pub fn key(self, rng: &mut Rng) -> Vec<u8> {
        match self {
            Universe::Paths => {
                let mut key = Vec::new();
                for _ in 1..rng.between(1, 4) {
                    key.push(0);
                    key.extend_from_slice(rng.pick::<&[u8]>(&NAMES));
                }
                key.extend_from_slice(&[0, 0]);
                key.extend_from_slice(rng.pick::<&[u8]>(&NAMES));
                key
            }
            Universe::Awkward => {
                let len = *rng.pick(&[0, 1, 2, 2, 3, 3, 4, 5]);
                (0..len).map(|_| *rng.pick(b"\x00\x01ab\xff")).collect()
            }
            Universe::Deep => (0..rng.between(0, 9)).map(|_| *rng.pick(b"a\xff")).collect(),
            Universe::Numbered => {
                let number = rng.below(2000) as u16;
                [b"n".as_slice(), &number.to_be_bytes()].concat()
            }
        }
    }

    /// A prefix of some keys.
    pub fn prefix(self, rng: &mut Rng) -> Vec<u8> {
        let mut key = self.key(rng);
        key.truncate(rng.between(0, key.len()));
        key
    }

    /// A bound of a range.
    pub fn cut(self, rng: &mut Rng) -> Cut {
        match rng.below(10) {
            0 => Cut::LOW,
            1 => Cut::HIGH,
            2 | 3 => Cut::after(self.prefix(rng)),
            4 => Cut::just_after(&self.key(rng)),
            5 => Cut::before(self.prefix(rng)),
            _ => Cut::before(self.key(rng)),
        }
    }

    /// A range: mostly a few keys with one prefix; sometimes many or all, sometimes none.
    pub fn range(self, rng: &mut Rng) -> (Cut, Cut) {
        let prefix = match rng.below(10) {
            0..6 => {
                let mut key = self.key(rng);
                key.truncate(key.len().saturating_sub(rng.below(2)));
                key
            }
            6 => self.prefix(rng),
            _ => {
                let (a, b) = (self.cut(rng), self.cut(rng));
                return if rng.percent(90) { (a.clone().min(b.clone()), a.max(b)) } else { (a, b) };
            }
        };
        (Cut::before(prefix.clone()), Cut::after(prefix))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_universe_repeats_keys_and_has_many() {
        for universe in Universe::ALL {
            let mut rng = Rng::new(1);
            let keys: HashSet<Vec<u8>> = (0..2000).map(|_| universe.key(&mut rng)).collect();
            assert!((100..1900).contains(&keys.len()), "{universe:?}: {}", keys.len());
        }
    }

    #[test]
    fn ranges_are_mostly_in_order_and_sometimes_not() {
        let mut rng = Rng::new(2);
        let ranges: Vec<_> = (0..500).map(|_| Universe::Awkward.range(&mut rng)).collect();
        let ordered = ranges.iter().filter(|(lo, hi)| lo <= hi).count();
        assert!((450..500).contains(&ordered), "{ordered}");
    }
}
