//! Finding the open files below a directory without a look at everything in memory.
//!
//! Each directory notes its entries that are open, or that have something open below them: the notes lead
//! from any directory to the open files below it. Opening a file notes it in its directory, and each
//! directory on the way up that was not noted itself yet; if other files there are open already, that is one
//! step. Closing it strikes its own note only. The notes of directories above stay until an operation that
//! passes finds that they lead nowhere ([`leave_if_closed`](Inode::leave_if_closed)), because the next file
//! needs them again.
//!
//! One note too many does no harm; a missing one would. So an opening holds the namespace until it has
//! reached a directory that was noted, and an operation that holds the namespace alone sees no path half
//! noted.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::MutexGuard;

use super::namespace::InNamespace;
use crate::names::{Inode, Place};
use crate::types::InodeId;

impl Inode {
    /// Counts an opening.
    pub fn open(&self, _: &impl InNamespace) {
        let place = self.seat.lock();
        if self.opens.fetch_add(1, Relaxed) == 0 {
            self.note_above(place);
        }
    }

    /// Counts a closing; returns whether it was the last.
    pub fn close(&self) -> bool {
        let place = self.seat.lock();
        let opens = self.opens.load(Relaxed);
        self.opens.store(opens.saturating_sub(1), Relaxed);
        if opens <= 1 && !self.has_notes() {
            self.strike_above(&place);
        }
        opens <= 1
    }

    /// Moves the note along after the inode has moved from `old` to the place in its seat.
    pub(super) fn moved(&self, place: MutexGuard<'_, Place>, old: &Place) {
        if self.is_open() || self.has_notes() {
            self.strike_above(old);
            self.note_above(place);
        }
    }

    /// Strikes the note of an inode that leaves memory.
    pub(super) fn drop_note(&self) {
        let place = self.seat.lock();
        if self.has_notes() {
            self.strike_above(&place);
        }
    }

    /// The noted entries: they are open, or something below them may be.
    pub fn noted(&self) -> Vec<InodeId> {
        self.of_dir.as_ref().map_or_else(Vec::new, |of_dir| of_dir.open_below.lock().nodes())
    }

    /// Whether it may have notes, and so has a note above.
    pub fn has_notes(&self) -> bool {
        self.of_dir.as_ref().is_some_and(|of_dir| of_dir.open_below.lock().is_noted())
    }

    /// Strikes the note in `parent`, unless the inode is open or has notes of its own.
    pub fn leave_if_closed(&self, parent: &Inode) {
        let _place = self.seat.lock();
        if self.is_open() {
            return;
        }
        if let Some(of_dir) = &self.of_dir {
            let mut below = of_dir.open_below.lock();
            if !below.end_if_empty() {
                return;
            }
            parent.strike(self.id);
            return;
        }
        parent.strike(self.id);
    }

    /// Notes the inode in the directory above, that one in the next, and so on up to one that was noted
    /// already.
    fn note_above(&self, place: MutexGuard<'_, Place>) {
        let Some(parent) = place.parent().cloned() else { return };
        // Under its own lock: a thread that closes it at once strikes the note after that.
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

    /// Adds a note; returns whether the directory itself is still to be noted above.
    fn note(&self, node: InodeId) -> bool {
        self.of_dir.as_ref().is_some_and(|of_dir| of_dir.open_below.lock().note(node))
    }

    fn strike(&self, node: InodeId) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.open_below.lock().strike(node);
        }
    }
}
