//! The node cache's budget: what is in memory, and what may leave it.
//!
//! Everything that a node holds is charged here: pieces (partitions and basements) while they are
//! in memory, and headers. (Memtables are bounded apart, by their number and size.) What is on the
//! device as well can be dropped; a clock gives what was touched since it last came by another round.

mod piece;

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};

use betree_sys::sync::Mutex;
use betree_sys::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use piece::{Piece, Stored};

/// How many bytes are in memory, shared by all that is charged.
#[derive(Default)]
pub(crate) struct Account {
    resident_bytes: AtomicUsize,
    header_bytes: AtomicUsize,
    dirty_bytes: AtomicUsize,
}

/// The budget and the clock.
pub(crate) struct Cache {
    budget_bytes: usize,
    account: Arc<Account>,
    clock: Mutex<VecDeque<Weak<Piece>>>,
}

/// The bytes of a header, charged to the budget for as long as it lives.
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.resident_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.header_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Cache {
    /// An empty cache.
    pub fn new(budget_bytes: usize) -> Cache {
        Cache { budget_bytes, account: Arc::default(), clock: Mutex::new(VecDeque::new()) }
    }

    /// The budget in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// What is in memory now in bytes.
    pub fn resident_bytes(&self) -> usize {
        self.account.resident_bytes.load(Ordering::Relaxed)
    }

    /// What of it is headers of nodes in bytes.
    pub fn header_bytes(&self) -> usize {
        self.account.header_bytes.load(Ordering::Relaxed)
    }

    /// What of it is not on the device in bytes.
    pub fn dirty_bytes(&self) -> usize {
        self.account.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Charges the bytes of a node's header.
    pub fn charge(&self, bytes: usize) -> Charge {
        self.account.header_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.account.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: self.account.clone(), bytes }
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Puts a piece that is on the device and in memory under the clock's hand.
    pub fn watch(&self, piece: &Arc<Piece>) {
        self.clock.lock().push_back(Arc::downgrade(piece));
    }

    /// Drops pieces from memory until the budget holds or nothing more can go. What is dirty stays.
    pub fn evict(&self) {
        if self.resident_bytes() <= self.budget_bytes {
            return;
        }
        // Two rounds at most: the first takes the mark from what was touched.
        let mut steps_left = self.clock.lock().len() * 2;
        while steps_left > 0 && self.resident_bytes() > self.budget_bytes {
            steps_left -= 1;
            let Some(weak) = self.clock.lock().pop_front() else { return };
            let Some(piece) = weak.upgrade() else { continue };
            if piece.take_touched() || !piece.evict() {
                self.clock.lock().push_back(weak);
            }
        }
    }
}
