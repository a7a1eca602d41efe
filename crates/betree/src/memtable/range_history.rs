//! The range deletes of a memtable, now and at the moments that views see.

use alloc::vec::Vec;

use crate::key::Cut;
use crate::message::{Msn, RangeSet};
use crate::planted::{self, Bug};
use crate::views::Seen;

/// Sets of range deletes, of which the newest changes in place while no view sees it.
#[derive(Default)]
pub(super) struct RangeHistory {
    /// Oldest first, each with the number at which the next took its place.
    older: Vec<(Msn, RangeSet)>,
    newest: RangeSet,
    /// The number of the newest set's last change.
    changed_msn: Msn,
}

impl RangeHistory {
    /// The set at hand.
    pub fn newest(&self) -> &RangeSet {
        &self.newest
    }

    /// The set when `at` was the newest number.
    pub fn at(&self, at: Msn) -> &RangeSet {
        if at >= self.changed_msn {
            return &self.newest;
        }
        let index = self.older.partition_point(|(until, _)| *until <= at);
        self.older.get(index).map_or(&self.newest, |(_, set)| set)
    }

    /// Adds a range newer than all others.
    pub fn insert(&mut self, lo: &Cut, hi: &Cut, msn: Msn, seen: &Seen) {
        // Views from before the first range see the empty set.
        if seen.between(self.changed_msn, msn) && !planted::is(Bug::RangesOfViewsChanged) {
            self.older.push((msn, self.newest.clone()));
        }
        let mut from = 0;
        self.older.retain(|(until, _)| {
            let is_seen = seen.between(from, *until);
            from = *until;
            is_seen
        });
        self.newest.insert(lo, hi, msn);
        self.changed_msn = msn;
    }

    /// Bytes that the ranges take in a buffer, those for views alone included.
    pub fn bytes(&self) -> usize {
        self.newest.bytes() + self.older.iter().map(|(_, set)| set.bytes()).sum::<usize>()
    }
}
