//! How often to look for names to evict.
//!
//! A name whose inode is in memory cannot be evicted. If these alone are over the budget, a look at all names
//! frees none, however often it is repeated. So after a look that freed little, the next one waits for a
//! change that could help: new names, or inodes evicted, in such a number that each pays for a few of the
//! names looked at.

use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::atomic::AtomicUsize;

/// Number of names that may be looked at for each one freed, each new one and each inode evicted.
const LOOKS: usize = 8;
/// The shortest wait, in new names or evicted inodes.
const WAIT_MIN: usize = 8;

/// The counts that end the wait.
#[derive(Default)]
pub(crate) struct EvictionBackoff {
    names: AtomicUsize,
    dropped: AtomicUsize,
}

impl EvictionBackoff {
    /// Whether the wait is over, given the numbers of names in memory and of inodes evicted so far.
    pub fn is_over(&self, names: usize, dropped: usize) -> bool {
        names >= self.names.load(Relaxed) || dropped >= self.dropped.load(Relaxed)
    }

    /// Notes how many names were looked at, and how many of them were freed.
    pub fn looked_at(&self, looked_at: usize, freed: usize, names: usize, dropped: usize) {
        let was_worth_it = freed > 0 && freed.saturating_mul(LOOKS) >= looked_at;
        let wait = if was_worth_it { 0 } else { (looked_at / LOOKS).max(WAIT_MIN) };
        self.names.store(names.saturating_add(wait), Relaxed);
        self.dropped.store(dropped.saturating_add(wait), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, some of which can be freed, with the number looked at to keep them within a budget of 10.
    struct Names {
        held: usize,
        free: usize,
        dropped: usize,
        looked_at: usize,
        patience: EvictionBackoff,
    }

    impl Names {
        fn keep(&mut self) {
            let names = self.held + self.free;
            if names > 10 && self.patience.is_over(names, self.dropped) {
                self.looked_at += names;
                self.patience.looked_at(names, self.free, self.held, self.dropped);
                self.free = 0;
            }
        }
    }

    #[test]
    fn names_that_cannot_be_freed_are_looked_at_seldom() {
        let mut names =
            Names { held: 1000, free: 0, dropped: 0, looked_at: 0, patience: EvictionBackoff::default() };
        (0..1_000_000).for_each(|_| names.keep());
        assert_eq!(names.looked_at, 1000);
        // A new name pays for one look.
        for _ in 0..10_000 {
            names.held += 1;
            names.keep();
        }
        assert!(names.looked_at <= 11 * 10_000, "{}", names.looked_at);
        // Once they can be freed they are found.
        (names.held, names.free) = (0, names.held);
        for _ in 0..names.free {
            names.dropped += 1;
            names.keep();
        }
        assert_eq!(names.free, 0);
        // New names that can be freed are kept within the budget.
        for _ in 0..10_000 {
            names.free += 1;
            names.keep();
            assert!(names.free <= 10);
        }
    }
}
