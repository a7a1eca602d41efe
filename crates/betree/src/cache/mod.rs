//! The node cache's budget: data in memory, and its eviction.
//!
//! Everything that a node holds is charged here: pieces (partitions and basements) while they are
//! in memory, and headers. (Memtables are bounded apart, by their number and size.) Pieces that are on the
//! device as well can be dropped; a clock spares those touched since its hand last passed.

mod lineage;
mod on_device;
mod piece;

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::events;
pub(crate) use on_device::OnDevice;
#[cfg(test)]
pub(crate) use on_device::RUNS_MAX;
pub(crate) use piece::{Piece, Residency};

/// Headers may take one part in this many of the budget before unused ones are dropped.
const HEADER_PARTS: usize = 8;
/// Dropped pieces are swept from the clock once it holds this many entries.
const SWEEP_LEN_MIN: usize = 1024;

/// The bytes in memory, summed over all charges.
#[derive(Default)]
pub(crate) struct Account {
    resident_bytes: AtomicUsize,
    header_bytes: AtomicUsize,
    dirty_bytes: AtomicUsize,
    /// The most bytes on the device of node versions that are in memory alone.
    unwritten_bytes: AtomicU64,
    /// The most bytes on the device of pending GOTOs, once they are edges.
    promised_bytes: AtomicU64,
}

/// The charge of one piece in bytes.
#[derive(Clone, Copy, Default)]
struct Charged {
    resident_bytes: usize,
    /// The part of them that is not on the device.
    dirty_bytes: usize,
}

impl Account {
    /// Replaces the charge of a piece.
    fn recharge(&self, before: Charged, after: Charged) {
        let change = |counter: &AtomicUsize, before: usize, after: usize| match after.checked_sub(before) {
            Some(more) => counter.fetch_add(more, Ordering::Relaxed),
            None => counter.fetch_sub(before - after, Ordering::Relaxed),
        };
        change(&self.resident_bytes, before.resident_bytes, after.resident_bytes);
        change(&self.dirty_bytes, before.dirty_bytes, after.dirty_bytes);
    }
}

/// The budget and the clock.
pub(crate) struct Cache {
    budget_bytes: usize,
    /// The bytes that a pending GOTO may add to the device when it turns into an edge.
    goto_bytes: u64,
    account: Arc<Account>,
    clock: Mutex<Clock>,
    /// The bytes of headers at which they are swept again, if that is more than their share.
    headers_bytes_max: AtomicUsize,
}

/// Pieces in the order of their eviction. A dropped piece keeps a little memory until its entry is swept.
#[derive(Default)]
struct Clock {
    pieces: VecDeque<Weak<Piece>>,
    /// The number of entries at which dropped pieces are swept.
    sweep_len: usize,
}

impl Clock {
    fn push(&mut self, piece: Weak<Piece>) {
        if self.pieces.len() >= self.sweep_len.max(SWEEP_LEN_MIN) {
            // While the budget holds, the hand does not move.
            self.pieces.retain(|piece| piece.strong_count() > 0);
            self.sweep_len = self.pieces.len() * 2;
        }
        self.pieces.push_back(piece);
    }
}

/// The bytes of a version's header, charged to the budget while it lives, and the bytes that the version owes
/// to the device.
pub(crate) struct Charge {
    account: Arc<Account>,
    header_bytes: usize,
    device_bytes: u64,
    promised_bytes: u64,
    is_unwritten: AtomicBool,
    is_current: AtomicBool,
}

impl Charge {
    /// The bytes that the version and its GOTOs will take on the device.
    pub fn to_come_bytes(&self) -> u64 {
        self.device_bytes + self.promised_bytes
    }

    /// The part of [`to_come_bytes`](Charge::to_come_bytes) that is owed now.
    pub fn owed_bytes(&self) -> u64 {
        let unwritten = if self.is_unwritten.load(Ordering::Relaxed) { self.device_bytes } else { 0 };
        unwritten + if self.is_current.load(Ordering::Relaxed) { self.promised_bytes } else { 0 }
    }

    /// Notes whether the version is in memory alone.
    pub fn set_unwritten(&self, is_unwritten: bool) {
        if self.is_unwritten.swap(is_unwritten, Ordering::Relaxed) == is_unwritten {
            return;
        }
        if is_unwritten {
            self.account.dirty_bytes.fetch_add(self.header_bytes, Ordering::Relaxed);
            self.account.unwritten_bytes.fetch_add(self.device_bytes, Ordering::Relaxed);
        } else {
            self.account.dirty_bytes.fetch_sub(self.header_bytes, Ordering::Relaxed);
            self.account.unwritten_bytes.fetch_sub(self.device_bytes, Ordering::Relaxed);
        }
    }

    /// Notes whether it is the tree's current version.
    pub fn set_current(&self, is_current: bool) {
        if self.is_current.swap(is_current, Ordering::Relaxed) == is_current {
            return;
        }
        let promised = &self.account.promised_bytes;
        if is_current {
            promised.fetch_add(self.promised_bytes, Ordering::Relaxed);
        } else {
            promised.fetch_sub(self.promised_bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set_unwritten(false);
        self.set_current(false);
        self.account.resident_bytes.fetch_sub(self.header_bytes, Ordering::Relaxed);
        self.account.header_bytes.fetch_sub(self.header_bytes, Ordering::Relaxed);
    }
}

impl Cache {
    /// An empty cache for nodes of at most `fanout_max` edges.
    pub fn new(budget_bytes: usize, fanout_max: u32) -> Cache {
        // An edge and a null edge beside it, in nodes that are half full after they were split.
        let goto_bytes = 4 * (BLOCK_BYTES as u64).div_ceil(u64::from(fanout_max.max(1)));
        let headers_bytes_max = AtomicUsize::new(0);
        Cache {
            budget_bytes,
            goto_bytes,
            account: Arc::default(),
            clock: Mutex::default(),
            headers_bytes_max,
        }
    }

    /// The budget in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// The bytes in memory now.
    pub fn resident_bytes(&self) -> usize {
        self.account.resident_bytes.load(Ordering::Relaxed)
    }

    /// The bytes of node headers in memory.
    pub fn header_bytes(&self) -> usize {
        self.account.header_bytes.load(Ordering::Relaxed)
    }

    /// Whether it is time to sweep unused headers.
    pub fn has_too_many_headers(&self) -> bool {
        let most = self.headers_bytes_max.load(Ordering::Relaxed).max(self.budget_bytes / HEADER_PARTS);
        self.header_bytes() > most
    }

    /// Notes that unused headers were evicted. The rest is in use: the next sweep is due when it has grown by
    /// an eighth.
    pub fn headers_were_evicted(&self) {
        let left = self.header_bytes();
        self.headers_bytes_max.store(left + left / 8, Ordering::Relaxed);
    }

    /// The bytes in memory that are not on the device.
    pub fn dirty_bytes(&self) -> usize {
        self.account.dirty_bytes.load(Ordering::Relaxed)
    }

    /// About the most bytes that are still to be written: unwritten versions, and the edges of pending GOTOs.
    pub fn owed_bytes(&self) -> u64 {
        let account = &self.account;
        account.unwritten_bytes.load(Ordering::Relaxed) + account.promised_bytes.load(Ordering::Relaxed)
    }

    /// Charges a version of a node: its header's bytes in memory, its content's bytes before compression, and
    /// the edges that its pending GOTOs turn into.
    pub fn charge(&self, header_bytes: usize, content_bytes: usize, gotos: u64) -> Charge {
        self.account.header_bytes.fetch_add(header_bytes, Ordering::Relaxed);
        self.account.resident_bytes.fetch_add(header_bytes, Ordering::Relaxed);
        Charge {
            account: self.account.clone(),
            header_bytes,
            // With an unfilled last block.
            device_bytes: (header_bytes + content_bytes + BLOCK_BYTES) as u64,
            promised_bytes: gotos * self.goto_bytes,
            is_unwritten: AtomicBool::new(false),
            is_current: AtomicBool::new(false),
        }
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Adds a piece that is on the device and in memory to the clock.
    pub fn watch(&self, piece: &Arc<Piece>) {
        self.clock.lock().push(Arc::downgrade(piece));
    }

    /// Drops pieces from memory until the budget holds or none can go. Dirty pieces stay.
    pub fn evict(&self) {
        if self.resident_bytes() <= self.budget_bytes {
            return;
        }
        // Two rounds at most: the first clears the touched marks.
        let mut steps_left = self.clock.lock().pieces.len() * 2;
        let (mut pieces, before_bytes) = (0, self.resident_bytes());
        while steps_left > 0 && self.resident_bytes() > self.budget_bytes {
            steps_left -= 1;
            let Some(weak) = self.clock.lock().pieces.pop_front() else { break };
            let Some(piece) = weak.upgrade() else { continue };
            if piece.take_touched() || !piece.evict() {
                self.clock.lock().pieces.push_back(weak);
            } else {
                pieces += 1;
            }
        }
        if pieces > 0 {
            // Other threads may have read pieces meanwhile.
            let left_bytes = self.resident_bytes();
            events::evicted(pieces, before_bytes.saturating_sub(left_bytes), left_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::format::node::RunRef;
    use crate::message::{Kind, PairCompression};
    use crate::run::RunBuilder;
    use crate::space::{Extent, Space};

    /// A piece that was written.
    fn piece(cache: &Cache, extent: &Arc<Extent>) -> Arc<Piece> {
        let mut run = RunBuilder::default();
        run.push(b"key", 0, Kind::Put(PairCompression::Usual), b"value");
        let piece = Piece::new(cache, run.finish());
        let stored = OnDevice { extent: extent.clone(), runs: Vec::from([RunRef::default()]) };
        assert!(piece.written(stored, None));
        cache.watch(&piece);
        piece
    }

    #[test]
    fn a_piece_evicted_while_its_node_is_written_stays_out_of_memory() {
        let cache = Cache::new(0, 16);
        let extent = Space::new(0, 16).allocate(2, 2).unwrap();
        let piece = piece(&cache, &extent);
        let pairs = piece.layers().and_then(|layers| layers.only().cloned());
        cache.evict();
        assert_eq!((piece.is_resident(), cache.resident_bytes()), (false, 0));
        let stored = OnDevice { extent, runs: Vec::from([RunRef::default()]) };
        assert!(!piece.written(stored, pairs), "it is not watched again");
        assert_eq!((piece.is_resident(), cache.resident_bytes()), (false, 0));
    }

    #[test]
    fn dropped_pieces_do_not_pile_up_in_the_clock_while_the_budget_holds() {
        let cache = Cache::new(usize::MAX, 16);
        let extent = Space::new(0, 16).allocate(1, 1).unwrap();
        for alive in [0, SWEEP_LEN_MIN * 3] {
            let pieces: Vec<_> = (0..alive).map(|_| piece(&cache, &extent)).collect();
            for _ in 0..SWEEP_LEN_MIN * 20 {
                drop(piece(&cache, &extent));
            }
            let clock = cache.clock.lock();
            let len = clock.pieces.len();
            assert!(len <= SWEEP_LEN_MIN.max(alive * 2), "{len} pieces stand there, {alive} are alive");
            let alive_len = clock.pieces.iter().filter(|piece| piece.strong_count() > 0).count();
            assert_eq!(alive_len, pieces.len(), "live pieces are still there");
        }
    }
}
