//! The inodes with a time of access that is in memory only.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::Mutex;

use crate::names::Inode;
use crate::types::InodeId;

/// Inodes with a later time of access than their records have; a sync or a close puts the times. Every marked
/// inode is in the queue; some in the queue are no longer marked, or have left memory.
#[derive(Default)]
pub(crate) struct AccessQueue(Mutex<Vec<InodeId>>);

impl AccessQueue {
    /// Adds an inode. If the queue has become long for the number of `inodes` in memory, drops those whose
    /// `is_marked` is false.
    pub fn add(&self, inode: &Inode, inodes: impl FnOnce() -> usize, is_marked: impl Fn(InodeId) -> bool) {
        if inode.accessed.swap(true, Relaxed) {
            return;
        }
        let mut nodes = self.0.lock();
        nodes.push(inode.id);
        if nodes.len() == nodes.capacity() && nodes.len() > 2 * inodes() + 64 {
            nodes.sort_unstable();
            nodes.dedup();
            nodes.retain(|node| is_marked(*node));
        }
    }

    /// Takes the whole queue.
    pub fn take(&self) -> Vec<InodeId> {
        core::mem::take(&mut *self.0.lock())
    }

    /// Returns inodes that were taken and are still marked.
    pub fn give_back(&self, nodes: Vec<InodeId>) {
        self.0.lock().extend(nodes);
    }
}
