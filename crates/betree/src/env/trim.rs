//! Discards of all free space.

use betree_platform::BLOCK_BYTES;

use super::Env;
use crate::error::Result;

/// How many discards there are between two chances for a checkpoint.
const DISCARDS_AT_ONCE: usize = 64;

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
        self.give_space_back(&|| false)?;
        self.checkpoint()?;
        let ranges = self.engine.free_pieces();
        let mut told_blocks = 0u64;
        for some in ranges.chunks(DISCARDS_AT_ONCE) {
            // No checkpoint makes another superblock durable meanwhile, and no close passes by.
            let _committed = self.checkpoint.lock();
            self.writable(&self.commit.lock())?;
            for range in some {
                told_blocks = told_blocks.saturating_add(self.engine.discard_if_free(*range)?);
            }
        }
        Ok(told_blocks.saturating_mul(BLOCK_BYTES as u64))
    }
}
