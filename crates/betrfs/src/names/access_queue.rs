//! Which inodes have a time of access that is in memory only.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::Mutex;

use crate::names::Inode;
use crate::types::InodeId;

/// Those with a later time of access than their records: at a sync or a close these are put. An inode that
/// is marked stands in it; some that stand in it are marked no longer, or are not in memory any more.
#[derive(Default)]
pub(crate) struct AccessQueue(Mutex<Vec<InodeId>>);

impl AccessQueue {
    /// Adds an inode, of the `inodes` that are in memory; those of which `is_marked` is false are dropped
    /// when they become many.
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

    /// All that stand in it, which it then forgets.
    pub fn take(&self) -> Vec<InodeId> {
        core::mem::take(&mut *self.0.lock())
    }

    /// Adds what was taken and is marked still.
    pub fn give_back(&self, nodes: Vec<InodeId>) {
        self.0.lock().extend(nodes);
    }
}
