//! What a removal of many at once leaves to be done when others may go on.
//!
//! The removal cuts off all that is below a directory: from then on no inode there has a path. What each of
//! them still says of itself, that it has a name, is put right here, one by one, before the removal returns.
//! As long as that goes on, `sweeps` counts it, and whoever asks whether an inode was removed looks up the
//! way ([`Volume::is_removed`]).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::names::{Directory, Exclusive, InNamespace, Inode, Place};
use crate::types::InodeId;
use crate::volume::Volume;
use crate::volume::unlink::Dropped;

/// A directory from which all was removed, with the names that were known of it.
pub(super) type CutOff = (Arc<Inode>, Directory);

impl Volume {
    /// Whether an inode was removed or unlinked, for itself or with a directory above.
    pub(super) fn is_removed(&self, _: &impl InNamespace, inode: &Inode) -> bool {
        inode.is_unlinked() || self.sweeps.load(Relaxed) > 0 && inode.is_cut_off()
    }

    /// Takes all known names from a directory. The caller hands them to [`sweep`](Volume::sweep) once the
    /// namespace is released.
    pub(super) fn cut_off(&self, exclusive: &Exclusive<'_>, dir: &Arc<Inode>) -> Option<CutOff> {
        dir.cut_off_all(exclusive);
        let names = dir.state.write().dir.as_mut()?.take_names();
        Some((dir.clone(), names))
    }

    /// Makes known to each inode in memory that it was cut off. Gives those that the caller of the volume
    /// holds.
    pub(super) fn sweep(&self, mut cut_off: Vec<CutOff>, now_ns: i64) -> Vec<InodeId> {
        let mut held = Vec::new();
        while let Some((dir, names)) = cut_off.pop() {
            for node in names.nodes().chain(names.snapshots) {
                let Some(inode) = self.table.get(node) else { continue };
                // Its own entry for snapshots stays with a directory that stays, and linked files are
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
                self.install_unlinked(&inode, &mut state, Dropped { record, place: Some(Place::Gone) });
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
