//! How an environment ends.

use betree_platform::is_unwinding;

use super::Env;
use crate::error::Result;

/// Whether an environment has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has not.
    Open,
    /// It accepts no changes any more, and accepted ones may still be in memory alone.
    Closing,
    /// There is nothing left to do.
    Done,
}

impl Env {
    /// Writes a checkpoint and marks the volume clean. Afterwards every change is refused. A failed call can
    /// be repeated.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let mut batch = betree::Batch::new();
    /// # batch.put(betree::DictId(0), b"apple", b"red");
    /// env.close()?;
    /// let refused = env.commit(&batch);
    /// assert!(matches!(refused, Err(betree::Error::ReadOnly { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`checkpoint`](Env::checkpoint). After a failure that ended all changes, the counts of errors are
    /// [kept](Env::keep_errors).
    pub fn close(&self) -> Result<()> {
        self.refuse_if_forked()?;
        let closed = self.close_uncounted();
        if closed.is_err() {
            // The error that keeps the volume from closing is the one to return.
            let _ = self.keep_errors();
        }
        closed
    }

    fn close_uncounted(&self) -> Result<()> {
        self.give_back_to_full_device()?;
        {
            let mut commit = self.commit.lock();
            match commit.end {
                End::Done => return Ok(()),
                End::Closing => {}
                End::Open => {
                    self.writable(&commit)?;
                    commit.end = End::Closing;
                }
            }
        }
        self.checkpoint_as(true, &mut self.checkpoint.lock())?;
        self.commit.lock().end = End::Done;
        Ok(())
    }

    /// Ends it as a crash would: nothing is written from now on, not even by the drop, and changes that were
    /// not durable are lost. For simulations of crashes, and for callers that want the last durable state.
    /// Does nothing in a [fork](Env::refuse_if_forked), which never writes.
    pub fn abandon(&self) {
        if self.refuse_if_forked().is_err() {
            return;
        }
        self.commit.lock().end = End::Done;
        self.engine.store.disk.refuse_from_now_on("the volume was abandoned");
    }
}

impl Env {
    /// Where the disk below the device is full: carries out the deletes, so that what they free is that
    /// disk's also if the volume is not opened again soon.
    fn give_back_to_full_device(&self) -> Result<()> {
        let is_full = self.engine.store.disk.health.is_device_full();
        if !is_full || self.is_frozen() || self.writable_now().is_err() {
            return Ok(());
        }
        // A drain that was begun in the background has taken note of deletes and not carried them out yet.
        let is_under_way = self.reclaiming.lock().is_some();
        if !is_under_way && !self.engine.room().wants_deletes_back() {
            return Ok(());
        }
        match self.give_space_back(&|| false) {
            // The close is worth more than the room.
            Err(error) if error.is_want_of_space() => Ok(()),
            done => done,
        }
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // A panic may have left anything half done, even a lock that is never released. So may a thread that
        // a fork does not have.
        if is_unwinding() || self.refuse_if_forked().is_err() || self.commit.lock().end == End::Done {
            return;
        }
        if self.close().is_err() {
            // A sync needs less room than a checkpoint. A caller that wants to know of failures calls
            // `close`.
            let _ = self.sync();
        }
    }
}
