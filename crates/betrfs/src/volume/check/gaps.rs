//! The ranges of the dictionaries that could not be read.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use betree::{Cut, DictId};

/// Number of gaps kept apart in each dictionary. Further ones enlarge others, so that less is checked.
const GAPS_MAX: usize = 50_000;

/// An unreadable range of keys, without its lower end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub hi: Cut,
    /// The losses to blame for it, by the numbers of [`Findings::blame`](super::report::Findings::blame).
    pub losses: Vec<usize>,
}

/// Disjoint ranges of keys by dictionary and lower end.
#[derive(Default)]
pub(super) struct Gaps(BTreeMap<u8, BTreeMap<Cut, Gap>>);

impl Gaps {
    /// Adds the parts of a range that are not in a gap yet.
    pub fn add(&mut self, dict: DictId, lo: &Cut, gap: Gap) {
        let gaps = self.0.entry(dict.0).or_default();
        let are_many = gaps.len() >= GAPS_MAX;
        let Gap { mut hi, losses } = gap;
        let mut from = lo.clone();
        let mut grown = None;
        if let Some((start, before)) = gaps.range(..=lo.clone()).next_back() {
            if before.hi >= hi {
                return;
            }
            let touches = before.hi >= from;
            if touches && before.losses == losses || are_many {
                grown = Some(start.clone());
            } else if touches {
                from = before.hi.clone();
            }
        }
        // Earlier gaps inside it keep their own losses. The growing one may begin at the same key.
        let is_other = |(lo, _): &(&Cut, &Gap)| grown.as_ref() != Some(*lo);
        while let Some((start, end)) =
            gaps.range(from.clone()..hi.clone()).find(is_other).map(|(lo, gap)| (lo.clone(), gap.hi.clone()))
        {
            if end > hi {
                hi = start;
                break;
            }
            gaps.remove(&start);
        }
        match grown.and_then(|start| gaps.get_mut(&start)) {
            Some(before) => before.hi = hi,
            // Nothing new is left.
            None if hi <= from => {}
            None => drop(gaps.insert(from, Gap { hi, losses })),
        }
    }

    fn before(&self, dict: DictId, cut: &Cut) -> Option<&Gap> {
        self.0.get(&dict.0)?.range(..=cut.clone()).next_back().map(|(_, gap)| gap)
    }

    /// The gap with this key.
    pub fn at(&self, dict: DictId, key: &[u8]) -> Option<&Gap> {
        self.before(dict, &Cut::before(key)).filter(|gap| gap.hi.is_above(key))
    }

    /// The gap that covers all of a range.
    pub fn over(&self, dict: DictId, (lo, hi): &(Cut, Cut)) -> Option<&Gap> {
        self.before(dict, lo).filter(|gap| gap.hi >= *hi)
    }

    /// Whether any gap overlaps a range.
    pub fn touch(&self, dict: DictId, (lo, hi): &(Cut, Cut)) -> bool {
        self.before(dict, lo).is_some_and(|gap| gap.hi > *lo)
            || self
                .0
                .get(&dict.0)
                .is_some_and(|gaps| lo < hi && gaps.range(lo.clone()..hi.clone()).next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use seeded::Rng;

    use super::*;

    const D: DictId = DictId(1);

    fn cut(at: u8) -> Cut {
        Cut::before([at])
    }

    /// Compares with an array of keys.
    #[test]
    fn gaps_cover_what_was_added_in_any_order() {
        let mut rng = Rng::new(1);
        let mut below = |end: u64| rng.below_u64(end);
        for _ in 0..500 {
            let (mut gaps, mut model) = (Gaps::default(), [false; 32]);
            for _ in 0..8 {
                let lo = below(31) as u8;
                let hi = lo + 1 + below(u64::from(31 - lo)) as u8;
                gaps.add(D, &cut(lo), Gap { hi: cut(hi), losses: alloc::vec![below(2) as usize] });
                model[usize::from(lo)..usize::from(hi)].fill(true);
                for key in 0..32u8 {
                    assert_eq!(
                        gaps.at(D, &[key]).is_some(),
                        model[usize::from(key)],
                        "key {key} of {model:?}"
                    );
                    let rest = (cut(key), Cut::HIGH);
                    assert_eq!(gaps.touch(D, &rest), model[usize::from(key)..].contains(&true), "from {key}");
                }
            }
            assert!(gaps.over(D, &(Cut::LOW, Cut::HIGH)).is_none() && gaps.at(DictId(0), &[3]).is_none());
        }
    }
}
