//! A volume that stands still, so that others can copy the device below it.
//!
//! The copy is to open without a replay: so the superblock says that the volume was closed cleanly, and the
//! next one says that it is in use again, before anything can come to the log. Between both commits wait
//! under the writers' lock, checkpoints at theirs, and whatever else would write at the disk itself.

use alloc::string::ToString;

use betree_platform::is_unwinding;
use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::Env;
use super::commit::Committer;
use crate::engine::checkpoint::Committed;
use crate::error::Result;
use crate::format::superblock::table_copy::TableCopy;
use crate::format::superblock::{Superblock, slots};
use crate::planted::{self, Bug};

impl Env {
    /// Makes the volume stand still while `while_frozen` runs: the device holds all that was committed, as
    /// after a [`close`](Env::close), and nothing is written to it, nor discarded, nor does it grow. Readers
    /// go on; commits, checkpoints and changes of the volume itself wait until the end, and
    /// [`sync`](Env::sync) has nothing to do. Afterwards the volume is in use as before. A crash meanwhile
    /// leaves a volume that was closed cleanly.
    ///
    /// `None`, and nothing has happened, while another thread writes a checkpoint or looks at the last one. A
    /// [`checkpoint`](Env::checkpoint) before leaves little to write while commits wait already. Commits that
    /// `while_frozen` itself waits for would never end.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// let wrote = || env.stats().device_writes;
    /// let copied = env.freeze(|| {
    ///     let before = wrote();
    ///     // Here the device can be copied.
    ///     wrote() - before
    /// })?;
    /// assert_eq!(copied, Some(0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`checkpoint`](Env::checkpoint): nothing was frozen. If the device refuses the superblock of the
    /// end, `while_frozen` has run, and the volume takes no more changes.
    pub fn freeze<T>(&self, while_frozen: impl FnOnce() -> T) -> Result<Option<T>> {
        self.refuse_if_forked()?;
        let Some(mut committed) = self.checkpoint.try_lock() else { return Ok(None) };
        let standstill = self.stop_commits()?;
        self.checkpoint_as(true, &mut committed)?;
        let holds = !planted::is(Bug::FreezeHoldsNobody);
        let held = holds.then(|| self.engine.store.disk.hold_changes());
        let done = while_frozen();
        // What waited here writes to free blocks, or what the checkpoint holds anyway to the log.
        drop(held);
        let marked = match planted::is(Bug::ThawNotStored) {
            true => Ok(()),
            false => self.mark_in_use(&mut committed),
        };
        if let Err(error) = &marked {
            // A change in the log of a volume that seems closed would not be found again.
            self.engine.store.disk.refuse_from_now_on(&error.to_string());
            self.engine.store.disk.health.fail(&error.to_string());
        }
        drop(standstill);
        marked.map(|()| Some(done))
    }

    /// Whether commits wait for the end of a [`freeze`](Env::freeze).
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// The writers' lock, while no freeze lasts. The caller holds no lock that a freeze needs to begin.
    pub(super) fn lock_thawed(&self) -> MutexGuard<'_, Committer> {
        let mut commit = self.commit.lock();
        while self.is_frozen() {
            commit = self.thawed.wait(commit);
        }
        commit
    }

    /// Makes commits wait from now on, if there can be any.
    fn stop_commits(&self) -> Result<Standstill<'_>> {
        let commit = self.commit.lock();
        self.writable(&commit)?;
        self.is_frozen.store(!planted::is(Bug::FreezeHoldsNobody), Ordering::Release);
        Ok(Standstill(self))
    }

    /// Writes a superblock that names what the last one names, and says that the volume is in use.
    fn mark_in_use(&self, committed: &mut Committed) -> Result<()> {
        let last = &committed.superblock;
        let generation = last.generation + 1;
        let mut tail = last.tail.clone();
        let is_named = TableCopy::put(TableCopy::of(last).as_ref(), generation, &mut tail);
        let superblock = Superblock { clean: false, generation, tail, ..last.clone() };
        self.engine.store.generation.store(generation, Ordering::Relaxed);
        slots::store_first(&self.engine.store.disk, &superblock)?;
        committed.is_half_stored = true;
        slots::store_second(&self.engine.store.disk, &superblock)?;
        committed.is_half_stored = false;
        committed.superblock = superblock;
        if !is_named {
            committed.directory_copy = None;
        }
        Ok(())
    }
}

/// Commits wait until it is dropped.
struct Standstill<'e>(&'e Env);

impl Drop for Standstill<'_> {
    fn drop(&mut self) {
        let Standstill(env) = self;
        if is_unwinding() {
            // The superblock says that the volume is closed.
            env.engine.store.disk.refuse_from_now_on("a freeze was broken off by a panic");
        }
        let commit = env.commit.lock();
        env.is_frozen.store(false, Ordering::Release);
        drop(commit);
        env.thawed.notify_all();
        // Work that was passed over meanwhile.
        env.scheduler.call();
    }
}

#[cfg(test)]
mod tests;
