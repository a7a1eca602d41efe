//! Second copies of nodes: the room for them, and nodes that are written anew because a copy is bad.

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::Engine;
use crate::error::Result;
use crate::node_id::NodeId;
use crate::settings::NodeCopies;
use crate::store::{Encoded, NodePlace, Outgoing};
use crate::tree::TreeChange;

/// Nodes that are written anew at a time only because they have not as many copies as were chosen take one
/// part in this many of the cache at most, beside the first.
const RENEWED_SHARE: u64 = 6;

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

    /// Makes new versions of some of the nodes that have not that many copies, so that the next checkpoint
    /// writes them anew; of those without a second copy as far as there is room for both. What cannot be read
    /// stays as it is.
    ///
    /// # Errors
    /// Those of the device that are no damage.
    pub fn renew_other_copies(&self, wanted: NodeCopies) -> Result<()> {
        self.note_room_for_copies();
        let mut room_bytes = self.store.copies.room_bytes.load(Ordering::Relaxed);
        let most_bytes = self.store.cache.budget_bytes() as u64 / RENEWED_SHARE;
        let others = self.table.lock().with_other_copies(wanted);
        let mut renewed_bytes = 0;
        for (id, place) in others {
            let bytes = place.extent.len_blocks().saturating_mul(BLOCK_BYTES as u64);
            if renewed_bytes > 0 && bytes > most_bytes.saturating_sub(renewed_bytes) {
                break;
            }
            // The new version takes room before the old one gives its own back.
            let takes_bytes = bytes.saturating_mul(u64::from(wanted.count()));
            let Some(left_bytes) = room_bytes.checked_sub(takes_bytes) else { continue };
            // One at a time: whoever changes the shape of a tree waits.
            let _structures = self.lock_structures();
            match self.renew(id, &place) {
                Err(error) if error.is_unreadable() => {}
                renewed => {
                    renewed?;
                    room_bytes = left_bytes;
                    renewed_bytes += bytes;
                }
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
