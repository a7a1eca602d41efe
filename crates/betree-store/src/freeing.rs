//! Batches that free space, which a full store accepts too.

use std::sync::Arc;

use betree::{Batch, Cut, Env};

use crate::keys::ENGINE_DICT;

/// The largest nodes of a store, in bytes.
pub(crate) const NODE_BYTES_MAX: usize = 4 << 20;

/// With fewer deletes of single keys, their space is not looked for.
const DELETES_MIN: u64 = 1024;
/// Deletes are carried out if they free more than one part in this many of what is stored.
const FREED_PARTS: u64 = 8;
/// Less than this many nodes is not worth it.
const FREED_NODES_MIN: u64 = 4;

/// Carries out the deletes of single keys that wait above the leaves, if they free much: nothing else would
/// before many other changes come the same way. The mean size of a pair is estimated, which reads some nodes.
///
/// # Errors
/// The engine's.
pub(crate) fn carry_out_deletes(env: &Arc<Env>) -> betree::Result<()> {
    let (deletes, used_bytes) = (env.pending_deletes(), env.space().used_bytes);
    let least_bytes = (used_bytes / FREED_PARTS).max(u64::from(env.geometry().node_bytes) * FREED_NODES_MIN);
    if deletes < DELETES_MIN || used_bytes < least_bytes {
        return Ok(());
    }
    let pairs = env.view().estimate_pairs(ENGINE_DICT, &Cut::LOW, &Cut::HIGH)?.pairs;
    let freed_bytes =
        u128::from(used_bytes) * u128::from(deletes) / u128::from(pairs.saturating_add(deletes));
    if freed_bytes <= u128::from(least_bytes) {
        return Ok(());
    }
    env.expect_freed(freed_bytes as u64);
    env.reclaim()
}

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
