//! How far the keys around a place cannot be read, and all the reasons.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Tree, astray};
use super::gather::{next_key, range_around};
use super::walk::{Direction, Level, Stop, Walk};
use crate::cache::Piece;
use crate::error::Error;
use crate::key::Cut;
use crate::memtable::Found;
use crate::node_id::NodeId;
use crate::run::{Layers, Run};

/// At most this many unreadable pieces are remembered: no path is longer.
const REMEMBERED_MAX: usize = 64;

/// A range of keys that a scan skips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its lower bound, in the dictionary's coordinates.
    pub lo: Cut,
    /// Its upper bound, which may lie behind the end of the scan's range.
    pub hi: Cut,
    /// Why its keys cannot be read: an error for each unreadable thing on the way to them, at least one.
    pub errors: Vec<Error>,
}

/// Pieces that could not be read, so that the next range below them need not read them again.
#[derive(Default)]
pub(super) struct BadPieces(Vec<BadPiece>);

struct BadPiece {
    piece: Arc<Piece>,
    /// What is newer than the part that cannot be read.
    newest: Option<Layers>,
    error: Error,
}

impl BadPieces {
    /// What is left of a piece, and why that is not all.
    fn newest_layers(&mut self, tree: &Tree<'_>, piece: &Arc<Piece>) -> (Option<Layers>, Option<Error>) {
        if let Some(bad) = self.0.iter().find(|bad| Arc::ptr_eq(&bad.piece, piece)) {
            return (bad.newest.clone(), Some(bad.error.clone()));
        }
        let (newest, error) = tree.store.newest_layers(piece);
        if let Some(error) = &error {
            self.0.truncate(REMEMBERED_MAX - 1);
            let bad = BadPiece { piece: piece.clone(), newest: newest.clone(), error: error.clone() };
            self.0.insert(0, bad);
        }
        (newest, error)
    }
}

/// The errors on the way to a place, and the end of the keys with the same way.
struct Blame {
    hi: Cut,
    errors: Vec<Error>,
    /// A node on the way had to be read: look again.
    is_more: bool,
}

impl Tree<'_> {
    /// The unreadable range that begins at a place; `None` if the place can be read.
    pub(super) fn unreadable_at(&self, at: &Cut, bad: &mut BadPieces) -> Option<Unreadable> {
        let mut gone = None;
        loop {
            let Blame { hi, errors, is_more } = self.look_for_blame(at, bad, &mut gone);
            if is_more {
                continue;
            }
            if errors.is_empty() {
                return None;
            }
            // Bounds out of order say nothing about the keys behind.
            let hi = if hi <= *at { Cut::HIGH } else { hi };
            return Some(Unreadable { lo: at.clone(), hi, errors });
        }
    }

    fn look_for_blame(&self, at: &Cut, bad: &mut BadPieces, gone: &mut Option<NodeId>) -> Blame {
        let Walk { window, levels, stop } = self.walk(&self.dict.state.read(), at, Direction::Forward);
        let mut errors = Vec::new();
        // What is newer than all that cannot be read.
        let mut above: Vec<(Arc<Run>, &Level)> = Vec::new();
        let mut hi = window.hi.clone();
        let basement = match &stop {
            Stop::Leaf(place) => Some(&place.basement),
            Stop::Nothing | Stop::Missing(_) | Stop::Astray(_) => None,
        };
        for level in levels.iter().chain(basement) {
            let (layers, error) = bad.newest_layers(self, &level.piece);
            let (place, end) = (level.down.cut_ref(at), level.down.cut_ref(&window.hi));
            for run in layers.iter().flat_map(Layers::newest_first) {
                if errors.is_empty() {
                    above.push((run.clone(), level));
                }
                // Newer messages hide everything below, which need not be read.
                if let Some(range) = range_around(run, &place, Direction::Forward) {
                    let hi = hi.min(level.up.cut((&range.hi).min(&*end)));
                    errors.extend(range.is_damage().then(|| range.lost()));
                    return self.blame_below(at, hi, &above, errors);
                }
                let behind = run.ranges().iter().find(|range| range.lo > *place);
                if let Some(range) = behind.filter(|range| range.lo < *end) {
                    hi = hi.min(level.up.cut(&range.lo));
                }
            }
            errors.extend(error);
        }
        let found = match stop {
            Stop::Astray(id) => Err(astray(id)),
            Stop::Missing(id) => self.find_for_search(id, gone).map(|()| true),
            Stop::Nothing | Stop::Leaf(_) => Ok(false),
        };
        match found {
            Ok(true) => return Blame { hi, errors, is_more: true },
            Ok(false) => {}
            Err(error) => errors.push(error),
        }
        self.blame_below(at, hi, &above, errors)
    }

    /// The blame of what cannot be read up to `hi`, under the runs `above`, newest first: up to the next key
    /// that messages over it know. None if they know the key at the place.
    fn blame_below(&self, at: &Cut, hi: Cut, above: &[(Arc<Run>, &Level)], errors: Vec<Error>) -> Blame {
        if errors.is_empty() {
            return Blame { hi, errors, is_more: false };
        }
        let here = next_key(at, Direction::Forward);
        let state = self.dict.state.read();
        let mut deltas = Vec::new();
        let is_deleted_here =
            state.memtables(&self.at).any(|memtable| memtable.range_around(at, false, self.at.msn).is_some());
        let in_memory = here.map(|key| {
            let mut memtables = state.memtables(&self.at);
            memtables.any(|memtable| !matches!(memtable.get(key, self.at.msn, &mut deltas), Found::Open))
        });
        let in_runs = here.map(|key| {
            above.iter().any(|(run, level)| {
                let key = level.down.key(key);
                let from = run.lower_bound(&key);
                let mut points = run.points(from, run.len()).take_while(|point| point.key == key);
                points.any(|point| !point.kind.is_upsert())
            })
        });
        if is_deleted_here || in_memory == Some(true) || in_runs == Some(true) {
            return Blame { hi, errors: Vec::new(), is_more: false };
        }
        let behind = here.map_or_else(|| at.clone(), Cut::just_after);
        let next_in_memory = state.memtables(&self.at).filter_map(|memtable| {
            let point = memtable.messages_within(&behind, &hi, self.at.msn).next();
            let point = point.map(|(key, ..)| Cut::before(key));
            let range = memtable.ranges_within(&behind, &hi, self.at.msn).into_iter().next();
            point.into_iter().chain(range.map(|range| range.lo)).min()
        });
        let next_in_runs = above.iter().filter_map(|(run, level)| {
            let point = run.first_behind(&level.down.cut_ref(&behind));
            let end = level.down.cut_ref(&hi);
            let is_before = point < run.len() && end.is_above(run.key(point));
            is_before.then(|| level.up.cut(&Cut::before(run.key(point))))
        });
        let next = next_in_memory.chain(next_in_runs).filter(|next| *next > *at).min();
        Blame { hi: next.map_or_else(|| hi.clone(), |next| next.min(hi.clone())), errors, is_more: false }
    }
}
