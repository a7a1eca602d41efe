//! Limits of everything that is read as a whole. A structure that claims more was not written by this
//! program, and gets no memory: a checksum proves that bytes are as they were written, not who wrote them.

use betree_platform::BLOCK_BYTES;

use crate::key::KEY_BYTES_MAX;
use crate::settings::{BATCH_BYTES_MAX, Geometry};

/// The most bytes of a node, in target sizes. Nodes grow past their target size where pending messages cannot
/// go down for want of space, and where leaves keep messages; never that far.
const NODE_SIZES: u64 = 32;
/// The most batches of the largest size in a node, beyond those sizes: a memtable takes one batch more than
/// it has room for, and a root takes a few memtables.
const BATCHES: u64 = 4;
/// The most edges of an interior node, in multiples of the fan-out: a node is split after it has grown.
const EDGE_SIZES: u64 = 4;
/// The keys in each edge: a bound and a prepended prefix.
const KEYS_PER_EDGE: u64 = 2;
/// The longest bound, in longest keys: a bound may have prefixes before a key.
const BOUND_KEYS: u64 = 4;
/// The bytes of a segment beside its largest batch: heads, and small batches before it.
const SEGMENT_BESIDE_BYTES: u64 = 16 << 20;
/// The most slots of the node table per block, with those of nodes that came and went between checkpoints.
const SLOTS_PER_BLOCK: u64 = 2;
/// The number of slots that a volume of any size may have.
const SLOTS_MIN: u64 = 1 << 16;

/// The longest bound and the longest prepended prefix, in bytes.
pub(crate) const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX * BOUND_KEYS as usize;

/// See the module. All limits follow from the geometry and the size of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most bytes of a node's contents, before compression and as stored.
    pub contents_bytes: u64,
    /// The longest header of a node, in bytes.
    pub header_bytes: u64,
    /// The most slots of the node table.
    pub slots: u64,
    /// The number of blocks for nodes and the table.
    pub blocks: u64,
}

impl Limits {
    /// The limits of a geometry, on `blocks` blocks beside superblocks and log.
    pub fn of(geometry: &Geometry, blocks: u64) -> Limits {
        let contents_bytes =
            u64::from(geometry.node_bytes) * NODE_SIZES + geometry.batch_bytes_max() * BATCHES;
        let edges = u64::from(geometry.fanout_max) * EDGE_SIZES;
        Limits {
            contents_bytes,
            header_bytes: contents_bytes + edges * KEYS_PER_EDGE * BOUND_BYTES_MAX as u64,
            slots: blocks.saturating_mul(SLOTS_PER_BLOCK).saturating_add(SLOTS_MIN),
            blocks,
        }
    }

    /// The longest segment of the log in bytes: a quarter of the log, but no more than the largest batch of
    /// any volume needs.
    pub fn segment_bytes(log_bytes: u64) -> u64 {
        (log_bytes / 4).next_multiple_of(BLOCK_BYTES as u64).min(BATCH_BYTES_MAX + SEGMENT_BESIDE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_small_volume_are_small() {
        for (volume_bytes, most) in [(16 << 20, 3 << 20), (64 << 20, 10 << 20), (1 << 30, 160 << 20)] {
            let limits = Limits::of(&Geometry::for_volume(volume_bytes, 3), volume_bytes / 4096);
            assert!(limits.contents_bytes <= most, "{limits:?}");
        }
    }
}
