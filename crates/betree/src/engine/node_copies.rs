//! Second copies of nodes: the room for them, and nodes that are written anew because a copy is bad.

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::Engine;
use crate::error::Result;
use crate::node_id::NodeId;
use crate::store::{Encoded, NodePlace, Outgoing};
use crate::tree::TreeChange;

impl Engine {
    /// Lets second copies of nodes take what is free beside the reserve, the bytes owed to the next
    /// checkpoint and what is set aside: they refuse nobody anything.
    pub fn note_room_for_copies(&self) {
        let room = self.room();
        let room_bytes = room.unused_bytes().saturating_sub(room.reserve_bytes());
        self.store.copies.room_bytes.store(room_bytes, Ordering::Relaxed);
    }

    /// As [`Store::place_node`](crate::store::Store::place_node), outside of checkpoints.
    ///
    /// # Errors
    /// As there.
    pub fn place_node(&self, encoded: Encoded) -> Result<Outgoing> {
        if encoded.wants_copy() {
            self.note_room_for_copies();
        }
        self.store.place_node(encoded)
    }

    /// Makes new versions of the nodes of which a copy was found to be bad, so that the next checkpoint
    /// writes them anew, with none of their blocks. A node of which both copies are bad stays as it is. The
    /// caller holds the structures.
    ///
    /// # Errors
    /// Those of the device that are no damage.
    pub fn renew_bad_copies(&self, _structures: &[MutexGuard<'_, ()>]) -> Result<()> {
        if !self.store.copies.take_bad() {
            return Ok(());
        }
        let bad = self.table.lock().with_bad_copies();
        for (id, place) in bad {
            match self.renew(id, &place) {
                Err(error) if error.is_unreadable() => place.extent.forget_bad(),
                renewed => renewed?,
            }
        }
        Ok(())
    }

    fn renew(&self, id: NodeId, place: &NodePlace) -> Result<()> {
        let dict = self.store.read_header(id, place, None)?.origin.dict;
        let Some(dict) = self.dicts.get(usize::from(dict)) else { return Ok(()) };
        let tree = self.tree_of(dict);
        let Some(node) = tree.find(id)? else { return Ok(()) };
        // What cannot be read could not be written either.
        self.store.load(&node.pieces())?;
        let version = tree.with_body(&node, node.body.clone());
        tree.install(TreeChange { changed: alloc::vec![version], ..TreeChange::default() });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
