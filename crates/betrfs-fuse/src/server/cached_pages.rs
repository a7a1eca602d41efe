//! Of which files the kernel may have pages.
//!
//! Of what it reads from its pages nobody tells the server. So opening such a file to read it counts as an
//! access; of any other a READ will come.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use betrfs::InodeId;

/// So many nodes are told apart: 128 KiB. Those that share a bit are taken for one another, which takes an
/// access for one that was none, and never the other way round.
const BITS: u64 = 1 << 20;

/// A bit for each node.
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
        // Most often it is set, and then nobody else's cache is to lose the line.
        if let Some(word) = word.filter(|word| word.load(Relaxed) & bit == 0) {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Notes that a file is new.
    pub fn begin(&self, node: InodeId) {
        let (word, bit) = self.place(node);
        if let Some(word) = word.filter(|word| word.load(Relaxed) & bit != 0) {
            word.fetch_and(!bit, Relaxed);
        }
    }

    /// Whether the kernel may have pages of a file.
    pub fn may_be_there(&self, node: InodeId) -> bool {
        let (word, bit) = self.place(node);
        word.is_some_and(|word| word.load(Relaxed) & bit != 0)
    }

    fn place(&self, node: InodeId) -> (Option<&AtomicU64>, u64) {
        // The lower bits of the numbers in use differ.
        let at = node.0 % BITS;
        (self.0.get((at / 64) as usize), 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_known_from_the_first_access_of_a_file_to_its_number_being_given_again() {
        let pages = CachedPages::default();
        let (node, other) = (InodeId(3 << 32 | 7), InodeId(8));
        pages.begin(node);
        assert!(!pages.may_be_there(node));
        pages.come(node);
        pages.come(node);
        assert!(pages.may_be_there(node) && !pages.may_be_there(other));
        pages.begin(InodeId(4 << 32 | 7));
        assert!(!pages.may_be_there(node));
    }
}
