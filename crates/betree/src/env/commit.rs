//! Batches come in: room is waited for, numbers are given out, log and memtables take the changes.

use betree_platform::sync::atomic::Ordering;

use super::Env;
use super::closing::End;
use crate::batch::Batch;
use crate::engine::admission::Claim;
use crate::engine::commit_ranges::PreparedRanges;
use crate::error::{Error, Result};
use crate::invariant::invariant;
use crate::message::Msn;

/// Gives out sequence numbers.
pub(crate) struct Committer {
    pub next_msn: Msn,
    pub(super) end: End,
}

impl Env {
    /// Takes a batch: all of it or none. It is seen by readers when this returns, and durable after
    /// a later [`sync`](Env::sync).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use betree::{Batch, DictId};
    ///
    /// let mut batch = Batch::new();
    /// batch.put(DictId(0), b"apple", b"red");
    /// batch.delete(DictId(0), b"plum");
    /// env.commit(&batch)?;
    /// assert!(env.get(DictId(0), b"apple")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::NoSpace`] (never for a batch of deletes alone),
    /// [`Error::ReadOnly`]; nothing was changed.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        batch.validate()?;
        if batch.bytes() > self.batch_bytes_max() {
            return Err(Error::TooLarge {
                what: "a batch",
                bytes: batch.bytes() as u64,
                limit_bytes: self.batch_bytes_max() as u64,
            });
        }
        if batch.is_empty() {
            return Ok(());
        }
        if let Some(id) = batch.last_dict().filter(|id| usize::from(*id) >= self.engine.dicts.len()) {
            return Err(Error::NoSuchDictionary { id });
        }
        self.throttle(batch.bytes())?;
        let claim = Claim::of(batch, self.engine.room().reserve_bytes());
        if batch.clones() > 0 {
            let mut committed = self.commit_ranges(batch, &claim);
            if committed == Err(Error::NoSpace) {
                self.make_room(&claim)?;
                committed = self.commit_ranges(batch, &claim);
            }
            // It has brought memtables to the trees, which others may wait for.
            self.scheduler.tell_done(None);
            committed?;
        } else {
            let mut commit = self.lock_with_room(&claim)?;
            self.writable(&commit)?;
            let first_msn = commit.next_msn;
            self.log.append(first_msn, batch.len() as u32, batch.record())?;
            // Nothing after this line fails: the batch was made here and its dictionaries exist.
            self.engine.take(first_msn, batch.record())?;
            commit.next_msn = first_msn + batch.len() as u64;
            self.engine.admission.put_back(claim.drawn_bytes);
        }
        self.engine.counters.commits.fetch_add(1, Ordering::Relaxed);
        if batch.frees() {
            self.engine.admission.expect_space(batch.frees_bytes());
        }
        if batch.clones() > 0 || batch.frees_bytes() >= u64::from(self.engine.geometry.node_bytes) {
            self.engine.note_range_bounds(batch.record());
        }
        if self.engine.freeze(false) || batch.frees() && self.engine.room().wants_deletes_back() {
            self.scheduler.call();
        }
        Ok(())
    }

    /// Commits a batch with clones: all that came before comes to the roots, where the changes of ranges take
    /// effect; the others go to the memtables as ever.
    fn commit_ranges(&self, batch: &Batch, claim: &Claim) -> Result<()> {
        let (record, count) = batch.ranges_first()?;
        invariant!(count > 0, "a batch with clones has changes of ranges");
        let most = batch.clone_key_bytes_max();
        let engine = &self.engine;
        let expected_msn = self.commit.lock().next_msn;
        engine.freeze(true);
        engine.absorb_all()?;
        // What earlier clones brought to the roots must not pile up there.
        engine.resume_rebalance()?;
        let structures = engine.lock_structures();
        let prepare = |first_msn| PreparedRanges::new(engine, &structures, first_msn, &record, count, most);
        // Without the writers' lock: whatever has to be read, nobody else waits for it.
        let mut prepared = prepare(expected_msn)?;
        let mut commit = self.commit.lock();
        self.writable(&commit)?;
        let first_msn = commit.next_msn;
        if first_msn != expected_msn {
            // Others have committed meanwhile.
            drop(prepared);
            engine.freeze(true);
            engine.absorb_at_roots(&structures)?;
            prepared = prepare(first_msn)?;
        }
        if !engine.room().fits(claim, prepared.owed_bytes()) {
            return Err(Error::NoSpace);
        }
        self.log.append(first_msn, batch.len() as u32, &record)?;
        // Nothing after this line fails, as in `commit`.
        prepared.install(first_msn + u64::from(count) - 1);
        engine.take(first_msn, &record)?;
        commit.next_msn = first_msn + batch.len() as u64;
        engine.admission.put_back(claim.drawn_bytes);
        drop(commit);
        drop(structures);
        self.scheduler.call();
        Ok(())
    }

    pub(super) fn writable(&self, commit: &Committer) -> Result<()> {
        self.engine.store.disk.health.refuse_if_read_only()?;
        if commit.end != End::Open {
            return Err(Error::ReadOnly { why: "the volume was closed".into() });
        }
        self.engine.store.disk.refuse_if_poisoned()
    }

    /// Waits, before any lock of the caller's is taken, until there is room in memory and in the log
    /// to commit about `bytes`. [`commit`](Env::commit) does the same.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::NoSpace`] and [`Error::DeviceFull`] if what would make room has none
    /// itself; on a platform without threads, those of the work that was due.
    pub fn throttle(&self, bytes: usize) -> Result<()> {
        self.scheduler.throttle(
            || self.is_crowded(bytes),
            || self.writable(&self.commit.lock()),
            || self.run_due_work(),
        )
    }

    fn is_crowded(&self, bytes: usize) -> bool {
        let log_low = self.log.free_bytes() < self.log.capacity_bytes() / 4 + bytes as u64;
        let cache = &self.engine.store.cache;
        log_low || self.engine.is_behind() || cache.dirty_bytes() > cache.budget_bytes() / 3 * 2
    }
}
