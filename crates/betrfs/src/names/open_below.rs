//! Where below a directory files are open, so that they are found without a look at all that is in memory.
//!
//! Each directory notes those of its entries that are open, or below which something is: the notes lead from
//! any directory to the open files below it. A file notes itself when it is opened, and on the way up each
//! directory that was not noted itself yet; so where others are open already, that is one step. When it is
//! closed it strikes its own note only. The notes of directories above stay until somebody who comes by finds
//! that they lead nowhere ([`leave_if_closed`](Inode::leave_if_closed)), as they would be wanted again with
//! the next file.
//!
//! A note too many does no harm. One too few would: whoever notes holds the namespace until he has come to a
//! directory that was noted, so that for who holds it alone no way is half noted.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::MutexGuard;
use hashbrown::HashSet;

use super::namespace::InNamespace;
use crate::names::inode::OfDir;
use crate::names::{Inode, Place};
use crate::types::InodeId;

/// With room for more than so many notes a directory gives it back when the last is struck.
const ROOM_KEPT: usize = 16;

/// The notes of a directory.
#[derive(Default)]
pub(crate) struct OpenBelow {
    nodes: HashSet<InodeId>,
    /// Whether the directory above has a note of this one, or somebody is about to make it.
    is_noted: bool,
}

impl Inode {
    /// Counts an opening.
    pub fn open(&self, _: &impl InNamespace) {
        let place = self.seat.lock();
        if self.opens.fetch_add(1, Relaxed) == 0 {
            self.note_above(place);
        }
    }

    /// Counts a closing; whether that was the last.
    pub fn close(&self) -> bool {
        let place = self.seat.lock();
        let opens = self.opens.load(Relaxed);
        self.opens.store(opens.saturating_sub(1), Relaxed);
        if opens <= 1 && !self.has_notes() {
            self.strike_above(&place);
        }
        opens <= 1
    }

    /// Moves its note along after it has left `old` for the place in its seat.
    pub(super) fn moved(&self, place: MutexGuard<'_, Place>, old: &Place) {
        if self.is_open() || self.has_notes() {
            self.strike_above(old);
            self.note_above(place);
        }
    }

    /// Strikes the note of an inode that is dropped from memory.
    pub(super) fn drop_note(&self) {
        let place = self.seat.lock();
        if self.has_notes() {
            self.strike_above(&place);
        }
    }

    /// The entries that are open, or below which something may be.
    pub fn noted(&self) -> Vec<InodeId> {
        let notes = |of_dir: &OfDir| of_dir.open_below.lock().nodes.iter().copied().collect();
        self.of_dir.as_deref().map_or_else(Vec::new, notes)
    }

    /// Whether it may have notes, and is noted above for it.
    pub fn has_notes(&self) -> bool {
        self.of_dir.as_ref().is_some_and(|of_dir| of_dir.open_below.lock().is_noted)
    }

    /// Strikes its note in `parent`, if it is not open and nothing is noted below it.
    pub fn leave_if_closed(&self, parent: &Inode) {
        let _place = self.seat.lock();
        if self.is_open() {
            return;
        }
        if let Some(of_dir) = &self.of_dir {
            let mut below = of_dir.open_below.lock();
            if !below.nodes.is_empty() {
                return;
            }
            below.is_noted = false;
            parent.strike(self.id);
            return;
        }
        parent.strike(self.id);
    }

    /// Notes it in the directory above, and that in the next, up to one that is noted already.
    fn note_above(&self, place: MutexGuard<'_, Place>) {
        let Some(parent) = place.parent().cloned() else { return };
        // In its own seat: who closes it at once strikes the note after that.
        let mut goes_on = parent.note(self.id);
        drop(place);
        let mut at: Arc<Inode> = parent;
        while goes_on {
            let Some(above) = at.place().parent().cloned() else { return };
            goes_on = above.note(at.id);
            at = above;
        }
    }

    fn strike_above(&self, place: &Place) {
        if let Some(parent) = place.parent() {
            parent.strike(self.id);
        }
    }

    /// Whether the directory itself is still to be noted above.
    fn note(&self, node: InodeId) -> bool {
        let Some(of_dir) = &self.of_dir else { return false };
        let mut below = of_dir.open_below.lock();
        below.nodes.insert(node);
        !core::mem::replace(&mut below.is_noted, true)
    }

    fn strike(&self, node: InodeId) {
        let Some(of_dir) = &self.of_dir else { return };
        let mut below = of_dir.open_below.lock();
        below.nodes.remove(&node);
        if below.nodes.is_empty() && below.nodes.capacity() > ROOM_KEPT {
            below.nodes = HashSet::new();
        }
    }
}
