//! Whether the record of an entry that a listing has read is still its last one.
//!
//! A listing reads the records of many entries at once, and comes to some of them much later. It holds the
//! directory's state: meanwhile no entry comes or goes, and none comes into memory. But one that is there
//! already can be changed under its own state and then be dropped, and what was read of it before is old. So
//! there are *ages*: a reading begins one, whoever changes an inode notes the age in it, and an inode that is
//! dropped leaves that to its directory. What was read is believed unless the directory has lost an inode since
//! that was changed in the age of the reading or later.
//!
//! The counters need no order of their own. A commit that the reading has not seen comes after it in the order
//! of the tree's lock, and so after the beginning of its age; an inode is dropped under the table's lock, under
//! which the listing finds that it is not in memory.

use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::atomic::AtomicU64;

/// The age that it is.
#[derive(Default)]
pub(crate) struct Ages(AtomicU64);

impl Ages {
    /// Begins an age, for what is read from now on.
    pub fn begin(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }

    fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What an inode knows of ages.
#[derive(Default)]
pub(crate) struct Age {
    /// That of its last change since it came into memory.
    changed: AtomicU64,
    /// Of a directory: that of the last change of any entry which was dropped from memory.
    lost: AtomicU64,
}

impl Age {
    /// Notes a change that was committed. The caller holds the inode.
    pub fn change(&self, ages: &Ages) {
        self.changed.store(ages.now(), Relaxed);
    }

    /// Notes that an entry of the directory is dropped from memory.
    pub fn lose(&self, entry: &Age) {
        self.lost.fetch_max(entry.changed.load(Relaxed), Relaxed);
    }

    /// Whether the directory has lost an entry that may be newer than what was read of it in an age.
    pub fn has_lost_since(&self, age: u64) -> bool {
        self.lost.load(Relaxed) >= age
    }
}
