//! Which files may be mapped so that they can be written to.
//!
//! What a process writes to a mapping comes when the kernel gives the page back, and LSEEK does not wait for
//! that: in what is a hole here there may be data. Such a mapping needs a descriptor to read and write by,
//! and keeps it open. So as long as there is one the file has no holes for those who ask.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use betrfs::InodeId;
use rustix::fs::OFlags;

/// Counters. Nodes that share one are taken for one another, which hides holes, and never data.
const CELLS: usize = 4096;

/// How many descriptors to read and write by are open, of which node.
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

    /// Notes that a file which was opened so is no longer.
    pub fn released(&self, node: InodeId, flags: OFlags) {
        if let Some(count) = self.count(node, flags) {
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Whether a file may hold data that is not known here.
    pub fn may_hide_data(&self, node: InodeId) -> bool {
        self.count(node, OFlags::RDWR).is_some_and(|count| count.load(Relaxed) > 0)
    }

    /// The counter of a node, where what is opened so can be mapped to be written to.
    fn count(&self, node: InodeId, flags: OFlags) -> Option<&AtomicU32> {
        // The lower bits of the numbers in use differ.
        let cell = (node.0 % CELLS as u64) as usize;
        if flags & OFlags::ACCMODE == OFlags::RDWR { self.0.get(cell) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_descriptor_to_read_and_write_by_can_hide_data() {
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
    }
}
