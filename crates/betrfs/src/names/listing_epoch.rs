//! Whether the record of an entry that a listing has read is still its last one.
//!
//! A listing reads the records of many entries at once, and comes to some of them much later. It holds the
//! directory's state: meanwhile no entry comes or goes, and none comes into memory. But an entry that is in
//! memory can be changed under its own state and then evicted, and its record as it was read is old.
//!
//! So a listing starts a new epoch. A change stamps its inode with the current epoch; evicting the inode
//! copies the stamp to its directory. A record that was read in epoch e is stale if that stamp is e or later.
//!
//! The counters need no order of their own. A commit that the reading has not seen comes after it in the
//! order of the tree's lock, and so after the start of its epoch; an inode is evicted under the table's lock,
//! under which the listing finds that it is not in memory.

use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::atomic::AtomicU64;

/// The current epoch.
#[derive(Default)]
pub(crate) struct ListingEpochs(AtomicU64);

impl ListingEpochs {
    /// Starts an epoch, for what is read from now on.
    pub fn begin(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }

    fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The stamps of an inode.
#[derive(Default)]
pub(crate) struct ChangeEpoch {
    /// The epoch of its last change since it came into memory.
    changed: AtomicU64,
    /// Of a directory: the latest stamp of its evicted entries.
    evicted: AtomicU64,
}

impl ChangeEpoch {
    /// Stamps an inode whose change was committed, under its state.
    pub fn stamp(&self, epochs: &ListingEpochs) {
        self.changed.store(epochs.now(), Relaxed);
    }

    /// Copies the stamp of an entry that is evicted to its directory.
    pub fn inherit(&self, entry: &ChangeEpoch) {
        self.evicted.fetch_max(entry.changed.load(Relaxed), Relaxed);
    }

    /// Whether an evicted entry of the directory may be newer than its record as it was read in an epoch.
    pub fn is_since(&self, epoch: u64) -> bool {
        self.evicted.load(Relaxed) >= epoch
    }
}
