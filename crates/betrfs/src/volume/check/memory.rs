//! Checks that the tables in memory fit together.

use alloc::format;

use super::code::Code;
use super::report::Findings;
use crate::names::Place;
use crate::volume::Volume;

impl Volume {
    /// Checks that each inode is known to its directory, and that notes lead to each open file from all
    /// directories above.
    pub(super) fn check_memory(&self, findings: &mut Findings) {
        for inode in self.table.all() {
            let place = inode.place();
            let Some(parent) = place.parent() else { continue };
            let ino = inode.ino;
            if matches!(&place, Place::Snapshots { of } if of.is_gone()) {
                // It was empty, or the directory would be there.
                continue;
            }
            if inode.is_cut_off() {
                findings.problem(
                    Code::Memory,
                    format!("the inode {ino} in memory was removed with a directory above and does not know"),
                );
                continue;
            }
            let is_known = match (&place, &parent.state.read().dir) {
                (Place::Named { name, .. }, Some(dir)) => {
                    dir.get(name).is_some_and(|known| known.node == Some(inode.id))
                }
                (_, Some(dir)) => dir.snapshots == Some(inode.id),
                (_, None) => false,
            };
            if !is_known {
                findings.problem(
                    Code::Memory,
                    format!("the inode {ino} in memory is not known to its directory"),
                );
            }
            if (inode.is_open() || !inode.noted().is_empty()) && !parent.noted().contains(&inode.id) {
                findings.problem(
                    Code::Memory,
                    format!("the inode {ino} in memory is open, or one below it, and not noted above"),
                );
            }
        }
    }
}
