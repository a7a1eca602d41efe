//! A directory's notes of the open files below it. [`openings`](super::openings) says what they are for.

use alloc::vec::Vec;

use hashbrown::HashSet;

use crate::types::InodeId;

/// A directory whose last note is struck frees the room for notes if it is larger than this number.
const ROOM_KEPT: usize = 16;

/// The notes of a directory.
#[derive(Default)]
pub(crate) struct OpenBelow {
    nodes: HashSet<InodeId>,
    /// Whether the directory above has a note of this one, or a thread is about to make it.
    is_noted: bool,
}

impl OpenBelow {
    /// The noted entries.
    pub fn nodes(&self) -> Vec<InodeId> {
        self.nodes.iter().copied().collect()
    }

    /// Whether the directory above has a note of this one, or a thread is about to make it.
    pub fn is_noted(&self) -> bool {
        self.is_noted
    }

    /// Adds a note; returns whether the directory itself is still to be noted above.
    pub fn note(&mut self, node: InodeId) -> bool {
        self.nodes.insert(node);
        !core::mem::replace(&mut self.is_noted, true)
    }

    /// Strikes a note.
    pub fn strike(&mut self, node: InodeId) {
        self.nodes.remove(&node);
        if self.nodes.is_empty() && self.nodes.capacity() > ROOM_KEPT {
            self.nodes = HashSet::new();
        }
    }

    /// Returns whether there is no note. Then the caller strikes that of the directory itself.
    pub fn end_if_empty(&mut self) -> bool {
        let is_empty = self.nodes.is_empty();
        self.is_noted &= !is_empty;
        is_empty
    }
}
