//! Durability of commits: by the log, or by a checkpoint.

use alloc::string::ToString;

use betree_platform::sync::atomic::Ordering;

use super::Env;
use crate::engine::checkpoint::{Captured, Committed};
use crate::engine::hidden_ranges::BOUNDS_AT_ONCE;
use crate::error::{Error, Result};
use crate::events;
use crate::format::superblock::Superblock;
use crate::format::superblock::error_record;
use crate::format::superblock::features::Features;

impl Env {
    /// Makes everything committed before the call durable: one log write and one device sync,
    /// shared by all callers at the same time. After a large amount of new data, a checkpoint.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let mut batch = betree::Batch::new();
    /// # batch.put(betree::DictId(0), b"apple", b"red");
    /// env.commit(&batch)?;
    /// env.sync()?;
    /// // From here on the batch survives a crash.
    /// assert!(env.stats().device_syncs > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the device; the volume accepts no more changes then.
    pub fn sync(&self) -> Result<()> {
        self.refuse_if_forked()?;
        let _under_way = self.log.begin_sync();
        let last = self.commit.lock().next_msn - 1;
        match self.sync_log(last) {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Error::DeviceFull(_)) => {}
            Err(error) => return Err(error),
        }
        // The checkpoint that another thread is writing may be enough.
        let mut committed = self.checkpoint.lock();
        match self.sync_log(last) {
            Ok(true) => Ok(()),
            // A checkpoint has a reserve, and the log none.
            Ok(false) | Err(Error::DeviceFull(_)) => self.checkpoint_as(false, &mut committed),
            Err(error) => Err(error),
        }
    }

    /// Makes the log durable up to a change. `false` where only a checkpoint can: the log has given up
    /// records, or has no room.
    fn sync_log(&self, last: u64) -> Result<bool> {
        match self.log.sync_to(last) {
            Err(Error::NoSpace) => Ok(false),
            synced => synced,
        }
    }

    /// Writes a checkpoint: all earlier commits are in the trees on the device then, and the log is empty
    /// behind it. Where the disk under the device is full, views end for it, the oldest first.
    ///
    /// # Errors
    /// Those of the device, [`Error::NoSpace`] or corruption.
    pub fn checkpoint(&self) -> Result<()> {
        self.refuse_if_forked()?;
        self.checkpoint_as(false, &mut self.checkpoint.lock())
    }

    /// As [`checkpoint`](Env::checkpoint), unless the volume takes no changes, or is being closed.
    ///
    /// # Errors
    /// As `checkpoint`.
    pub fn checkpoint_if_open(&self) -> Result<()> {
        self.refuse_if_forked()?;
        let mut committed = self.checkpoint.lock();
        // A close that begins from here on writes the last checkpoint.
        let is_writable = self.writable_now().is_ok();
        if is_writable { self.checkpoint_as(false, &mut committed) } else { Ok(()) }
    }

    /// A checkpoint by the holder of the checkpoint lock. Threads that wait for room are woken at each step.
    pub(super) fn checkpoint_as(&self, clean: bool, committed: &mut Committed) -> Result<()> {
        let mut are_dead_freed = false;
        let done = loop {
            match self.write_checkpoint(clean, committed) {
                Err(Error::DeviceFull(_)) if self.end_a_view_for_the_device(committed) => {}
                Err(error) if error.is_unreadable() && !are_dead_freed => {
                    // Nodes that have what cannot be read may be dead: without them its blocks can be kept.
                    while let Ok(true) = self.engine.free_one() {}
                    are_dead_freed = true;
                }
                done => break done,
            }
        };
        // What could not be stored is not the size.
        self.volume_bytes.store(committed.superblock.volume_bytes, Ordering::Relaxed);
        self.scheduler.tell_done(None);
        if let Err(error) = &done
            && error.is_unreadable()
        {
            // The next one would meet it again: nobody should go on and believe that changes become durable.
            self.engine.store.disk.health.fail(&error.to_string());
        }
        done
    }

    /// Where the disk under the device is full: ends the oldest view, and gives the blocks that it held back
    /// to that disk. `false` if no view holds any. The caller holds the checkpoint lock.
    fn end_a_view_for_the_device(&self, _committed: &Committed) -> bool {
        let has_ended = self.engine.end_oldest_view();
        if has_ended {
            self.engine.discard_freed();
        }
        has_ended
    }

    fn write_checkpoint(&self, clean: bool, committed: &mut Committed) -> Result<()> {
        events::checkpoint_begins(clean);
        // Range bounds are noted in memory alone, and replay notes only those of logged batches again: a
        // crash should leave few.
        // Where freed blocks are discarded, hidden data takes room of others.
        let at_once = clean || self.opened.discards;
        self.unless_unreadable(self.engine.reclaim_hidden(if at_once { 1 } else { BOUNDS_AT_ONCE / 4 }))?;
        // Before any view has to end for want of room.
        if !self.begin_growth_if_short(clean, committed) {
            self.engine.end_views_if_short();
        }
        let captured = self.capture()?;
        let first_unapplied = captured.first_unapplied(self.engine.dicts.len());
        let log_start = self.log.start_for(first_unapplied);
        let identity = self.identity.lock().clone();
        let volume_bytes = self.volume_bytes.load(Ordering::Relaxed);
        let mut superblock =
            Superblock { clean, log_start, identity, volume_bytes, ..committed.superblock.clone() };
        superblock.tail = self.tail_with_growth_limit(superblock.tail)?;
        self.put_node_copies(&mut superblock)?;
        if self.pairs_are_to_ask.load(Ordering::Relaxed) {
            superblock.features.incompat |= Features::PAIR_COMPRESSION;
        }
        if let Some(record) = *self.last_scrub.lock() {
            superblock.tail = record.put(&superblock.tail);
        }
        let errors = self.errors();
        superblock.tail = error_record::put(&errors, superblock.tail);
        if superblock == committed.superblock && captured.is_same(&superblock) {
            committed.kept_errors = errors;
            events::checkpoint_unneeded();
            return Ok(());
        }
        self.engine.write_checkpoint(committed, captured, superblock, &|| self.scheduler.tell_done(None))?;
        self.engine.replenish();
        committed.kept_errors = errors;
        self.end_growth(committed);
        self.log.forget_before(first_unapplied);
        self.log.trim_to(&log_start);
        self.engine.discard_freed();
        Ok(())
    }

    /// Captures a moment at which all memtables are empty. So the checkpoint needs no record of the log;
    /// otherwise a batch that is only partly in the trees would have to be durable in the log first.
    pub(super) fn capture(&self) -> Result<Captured> {
        self.engine.freeze(true);
        if let Err(error) = self.engine.absorb_all() {
            if !error.is_unreadable() {
                return Err(error);
            }
            // No more changes fit above what cannot be read. Those that were accepted do, at the roots.
            self.engine.store.disk.health.fail(&error.to_string());
        }
        let structures = self.engine.lock_structures();
        self.engine.renew_bad_copies(&structures)?;
        let commit = self.commit.lock();
        // Newer changes come to the roots while writers wait; the trees are rebalanced later.
        self.engine.freeze(true);
        self.engine.absorb_at_roots(&structures)?;
        self.log.keep_again();
        Ok(self.engine.capture(commit.next_msn))
    }
}
