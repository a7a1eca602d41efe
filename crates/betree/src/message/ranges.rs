//! Range deletes: disjoint intervals, each with the sequence number of its message; and *known damage*:
//! ranges whose contents were lost, with the sequence number 0.
//!
//! A repair puts known damage in the place of what cannot be read. It is older than every message above it
//! and hides all below it, as a range delete does; but what it hides is an error and not absent, and it stays
//! in the leaves until something newer covers it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Msn;
use crate::error::Error;
use crate::key::{Cut, Translation};

/// The sequence number of known damage, which no message has.
const DAMAGE_MSN: Msn = 0;

/// Removes every older key in `[lo, hi)`, or says that they were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    pub lo: Cut,
    pub hi: Cut,
    pub msn: Msn,
}

impl RangeDelete {
    /// Known damage of `[lo, hi)`.
    pub fn damage(lo: Cut, hi: Cut) -> RangeDelete {
        RangeDelete { lo, hi, msn: DAMAGE_MSN }
    }

    /// Whether it is known damage.
    pub fn is_damage(&self) -> bool {
        self.msn == DAMAGE_MSN
    }

    /// The error of a reader that comes to this known damage.
    pub fn lost(&self) -> Error {
        Error::KnownDamage { lo: self.lo.clone(), hi: self.hi.clone() }
    }

    /// Its size in a buffer in bytes.
    pub fn bytes(&self) -> usize {
        self.lo.bytes().len() + self.hi.bytes().len() + super::POINT_OVERHEAD_BYTES
    }

    /// Whether it covers the key.
    pub fn covers(&self, key: &[u8]) -> bool {
        !self.lo.is_above(key) && self.hi.is_above(key)
    }

    /// Its part inside `[lo, hi)`, if there is one.
    pub fn clip(&self, lo: &Cut, hi: &Cut) -> Option<RangeDelete> {
        let lo = (&self.lo).max(lo);
        let hi = (&self.hi).min(hi);
        (lo < hi).then(|| RangeDelete { lo: lo.clone(), hi: hi.clone(), msn: self.msn })
    }

    /// In other coordinates; clip to the window first.
    pub fn translate(&self, to: &Translation) -> RangeDelete {
        RangeDelete { lo: to.cut(&self.lo), hi: to.cut(&self.hi), msn: self.msn }
    }
}

/// Disjoint range deletes; each one added is newer than all before it.
#[derive(Clone, Default)]
pub(crate) struct RangeSet {
    /// From the lower bound to the upper bound and the sequence number.
    by_lo: BTreeMap<Cut, (Cut, Msn)>,
    bytes: usize,
}

impl RangeSet {
    /// Adds a range newer than all others, and cuts these back to their parts outside of it.
    pub fn insert(&mut self, lo: &Cut, hi: &Cut, msn: Msn) {
        let left = self.by_lo.range(..lo).next_back().filter(|(_, (old_hi, _))| old_hi > lo);
        let first = left.map_or_else(|| lo.clone(), |(old_lo, _)| old_lo.clone());
        let hit: Vec<Cut> = self.by_lo.range(&first..hi).map(|(old_lo, _)| old_lo.clone()).collect();
        for old_lo in hit {
            let Some((old_hi, old_msn)) = self.by_lo.remove(&old_lo) else { continue };
            let old = RangeDelete { lo: old_lo, hi: old_hi, msn: old_msn };
            self.bytes -= old.bytes();
            for part in [old.clip(&Cut::LOW, lo), old.clip(hi, &Cut::HIGH)].into_iter().flatten() {
                self.add(part);
            }
        }
        self.add(RangeDelete { lo: lo.clone(), hi: hi.clone(), msn });
    }

    fn add(&mut self, range: RangeDelete) {
        self.bytes += range.bytes();
        self.by_lo.insert(range.lo, (range.hi, range.msn));
    }

    /// Whether a range covers the key.
    pub fn covers(&self, key: &[u8]) -> bool {
        let at = Cut::just_after(key);
        self.by_lo.range(..&at).next_back().is_some_and(|(lo, (hi, _))| !lo.is_above(key) && hi.is_above(key))
    }

    /// The range that covers the keys next to a place: those behind it, or those `before` it.
    pub fn around(&self, at: &Cut, before: bool) -> Option<RangeDelete> {
        let (lo, (hi, msn)) = match before {
            false => self.by_lo.range(..=at).next_back().filter(|(_, (hi, _))| hi > at),
            true => self.by_lo.range(..at).next_back().filter(|(_, (hi, _))| hi >= at),
        }?;
        Some(RangeDelete { lo: lo.clone(), hi: hi.clone(), msn: *msn })
    }

    /// The ranges that overlap `[lo, hi)`, in order, clipped to it.
    pub fn within(&self, lo: &Cut, hi: &Cut) -> Vec<RangeDelete> {
        if lo >= hi {
            return Vec::new();
        }
        let before = self.by_lo.range(..lo).next_back();
        before
            .into_iter()
            .chain(self.by_lo.range(lo..hi))
            .filter_map(|(l, (h, msn))| RangeDelete { lo: l.clone(), hi: h.clone(), msn: *msn }.clip(lo, hi))
            .collect()
    }

    /// Bytes that the ranges take in a buffer.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_lo.is_empty()
    }
}

/// The parts of `older` (disjoint, in order) outside of `newer` (likewise).
pub(crate) fn subtract(older: &[RangeDelete], newer: &[RangeDelete]) -> Vec<RangeDelete> {
    let mut left = Vec::with_capacity(older.len());
    for range in older {
        let mut rest = Some(range.clone());
        let from = newer.partition_point(|n| n.hi <= range.lo);
        for cover in newer.get(from..).unwrap_or_default() {
            let Some(part) = rest.take() else { break };
            if cover.lo >= part.hi {
                rest = Some(part);
                break;
            }
            left.extend(part.clip(&Cut::LOW, &cover.lo));
            rest = part.clip(&cover.hi, &Cut::HIGH);
        }
        left.extend(rest);
    }
    left
}

#[cfg(test)]
mod tests {
    use seeded::Rng;

    use super::*;
    use alloc::vec;

    fn cut(at: u8) -> Cut {
        Cut::before(vec![at])
    }

    /// Random inserts against an array of the newest covering number for each one-byte key.
    #[test]
    fn a_set_of_ranges_answers_like_an_array() {
        let mut rng = Rng::new(7);
        let mut random = |n: u32| rng.below(n as usize);
        for _ in 0..200 {
            let mut set = RangeSet::default();
            let mut model = [0u64; 64];
            for msn in 1..20 {
                let lo = random(63) as u8;
                let hi = lo + 1 + random(u32::from(63 - lo)) as u8;
                set.insert(&cut(lo), &cut(hi), msn);
                model[usize::from(lo)..usize::from(hi)].fill(msn);
                let all = set.within(&Cut::LOW, &Cut::HIGH);
                assert!(all.windows(2).all(|w| w[0].hi <= w[1].lo));
                assert_eq!(set.bytes(), all.iter().map(RangeDelete::bytes).sum::<usize>());
                for key in 0..64u8 {
                    let found = all.iter().find(|r| r.covers(&[key])).map_or(0, |r| r.msn);
                    assert_eq!(found, model[usize::from(key)]);
                    assert_eq!(set.covers(&[key]), found != 0);
                    let msn_of = |range: Option<RangeDelete>| range.map_or(0, |range| range.msn);
                    assert_eq!(msn_of(set.around(&cut(key), false)), found);
                    assert_eq!(msn_of(set.around(&cut(key + 1), true)), found);
                }
            }
        }
    }

    #[test]
    fn subtraction_leaves_the_uncovered_parts() {
        let range = |lo, hi, msn| RangeDelete { lo: cut(lo), hi: cut(hi), msn };
        let older = [range(0, 10, 1), range(20, 30, 2)];
        let newer = [range(3, 5, 9), range(8, 22, 9), range(40, 50, 9)];
        assert_eq!(subtract(&older, &newer), [range(0, 3, 1), range(5, 8, 1), range(22, 30, 2)]);
        assert_eq!(subtract(&older, &[]), older);
        assert_eq!(subtract(&older, &[range(0, 60, 9)]), []);
    }
}
