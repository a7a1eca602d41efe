//! Files whose dirty pages may be older than the flags that forbid them.
//!
//! Data written to a mapping arrive when the kernel writes the page back. A file that becomes immutable keeps
//! the data written before, and refuses later ones: when the flag is set, the kernel is made to write back
//! all pages, and pages that arrive until this is done are accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betrfs::InodeId;
use parking_lot::Mutex;

/// Files, and whether all their pages have arrived.
#[derive(Default)]
pub struct BelatedPages(Mutex<Vec<(InodeId, Arc<AtomicBool>)>>);

impl BelatedPages {
    /// Accepts pages of a file until the returned value is set.
    pub fn begin(&self, node: InodeId) -> Arc<AtomicBool> {
        let all_came = Arc::new(AtomicBool::new(false));
        let mut files = self.0.lock();
        files.retain(|(_, all_came)| !all_came.load(Ordering::Acquire));
        files.push((node, Arc::clone(&all_came)));
        all_came
    }

    /// Whether an arriving page of a file may be older than the file's flags.
    pub fn may_come(&self, node: InodeId) -> bool {
        let is_awaited =
            |(of, all_came): &(InodeId, Arc<AtomicBool>)| *of == node && !all_came.load(Ordering::Acquire);
        self.0.lock().iter().any(is_awaited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_file_are_accepted_until_all_have_arrived() {
        let pages = BelatedPages::default();
        let (node, other) = (InodeId(1), InodeId(2));
        let (first, second) = (pages.begin(node), pages.begin(node));
        assert!(pages.may_come(node) && !pages.may_come(other));
        first.store(true, Ordering::Release);
        assert!(pages.may_come(node));
        second.store(true, Ordering::Release);
        assert!(!pages.may_come(node));
        let _third = pages.begin(other);
        assert_eq!(pages.0.lock().len(), 1, "finished files are forgotten");
    }
}
