//! Pairs that ask for a compression of their own.

use betree_platform::sync::atomic::Ordering;

use super::Env;
use crate::error::Result;

impl Env {
    /// Whether it was opened with a codec for zstd.
    pub fn has_zstd(&self) -> bool {
        self.engine.store.zstd.is_some()
    }

    /// Lets changes ask for a compression of their own ([`PairCompression`](crate::PairCompression)), as the
    /// first commit of one does: the first time a checkpoint notes it in the volume, before any change that
    /// asks is in the log. From then on programs that do not know it refuse the volume.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint); nothing has changed then.
    pub fn let_pairs_ask(&self) -> Result<()> {
        self.refuse_if_forked()?;
        if self.engine.store.pairs_ask.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut committed = self.checkpoint.lock();
        self.writable_now()?;
        self.pairs_are_to_ask.store(true, Ordering::Relaxed);
        let done = self.checkpoint_as(false, &mut committed);
        self.pairs_are_to_ask.store(false, Ordering::Relaxed);
        done?;
        self.engine.store.pairs_ask.store(true, Ordering::Release);
        Ok(())
    }
}
