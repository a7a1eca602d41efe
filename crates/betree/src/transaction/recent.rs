//! Recent changes that are no longer in memtables, without their values: transactions that began before them
//! must not miss them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Footprint, Newer};
use crate::key::Cut;
use crate::memtable::{ChangeSource, Memtable, key_bounds};
use crate::message::{Msn, RangeDelete};
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::views::Seen;

/// The changes of one memtable that came to the root, or of the ranges of one batch with clones.
struct Changed {
    dict: DictId,
    last_msn: Msn,
    /// The keys in their order, one behind the other.
    keys: Vec<u8>,
    /// For each key where it ends, and the number of its newest change.
    ends: Vec<(usize, Msn)>,
    /// Ranges in their order.
    ranges: Vec<RangeDelete>,
}

impl Changed {
    fn of_memtable(dict: DictId, memtable: &Memtable) -> Changed {
        let (mut keys, mut ends): (Vec<u8>, Vec<(usize, Msn)>) = (Vec::new(), Vec::new());
        for (key, msn) in memtable.newest_msns() {
            keys.extend_from_slice(key);
            ends.push((keys.len(), msn));
        }
        let ranges = memtable.ranges_within(&Cut::LOW, &Cut::HIGH, Msn::MAX);
        Changed { dict, last_msn: memtable.last_msn(), keys, ends, ranges }
    }

    fn bytes(&self) -> usize {
        let ranges: usize = self.ranges.iter().map(RangeDelete::bytes).sum();
        self.keys.len() + self.ends.len() * size_of::<(usize, Msn)>() + ranges
    }

    fn key(&self, index: usize) -> &[u8] {
        let end_of = |index: usize| self.ends.get(index).map_or(0, |(end, _)| *end);
        let start = index.checked_sub(1).map_or(0, end_of);
        self.keys.get(start..end_of(index)).unwrap_or_default()
    }

    /// The index of the first key behind a cut.
    fn first_behind(&self, cut: &Cut) -> usize {
        let (mut lo, mut hi) = (0, self.ends.len());
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            if cut.is_above(self.key(middle)) { lo = middle + 1 } else { hi = middle }
        }
        lo
    }
}

impl ChangeSource for Changed {
    fn last_msn(&self) -> Msn {
        self.last_msn
    }

    fn newest_msn(&self, key: &[u8]) -> Option<Msn> {
        let at = self.first_behind(&Cut::before(key));
        let point = self.ends.get(at).filter(|_| self.key(at) == key).map(|(_, msn)| *msn);
        let ranges = self.ranges.iter().filter(|range| range.covers(key)).map(|range| range.msn);
        ranges.chain(point).max()
    }

    fn newer_within(&self, lo: &Cut, hi: &Cut, since: Msn) -> Option<(Vec<u8>, Msn)> {
        let within = self.first_behind(lo)..self.first_behind(hi).min(self.ends.len());
        let mut points = within.filter_map(|at| Some((at, self.ends.get(at)?.1)));
        let point = points.find(|(_, msn)| *msn > since).map(|(at, msn)| (self.key(at).to_vec(), msn));
        let ranges = self.ranges.iter().filter_map(|range| range.clip(lo, hi));
        let mut newer = ranges.filter(|range| range.msn > since);
        point.or_else(|| newer.find_map(|range| Some((key_bounds(&range.lo, &range.hi)?.0, range.msn))))
    }
}

/// The recent changes, for as long as a transaction is older. Locked after the views.
pub(crate) struct Recent {
    /// Oldest first.
    changed: VecDeque<Changed>,
    bytes: usize,
    bytes_max: usize,
    /// ChangeSource up to this one may be missing.
    floor: Msn,
    /// The numbers that the live transactions see.
    transactions: Seen,
}

/// What is known of changes since a moment.
pub(crate) enum Since {
    Unchanged,
    Changed(Newer),
    /// The moment is too old.
    Unknown,
}

impl Recent {
    /// No changes; at most `bytes_max` of memory for them.
    pub fn new(bytes_max: usize) -> Recent {
        Recent { changed: VecDeque::new(), bytes: 0, bytes_max, floor: 0, transactions: Seen::default() }
    }

    /// Whether no change is remembered.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// A transaction begins that sees all changes up to `msn`.
    pub fn begin(&mut self, msn: Msn) {
        self.transactions.add(msn);
    }

    /// It has ended.
    pub fn end(&mut self, msn: Msn) {
        self.transactions.remove(msn);
        let oldest = self.transactions.first().unwrap_or(Msn::MAX);
        while self.changed.front().is_some_and(|changed| changed.last_msn <= oldest) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) -> Msn {
        let oldest = self.changed.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, Changed::bytes);
        oldest.map_or(0, |changed| changed.last_msn)
    }

    fn is_wanted(&self, last_msn: Msn) -> bool {
        self.transactions.first().is_some_and(|oldest| oldest < last_msn)
    }

    fn push(&mut self, changed: Changed) {
        self.bytes += changed.bytes();
        self.changed.push_back(changed);
        while self.bytes > self.bytes_max {
            self.floor = self.floor.max(self.drop_oldest());
        }
    }

    /// A memtable leaves for the tree.
    pub fn memtable_arrives(&mut self, dict: DictId, memtable: &Memtable) {
        if self.is_wanted(memtable.last_msn()) && !planted::is(Bug::ArrivedChangesMissed) {
            self.push(Changed::of_memtable(dict, memtable));
        }
    }

    /// Ranges of a dictionary change without coming to a memtable.
    pub fn ranges_change(&mut self, dict: DictId, ranges: Vec<RangeDelete>) {
        let Some(last_msn) = ranges.iter().map(|range| range.msn).max() else { return };
        if self.is_wanted(last_msn) && !planted::is(Bug::ClonesMissedByTransactions) {
            self.push(Changed { dict, last_msn, keys: Vec::new(), ends: Vec::new(), ranges });
        }
    }

    /// Looks for a change of the footprint since a moment.
    pub fn since(&self, footprint: &Footprint, since: Msn) -> Since {
        // Only for a live transaction as old as that was everything kept.
        let was_kept = self.transactions.first().is_some_and(|oldest| oldest <= since);
        if since < self.floor || !was_kept {
            return Since::Unknown;
        }
        let newer = self.changed.iter().filter(|changed| changed.last_msn > since);
        newer
            .into_iter()
            .find_map(|changed| footprint.newer_in(changed.dict, changed, since))
            .map_or(Since::Unchanged, Since::Changed)
    }
}
