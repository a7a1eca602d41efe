//! The most that a volume has of anything that is read as a whole. What claims more was not written here, and
//! gets no memory: a checksum says that bytes are as they were written, and not who wrote them.

use betree_platform::BLOCK_BYTES;

use crate::key::KEY_BYTES_MAX;
use crate::settings::{BATCH_BYTES_MAX, Geometry};

/// Nodes grow past their size where what is pending cannot go down for want of space, and where leaves keep
/// messages; never to so many times their size.
const NODE_SIZES: u64 = 32;
/// A memtable takes a batch more than it has room for, and a root takes a few memtables.
const BATCHES: u64 = 4;
/// Edges of an interior node, for each that it may have: one is split after it has grown.
const EDGE_SIZES: u64 = 4;
/// A bound and what is prepended, of each edge.
const KEYS_PER_EDGE: u64 = 2;
/// Bounds may be prefixes before a key.
const BOUND_KEYS: u64 = 4;
/// What a segment of one batch takes beside it, with what may have been put before it, in bytes.
const SEGMENT_BESIDE_BYTES: u64 = 16 << 20;
/// Slots of the node table, for each block: those of nodes that came and went between checkpoints.
const SLOTS_PER_BLOCK: u64 = 2;
/// Slots that a volume may have whatever its size.
const SLOTS_MIN: u64 = 1 << 16;

/// No bound, and nothing that is prepended, is longer, in bytes.
pub(crate) const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX * BOUND_KEYS as usize;

/// See the module; all follow from the geometry and the size of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// What a node holds, before compression and as it is stored, in bytes.
    pub contents_bytes: u64,
    /// The header of a node in bytes.
    pub header_bytes: u64,
    /// Slots of the node table.
    pub slots: u64,
    /// Blocks that can be given to nodes and the table.
    pub blocks: u64,
}

impl Limits {
    /// Those of a geometry, on so many blocks beside superblocks and log.
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

    /// The longest segment of the log in bytes: so much finds room in it, whatever a single batch is.
    pub fn segment_bytes(log_bytes: u64) -> u64 {
        (log_bytes / 4).next_multiple_of(BLOCK_BYTES as u64).min(BATCH_BYTES_MAX + SEGMENT_BESIDE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_a_few_mib_has_no_node_of_more() {
        for (volume_bytes, most) in [(16 << 20, 3 << 20), (64 << 20, 10 << 20), (1 << 30, 160 << 20)] {
            let limits = Limits::of(&Geometry::for_volume(volume_bytes, 3), volume_bytes / 4096);
            assert!(limits.contents_bytes <= most, "{limits:?}");
        }
    }
}
