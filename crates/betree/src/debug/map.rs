//! The owners of the device's blocks.

use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use super::Inspector;
use crate::env::recover::log_area;
use crate::format::superblock::slots;
use crate::node_id::NodeId;
use crate::space::{BlockRange, Extent};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The owner of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The copies of the superblock.
    Superblocks,
    /// The log.
    Log,
    /// The directory of the node table, or of its second copy.
    Directory,
    /// A page of the node table, by its index.
    Page(u32),
    /// A node, or its second copy.
    Node(NodeId),
    /// None, or a node in an unreadable page of the node table.
    Nobody,
}

/// Blocks in a row with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The blocks.
    pub blocks: BlockRange,
    /// Their owner.
    pub owner: Owner,
}

impl Inspector {
    /// All blocks of the volume, in order.
    pub fn map(&self) -> Vec<Owned> {
        let superblock = self.superblock();
        let area = log_area(superblock);
        let bytes =
            |offset: u64, len: u64| BlockRange { start_block: offset / BLOCK, len_blocks: len / BLOCK };
        let mut all = Vec::from([
            Owned { blocks: bytes(0, slots::BYTES), owner: Owner::Superblocks },
            Owned { blocks: bytes(area.offset, area.len), owner: Owner::Log },
        ]);
        let mut add = |extent: &Extent, owner| {
            all.extend(extent.all_parts().map(|part| Owned { blocks: *part, owner }));
        };
        for directory in self.checkpoint.directory.iter().chain(&self.checkpoint.directory_copy) {
            add(directory, Owner::Directory);
        }
        let table = self.checkpoint.engine.table.lock();
        for (index, extent) in table.page_extents() {
            add(extent, Owner::Page(index));
        }
        for (id, ..) in table.nodes() {
            if let Some(place) = table.place(id) {
                add(&place.extent, Owner::Node(id));
            }
        }
        drop(table);
        all.sort_unstable_by_key(|owned| owned.blocks.start_block);
        with_gaps(&all, superblock.volume_bytes / BLOCK)
    }
}

/// Adds the blocks between, up to `end_block`.
fn with_gaps(all: &[Owned], end_block: u64) -> Vec<Owned> {
    let mut out = Vec::with_capacity(all.len());
    let mut next = 0u64;
    let gap = |out: &mut Vec<Owned>, from: u64, to: u64| {
        if from < to {
            let blocks = BlockRange { start_block: from, len_blocks: to - from };
            out.push(Owned { blocks, owner: Owner::Nobody });
        }
    };
    for owned in all {
        gap(&mut out, next, owned.blocks.start_block);
        next = next.max(owned.blocks.start_block.saturating_add(owned.blocks.len_blocks));
        out.push(*owned);
    }
    gap(&mut out, next, end_block);
    out
}
