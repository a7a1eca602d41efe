//! The yield of merging basements with their messages.

use betree_platform::sync::atomic::{AtomicU64, Ordering};

/// How much recent data counts, in nodes.
const NODES_REMEMBERED: u64 = 16;
/// Keys are mostly new if merges lost less than one part in this many.
const LOST_MAX: u64 = 8;

/// The bytes that went into the last merges of a dictionary's leaves, and the bytes that came out. If keys
/// are mostly new, almost all come out: then messages may wait long for their fold, at little cost of space.
/// Overwritten pairs must be folded soon.
#[derive(Default)]
pub(crate) struct MergeYield {
    in_bytes: AtomicU64,
    out_bytes: AtomicU64,
}

impl MergeYield {
    /// Notes a fold. Called by one thread at a time.
    pub fn note(&self, in_bytes: usize, out_bytes: usize, node_bytes: u32) {
        let mut went_in = self.in_bytes.load(Ordering::Relaxed) + in_bytes as u64;
        let mut came_out = self.out_bytes.load(Ordering::Relaxed) + out_bytes as u64;
        if went_in > u64::from(node_bytes) * NODES_REMEMBERED {
            (went_in, came_out) = (went_in / 2, came_out / 2);
        }
        self.in_bytes.store(went_in, Ordering::Relaxed);
        self.out_bytes.store(came_out, Ordering::Relaxed);
    }

    /// Whether almost all bytes came out again. `false` before any fold.
    pub fn is_mostly_new(&self) -> bool {
        let in_bytes = self.in_bytes.load(Ordering::Relaxed);
        let lost = in_bytes.saturating_sub(self.out_bytes.load(Ordering::Relaxed));
        lost * LOST_MAX < in_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_folds_count() {
        let merge_yield = MergeYield::default();
        assert!(!merge_yield.is_mostly_new());
        let note = |times, out_bytes| (0..times).for_each(|_| merge_yield.note(1000, out_bytes, 1000));
        note(1, 990);
        assert!(merge_yield.is_mostly_new());
        note(1, 700);
        assert!(!merge_yield.is_mostly_new());
        note(40, 1000);
        assert!(merge_yield.is_mostly_new());
        note(40, 500);
        assert!(!merge_yield.is_mostly_new());
    }
}
