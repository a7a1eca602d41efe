//! The environment: dictionaries, log and checkpoints behind one interface.

mod background;
mod backup;
mod closing;
mod commit;
mod compact;
pub(crate) mod disputed;
mod durability;
mod errors;
mod expired;
mod fetch;
mod freeze;
mod grow;
mod identity;
mod ingest;
mod make_room;
mod make_volume;
mod node_copies;
mod pair_compression;
pub(crate) mod read_table;
pub(crate) mod recover;
pub(crate) mod replayed_changes;
#[cfg(test)]
mod tests;
mod transaction;
mod trim;
mod view;

use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use betree_platform::sync::{Condvar, Mutex};

use crate::engine::checkpoint::Committed;
use crate::engine::scheduler::Scheduler;
use crate::engine::{Engine, Opened};
use crate::error::{Error, Result};
use crate::format::superblock::Identity;
use crate::format::superblock::features::Features;
use crate::format::superblock::growth_limit;
use crate::format::superblock::scrub_record::ScrubRecord;
use crate::health::State;
use crate::key::Cut;
use crate::log::Log;
use crate::message::Msn;
use crate::settings::DictId;
use crate::stats::{SpaceStats, Stats};
use crate::tree::{Cursor, Drain};
pub use backup::Backup;
use closing::End;
use commit::Committer;
pub use compact::Compacted;
pub use expired::Swept;
pub use grow::Growth;
pub use ingest::Ingested;
pub use transaction::{Conflict, Isolation, Outcome, Savepoint, Transaction, TransactionCursor};
pub use view::{Difference, Differences, View};

/// Several dictionaries in one volume.
///
/// Dropping the last reference closes it if that can be done: [`close`](Env::close) returns whether it could,
/// and [`abandon`](Env::abandon) prevents it. Threads that work for it hold references too. A process that
/// ends without a drop (`exit`, a signal) and a drop while the thread panics are crashes: no unsynced change
/// is sure to survive.
///
/// All methods take `&self`, and many threads may call them at once. Locks are taken in this order:
/// reclaiming, checkpoint, the dictionaries' structures, commit, the views, their states, the count of
/// ingests, the node table, the rest.
pub struct Env {
    pub(crate) engine: Engine,
    pub(crate) log: Log,
    /// Gives out sequence numbers: a message's number, its place in the log and its place in the
    /// memtable are decided in one critical section.
    pub(crate) commit: Mutex<Committer>,
    /// Whether commits wait until the end of a freeze; changed under the commit lock.
    is_frozen: AtomicBool,
    /// Is told, with the commit lock, of the end of a freeze.
    thawed: Condvar,
    pub(crate) checkpoint: Mutex<Committed>,
    pub(crate) opened: Opened,
    /// The volume's identity as the next superblock will store it.
    identity: Mutex<Identity>,
    /// The volume's size in bytes as the next superblock will store it; changed under the checkpoint lock.
    volume_bytes: AtomicU64,
    /// The size up to which it grows by itself, as the next superblock will store it; 0 if it does not.
    growth_limit_bytes: AtomicU64,
    /// Whether the next superblock asks for second copies of interior nodes; changed under the checkpoint
    /// lock.
    wants_node_copies: AtomicBool,
    /// Whether the next superblock says that pairs may ask for a compression.
    pairs_are_to_ask: AtomicBool,
    /// Whether a repair has ever noted the loss of keys, as of the opening.
    had_known_damage: bool,
    /// The record of the last scrub as the next superblock will store it.
    pub(crate) last_scrub: Mutex<Option<ScrubRecord>>,
    /// How far deletes are carried out to free their space, while they are.
    pub(crate) reclaiming: Mutex<Option<Drain>>,
    scheduler: Scheduler,
    /// Held by a transaction that has met many conflicts.
    turn: Mutex<()>,
}

impl Env {
    pub(crate) fn new(engine: Engine, log: Log, next_msn: Msn, committed: Committed, opened: Opened) -> Env {
        // A volume opened for reading needs no closing.
        let end = if opened.for_reading && !opened.is_damaged { End::Done } else { End::Open };
        let wants_node_copies = AtomicBool::new(engine.store.copies.are_wanted.load(Ordering::Relaxed));
        Env {
            engine,
            log,
            commit: Mutex::new(Committer { next_msn, end }),
            is_frozen: AtomicBool::new(false),
            thawed: Condvar::new(),
            identity: Mutex::new(committed.superblock.identity.clone()),
            volume_bytes: AtomicU64::new(committed.superblock.volume_bytes),
            pairs_are_to_ask: AtomicBool::new(false),
            wants_node_copies,
            growth_limit_bytes: AtomicU64::new(growth_limit::of(&committed.superblock.tail)),
            had_known_damage: committed.superblock.features.incompat & Features::KNOWN_DAMAGE != 0,
            last_scrub: Mutex::new(ScrubRecord::of(&committed.superblock.tail)),
            checkpoint: Mutex::new(committed),
            opened,
            reclaiming: Mutex::new(None),
            scheduler: Scheduler::default(),
            turn: Mutex::new(()),
        }
    }

    /// The weight of a range message in a node's buffer, in bytes. Single changes that weigh less together
    /// are better.
    pub fn range_weight_bytes(&self) -> usize {
        self.engine.geometry.range_weight_bytes()
    }

    /// The largest batch that [`commit`](Env::commit) takes, in bytes of
    /// [`Batch::bytes`](crate::Batch::bytes).
    pub fn batch_bytes_max(&self) -> usize {
        self.engine.geometry.batch_bytes_max() as usize
    }

    /// Whether changes are accepted, and if not, since when and why.
    pub fn state(&self) -> State {
        self.engine.store.disk.health.state()
    }

    /// Refuses a fork of the process that opened the device. Every call that changes something, makes it
    /// durable or reads it does so first; nothing of it reaches the device from a fork, not even by a drop. A
    /// caller with locks of its own asks before it takes them: a thread that the fork does not have may have
    /// held them.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn refuse_if_forked(&self) -> Result<()> {
        self.engine.store.disk.refuse_if_forked()
    }

    /// The number of batches replayed from the log at opening; above 0 only if the volume was not closed last
    /// time.
    pub fn replayed_batches(&self) -> u64 {
        self.opened.replayed_batches
    }

    /// Where and how the log had lost durable changes at opening, if that was accepted
    /// ([`LogLoss::Accept`](crate::LogLoss::Accept)).
    pub fn log_loss(&self) -> Option<&Error> {
        self.opened.log_loss.as_ref()
    }

    /// Whether a query may come to [`Error::KnownDamage`]: a repair before this opening has noted the loss of
    /// keys, which may have been healed since.
    pub fn may_have_known_damage(&self) -> bool {
        self.had_known_damage
    }

    /// Whether all dictionaries hold the commits up to the same change. They may differ only after
    /// [`open_damaged`](Env::open_damaged) of a volume whose log was replayed in part.
    pub fn is_of_one_moment(&self) -> bool {
        let mut applied = self.engine.dicts.iter().map(|dict| dict.state.read().applied_msn);
        let first = applied.next();
        !self.opened.is_damaged || applied.all(|msn| Some(msn) == first)
    }

    /// The number of changes that were ever made, at most: each has a number of its own, from 1 on.
    pub fn changes_made_max(&self) -> u64 {
        self.commit.lock().next_msn.saturating_sub(1)
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
            device_read_rounds: disk.read_rounds,
            device_writes: disk.writes,
            device_write_bytes: disk.write_bytes,
            device_syncs: disk.syncs,
            log_writes: log.segments,
            log_write_bytes: log.bytes,
            point_queries: counters.point_queries.load(Ordering::Relaxed),
            kept_bytes: counters.kept_bytes.load(Ordering::Relaxed),
            point_query_nodes: counters.point_query_nodes.load(Ordering::Relaxed),
            range_queries: counters.range_queries.load(Ordering::Relaxed),
            fetches: counters.fetches.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            checkpoints: counters.checkpoints.load(Ordering::Relaxed),
            checkpoints_under_way: counters.checkpoints_under_way.load(Ordering::Relaxed),
            log_used_bytes: self.log.used_bytes(),
            copy_write_bytes: counters.copy_bytes.load(Ordering::Relaxed)
                + self.engine.store.copies.written_bytes.load(Ordering::Relaxed),
            copies_used: self.engine.store.disk.health.copies_used(),
            known_damage_reads: self.engine.store.disk.health.known_damage_reads(),
            flushes: counters.flushes.load(Ordering::Relaxed),
            failed_work: self.engine.store.disk.health.failed_work(),
            height: self.engine.height(),
            cache_bytes: cache.resident_bytes() as u64,
            dirty_bytes: cache.dirty_bytes() as u64,
        }
    }

    /// The room on the volume.
    pub fn space(&self) -> SpaceStats {
        let room = self.engine.room();
        let (free_bytes, unused_bytes) = (room.free_bytes(), room.unused_bytes());
        SpaceStats {
            total_bytes: room.total_bytes(),
            used_bytes: room.total_bytes().saturating_sub(free_bytes),
            unused_bytes,
            free_bytes: unused_bytes.saturating_sub(room.reserve_bytes()),
            growth_bytes: self.growth_limit_bytes().saturating_sub(self.volume_bytes()),
        }
    }

    /// The time by which values expire now, in nanoseconds since 1970-01-01 00:00 UTC; `None` without a
    /// clock. It never goes back while the environment is open.
    pub fn now_ns(&self) -> Option<i64> {
        self.engine.store.clock.now_ns()
    }

    /// The value of a key.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// assert_eq!(env.get(betree::DictId(0), b"nobody put this")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The device's, or corruption.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let counters = &self.engine.counters;
        counters.point_queries.fetch_add(1, Ordering::Relaxed);
        self.engine.tree(dict)?.get(key, &counters.point_query_nodes)
    }

    /// The values of several keys, in the order of these; a key may stand among them more than once. All that
    /// they need of the device is asked for together, level by level: however many keys there are, the device
    /// is waited for about as often as for one, as long as half of the cache holds what is read. Not of one
    /// moment: others may change a part of them meanwhile.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use betree::{Batch, DictId};
    ///
    /// let mut batch = Batch::new();
    /// batch.put(DictId(0), b"apple", b"red");
    /// env.commit(&batch)?;
    /// assert_eq!(env.get_many(DictId(0), &["banana", "apple"])?, [None, Some(b"red".to_vec())]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Env::get), if one of the values depends on it.
    pub fn get_many<K: AsRef<[u8]>>(&self, dict: DictId, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let counters = &self.engine.counters;
        self.engine.tree(dict)?.get_many(keys, &counters.point_queries, &counters.point_query_nodes)
    }

    /// A cursor over `[lo, hi)`, standing before its first key. An unknown dictionary is empty.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use betree::{Batch, Cut, DictId};
    ///
    /// let mut batch = Batch::new();
    /// ["apple", "banana", "cherry"].iter().for_each(|name| batch.put(DictId(0), name.as_bytes(), b"fruit"));
    /// env.commit(&batch)?;
    /// let mut cursor = env.cursor(DictId(0), Cut::before("b"), Cut::HIGH);
    /// assert_eq!(cursor.next()?, Some((&b"banana"[..], &b"fruit"[..])));
    /// assert_eq!(cursor.next()?, Some((&b"cherry"[..], &b"fruit"[..])));
    /// assert_eq!(cursor.next()?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor(&self, dict: DictId, lo: Cut, hi: Cut) -> Cursor<'_> {
        Cursor::new(self.engine.tree(dict).ok(), lo, hi, &self.engine.counters.range_queries)
    }
}

impl core::fmt::Debug for Env {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Env({:?})", self.stats())
    }
}
