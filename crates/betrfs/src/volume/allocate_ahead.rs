//! Room for allocated blocks: set aside in the engine and noted with the file until they are written.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use betree::Batch;

use crate::error::{Error, Result};
use crate::names::Inode;
use crate::op::Op;
use crate::schema::block::BLOCK;
use crate::types::{InodeId, SeekWhat};
use crate::volume::Volume;

/// Bytes set aside for a block, with those of its key and its place in a node.
const BLOCK_BYTES_ASIDE: u64 = BLOCK + 64;

/// The contents that so many free bytes have room for.
pub(super) fn bytes_of_contents(free_bytes: u64) -> u64 {
    free_bytes / BLOCK_BYTES_ASIDE * BLOCK
}

/// The part of a file's room set aside that one write takes.
pub(super) struct Drawn {
    filled: Range<u64>,
    blocks: u64,
}

impl Volume {
    /// The blocks in a range of bytes that are not stored. The caller holds no lock.
    pub(super) fn holes(&self, op: &Op<'_>, node: InodeId, offset: u64, end: u64) -> Result<Vec<Range<u64>>> {
        let mut holes = Vec::new();
        let mut at = offset;
        while at < end {
            let hole = match self.seek_with(op, node, at, SeekWhat::Hole) {
                Ok(hole) if hole >= end => break,
                Err(Error::NoSuchPlace) => at,
                hole => hole?,
            };
            let data = match self.seek_with(op, node, hole, SeekWhat::Data) {
                Err(Error::NoSuchPlace) => end,
                data => data?.min(end),
            };
            // A hole that begins at the end of the file begins behind the last block.
            let first = if hole == offset { hole / BLOCK } else { hole.div_ceil(BLOCK) };
            holes.push(first..data.div_ceil(BLOCK));
            at = data;
        }
        Ok(holes)
    }

    /// Sets room aside for blocks that are not stored, up to the byte `end`; returns those that had none set
    /// aside before. The caller holds the inode's state.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is not enough room, or too many ranges to note.
    pub(super) fn allocate_ahead(
        &self,
        inode: &Arc<Inode>,
        blocks: &[Range<u64>],
        end: u64,
    ) -> Result<Vec<Range<u64>>> {
        let missing = self.allocations.missing(inode.id, blocks);
        let count = missing.iter().map(|blocks| blocks.end - blocks.start).fold(0, u64::saturating_add);
        let bytes = count.saturating_mul(BLOCK_BYTES_ASIDE);
        if bytes > 0 {
            self.env.set_aside(bytes)?;
            if !self.allocations.add(inode, &missing, end) {
                self.env.put_back(bytes);
                return Err(Error::NoSpace);
            }
        }
        Ok(missing)
    }

    /// Ends the allocation of a file's blocks and returns their room to the engine.
    pub(super) fn end_allocation(&self, inode: &Inode, blocks: &Range<u64>) {
        self.env.put_back(self.allocations.end(inode.id, blocks).saturating_mul(BLOCK_BYTES_ASIDE));
    }

    /// Lets the batch of a write of the bytes `[from, end)` take the room set aside. A block that is filled
    /// only in part leaves its room to later writes.
    pub(super) fn draw(&self, batch: &mut Batch, inode: &Inode, from: u64, end: u64) -> Drawn {
        if self.allocations.count(inode.id, &(from / BLOCK..end.div_ceil(BLOCK))) == 0 {
            return Drawn { filled: 0..0, blocks: 0 };
        }
        let filled = self.allocations.filled(inode.id, from, end);
        let blocks = self.allocations.count(inode.id, &filled);
        batch.mark_replacing();
        batch.draw(blocks.saturating_mul(BLOCK_BYTES_ASIDE));
        Drawn { filled, blocks }
    }

    /// Ends the allocation of the blocks that a committed batch filled.
    pub(super) fn drawn(&self, inode: &Inode, drawn: &Drawn) {
        if drawn.blocks > 0 {
            let more = self.allocations.end(inode.id, &drawn.filled).saturating_sub(drawn.blocks);
            self.env.put_back(more.saturating_mul(BLOCK_BYTES_ASIDE));
        }
    }
}
