//! Inodes below a removed directory: the part of a removal during which others may go on.
//!
//! The removal cuts off everything below a directory: from then on no inode there has a path. The inodes
//! still say of themselves that they have a name. That is corrected here, one by one, before the removal
//! returns. Meanwhile `sweeps` counts the removal, and a query whether an inode was removed looks at the
//! directories above it ([`Volume::is_removed`]).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::names::{Directory, Exclusive, InNamespace, Inode, Place};
use crate::types::InodeId;
use crate::volume::Volume;
use crate::volume::unlink::Dropped;

/// An emptied directory, with the names that were known in it.
pub(super) type CutOff = (Arc<Inode>, Directory);

impl Volume {
    /// Whether an inode was removed or unlinked, alone or with a directory above it.
    pub(super) fn is_removed(&self, _: &impl InNamespace, inode: &Inode) -> bool {
        inode.is_unlinked() || self.sweeps.load(Relaxed) > 0 && inode.is_cut_off()
    }

    /// Takes all known names from a directory. The caller passes them to [`sweep`](Volume::sweep) after
    /// releasing the namespace.
    pub(super) fn cut_off(&self, exclusive: &Exclusive<'_>, dir: &Arc<Inode>) -> Option<CutOff> {
        dir.cut_off_all(exclusive);
        let names = dir.state.write().dir.as_mut()?.take_names();
        Some((dir.clone(), names))
    }

    /// Marks each inode in memory that was cut off. Returns those that the volume's caller holds.
    pub(super) fn sweep(&self, mut cut_off: Vec<CutOff>, now_ns: i64) -> Vec<InodeId> {
        let mut held = Vec::new();
        while let Some((dir, names)) = cut_off.pop() {
            for node in names.nodes().chain(names.snapshots) {
                let Some(inode) = self.table.get(node) else { continue };
                // A directory that stays keeps its entry for snapshots, and linked files are stored
                // elsewhere.
                let is_below = match inode.place() {
                    place @ Place::Named { .. } => {
                        place.parent().is_some_and(|parent| Arc::ptr_eq(parent, &dir))
                            && (place.is_cut_off() || dir.is_gone())
                    }
                    Place::Snapshots { of } => Arc::ptr_eq(&of, &dir) && dir.is_gone(),
                    _ => false,
                };
                if !is_below {
                    continue;
                }
                let mut state = inode.state.write();
                let mut record = state.record.clone();
                (record.nlink, record.ctime_ns) = (0, now_ns);
                (record.entries, record.subdirs) = (0, 0);
                let dropped = Dropped::gone(record, Place::Gone, Vec::new());
                self.install_unlinked(&inode, &mut state, dropped);
                cut_off.extend(state.dir.as_mut().map(|dir| (inode.clone(), dir.take_names())));
                drop(state);
                self.table.drop_gone(&inode);
                if !inode.is_idle() {
                    held.push(inode.id);
                }
            }
        }
        held
    }
}
