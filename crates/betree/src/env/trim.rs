//! Discards of all free space.

use core::ops::{ControlFlow, Range};

use betree_platform::BLOCK_BYTES;

use super::Env;
use crate::engine::checkpoint::Discards;
use crate::error::{Error, Result};

impl Env {
    /// Discards all free space, once deletes are carried out and a checkpoint is made; returns the number of
    /// its bytes. What others allocate meanwhile is left alone. A crash at any moment loses nothing: only
    /// blocks that the last durable superblock does not name are discarded, and no extent gets a block while
    /// it is.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// let told_bytes = env.trim()?;
    /// assert!(told_bytes > 0 && told_bytes <= env.space().total_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint), and the device's. A device that cannot discard is no error.
    pub fn trim(&self) -> Result<u64> {
        self.trim_while(&mut |_, _| ControlFlow::Continue(()))
    }

    /// As [`trim`](Env::trim). Calls `go_on` between discards with the bytes of free space that it has been
    /// through, and with those of all; it may end the trim there.
    ///
    /// # Errors
    /// As there.
    pub fn trim_while(&self, go_on: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<u64> {
        self.trim_part(&Discards::ALL, go_on)
    }

    /// As [`trim`](Env::trim), for a part of the volume: discards the free space in a range of its bytes, as
    /// far as it is whole blocks, and leaves out what is shorter than `bytes_min` there.
    ///
    /// # Errors
    /// As there.
    pub fn trim_range(&self, range: Range<u64>, bytes_min: u64) -> Result<u64> {
        let block_bytes = BLOCK_BYTES as u64;
        let (start_block, end_block) = (range.start.div_ceil(block_bytes), range.end / block_bytes);
        let part = Discards { start_block, end_block, blocks_min: bytes_min.div_ceil(block_bytes) };
        let told_bytes = self.trim_part(&part, &mut |_, _| ControlFlow::Continue(()))?;
        // What was discarded twice, to make room, counts once.
        Ok(told_bytes.min(end_block.saturating_sub(start_block).saturating_mul(block_bytes)))
    }

    fn trim_part(&self, part: &Discards, go_on: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<u64> {
        self.refuse_if_forked()?;
        let carry_out = || self.give_space_back(&|| false).and_then(|()| self.checkpoint());
        let mut told_bytes = 0u64;
        match carry_out() {
            // Below a sparse file a checkpoint may have no room where the file has some to give.
            Err(Error::DeviceFull(_)) => {
                told_bytes = self.discard_free(part, go_on)?;
                carry_out()?;
            }
            carried_out => carried_out?,
        }
        Ok(told_bytes.saturating_add(self.discard_free(part, go_on)?))
    }

    /// Discards what is free there by the last durable superblock; returns the number of its bytes.
    fn discard_free(
        &self,
        part: &Discards,
        go_on: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let ranges = self.engine.free_pieces(part);
        let bytes_of = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES as u64);
        let all_bytes = bytes_of(ranges.iter().map(|range| range.len_blocks).fold(0, u64::saturating_add));
        let (mut done_blocks, mut told_blocks) = (0u64, 0u64);
        for range in &ranges {
            if go_on(bytes_of(done_blocks), all_bytes).is_break() {
                break;
            }
            // No checkpoint makes another superblock durable meanwhile, and no close passes by.
            let _committed = self.checkpoint.lock();
            self.writable_now()?;
            told_blocks = told_blocks.saturating_add(self.engine.discard_if_free(*range)?);
            done_blocks = done_blocks.saturating_add(range.len_blocks);
        }
        Ok(bytes_of(told_blocks))
    }
}
