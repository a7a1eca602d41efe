//! Where the keys of a dictionary lead in a transaction that deletes and clones ranges of them.
//!
//! Range deletes and clones, one after the other, come to one map: a *stretch* of keys leads to the same keys
//! of the transaction's view, to none, or to others. A clone of a clone leads to the view at once, so that a
//! read translates its key once, however many clones there were. And a batch, which reads all its sources
//! before it changes anything, makes the stretches in any order.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::batch::Batch;
use crate::key::{Cut, Translation};
use crate::settings::DictId;

/// Where a stretch of keys leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    /// To the same keys.
    Here,
    /// To none: they were deleted.
    Nowhere,
    /// To other keys: they were cloned.
    To(Translation),
}

/// Keys that lead the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub lo: Cut,
    pub hi: Cut,
    pub leads: Leads,
}

impl Stretch {
    /// All keys, which lead to themselves.
    pub fn all() -> Stretch {
        Stretch { lo: Cut::LOW, hi: Cut::HIGH, leads: Leads::Here }
    }

    /// The range of the view that it leads to.
    pub fn source(&self) -> Option<(Cut, Cut)> {
        match &self.leads {
            Leads::Here => Some((self.lo.clone(), self.hi.clone())),
            Leads::Nowhere => None,
            Leads::To(to) => Some((to.cut(&self.lo), to.cut(&self.hi))),
        }
    }

    /// Its part inside `[lo, hi)`, if there is one.
    fn clip(&self, lo: &Cut, hi: &Cut) -> Option<Stretch> {
        let (lo, hi) = ((&self.lo).max(lo), (&self.hi).min(hi));
        (lo < hi).then(|| Stretch { lo: lo.clone(), hi: hi.clone(), leads: self.leads.clone() })
    }

    /// The copy of it, which lies behind the prefix `from`, behind the prefix `to`.
    fn moved(&self, from: &[u8], to: &[u8]) -> Stretch {
        let there = Translation { strip_len: from.len(), prepend: to.to_vec() };
        let back = Translation { strip_len: to.len(), prepend: from.to_vec() };
        let (lo, hi) = (there.cut(&self.lo), there.cut(&self.hi));
        let leads = match &self.leads {
            Leads::Here => Leads::To(back),
            Leads::Nowhere => Leads::Nowhere,
            Leads::To(further) => Leads::To(back.then(further)),
        };
        match leads {
            // It has come back to where it was.
            Leads::To(to) if lo.bytes().get(..to.strip_len) == Some(&*to.prepend) => {
                Stretch { lo, hi, leads: Leads::Here }
            }
            leads => Stretch { lo, hi, leads },
        }
    }
}

/// The keys of one dictionary, in stretches. What is in none leads to itself.
#[derive(Clone, Default)]
pub(crate) struct Stretches {
    /// From the lower bound to the upper bound. None of them leads here.
    by_lo: BTreeMap<Cut, (Cut, Leads)>,
}

impl Stretches {
    /// The number of stretches that lead to other keys.
    pub fn clones(&self) -> usize {
        self.by_lo.values().filter(|(_, leads)| matches!(leads, Leads::To(_))).count()
    }

    /// As [`clones`](Stretches::clones), once `[lo, hi)` were removed.
    pub fn clones_without(&self, lo: &Cut, hi: &Cut) -> usize {
        let is_clone = |leads: &Leads| matches!(leads, Leads::To(_));
        let around = self.around(lo, false);
        // A part of it is left on either side.
        let is_cut = is_clone(&around.leads) && around.lo < *lo && around.hi > *hi;
        self.clones() + usize::from(is_cut)
    }

    fn stretch(&self, (lo, (hi, leads)): (&Cut, &(Cut, Leads))) -> Stretch {
        Stretch { lo: lo.clone(), hi: hi.clone(), leads: leads.clone() }
    }

    /// The key of the view that a key leads to, if there is one.
    pub fn source<'k>(&self, key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
        if self.by_lo.is_empty() {
            return Some(Cow::Borrowed(key));
        }
        let before = self.by_lo.range(..Cut::just_after(key)).next_back();
        match before.filter(|(lo, (hi, _))| !lo.is_above(key) && hi.is_above(key)) {
            Some((_, (_, Leads::To(to)))) => Some(to.key(key)),
            Some((_, (_, Leads::Nowhere))) => None,
            Some((_, (_, Leads::Here))) | None => Some(Cow::Borrowed(key)),
        }
    }

    /// The stretch around a place: that of the keys behind it, or of those `before` it.
    pub fn around(&self, at: &Cut, before: bool) -> Stretch {
        let mut gap = Stretch::all();
        let below = match before {
            false => self.by_lo.range(..=at).next_back(),
            true => self.by_lo.range(..at).next_back(),
        };
        if let Some(entry) = below {
            let hi = &entry.1.0;
            if if before { hi >= at } else { hi > at } {
                return self.stretch(entry);
            }
            gap.lo = hi.clone();
        }
        let above = match before {
            false => self.by_lo.range::<Cut, _>((Bound::Excluded(at), Bound::Unbounded)).next(),
            true => self.by_lo.range(at..).next(),
        };
        if let Some((lo, _)) = above {
            gap.hi = lo.clone();
        }
        gap
    }

    /// All stretches of `[lo, hi)` in order, also those that lead here.
    pub fn within(&self, lo: &Cut, hi: &Cut) -> Vec<Stretch> {
        let mut found = Vec::new();
        let mut at = lo.clone();
        while at < *hi {
            let around = self.around(&at, false);
            at = around.hi.clone();
            found.extend(around.clip(lo, hi));
        }
        found
    }

    /// Puts a stretch in the place of what was there.
    fn cover(&mut self, new: Stretch) {
        let (lo, hi) = (&new.lo, &new.hi);
        if lo >= hi {
            return;
        }
        let left = self.by_lo.range(..lo).next_back().filter(|(_, (old_hi, _))| old_hi > lo);
        let first = left.map_or_else(|| lo.clone(), |(old_lo, _)| old_lo.clone());
        let hit: Vec<Cut> = self.by_lo.range(&first..hi).map(|(old_lo, _)| old_lo.clone()).collect();
        for old_lo in hit {
            let Some((old_hi, leads)) = self.by_lo.remove(&old_lo) else { continue };
            let old = Stretch { lo: old_lo, hi: old_hi, leads };
            for part in [old.clip(&Cut::LOW, lo), old.clip(hi, &Cut::HIGH)].into_iter().flatten() {
                self.by_lo.insert(part.lo, (part.hi, part.leads));
            }
        }
        if new.leads != Leads::Here {
            self.by_lo.insert(new.lo, (new.hi, new.leads));
        }
    }

    /// The keys of `[lo, hi)` lead nowhere.
    pub fn delete(&mut self, lo: &Cut, hi: &Cut) {
        self.cover(Stretch { lo: lo.clone(), hi: hi.clone(), leads: Leads::Nowhere });
    }

    /// The keys with the prefix `to` lead where those with the prefix `from` lead. Returns the latter's
    /// stretches.
    pub fn clone_prefix(&mut self, from: &[u8], to: &[u8]) -> Vec<Stretch> {
        let source = self.within(&Cut::before(from), &Cut::after(from));
        source.iter().for_each(|stretch| self.cover(stretch.moved(from, to)));
        source
    }

    /// As [`clone_prefix`](Stretches::clone_prefix), and the keys with the prefix `from` lead nowhere, unless
    /// they have the prefix `to` as well.
    pub fn rename_prefix(&mut self, from: &[u8], to: &[u8]) -> Vec<Stretch> {
        let source = self.within(&Cut::before(from), &Cut::after(from));
        self.delete(&Cut::before(from), &Cut::after(from));
        source.iter().for_each(|stretch| self.cover(stretch.moved(from, to)));
        source
    }

    /// Adds the changes of ranges to a batch.
    pub fn add_to(&self, batch: &mut Batch, dict: DictId) {
        for (lo, (hi, leads)) in &self.by_lo {
            match leads {
                Leads::Here => {}
                Leads::Nowhere => batch.delete_range(dict, lo, hi),
                Leads::To(Translation { strip_len, prepend }) => {
                    let prefix = lo.bytes().get(..*strip_len).unwrap_or_default();
                    let rest = Translation::strip(*strip_len);
                    batch.clone_part(dict, prepend, prefix, &rest.cut(lo), &rest.cut(hi));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use seeded::Rng;

    use super::*;
    use crate::format::record;

    const D: DictId = DictId(0);

    /// All keys of up to four letters.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = Vec::from([Vec::new()]);
        for _ in 0..4 {
            let longer = |key: &Vec<u8>| [b'a', 0xff].map(|letter| [key.as_slice(), &[letter]].concat());
            let more: Vec<Vec<u8>> = keys.iter().flat_map(longer).collect();
            keys.extend(more);
        }
        keys.sort();
        keys.dedup();
        keys
    }

    fn prefix(rng: &mut Rng, keys: &[Vec<u8>]) -> Vec<u8> {
        let key = rng.pick(keys);
        key.get(..key.len().min(2)).unwrap_or_default().to_vec()
    }

    fn cut(rng: &mut Rng, keys: &[Vec<u8>]) -> Cut {
        let key = rng.pick(keys).clone();
        if rng.percent(30) { Cut::after(key) } else { Cut::before(key) }
    }

    fn is_in(key: &[u8], lo: &Cut, hi: &Cut) -> bool {
        !lo.is_above(key) && hi.is_above(key)
    }

    enum Change {
        Delete(Cut, Cut),
        Clone(Vec<u8>, Vec<u8>),
        Rename(Vec<u8>, Vec<u8>),
    }

    /// Where a key leads by changes, the last of which is looked at first.
    fn source(changes: &[Change], key: &[u8]) -> Option<Vec<u8>> {
        let mut key = key.to_vec();
        for change in changes.iter().rev() {
            match change {
                Change::Delete(lo, hi) if is_in(&key, lo, hi) => return None,
                Change::Clone(from, to) | Change::Rename(from, to) if key.starts_with(to) => {
                    key = [from.as_slice(), &key[to.len()..]].concat();
                }
                Change::Rename(from, _) if key.starts_with(from) => return None,
                _ => {}
            }
        }
        Some(key)
    }

    fn check(stretches: &Stretches, changes: &[Change], keys: &[Vec<u8>]) {
        let mut batch = Batch::new();
        stretches.add_to(&mut batch, D);
        for key in keys {
            let leads = source(changes, key);
            assert_eq!(stretches.source(key).map(Cow::into_owned), leads, "{key:?}");
            assert_eq!(made(&batch, key), leads, "{key:?}");
            for before in [false, true] {
                let at = if before { Cut::just_after(key) } else { Cut::before(key.as_slice()) };
                let around = stretches.around(&at, before);
                assert!(is_in(key, &around.lo, &around.hi), "{around:?} {at:?}");
                let source = match &around.leads {
                    Leads::Here => Some(Cow::Borrowed(key.as_slice())),
                    Leads::Nowhere => None,
                    Leads::To(to) => Some(to.key(key)),
                };
                assert_eq!(source.map(Cow::into_owned), leads);
            }
        }
        let all = stretches.within(&Cut::LOW, &Cut::HIGH);
        assert!(all.first().is_some_and(|first| first.lo == Cut::LOW));
        assert!(all.last().is_some_and(|last| last.hi == Cut::HIGH));
        assert!(all.windows(2).all(|two| two[0].hi == two[1].lo));
    }

    /// Where a key leads by the batch of stretches, which deletes before it clones.
    fn made(batch: &Batch, key: &[u8]) -> Option<Vec<u8>> {
        let mut leads = Some(key.to_vec());
        let all = || record::Changes::of(batch.record()).map(|change| change.unwrap().1);
        for change in all() {
            if let record::Change::DeleteRange { lo, hi } = change
                && is_in(key, &lo, &hi)
            {
                leads = None;
            }
        }
        for change in all() {
            if let record::Change::CloneRange { from, to, lo, hi } = change
                && let Some(rest) = key.strip_prefix(to).filter(|rest| is_in(rest, &lo, &hi))
            {
                leads = Some([from, rest].concat());
            }
        }
        leads
    }

    /// Random deletes, clones and renames against the same changes, one after the other.
    #[test]
    fn stretches_lead_where_all_changes_do_one_after_the_other() {
        let (mut rng, keys) = (Rng::new(5), keys());
        let mut clones = 0;
        for _ in 0..300 {
            let (mut stretches, mut changes) = (Stretches::default(), Vec::new());
            for _ in 0..6 {
                let (from, to) = (prefix(&mut rng, &keys), prefix(&mut rng, &keys));
                let (a, b) = (cut(&mut rng, &keys), cut(&mut rng, &keys));
                match rng.below(3) {
                    0 if a < b => {
                        stretches.delete(&a, &b);
                        changes.push(Change::Delete(a, b));
                    }
                    1 => {
                        stretches.clone_prefix(&from, &to);
                        changes.push(Change::Clone(from, to));
                    }
                    2 if from != to => {
                        stretches.rename_prefix(&from, &to);
                        changes.push(Change::Rename(from, to));
                    }
                    _ => {}
                }
                check(&stretches, &changes, &keys);
            }
            clones += stretches.clones();
        }
        assert!(clones > 300, "{clones}");
    }

    #[test]
    fn what_comes_back_to_its_place_is_no_clone() {
        let mut stretches = Stretches::default();
        stretches.rename_prefix(b"a", b"b");
        stretches.rename_prefix(b"b", b"a");
        assert_eq!(stretches.clones(), 0);
        assert_eq!(stretches.source(b"a1").as_deref(), Some(&b"a1"[..]));
        assert_eq!(stretches.source(b"b1"), None);
    }
}
