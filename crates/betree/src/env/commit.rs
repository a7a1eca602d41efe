//! Commits: waits for room, numbers the changes and puts them into the log and the memtables.

use betree_platform::sync::atomic::Ordering;

use super::Env;
use super::closing::End;
use crate::batch::Batch;
use crate::engine::admission::Claim;
use crate::engine::commit_ranges::{Installed, PreparedRanges};
use crate::error::{Error, Result};
use crate::events;
use crate::invariant::{internal, invariant};
use crate::message::Msn;
use crate::stall::Writes;
use crate::transaction::{Footprint, Since};
use crate::tree::Reach;

const NO_CONFLICT: &str = "a batch that depends on nothing has no conflict";

/// Gives out sequence numbers.
pub(crate) struct Committer {
    pub next_msn: Msn,
    pub(super) end: End,
}

impl Env {
    /// Commits all changes of a batch or none. Readers see them when this returns; a later
    /// [`sync`](Env::sync) makes them durable.
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
        match self.commit_since(batch, &Footprint::default(), Msn::MAX, Reach::Device)? {
            Ok(_) => Ok(()),
            Err(_) => Err(internal!(NO_CONFLICT)),
        }
    }

    /// As [`commit`](Env::commit); but clones wait neither for the device, nor for a change of a tree's shape
    /// by others, nor for many messages of others on their way down.
    ///
    /// # Errors
    /// Those of `commit`; [`Error::NotInMemory`] if clones would have to wait: [`prepare`](Env::prepare)
    /// helps. Nothing was changed.
    pub fn commit_in_memory(&self, batch: &Batch) -> Result<()> {
        match self.commit_since(batch, &Footprint::default(), Msn::MAX, Reach::Memory)? {
            Ok(_) => Ok(()),
            Err(_) => Err(internal!(NO_CONFLICT)),
        }
    }

    /// Whether clones can be made without [`balance`](Env::balance).
    pub fn is_balanced(&self) -> bool {
        self.engine.is_balanced() && self.engine.is_ready_for_ranges()
    }

    /// Brings all changes to the trees, and those at their roots further down where they are too many. A
    /// clone begins with this.
    ///
    /// # Errors
    /// Those of reading, and of the lack of room.
    pub fn balance(&self) -> Result<()> {
        self.refuse_if_forked()?;
        self.writable(&self.lock_thawed())?;
        self.engine.counters.fetches.fetch_add(1, Ordering::Relaxed);
        self.bring_to_trees()?;
        self.scheduler.tell_done(None);
        Ok(())
    }

    fn bring_to_trees(&self) -> Result<()> {
        self.engine.freeze(true);
        self.engine.absorb_all()?;
        // Messages that earlier clones brought to the roots must not pile up there.
        self.engine.resume_rebalance().map(drop)
    }

    /// Does as much of a commit with clones as changes nothing, so that it finds in memory what it needs.
    ///
    /// # Errors
    /// Those of [`commit`](Env::commit).
    pub fn prepare(&self, batch: &Batch) -> Result<()> {
        self.refuse_if_forked()?;
        batch.validate()?;
        self.balance()?;
        let next_msn = self.lock_thawed().next_msn;
        let (record, count) = batch.ranges_first()?;
        let structures = self.engine.lock_structures();
        let most = batch.clone_key_bytes_max();
        PreparedRanges::new(&self.engine, &structures, next_msn, &record, count, most, Reach::Device)
            .map(drop)
    }

    /// As [`prepare`](Env::prepare), without waiting for the device: tells whether the clones of a batch
    /// could be made as things are now. Nothing is changed.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use betree::{Batch, DictId, Error};
    ///
    /// let mut batch = Batch::new();
    /// batch.put(DictId(0), b"a/one", b"1");
    /// env.commit(&batch)?;
    ///
    /// let mut clone = Batch::new();
    /// clone.clone_range(DictId(0), b"a/", b"longer/");
    /// clone.limit_clone_keys(9);
    /// assert!(matches!(env.prepare_in_memory(&clone), Err(Error::KeyTooLong { .. })));
    /// clone.limit_clone_keys(10);
    /// env.prepare_in_memory(&clone)?;
    /// assert_eq!(env.get(DictId(0), b"longer/one")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`commit_in_memory`](Env::commit_in_memory).
    pub fn prepare_in_memory(&self, batch: &Batch) -> Result<()> {
        self.refuse_if_forked()?;
        batch.validate()?;
        if !self.engine.is_ready_for_ranges() {
            return Err(Error::NotInMemory);
        }
        let next_msn = {
            let commit = self.lock_thawed();
            self.writable(&commit)?;
            commit.next_msn
        };
        let (record, count) = batch.ranges_first()?;
        self.engine.freeze(true);
        let structures = self.engine.try_lock_structures().ok_or(Error::NotInMemory)?;
        self.engine.absorb_at_roots(&structures)?;
        let most = batch.clone_key_bytes_max();
        PreparedRanges::new(&self.engine, &structures, next_msn, &record, count, most, Reach::Memory)
            .map(drop)
    }

    /// As [`commit`](Env::commit), unless anything of a footprint has changed since a moment. Returns the
    /// number of the last change, or what is known of the footprint where that is not that it is unchanged.
    pub(super) fn commit_since(
        &self,
        batch: &Batch,
        footprint: &Footprint,
        since: Msn,
        reach: Reach,
    ) -> Result<core::result::Result<Msn, Since>> {
        self.refuse_if_forked()?;
        batch.validate()?;
        if batch.bytes() > self.batch_bytes_max() {
            return Err(Error::TooLarge {
                what: "a batch",
                bytes: batch.bytes() as u64,
                limit_bytes: self.batch_bytes_max() as u64,
            });
        }
        if batch.is_empty() {
            return Ok(Ok(self.commit.lock().next_msn - 1));
        }
        if let Some(id) = batch.last_dict().filter(|id| usize::from(*id) >= self.engine.dicts.len()) {
            return Err(Error::NoSuchDictionary { id });
        }
        if batch.asks_for_compression() {
            self.let_pairs_ask()?;
        }
        let claim = Claim::of(batch, self.engine.room().reserve_bytes());
        match self.wait_for_room(batch.bytes(), self.writes_of(batch.bytes())) {
            // Deletes do not wait for what a full disk refuses: they are the way out. They stay in memory
            // until they can be written, beside what is in the cache: as much as the log holds.
            Err(error) if claim.is_taken_always && error.is_want_of_space() => {
                let bound_bytes = self.engine.store.cache.budget_bytes() as u64 + self.log.capacity_bytes();
                if self.engine.room().owed_bytes() + batch.bytes() as u64 > bound_bytes {
                    return Err(error);
                }
            }
            throttled => throttled?,
        }
        let first_msn = if batch.clones() > 0 {
            let mut committed = self.commit_ranges(batch, &claim, footprint, since, reach);
            if matches!(committed, Err(Error::NoSpace)) {
                self.make_room(&claim)?;
                committed = self.commit_ranges(batch, &claim, footprint, since, reach);
            }
            // What the change of ranges owes is known only once it is prepared.
            while matches!(committed, Err(Error::NoSpace)) && self.grow_a_step(|| false)? {
                committed = self.commit_ranges(batch, &claim, footprint, since, reach);
            }
            // It has brought memtables to the trees; other threads may wait for that.
            self.scheduler.tell_done(None);
            match committed? {
                Ok(first_msn) => first_msn,
                Err(changed) => return Ok(Err(changed)),
            }
        } else {
            let mut commit = self.lock_with_room(&claim)?;
            self.writable(&commit)?;
            match self.engine.changed_since(footprint, since) {
                Since::Unchanged => {}
                changed => return Ok(Err(changed)),
            }
            let first_msn = commit.next_msn;
            self.log.append(first_msn, batch.len() as u32, batch.record())?;
            // Nothing after this line fails: the batch was made here and its dictionaries exist.
            self.engine.take(first_msn, batch.record())?;
            commit.next_msn = first_msn + batch.len() as u64;
            self.engine.admission.put_back(claim.drawn_bytes);
            first_msn
        };
        events::committed(first_msn, batch.len(), batch.clones(), batch.bytes());
        self.engine.counters.commits.fetch_add(1, Ordering::Relaxed);
        if batch.frees() {
            self.engine.admission.expect_space(batch.frees_bytes());
            self.engine.admission.note_deletes(batch.deletes());
        }
        if batch.clones() > 0 || batch.frees_bytes() >= u64::from(self.engine.geometry.node_bytes) {
            self.engine.note_ranges(batch.record(), batch.frees_bytes());
        }
        if self.engine.freeze(false) || batch.frees() && self.engine.room().wants_deletes_back() {
            self.scheduler.call();
        }
        Ok(Ok(first_msn + batch.len() as u64 - 1))
    }

    /// Commits a batch with clones. All earlier changes are brought to the roots, where the range changes of
    /// the batch take effect; its other changes go to the memtables as usual. Returns the number of the first
    /// change, or what is known of the footprint as [`commit_since`](Env::commit_since) does.
    fn commit_ranges(
        &self,
        batch: &Batch,
        claim: &Claim,
        footprint: &Footprint,
        since: Msn,
        reach: Reach,
    ) -> Result<core::result::Result<Msn, Since>> {
        let (record, count) = batch.ranges_first()?;
        invariant!(count > 0, "a batch with clones has changes of ranges");
        let most = batch.clone_key_bytes_max();
        let engine = &self.engine;
        if reach == Reach::Memory && !engine.is_ready_for_ranges() {
            return Err(Error::NotInMemory);
        }
        let expected_msn = {
            let commit = self.lock_thawed();
            self.writable(&commit)?;
            match engine.changed_since(footprint, since) {
                Since::Unchanged => {}
                changed => return Ok(Err(changed)),
            }
            commit.next_msn
        };
        let structures = match reach {
            Reach::Device | Reach::Ahead => {
                self.bring_to_trees()?;
                engine.lock_structures()
            }
            Reach::Memory => {
                engine.freeze(true);
                let structures = engine.try_lock_structures().ok_or(Error::NotInMemory)?;
                engine.absorb_at_roots(&structures)?;
                structures
            }
        };
        let prepare =
            |first_msn| PreparedRanges::new(engine, &structures, first_msn, &record, count, most, reach);
        // Without the writers' lock, so that no other thread waits for these reads.
        let mut prepared = prepare(expected_msn)?;
        let mut commit = self.commit.lock();
        if self.is_frozen() {
            // A freeze needs the structures to begin.
            drop((commit, prepared, structures));
            drop(self.lock_thawed());
            return self.commit_ranges(batch, claim, footprint, since, reach);
        }
        self.writable(&commit)?;
        let first_msn = commit.next_msn;
        if first_msn != expected_msn {
            // Others have committed meanwhile.
            drop(prepared);
            match engine.changed_since(footprint, since) {
                Since::Unchanged => {}
                changed => return Ok(Err(changed)),
            }
            engine.freeze(true);
            engine.absorb_at_roots(&structures)?;
            prepared = prepare(first_msn)?;
        }
        if !engine.room().fits_or_is_backed(claim, prepared.owed_bytes()) {
            return Err(Error::NoSpace);
        }
        self.log.append(first_msn, batch.len() as u32, &record)?;
        // Nothing after this line fails, as in `commit`.
        let mut views = engine.views.lock();
        let installed = prepared.install(&mut views, first_msn + u64::from(count) - 1);
        engine.take_with(&mut views, first_msn, &record)?;
        drop(views);
        commit.next_msn = first_msn + batch.len() as u64;
        engine.admission.put_back(claim.drawn_bytes);
        drop(commit);
        drop(structures);
        installed.iter().for_each(Installed::send);
        self.scheduler.call();
        Ok(Ok(first_msn))
    }

    /// As [`writable`](Env::writable), without the writers' lock.
    pub(crate) fn writable_now(&self) -> Result<()> {
        self.refuse_if_forked()?;
        self.writable(&self.commit.lock())
    }

    pub(crate) fn writable(&self, commit: &Committer) -> Result<()> {
        self.refuse_if_forked()?;
        self.engine.store.disk.health.refuse_if_read_only()?;
        if commit.end != End::Open {
            return Err(Error::ReadOnly { why: "the volume was closed".into() });
        }
        self.engine.store.disk.refuse_if_poisoned()
    }

    /// Waits for room in memory and in the log to commit about `bytes`; for callers that take locks of their
    /// own afterwards: while syncs come often it writes to the log ahead of the next. [`commit`](Env::commit)
    /// waits in the same way, and writes nothing. Who writes little waits later, up to a bound of its own.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::NoSpace`] and [`Error::DeviceFull`] if the work that makes room finds
    /// none itself; without threads of the platform, any error of that work.
    pub fn throttle(&self, bytes: usize) -> Result<()> {
        self.refuse_if_forked()?;
        let writes = self.writes_of(bytes);
        self.log.write_ahead(writes);
        self.wait_for_room(bytes, writes)
    }

    fn writes_of(&self, bytes: usize) -> Writes {
        match self.scheduler.has_workers() {
            true => Writes::of(bytes, self.engine.memtable_bytes_max()),
            // It will do the work itself.
            false => Writes::Much,
        }
    }

    fn wait_for_room(&self, bytes: usize, writes: Writes) -> Result<()> {
        self.log.wait_for_syncs(writes);
        self.scheduler.throttle(
            || self.is_crowded(bytes, writes),
            || self.writable_now(),
            || self.run_due_work(),
        )
    }

    pub(super) fn is_crowded(&self, bytes: usize, writes: Writes) -> bool {
        let cache = &self.engine.store.cache;
        let budget_bytes = cache.budget_bytes();
        self.log.is_crowded(bytes as u64, writes)
            || self.engine.is_behind(writes)
            || cache.dirty_bytes() > writes.bound(budget_bytes / 4 * 3, budget_bytes / 3 * 2)
    }
}
