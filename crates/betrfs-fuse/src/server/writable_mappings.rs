//! The files that may have writable mappings.
//!
//! Data that a process writes to a mapping arrives when the kernel writes the page back, and LSEEK does not
//! wait for that: a hole here may hold data there. A writable mapping needs a descriptor open for reading and
//! writing, and keeps it open. So while a file has such a descriptor, LSEEK reports no holes in it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use betrfs::InodeId;
use rustix::fs::OFlags;

/// Number of counters. Nodes that share one are taken for one another, which hides holes, and never data.
const CELLS: usize = 4096;

/// Counts the descriptors open for reading and writing, by node.
pub struct WritableMappings(Box<[AtomicU32]>);

impl Default for WritableMappings {
    fn default() -> WritableMappings {
        WritableMappings((0..CELLS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl WritableMappings {
    /// Notes that a file was opened.
    pub fn opened(&self, node: InodeId, flags: OFlags) {
        if let Some(count) = self.count(node, flags) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Notes that a file opened with these flags was closed. One that was not opened changes nothing.
    pub fn released(&self, node: InodeId, flags: OFlags) {
        if let Some(count) = self.count(node, flags) {
            // It refuses to go below zero, and there is nothing else to do then.
            let _ = count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Whether a mapping of a file may hold data that has not arrived.
    pub fn may_hide_data(&self, node: InodeId) -> bool {
        self.count(node, OFlags::RDWR).is_some_and(|count| count.load(Relaxed) > 0)
    }

    /// The node's counter; `None` if a descriptor with these flags allows no writable mapping.
    fn count(&self, node: InodeId, flags: OFlags) -> Option<&AtomicU32> {
        // Inode numbers are given in a row.
        let cell = (node.0 % CELLS as u64) as usize;
        if flags & OFlags::ACCMODE == OFlags::RDWR { self.0.get(cell) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_descriptor_for_reading_and_writing_can_hide_data() {
        let mappings = WritableMappings::default();
        let (node, other) = (InodeId(1 << 32 | 7), InodeId(8));
        for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::WRONLY | OFlags::TRUNC] {
            mappings.opened(node, flags);
        }
        assert!(!mappings.may_hide_data(node));
        mappings.opened(node, OFlags::RDWR | OFlags::CREATE);
        mappings.opened(node, OFlags::RDWR);
        assert!(mappings.may_hide_data(node) && !mappings.may_hide_data(other));
        mappings.released(node, OFlags::RDWR | OFlags::APPEND);
        mappings.released(node, OFlags::WRONLY);
        assert!(mappings.may_hide_data(node));
        mappings.released(node, OFlags::RDWR);
        assert!(!mappings.may_hide_data(node));
        // No kernel does that.
        mappings.released(node, OFlags::RDWR);
        assert!(!mappings.may_hide_data(node));
    }
}
