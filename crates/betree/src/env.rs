//! The environment: dictionaries, log and checkpoints behind one interface.

mod admission;
mod closing;
mod identity;

use alloc::string::ToString;

use betree_platform::sync::atomic::{AtomicU64, Ordering};
use betree_platform::sync::{Condvar, Mutex};

use crate::batch::Batch;
use crate::check::Opened;
use crate::dict::Dict;
use crate::engine::checkpoint::{Captured, Committed};
use crate::engine::{Engine, RANGE_BOUNDS_AT_ONCE};
use crate::error::{Error, Result};
use crate::format::superblock::{Identity, Superblock};
use crate::health::State;
use crate::key::Cut;
use crate::log::Log;
use crate::message::Msn;
use crate::settings::DictId;
use crate::stats::{SpaceStats, Stats};
use crate::store::Request;
use crate::tree::Cursor;
use admission::Claim;
use closing::End;

/// Several dictionaries in one volume.
///
/// Whoever drops it last closes it, as well as that can be done: [`close`](Env::close) tells whether it could, and
/// [`abandon`](Env::abandon) keeps it from happening. Threads that work for it hold it as well. The end of a process
/// that drops nothing (`exit`, a signal), and a drop while the thread panics, are a crash: of what was not synced
/// nothing is sure to be left.
///
/// All methods take `&self`, and many threads may call them at once. Locks are taken in this order:
/// reclaiming, checkpoint, the dictionaries' structures, commit, their states, the node table, the rest.
pub struct Env {
    pub(crate) engine: Engine,
    pub(crate) log: Log,
    /// Gives out sequence numbers: a message's number, its place in the log and its place in the
    /// memtable are decided in one critical section.
    pub(crate) commit: Mutex<Committer>,
    pub(crate) checkpoint: Mutex<Committed>,
    pub(crate) opened: Opened,
    /// What the next superblock says of the volume.
    identity: Mutex<Identity>,
    /// Held by whoever makes deletes give their space back.
    reclaiming: Mutex<()>,
    /// Room that is kept for batches to come, in bytes; more only under the writers' lock.
    set_aside_bytes: AtomicU64,
    signal: Mutex<Signal>,
    /// Work may have come up.
    work_wanted: Condvar,
    /// Work has been done.
    work_done: Condvar,
}

pub(crate) struct Committer {
    pub next_msn: Msn,
    end: End,
}

#[derive(Default)]
struct Signal {
    workers: usize,
    stop: bool,
    /// Counts pieces of work that were done, so that nobody waits for one that is past.
    done: u64,
    /// Counts calls for work.
    wanted: u64,
    /// The last piece of work found no space: what it was told.
    starved: Option<Error>,
}

impl Env {
    pub(crate) fn new(engine: Engine, log: Log, next_msn: Msn, committed: Committed, opened: Opened) -> Env {
        // What is only read needs no closing.
        let end = if opened.for_reading && !opened.is_damaged { End::Done } else { End::Open };
        Env {
            engine,
            log,
            commit: Mutex::new(Committer { next_msn, end }),
            identity: Mutex::new(committed.superblock.identity.clone()),
            checkpoint: Mutex::new(committed),
            opened,
            reclaiming: Mutex::new(()),
            set_aside_bytes: AtomicU64::new(0),
            signal: Mutex::new(Signal::default()),
            work_wanted: Condvar::new(),
            work_done: Condvar::new(),
        }
    }

    /// What a message for a range weighs in the buffers of nodes, in bytes: where what it would take the place of is
    /// less, single changes are better.
    pub fn range_weight_bytes(&self) -> usize {
        self.engine.geometry.range_weight_bytes()
    }

    /// The largest batch that [`commit`](Env::commit) takes, in bytes of [`Batch::bytes`].
    pub fn batch_bytes_max(&self) -> usize {
        self.engine.geometry.batch_bytes_max() as usize
    }

    /// Takes a batch: all of it or none. It is seen by readers when this returns, and durable after
    /// a later [`sync`](Env::sync).
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
        let claim = self.claim_of(batch);
        if batch.clones() > 0 {
            let mut committed = self.commit_ranges(batch, &claim);
            if committed == Err(Error::NoSpace) {
                self.make_room(&claim)?;
                committed = self.commit_ranges(batch, &claim);
            }
            // It has absorbed what others may wait for.
            self.tell_done(None);
            committed?;
        } else {
            let mut commit = self.lock_with_room(&claim)?;
            self.writable(&commit)?;
            let first_msn = commit.next_msn;
            self.log.append(first_msn, batch.len() as u32, batch.record())?;
            // Nothing after this line fails: the batch was made here and its dictionaries exist.
            self.engine.take(first_msn, batch.record())?;
            commit.next_msn = first_msn + batch.len() as u64;
            self.draw(&claim);
        }
        self.engine.counters.commits.fetch_add(1, Ordering::Relaxed);
        if batch.frees() {
            self.engine.expect_space(batch.frees_bytes());
        }
        if batch.clones() > 0 || batch.frees_bytes() >= u64::from(self.engine.geometry.node_bytes) {
            self.engine.note_range_bounds(batch.record());
        }
        if self.engine.freeze(false) || batch.frees() && self.engine.wants_deletes_back() {
            self.call_for_work();
        }
        Ok(())
    }

    /// Commits a batch with clones: all that came before arrives at the roots, where the changes of
    /// ranges take effect; the others go to the memtables as ever.
    fn commit_ranges(&self, batch: &Batch, claim: &Claim) -> Result<()> {
        let (record, ranges) = batch.ranges_first()?;
        let most = batch.clone_key_bytes_max();
        let engine = &self.engine;
        let expected_msn = self.commit.lock().next_msn;
        engine.freeze(true);
        engine.absorb_all()?;
        // What earlier clones brought to the roots must not pile up there.
        engine.resume_rebalance()?;
        let structures = engine.lock_structures();
        // Without the writers' lock: whatever has to be read, nobody else waits for it.
        let prepared = engine.change_ranges(&structures, expected_msn, &record, ranges, most)?;
        let mut commit = self.commit.lock();
        if let Err(error) = self.writable(&commit) {
            engine.cancel(&prepared);
            return Err(error);
        }
        let first_msn = commit.next_msn;
        let changes = if first_msn == expected_msn {
            prepared
        } else {
            // Others have committed meanwhile.
            engine.cancel(&prepared);
            engine.freeze(true);
            engine.absorb_at_roots(&structures)?;
            engine.change_ranges(&structures, first_msn, &record, ranges, most)?
        };
        if !self.has_room_for(claim, engine.owed_by(&changes)) {
            engine.cancel(&changes);
            return Err(Error::NoSpace);
        }
        if let Err(error) = self.log.append(first_msn, batch.len() as u32, &record) {
            engine.cancel(&changes);
            return Err(error);
        }
        // Nothing after this line fails, as in `commit`.
        engine.apply_ranges(changes, first_msn + u64::from(ranges) - 1);
        engine.take(first_msn, &record)?;
        commit.next_msn = first_msn + batch.len() as u64;
        self.draw(claim);
        drop(commit);
        drop(structures);
        self.call_for_work();
        Ok(())
    }

    fn writable(&self, commit: &Committer) -> Result<()> {
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
    /// [`Error::ReadOnly`]; [`Error::NoSpace`] and [`Error::DeviceFull`] if what would make room has none itself; in a platform
    /// without threads, whatever the work that was due ran into.
    pub fn throttle(&self, bytes: usize) -> Result<()> {
        while self.is_crowded(bytes) {
            let (before, is_alone) = {
                let signal = self.signal.lock();
                (signal.done, signal.workers == 0 || signal.stop)
            };
            // What was done before that is told to nobody any more.
            if !self.is_crowded(bytes) {
                return Ok(());
            }
            // No work makes room any more.
            self.writable(&self.commit.lock())?;
            if is_alone {
                if !self.run_due_work()? {
                    return Ok(());
                }
                continue;
            }
            self.call_for_work();
            let mut signal = self.signal.lock();
            while signal.done == before && signal.workers > 0 && !signal.stop {
                signal = self.work_done.wait(signal);
            }
            if let Some(error) = &signal.starved {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    fn is_crowded(&self, bytes: usize) -> bool {
        let log_low = self.log.free_bytes() < self.log.capacity_bytes() / 4 + bytes as u64;
        let cache = &self.engine.store.cache;
        log_low || self.engine.is_behind() || cache.dirty_bytes() > cache.budget_bytes() / 3 * 2
    }

    fn checkpoint_is_due(&self) -> bool {
        let cache = &self.engine.store.cache;
        self.log.used_bytes() > self.log.capacity_bytes() / 2
            || cache.dirty_bytes() > cache.budget_bytes() / 3
    }

    /// Makes everything committed before the call durable: one log write and one device sync,
    /// shared by all who call at the same time. After a large amount of new data, a checkpoint.
    ///
    /// # Errors
    /// The device's; the volume takes no more changes then.
    pub fn sync(&self) -> Result<()> {
        let last = self.commit.lock().next_msn - 1;
        if self.sync_log(last)? {
            return Ok(());
        }
        // The checkpoint that is being made may be the one that it takes.
        let mut committed = self.checkpoint.lock();
        if self.sync_log(last)? { Ok(()) } else { self.checkpoint_as(false, &mut committed) }
    }

    /// Makes the log durable up to a change. `false` where only a checkpoint can: something was given up, or the
    /// log has no room.
    fn sync_log(&self, last: u64) -> Result<bool> {
        match self.log.sync_to(last) {
            Err(Error::NoSpace) => Ok(false),
            synced => synced,
        }
    }

    /// Writes a checkpoint: what was committed before the call is in the tree on the device, and
    /// the log is empty behind it.
    ///
    /// # Errors
    /// The device's, [`Error::NoSpace`] or corruption.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_as(false, &mut self.checkpoint.lock())
    }

    /// A checkpoint by whoever holds the turn. Whoever waits for room looks again at each step.
    fn checkpoint_as(&self, clean: bool, committed: &mut Committed) -> Result<()> {
        let done = self.write_checkpoint(clean, committed);
        self.tell_done(None);
        done
    }

    fn write_checkpoint(&self, clean: bool, committed: &mut Committed) -> Result<()> {
        // They are noted in memory alone: of what replay will not note again, few are left to a crash.
        self.unless_unreadable(self.engine.reclaim_hidden(if clean { 1 } else { RANGE_BOUNDS_AT_ONCE / 4 }))?;
        let captured = self.capture()?;
        let first_unapplied = captured.first_unapplied(self.engine.dicts.len());
        let log_start = self.log.start_for(first_unapplied);
        let identity = self.identity.lock().clone();
        let superblock = Superblock { clean, log_start, identity, ..committed.superblock.clone() };
        if superblock == committed.superblock && captured.is_same(&superblock) {
            return Ok(());
        }
        self.engine.write_checkpoint(committed, captured, superblock, &|| self.tell_done(None))?;
        self.log.forget_before(first_unapplied);
        self.log.trim_to(&log_start);
        Ok(())
    }

    /// Captures a moment at which no memtable holds anything. So the checkpoint needs nothing of
    /// the log: were a part of a batch only there, it would have to be written first.
    fn capture(&self) -> Result<Captured> {
        self.engine.freeze(true);
        self.engine.absorb_all()?;
        let structures = self.engine.lock_structures();
        let commit = self.commit.lock();
        // What came meanwhile arrives at the roots while writers wait; they are rebalanced later.
        self.engine.freeze(true);
        self.engine.absorb_at_roots(&structures)?;
        self.log.keep_again();
        Ok(self.engine.capture(commit.next_msn))
    }

    /// Does one piece of background work (a flush, a checkpoint that is due, a freed node) in the
    /// caller's thread; `false` where there was nothing to do.
    ///
    /// # Errors
    /// What hindered it. Afterwards the volume is read-only, unless it was want of space.
    pub fn run_due_work(&self) -> Result<bool> {
        let done = self.work_once();
        match &done {
            Ok(true) => self.tell_done(None),
            Ok(false) => {}
            Err(error) => {
                let is_want = matches!(error, Error::NoSpace | Error::DeviceFull(_));
                if !is_want {
                    self.engine.store.disk.health.fail(&error.to_string());
                }
                self.tell_done(Some(error.clone()).filter(|_| is_want));
            }
        }
        done
    }

    fn tell_done(&self, starved: Option<Error>) {
        let mut signal = self.signal.lock();
        signal.done += 1;
        signal.starved = starved;
        drop(signal);
        self.work_done.notify_all();
    }

    fn work_once(&self) -> Result<bool> {
        if self.opened.for_reading {
            return Ok(false);
        }
        self.engine.freeze(false);
        self.engine.evict_headers();
        if self.engine.absorb_any()? {
            return Ok(true);
        }
        // While another makes one, what comes meanwhile is absorbed.
        if self.checkpoint_is_due()
            && let Some(mut committed) = self.checkpoint.try_lock()
        {
            self.checkpoint_as(false, &mut committed)?;
            return Ok(true);
        }
        if self.engine.free_one_if_idle()?
            || self.engine.resume_rebalance()?
            || self.unless_unreadable(self.engine.reclaim_hidden(RANGE_BOUNDS_AT_ONCE))?
        {
            return Ok(true);
        }
        Ok(self.engine.wants_deletes_back() && self.unless_unreadable(self.give_space_back())?)
    }

    /// Of work that only gives space back: what cannot be read keeps what it hides, and that is all.
    fn unless_unreadable(&self, done: Result<bool>) -> Result<bool> {
        match done {
            Err(error) if error.is_unreadable() => {
                self.engine.store.disk.health.note_failed_work(&error);
                Ok(false)
            }
            done => done,
        }
    }

    /// Whether changes are taken, and if not since when and why.
    pub fn state(&self) -> State {
        self.engine.store.disk.health.state()
    }

    fn call_for_work(&self) {
        self.signal.lock().wanted += 1;
        self.work_wanted.notify_all();
    }

    /// Does background work until [`stop`](Env::stop); a platform runs it on threads of its own. While
    /// no thread is in it, callers of [`throttle`](Env::throttle) do the work themselves.
    pub fn run_worker(&self) {
        self.signal.lock().workers += 1;
        let mut seen = 0;
        loop {
            // An error has been kept; it is told to whoever changes something next.
            let busy = self.run_due_work().unwrap_or(false);
            let mut signal = self.signal.lock();
            while !busy && signal.wanted == seen && !signal.stop {
                signal = self.work_wanted.wait(signal);
            }
            seen = if busy { seen } else { signal.wanted };
            if signal.stop {
                signal.workers -= 1;
                drop(signal);
                self.work_done.notify_all();
                return;
            }
        }
    }

    /// Reads what scans will want next until [`stop`](Env::stop); a platform may lend a few threads for it.
    pub fn run_readahead(&self) {
        self.engine.store.ahead.serve(|Request { dict, at, more }| {
            if let Some(dict) = self.engine.dicts.get(dict) {
                // An error is met again, and told, by the scan that comes.
                let _ = self.engine.tree_of(dict).read_leaf(&at, more);
            }
        });
    }

    /// Encodes and writes the nodes of checkpoints, several at a time by as many threads as are in here, until
    /// [`stop`](Env::stop); a platform may lend a few. Without any, who makes a checkpoint writes it.
    pub fn run_writeback(&self) {
        self.engine.store.behind.serve(&self.engine.store);
    }

    /// Makes every [`work`](Env::work), [`read_ahead`](Env::read_ahead) and
    /// [`write_behind`](Env::write_behind) return, now and later.
    pub fn stop(&self) {
        self.engine.store.ahead.stop();
        self.engine.store.behind.stop();
        self.signal.lock().stop = true;
        self.work_wanted.notify_all();
        self.work_done.notify_all();
    }

    /// How many batches were taken from the log when it was opened: the last time it was not closed.
    pub fn replayed_batches(&self) -> u64 {
        self.opened.replayed_batches
    }

    /// Whether all dictionaries hold what was committed up to the same change. It is otherwise only where a volume
    /// could not be opened, because its log was replayed in part.
    pub fn is_of_one_moment(&self) -> bool {
        let mut applied = self.engine.dicts.iter().map(|dict| dict.state.read().applied_msn);
        let first = applied.next();
        !self.opened.is_damaged || applied.all(|msn| Some(msn) == first)
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        let disk = self.engine.store.disk.counts();
        let log = self.log.counts();
        let counters = &self.engine.counters;
        let cache = &self.engine.store.cache;
        Stats {
            device_reads: disk.reads,
            device_read_bytes: disk.read_bytes,
            device_writes: disk.writes,
            device_write_bytes: disk.write_bytes,
            device_syncs: disk.syncs,
            log_writes: log.segments,
            log_write_bytes: log.bytes,
            point_queries: counters.point_queries.load(Ordering::Relaxed),
            kept_bytes: counters.kept_bytes.load(Ordering::Relaxed),
            point_query_nodes: counters.point_query_nodes.load(Ordering::Relaxed),
            range_queries: counters.range_queries.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            checkpoints: counters.checkpoints.load(Ordering::Relaxed),
            flushes: counters.flushes.load(Ordering::Relaxed),
            failed_work: self.engine.store.disk.health.failed_work(),
            height: self.engine.height(),
            cache_bytes: cache.resident_bytes() as u64,
            dirty_bytes: cache.dirty_bytes() as u64,
        }
    }

    /// The room on the volume.
    pub fn space(&self) -> SpaceStats {
        let engine = &self.engine;
        let set_aside = self.set_aside_bytes.load(Ordering::Relaxed);
        let unused_bytes = engine.free_bytes().saturating_sub(engine.owed_bytes()).saturating_sub(set_aside);
        let space = &engine.store.space;
        SpaceStats {
            total_bytes: space.total_blocks() * 4096,
            used_bytes: (space.total_blocks() - space.free_blocks()) * 4096,
            unused_bytes,
            free_bytes: unused_bytes.saturating_sub(engine.reserve_bytes()),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The device's, or corruption.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<alloc::vec::Vec<u8>>> {
        let counters = &self.engine.counters;
        counters.point_queries.fetch_add(1, Ordering::Relaxed);
        self.engine.tree(dict)?.get(key, &counters.point_query_nodes)
    }

    /// A cursor over `[lo, hi)`, standing before its first key. An unknown dictionary is empty.
    pub fn cursor(&self, dict: DictId, lo: Cut, hi: Cut) -> Cursor<'_> {
        Cursor::new(self.engine.tree(dict).ok(), lo, hi, &self.engine.counters.range_queries)
    }
}

impl Engine {
    /// Forgets headers that nobody used for a while, when they take too much: those of new nodes are in memory
    /// without having been read.
    pub fn evict_headers(&self) {
        let cache = &self.store.cache;
        if cache.has_too_many_headers() {
            self.dicts.iter().for_each(Dict::evict_headers);
            cache.headers_were_evicted();
        }
    }
}

impl core::fmt::Debug for Env {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Env({:?})", self.stats())
    }
}

#[cfg(test)]
mod tests;
