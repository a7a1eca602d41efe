//! The loops for threads of the platform, and the pieces of work that they do.

use alloc::string::ToString;

use super::Env;
use crate::engine::hidden_ranges::BOUNDS_AT_ONCE;
use crate::error::Result;
use crate::store::Request;

impl Env {
    /// Does one piece of background work (a flush, a checkpoint that is due, a freed node) in the
    /// caller's thread; `false` where there was nothing to do.
    ///
    /// # Errors
    /// The error of that work. Afterwards the volume is read-only, except after want of space.
    pub fn run_due_work(&self) -> Result<bool> {
        self.refuse_if_forked()?;
        let done = self.work_once();
        match &done {
            Ok(true) => self.scheduler.tell_done(None),
            Ok(false) => {}
            Err(error) => {
                let is_want = error.is_want_of_space();
                if !is_want {
                    self.engine.store.disk.health.fail(&error.to_string());
                }
                self.scheduler.tell_done(Some(error.clone()).filter(|_| is_want));
            }
        }
        done
    }

    fn work_once(&self) -> Result<bool> {
        if self.opened.for_reading || self.is_frozen() {
            return Ok(false);
        }
        self.engine.freeze(false);
        self.engine.evict_headers();
        self.engine.end_views_if_short();
        if self.engine.spill_old_versions()? {
            return Ok(true);
        }
        // Before memtables: beside writers that fill one after the other it would never have its turn, and
        // all that was deleted would stay until the device is full.
        if self.unless_unreadable(self.engine.reclaim_much_hidden())? {
            return Ok(true);
        }
        if self.engine.absorb_any()? {
            return Ok(true);
        }
        // While another thread writes a checkpoint, this one flushes memtables.
        if self.checkpoint_is_due()
            && let Some(mut committed) = self.checkpoint.try_lock()
        {
            self.checkpoint_as(false, &mut committed)?;
            return Ok(true);
        }
        if self.engine.free_one_if_idle()?
            || self.engine.resume_rebalance()?
            || self.unless_unreadable(self.engine.reclaim_hidden(BOUNDS_AT_ONCE))?
        {
            return Ok(true);
        }
        self.unless_unreadable(self.give_back_in_background())
    }

    /// For work that only frees space: `Ok(false)` if it meets unreadable data, which then keeps the space it
    /// hides.
    pub(super) fn unless_unreadable(&self, done: Result<bool>) -> Result<bool> {
        match done {
            Err(error) if error.is_unreadable() => {
                self.engine.store.disk.health.note_failed_work(&error);
                Ok(false)
            }
            done => done,
        }
    }

    fn checkpoint_is_due(&self) -> bool {
        let cache = &self.engine.store.cache;
        self.log.used_bytes() > self.log.capacity_bytes() / 2
            || cache.dirty_bytes() > cache.budget_bytes() / 3
    }

    /// Does background work until [`stop`](Env::stop); a platform runs it on threads of its own. While
    /// no thread is in it, callers of [`throttle`](Env::throttle) do the work themselves.
    pub fn run_worker(&self) {
        // An error has been kept in the state; the next change returns it.
        self.scheduler.serve(|| self.run_due_work().unwrap_or(false));
    }

    /// Reads ahead of scans until [`stop`](Env::stop); a platform may lend a few threads for it.
    pub fn run_readahead(&self) {
        self.engine.store.readahead.serve(|Request { dict, at, more }| {
            if let Some(dict) = self.engine.dicts.get(dict) {
                // The scan that comes here meets the error again and returns it.
                let _ = self.engine.tree_of(dict).read_leaf(&at, more);
            }
        });
    }

    /// Encodes and writes the nodes of checkpoints and ingests, one at a time per thread in here, until
    /// [`stop`](Env::stop); a platform may lend a few threads. Without any, the thread that makes a
    /// checkpoint or ingests writes its nodes.
    pub fn run_writeback(&self) {
        self.engine.store.writeback.serve(&self.engine.store);
    }

    /// Makes every [`run_worker`](Env::run_worker), [`run_readahead`](Env::run_readahead) and
    /// [`run_writeback`](Env::run_writeback) return, now and later.
    pub fn stop(&self) {
        self.engine.store.readahead.stop();
        self.engine.store.writeback.stop();
        self.scheduler.stop();
    }
}
