//! Admission: decides whether a change is refused with [`Error::NoSpace`](crate::Error::NoSpace).
//!
//! An accepted change must fit beside the used space and the bytes owed to the next checkpoint, and leave a
//! reserve free. Deletes are always accepted, because they free space. Batches that replace about as much as
//! they add may use half of the reserve. All others leave the reserve alone, and the room set aside for
//! others. `env/make_room.rs` makes room where there is too little.
//!
//! On a sparse device the same holds for free blocks that have storage (`store/backing.rs`), with a smaller
//! reserve: so a checkpoint, and the deletes that give room back, can be written on a disk without a free
//! byte.

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Engine;
use crate::batch::Batch;
use crate::error::Result;
use crate::format::table::PART_BYTES;

/// The cost of a change in buffers beyond its bytes in the batch, in bytes.
const CHANGE_OVERHEAD_BYTES: u64 = 64;

/// The reserve of free blocks with storage, on a sparse device: this many nodes, or as much as all that is
/// used could take several times over. A step of a drain changes six nodes.
const BACKED_RESERVE_NODES: u64 = 8;
const BACKED_RESERVE_SHARE: u64 = 4;
const BACKED_RESERVE_BYTES_MIN: u64 = 256 << 10;
/// The most bytes of small claims that are accepted by one computation of the owed bytes, on a sparse device.
const CREDIT_BYTES_MAX: u64 = 4 << 20;

/// The room that is promised to batches, and the space that deletes are known to free.
pub(crate) struct Admission {
    /// Room that is kept for batches to come, in bytes; raised only under the writers' lock.
    set_aside_bytes: AtomicU64,
    /// The number of commits when everything was last flushed to free space.
    drained_at_commit: AtomicU64,
    /// Whether any batch since then may free space, and how much is known to come back.
    deletes_pending: AtomicBool,
    pending_freed_bytes: AtomicU64,
    /// Bytes of claims that fit on a sparse device without a look; set under the writers' lock.
    credit_bytes: AtomicU64,
    /// The number of deletes since then.
    pending_deletes: AtomicU64,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            set_aside_bytes: AtomicU64::new(0),
            // Deletes from before the opening may not have been carried out.
            drained_at_commit: AtomicU64::new(u64::MAX),
            deletes_pending: AtomicBool::new(true),
            pending_freed_bytes: AtomicU64::new(0),
            credit_bytes: AtomicU64::new(0),
            pending_deletes: AtomicU64::new(0),
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

    /// Notes deletes whose space nobody knows.
    pub fn note_deletes(&self, count: u32) {
        self.pending_deletes.fetch_add(count.into(), Ordering::Relaxed);
    }

    /// The number of deletes that may not have been carried out.
    pub fn pending_deletes(&self) -> u64 {
        self.pending_deletes.load(Ordering::Relaxed)
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
        self.pending_deletes.store(0, Ordering::Relaxed);
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
        let fits = self.is_far_from_full(more) || self.free_bytes() > self.owed_bytes() + more;
        fits && self.has_backed_nodes(more)
    }

    /// Whether free blocks with storage hold what the next checkpoint has to write and so much more. Storage
    /// is allocated for it, unless it would be much compared with what is used.
    fn has_backed_nodes(&self, more_bytes: u64) -> bool {
        if self.unbacked_bytes() == 0 {
            return true;
        }
        // No flush changes more than everything.
        let wanted = self.owed_backed_bytes() + more_bytes.min(self.used_bytes() * BACKED_RESERVE_SHARE);
        let is_little = more_bytes <= (self.used_bytes() / 8).max(self.backed_reserve_bytes());
        // A flush is asked about often: others look whether a full disk has room again.
        let may_allocate = is_little && !self.engine.store.disk.health.is_device_full();
        self.backed_bytes() >= wanted || may_allocate && matches!(self.back_up_to(wanted), Ok(true))
    }

    /// Bytes of extents.
    fn used_bytes(&self) -> u64 {
        self.total_bytes().saturating_sub(self.free_bytes())
    }

    /// Free bytes for which a sparse device may have no storage.
    fn unbacked_bytes(&self) -> u64 {
        self.engine.store.space.unbacked_blocks() * BLOCK_BYTES as u64
    }

    /// Free bytes that have storage.
    fn backed_bytes(&self) -> u64 {
        self.engine.store.space.backed_blocks() * BLOCK_BYTES as u64
    }

    /// The free bytes with storage that are kept, beside those owed, on a sparse device: so that deletes and
    /// checkpoints work however full the disk below it is.
    pub fn backed_reserve_bytes(&self) -> u64 {
        let nodes_bytes = u64::from(self.engine.geometry.node_bytes) * BACKED_RESERVE_NODES;
        nodes_bytes.min(BACKED_RESERVE_BYTES_MIN + self.used_bytes() * BACKED_RESERVE_SHARE)
    }

    /// The owed bytes, with those of claims that were accepted ahead.
    fn owed_backed_bytes(&self) -> u64 {
        self.owed_bytes() + self.engine.admission.credit_bytes.load(Ordering::Relaxed)
    }

    /// Allocates storage until so many free bytes have it. `false` if fewer are free.
    fn back_up_to(&self, bytes: u64) -> Result<bool> {
        loop {
            let missing_bytes = bytes.saturating_sub(self.backed_bytes());
            if missing_bytes == 0 {
                return Ok(true);
            }
            if !self.engine.store.back_more(missing_bytes.div_ceil(BLOCK_BYTES as u64))? {
                return Ok(false);
            }
        }
    }

    /// Allocates storage for the reserve.
    ///
    /// # Errors
    /// [`Error::DeviceFull`](crate::Error::DeviceFull), and those of the device.
    pub fn back_reserve(&self) -> Result<()> {
        if self.unbacked_bytes() == 0 {
            return Ok(());
        }
        self.back_up_to(self.owed_backed_bytes() + self.backed_reserve_bytes()).map(drop)
    }

    /// Whether the disk below a sparse device is full, and free blocks with storage are within twice the
    /// reserve.
    fn is_backing_short(&self) -> bool {
        self.engine.store.disk.health.is_device_full()
            && self.unbacked_bytes() > 0
            && self.backed_bytes() <= self.owed_backed_bytes() + self.backed_reserve_bytes() * 2
    }

    /// The number of free blocks that can lose their storage, so that the reserve and what is owed keep it.
    pub fn spare_blocks(&self) -> u64 {
        // Credit is a short cut: the next commit computes it again.
        self.engine.admission.credit_bytes.store(0, Ordering::Relaxed);
        let kept_bytes = match self.engine.store.disk.is_sparse() {
            true => {
                let set_aside_bytes = self.engine.admission.set_aside_bytes();
                self.owed_backed_bytes() + self.backed_reserve_bytes() + set_aside_bytes
            }
            false => 0,
        };
        self.backed_bytes().saturating_sub(kept_bytes) / BLOCK_BYTES as u64
    }

    /// The free bytes with storage that a claim needs.
    fn backed_for(&self, claim: &Claim, more_owed_bytes: u64) -> u64 {
        let reserve_bytes = self.backed_reserve_bytes();
        let beside_bytes = match claim.beside_bytes < self.reserve_bytes() {
            true => reserve_bytes / 2,
            false => reserve_bytes,
        };
        let of_others = self.engine.admission.set_aside_bytes().saturating_sub(claim.drawn_bytes);
        let wanted = [claim.needed_bytes, beside_bytes, of_others, more_owed_bytes, self.owed_backed_bytes()];
        wanted.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether free blocks with storage suffice for a claim.
    fn fits_backed(&self, claim: &Claim, more_owed_bytes: u64) -> bool {
        if self.unbacked_bytes() == 0 {
            return true;
        }
        let credit = &self.engine.admission.credit_bytes;
        let needed_bytes = claim.needed_bytes.max(1);
        let take = |left: u64| left.checked_sub(needed_bytes).filter(|_| more_owed_bytes == 0);
        if credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return true;
        }
        credit.store(0, Ordering::Relaxed);
        let left_bytes = self.backed_bytes().checked_sub(self.backed_for(claim, more_owed_bytes));
        // Credit leaves the whole reserve: the next claim may be one that must.
        if let Some(left_bytes) = left_bytes.filter(|_| claim.beside_bytes >= self.reserve_bytes()) {
            credit.store((left_bytes / 2).min(CREDIT_BYTES_MAX), Ordering::Relaxed);
        }
        left_bytes.is_some()
    }

    /// As [`fits`](Room::fits), once storage was allocated where that is what lacks.
    pub fn fits_or_is_backed(&self, claim: &Claim, more_owed_bytes: u64) -> bool {
        self.fits(claim, more_owed_bytes) || matches!(self.back(claim, more_owed_bytes), Ok(true))
    }

    /// Allocates storage for a claim that fits but for that. `false` if it does not fit anyway.
    ///
    /// # Errors
    /// [`Error::DeviceFull`](crate::Error::DeviceFull), and those of the device.
    pub fn back(&self, claim: &Claim, more_owed_bytes: u64) -> Result<bool> {
        if self.unbacked_bytes() == 0 || !self.fits_volume(claim, more_owed_bytes) {
            return Ok(false);
        }
        self.back_up_to(self.backed_for(claim, more_owed_bytes))
    }

    /// Whether there is room for a claim, and for `more_owed_bytes` that the next checkpoint has to write
    /// because of it.
    pub fn fits(&self, claim: &Claim, more_owed_bytes: u64) -> bool {
        self.fits_volume(claim, more_owed_bytes) && self.fits_backed(claim, more_owed_bytes)
    }

    /// As [`fits`](Room::fits), whatever storage a sparse device has.
    pub fn fits_volume(&self, claim: &Claim, more_owed_bytes: u64) -> bool {
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
        self.engine.admission.deletes_pending.load(Ordering::Relaxed)
            && (self.is_short() || self.is_backing_short())
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
