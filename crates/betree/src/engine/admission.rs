//! Admission: decides whether a change is refused with [`Error::NoSpace`](crate::Error::NoSpace).
//!
//! An accepted change must fit beside the used space and the bytes owed to the next checkpoint, and leave a
//! reserve free. Deletes are always accepted, because they free space. Batches that replace about as much as
//! they add may use half of the reserve. All others leave the reserve alone, and the room set aside for
//! others. `env/make_room.rs` makes room where there is too little.

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Engine;
use crate::batch::Batch;
use crate::format::table::PART_BYTES;

/// The cost of a change in buffers beyond its bytes in the batch, in bytes.
const CHANGE_OVERHEAD_BYTES: u64 = 64;

/// The room that is promised to batches, and the space that deletes are known to free.
pub(crate) struct Admission {
    /// Room that is kept for batches to come, in bytes; raised only under the writers' lock.
    set_aside_bytes: AtomicU64,
    /// The number of commits when everything was last flushed to free space.
    drained_at_commit: AtomicU64,
    /// Whether any batch since then may free space, and how much is known to come back.
    deletes_pending: AtomicBool,
    pending_freed_bytes: AtomicU64,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            set_aside_bytes: AtomicU64::new(0),
            // Deletes from before the opening may not have been carried out.
            drained_at_commit: AtomicU64::new(u64::MAX),
            deletes_pending: AtomicBool::new(true),
            pending_freed_bytes: AtomicU64::new(0),
        }
    }
}

impl Admission {
    /// Room that is kept for batches to come, in bytes.
    pub fn set_aside_bytes(&self) -> u64 {
        self.set_aside_bytes.load(Ordering::Relaxed)
    }

    /// Sets more room aside; the caller holds the writers' lock.
    pub fn set_aside(&self, bytes: u64) {
        self.set_aside_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back room that was set aside.
    pub fn put_back(&self, bytes: u64) {
        let less = |set_aside: u64| Some(set_aside.saturating_sub(bytes));
        // It never refuses.
        let _ = self.set_aside_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Notes that a batch was committed that may free space, `bytes` of it known.
    pub fn expect_space(&self, bytes: u64) {
        self.deletes_pending.store(true, Ordering::Relaxed);
        self.pending_freed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that `bytes` of the expected space have come back.
    pub fn expect_less_space(&self, bytes: u64) {
        let less = |pending: u64| Some(pending.saturating_sub(bytes));
        // It never refuses.
        let _ = self.pending_freed_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Notes that all pending deletes are about to be carried out.
    pub fn begin_drain(&self) {
        self.deletes_pending.store(false, Ordering::Relaxed);
        self.pending_freed_bytes.store(0, Ordering::Relaxed);
    }

    /// Whether anything was committed since the last call. `commits` is the number of commits so far.
    pub fn has_news_to_drain(&self, commits: u64) -> bool {
        self.drained_at_commit.swap(commits, Ordering::Relaxed) != commits
    }
}

/// A batch's demand for room on the device.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    /// The bytes that it may take.
    pub needed_bytes: u64,
    /// The bytes that must stay free beside it.
    pub beside_bytes: u64,
    /// The bytes of the room set aside that belong to it.
    pub drawn_bytes: u64,
    /// Whether it is accepted in any case, once everything was done to make room.
    pub is_taken_always: bool,
}

impl Claim {
    /// The claim of a batch; `reserve_bytes` is the device's reserve.
    pub fn of(batch: &Batch, reserve_bytes: u64) -> Claim {
        let needed_bytes = match batch.puts_bytes() {
            0 => 0,
            puts_bytes => puts_bytes + batch.len() as u64 * CHANGE_OVERHEAD_BYTES,
        };
        let drawn_bytes = batch.drawn_bytes();
        let has_clones = batch.clones() > 0;
        let adds = needed_bytes > 0 || has_clones && !batch.frees();
        let may_use_reserve = !adds || batch.replaces() || drawn_bytes > 0;
        let beside_bytes = if may_use_reserve { reserve_bytes / 2 } else { reserve_bytes };
        // Batches with clones are checked again once their owed bytes are known.
        Claim { needed_bytes, beside_bytes, drawn_bytes, is_taken_always: needed_bytes == 0 && !has_clones }
    }
}

/// The room on an engine's device at this moment.
pub(crate) struct Room<'e> {
    engine: &'e Engine,
}

impl Room<'_> {
    /// The room of an engine.
    pub fn of(engine: &Engine) -> Room<'_> {
        Room { engine }
    }

    /// Free bytes.
    pub fn free_bytes(&self) -> u64 {
        self.engine.store.space.free_blocks() * BLOCK_BYTES as u64
    }

    /// Bytes that can be allocated, free or not: all but superblocks and log.
    pub fn total_bytes(&self) -> u64 {
        self.engine.store.space.total_blocks() * BLOCK_BYTES as u64
    }

    /// The most bytes that the next checkpoint may have to write.
    pub fn owed_bytes(&self) -> u64 {
        let Engine { dicts, store, table, geometry, .. } = self.engine;
        // A memtable goes to the root and is written as a part of it.
        let memtables = dicts.iter().map(|d| d.state.read().memtable_bytes() as u64).sum::<u64>();
        let trees = store.cache.owed_bytes() + memtables;
        let further_parts = store.space.further_parts() * PART_BYTES;
        trees + table.lock().dirty_page_bytes(geometry.table_page_bytes()) + further_parts
    }

    /// The bytes that are kept free so that deletes and checkpoints always work.
    pub fn reserve_bytes(&self) -> u64 {
        let total = self.total_bytes();
        (u64::from(self.engine.geometry.node_bytes) * 16).max(total / 64).min(total / 4)
    }

    /// The free bytes beyond those owed and set aside.
    pub fn unused_bytes(&self) -> u64 {
        let set_aside = self.engine.admission.set_aside_bytes();
        self.free_bytes().saturating_sub(self.owed_bytes()).saturating_sub(set_aside)
    }

    /// Whether `more_bytes` fit by an upper estimate of the owed bytes: then the exact sum is not worth its
    /// locks. The cache's budget bounds memtables and dirty pages of the table.
    fn is_far_from_full(&self, more_bytes: u64) -> bool {
        let cache = &self.engine.store.cache;
        self.free_bytes() > cache.owed_bytes() + cache.budget_bytes() as u64 * 4 + more_bytes
    }

    /// Whether a checkpoint would still fit with `nodes` more nodes to write.
    pub fn has_nodes(&self, nodes: u32) -> bool {
        let more = u64::from(self.engine.geometry.node_bytes) * u64::from(nodes);
        self.is_far_from_full(more) || self.free_bytes() > self.owed_bytes() + more
    }

    /// Whether there is room for a claim, and for `more_owed_bytes` that the next checkpoint has to write
    /// because of it.
    pub fn fits(&self, claim: &Claim, more_owed_bytes: u64) -> bool {
        let of_others = self.engine.admission.set_aside_bytes().saturating_sub(claim.drawn_bytes);
        let wanted = [claim.needed_bytes, claim.beside_bytes, of_others, more_owed_bytes];
        let wanted = wanted.into_iter().fold(0, u64::saturating_add);
        self.is_far_from_full(wanted) || self.free_bytes() >= self.owed_bytes().saturating_add(wanted)
    }

    /// Whether free space is within twice the reserve.
    fn is_short(&self) -> bool {
        let reserve = self.reserve_bytes();
        !self.is_far_from_full(reserve * 2) && self.free_bytes() <= self.owed_bytes() + reserve * 2
    }

    /// Whether pending deletes should free their space now, because little is free.
    pub fn wants_deletes_back(&self) -> bool {
        self.engine.admission.deletes_pending.load(Ordering::Relaxed) && self.is_short()
    }

    /// Whether a volume that grows by itself should, because little is free and pending deletes may not help,
    /// or not in time.
    pub fn wants_growth(&self) -> bool {
        let may_help = self.engine.admission.deletes_pending.load(Ordering::Relaxed);
        self.is_short() && (!may_help || self.free_bytes() < self.reserve_bytes())
    }

    /// Whether pending deletes free much compared with the free space, or much of the used space and enough
    /// to be worth the work.
    pub fn expects_much(&self) -> bool {
        let pending = self.engine.admission.pending_freed_bytes.load(Ordering::Relaxed);
        let used = self.total_bytes().saturating_sub(self.free_bytes());
        let worth_it = u64::from(self.engine.geometry.node_bytes) * 4;
        pending > (self.free_bytes() / 16).min((used / 16).max(worth_it))
    }
}
