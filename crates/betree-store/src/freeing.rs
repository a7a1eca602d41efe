//! Batches that free space, which a full store accepts too.

use betree::{Batch, Cut};

use crate::keys::ENGINE_DICT;

/// The largest nodes of a store, in bytes.
pub(crate) const NODE_BYTES_MAX: usize = 4 << 20;

/// Deletes a range, in a batch of deletes alone.
pub(crate) fn delete_range(batch: &mut Batch, (lo, hi): (Cut, Cut)) {
    batch.delete_range(ENGINE_DICT, &lo, &hi);
    mark_freeing(batch, 0);
}

/// Says of a batch that it frees so many bytes, or more: of a range nobody knows, but the engine does not go
/// and free what seems to be less than a node.
pub(crate) fn mark_freeing(batch: &mut Batch, bytes: u64) {
    batch.mark_freeing(bytes.max(NODE_BYTES_MAX as u64));
}
