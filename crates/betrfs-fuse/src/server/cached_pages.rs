//! The files of which the kernel may have pages.
//!
//! The kernel does not report reads from its pages. So opening such a file for reading counts as an access;
//! reading any other file sends a READ.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use betrfs::InodeId;

/// Bits in the table, 512 KiB. Nodes that share a bit are taken for one another: an open may then count as an
/// access without being one, but no access is missed.
const BITS: u64 = 1 << 22;

/// A bit for each node, shared by nodes whose numbers are equal modulo [`BITS`].
pub struct CachedPages(Box<[AtomicU64]>);

impl Default for CachedPages {
    fn default() -> CachedPages {
        CachedPages((0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }
}

impl CachedPages {
    /// Notes that a file was read or written by way of its pages.
    pub fn come(&self, node: InodeId) {
        let (word, bit) = self.place(node);
        // Mostly the bit is set already, and a store would take the cache line from other CPUs.
        if let Some(word) = word.filter(|word| word.load(Relaxed) & bit == 0) {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Whether the kernel may have pages of a file.
    pub fn may_be_there(&self, node: InodeId) -> bool {
        let (word, bit) = self.place(node);
        word.is_some_and(|word| word.load(Relaxed) & bit != 0)
    }

    fn place(&self, node: InodeId) -> (Option<&AtomicU64>, u64) {
        // Inode numbers are given in a row.
        let at = node.0 % BITS;
        (self.0.get((at / 64) as usize), 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_known_from_the_first_access_of_a_file_on() {
        let pages = CachedPages::default();
        let (node, other) = (InodeId(3 << 32 | 7), InodeId(8));
        assert!(!pages.may_be_there(node));
        pages.come(node);
        pages.come(node);
        assert!(pages.may_be_there(node) && !pages.may_be_there(other));
        assert!(pages.may_be_there(InodeId(7)), "they share a bit");
    }
}
