//! Storage for free blocks on a sparse device: it is allocated ahead of the changes that need it.
//!
//! Promise: what was accepted can be written, and so can what a delete takes, however full the disk below a
//! sparse file becomes. Extents get only blocks that have storage. The admission of changes
//! (`engine/admission.rs`) keeps as much of it free as the next checkpoint may have to write, and a reserve
//! beside that.
//!
//! At the opening nothing is known of the storage of free blocks. What was allocated earlier is allocated
//! again, at no cost; on a full disk it is looked for, once.

use alloc::string::ToString;
use alloc::sync::Arc;

use betree_platform::BLOCK_BYTES;

use super::Store;
use crate::error::{Error, Result};
use crate::space::{BlockRange, Extent};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Storage is allocated by one part in this many of what is used, within these bounds, in blocks.
const STEP_SHARE: u64 = 16;
pub(crate) const STEP_BLOCKS_MIN: u64 = 64;
const STEP_BLOCKS_MAX: u64 = 16 << 10;
/// How many gaps are looked at for blocks in a row before an extent has several parts.
const GAPS_TRIED_MAX: usize = 4;
/// On a full disk, ranges that were allocated and never written are looked for in pieces of this many blocks,
/// until this many have none.
const PIECE_BLOCKS: u64 = 256;
const MISSES_MAX: usize = 64;

impl Store {
    /// Blocks that extents hold.
    pub fn used_blocks(&self) -> u64 {
        self.space.total_blocks().saturating_sub(self.space.free_blocks())
    }

    /// Allocates an extent as [`Space::allocate_before`](crate::space::Space::allocate_before) does, after
    /// storage for it.
    pub fn allocate(&self, blocks: u64, parts_max: usize, kept: &[BlockRange]) -> Option<Arc<Extent>> {
        // On a full disk one more try costs more than it finds.
        let mut tries = if self.disk.health.is_device_full() { 0 } else { GAPS_TRIED_MAX };
        while self.space.unbacked_blocks() > 0 {
            let is_enough = self.space.backed_blocks() >= blocks;
            if self.space.has_backed(blocks) || is_enough && tries == 0 {
                break;
            }
            tries = tries.saturating_sub(1);
            if !matches!(self.back_more(blocks), Ok(true)) {
                break;
            }
        }
        self.space.allocate_before(blocks, parts_max, kept)
    }

    /// Why [`allocate`](Store::allocate) has found no room: [`Error::NoSpace`], or that of the device.
    pub fn no_room(&self, blocks: u64) -> Error {
        self.back_more(blocks).err().unwrap_or(Error::NoSpace)
    }

    /// Allocates an extent near the end of the volume, after storage for it; `None` if there is no room.
    pub fn allocate_last(&self, blocks: u64, parts_max: usize, kept: &[BlockRange]) -> Option<Arc<Extent>> {
        if self.space.unbacked_blocks() > 0 {
            // The reserve is for others.
            let is_full = self.disk.health.is_device_full();
            if is_full || self.space.take_last_unbacked(blocks).is_some_and(|range| self.back(range).is_err())
            {
                return None;
            }
        }
        self.space.allocate_last(blocks, parts_max, kept)
    }

    /// Allocates storage for some free blocks, at least `blocks` if there are as many in a row. `false` if
    /// all free blocks have storage.
    ///
    /// # Errors
    /// [`Error::DeviceFull`], and those of the device.
    pub fn back_more(&self, blocks: u64) -> Result<bool> {
        let step_blocks = (self.used_blocks() / STEP_SHARE).clamp(STEP_BLOCKS_MIN, STEP_BLOCKS_MAX);
        let Some(range) = self.space.take_unbacked(blocks.max(step_blocks)) else { return Ok(false) };
        match self.back(range) {
            // What a full disk has left says nothing: the next step would meet its end again.
            Err(Error::DeviceFull(_)) if blocks < range.len_blocks => {
                let Some(range) = self.space.take_unbacked(blocks) else { return Ok(false) };
                self.back(range)
            }
            backed => backed.inspect(|()| self.disk.health.device_has_room()),
        }
        .map(|()| true)
        .or_else(|error| match error {
            Error::DeviceFull(_) if self.find_storage() => Ok(true),
            Error::DeviceFull(_) => {
                self.disk.health.device_is_full(&error.to_string());
                Err(error)
            }
            error => Err(error),
        })
    }

    /// Allocates storage for blocks that were taken for it, and makes them free.
    fn back(&self, range: BlockRange) -> Result<()> {
        match self.disk.allocate(range.start_block * BLOCK, range.len_blocks * BLOCK) {
            Ok(()) => {
                self.space.give_backed(range);
                Ok(())
            }
            Err(error) => {
                self.space.give_back_told(range);
                Err(error)
            }
        }
    }

    /// On a full disk: looks, once, for free blocks that have storage from before the opening. Whether it has
    /// found some.
    fn find_storage(&self) -> bool {
        if self.space.note_searched() {
            return false;
        }
        // Blocks behind those in use may have been allocated ahead.
        self.space.hand_out_doubted(STEP_BLOCKS_MAX);
        let before_blocks = self.space.backed_blocks();
        for range in self.space.doubted_ranges() {
            let (mut at, end) = (range.start_block * BLOCK, (range.start_block + range.len_blocks) * BLOCK);
            while let Some((start, len)) = self.disk.next_allocated(at, end.saturating_sub(at)) {
                let found = BlockRange { start_block: start / BLOCK, len_blocks: len / BLOCK };
                if self.space.take_doubted(found) {
                    self.space.give_backed(found);
                }
                at = start.saturating_add(len);
            }
        }
        // What was allocated ahead follows what was written.
        let mut misses = 0;
        for range in self.space.doubted_ranges() {
            let end = range.start_block + range.len_blocks;
            let mut at = range.start_block;
            while at < end && misses < MISSES_MAX {
                let piece = BlockRange { start_block: at, len_blocks: PIECE_BLOCKS.min(end - at) };
                let is_backed = self.space.take_doubted(piece) && self.allocate_piece(piece);
                if !is_backed {
                    misses += 1;
                    break;
                }
                at += piece.len_blocks;
            }
        }
        self.space.backed_blocks() > before_blocks
    }

    /// As [`back`](Store::back), on a disk that stays full if it had storage.
    fn allocate_piece(&self, piece: BlockRange) -> bool {
        match self.disk.allocate(piece.start_block * BLOCK, piece.len_blocks * BLOCK) {
            Ok(()) => self.space.give_backed(piece),
            Err(_) => {
                self.space.give_back_told(piece);
                return false;
            }
        }
        true
    }
}
