//! What a scan reads ahead of its place.

use alloc::vec::Vec;

use super::super::{Tree, astray};
use super::gather::Scope;
use super::walk::{Direction, LeafPlace, Level, Stop, Walk};
use crate::error::Result;
use crate::key::Cut;
use crate::node::Basement;
use crate::store::{LEAVES_AHEAD, Request};

/// A scan that has read this many basements in a row may well want the next leaf; a file of a few blocks ends
/// before.
const LONG_SCAN_BASEMENTS: usize = 4;

impl Tree<'_> {
    /// Reads a basement that is not in memory, behind some that are: a scan. Reads twice as many basements at
    /// once as were read so far, so that a scan that ends soon has read little in vain. A long scan near the
    /// leaf's end asks other threads for the next leaf.
    ///
    /// Reads nothing beyond the scan's whole, or a read of one file would bring all its neighbours in vain. A
    /// walk from file to file in order is recognized by the basements before the file in memory, or because
    /// it reaches the beginning of a leaf that was read ahead.
    pub(super) fn read_ahead(
        &self,
        place: &LeafPlace,
        scope: &Scope,
        at: &Cut,
        direction: Direction,
    ) -> Result<()> {
        let LeafPlace { leaf, index, end, basement: Level { up, .. } } = place;
        let basements = leaf.basements();
        let (lo, hi) = scope.whole.as_ref().map_or((&scope.lo, &scope.hi), |(lo, hi)| (lo, hi));
        let begins_before = |b: &Basement, cut: &Cut| up.cut(&Cut::before(b.first.as_slice())) < *cut;
        let is_beginning = *index < LONG_SCAN_BASEMENTS;
        let was_expected = is_beginning && self.store.readahead.has_come(leaf.id, self.dict.index, at);
        let is_here = |b: &Basement| b.piece.is_resident();
        let here = basements.get(*index).is_some_and(is_here);
        if here && !was_expected {
            return Ok(());
        }
        let behind = match direction {
            Direction::Forward => basements.iter().take(*index).rev().take_while(|b| is_here(b)).count(),
            Direction::Backward => basements.iter().skip(*index + 1).take_while(|b| is_here(b)).count(),
        };
        let mut ahead = if was_expected { basements.len() } else { behind * 2 };
        if direction == Direction::Forward {
            let (near, rest) = basements.split_at_checked(*index).unwrap_or_default();
            let near = near.get(near.len() - behind..).unwrap_or_default();
            // The basement in which the whole begins is among them.
            let before = near.partition_point(|b| begins_before(b, lo));
            if !was_expected && before < 2 {
                ahead = ahead.min(rest.partition_point(|b| begins_before(b, hi)));
            }
            if scope.whole.is_some() {
                ahead = ahead.max(rest.partition_point(|b| begins_before(b, &scope.hi)));
            }
            let goes_on = *end < *hi && behind >= LONG_SCAN_BASEMENTS;
            let is_long = was_expected || goes_on || before >= LONG_SCAN_BASEMENTS;
            if is_long && *end != Cut::HIGH && *index + ahead >= basements.len() {
                let request = Request { dict: self.dict.index, at: end.clone(), more: LEAVES_AHEAD - 1 };
                self.store.readahead.ask(request);
            }
        }
        if here {
            return Ok(());
        }
        if ahead < 2 {
            self.store.wait_for_reader(leaf.id);
            return Ok(());
        }
        let wanted = match direction {
            Direction::Forward => basements.get(*index..(*index + ahead).min(basements.len())),
            Direction::Backward => basements.get((*index + 1).saturating_sub(ahead)..=*index),
        };
        let pieces: Vec<_> = wanted.unwrap_or_default().iter().map(|b| b.piece.clone()).collect();
        self.store.load_together(leaf.id, &pieces)
    }

    /// Reads the leaf behind a place and the messages pending above it, ahead of a scan, and asks for `more`
    /// leaves behind it, which other threads may read at the same time.
    pub fn read_leaf(&self, at: &Cut, mut more: usize) -> Result<()> {
        let mut ask_for_more = |end: Cut| {
            if more > 0 && end != Cut::HIGH {
                self.store.readahead.ask(Request { dict: self.dict.index, at: end, more: more - 1 });
                more = 0;
            }
        };
        let mut gone = None;
        loop {
            let Walk { window, levels, stop } = self.walk(&self.dict.state.read(), at, Direction::Forward);
            match stop {
                Stop::Nothing => {}
                Stop::Astray(id) => return Err(astray(id)),
                Stop::Missing(id) => {
                    let is_leaf = self.table.lock().height(id) == Some(0);
                    if is_leaf {
                        // Its parent's edge ends where it does.
                        ask_for_more(window.hi);
                        if self.store.is_being_read(id) {
                            return Ok(());
                        }
                    }
                    if !is_leaf || !self.find_whole(id)? {
                        self.find_for_search(id, &mut gone)?;
                    }
                    continue;
                }
                Stop::Leaf(LeafPlace { leaf, end, .. }) => {
                    ask_for_more(end);
                    self.store.readahead.expect(leaf.id);
                    self.store.read_alone(leaf.id, || self.store.load(&leaf.pieces())).transpose()?;
                }
            }
            let pending: Vec<_> = levels.into_iter().map(|level| level.piece).collect();
            return self.store.load(&pending);
        }
    }
}
