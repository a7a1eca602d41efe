//! Who holds the namespace alone, and for how long.
//!
//! While it is held alone, every other user of the volume waits. So what is done meanwhile must not grow with
//! what others have in memory, whatever they do:
//!
//! | operation | what it looks at one by one, holding the namespace alone |
//! |---|---|
//! | `rename` | unlinked open files below what moves, if that is a directory |
//! | `link` | nothing |
//! | `clone_inode`, `clone_onto` | unlinked open files below the source and the target, linked files below the source |
//! | `share_range` | nothing |
//! | making a snapshot | as `clone_inode` |
//! | removing a snapshot, `remove_below` | open files and linked files below what goes, and the directories that lead to open ones |
//! | `check` | everything: nobody else can use the volume |
//!
//! Each of them makes a fixed number of queries, and one more for each linked file; a batch goes as far as
//! the log takes it. [`OpCount::visited`](crate::OpCount::visited) counts what the table tells of. What keeps
//! it so:
//!
//! - **Paths** are found before, with the namespace shared ([`Volume::exclusive`]): a way up of 32,000
//!   directories, which one user can make, is then a cost of his own operations alone. They are right as long
//!   as no directory has moved since, which `moves` tells; else short ways are found anew, and whoever has a
//!   long one tries again.
//! - **Directories** of which names are missing are read before, too.
//! - **Open files** below a directory are found by notes that lead to them (`names/open_below.rs`), and notes
//!   that lead nowhere are struck before.
//! - **What is removed with a directory** is cut off from it in one step, and made known to each inode in
//!   memory afterwards (`removed_inodes.rs`).
//! - **Inodes that are dropped** to make room are torn down when the operation ends.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::names::Exclusive;
use crate::op::Op;
use crate::types::InodeId;
use crate::volume::Volume;

/// Ways up of so many steps in all may be gone while the namespace is held alone.
const STEPS_ALONE_MAX: usize = 1024;

impl Volume {
    /// Takes the namespace alone, after having found what the operation will ask for: the paths of the
    /// directories `nodes`, or of those in which they are, and the names in directories where one is missing.
    pub(super) fn exclusive(
        &self,
        op: &Op<'_>,
        nodes: &[InodeId],
        names: &[(InodeId, &[u8])],
    ) -> Exclusive<'_> {
        loop {
            let mut paths = Vec::with_capacity(nodes.len());
            let mut steps = 0;
            let moves = {
                let _shared = self.namespace.shared();
                for inode in nodes.iter().filter_map(|node| self.table.get(*node)) {
                    let is_dir = inode.state.read().dir.is_some();
                    let dir =
                        if is_dir { inode } else { inode.place().parent().unwrap_or(&self.root).clone() };
                    // What has no path is refused when its turn comes.
                    if let Ok(path) = dir.climb(&paths) {
                        steps += path.steps;
                        paths.push((dir, path));
                    }
                }
                for (dir, name) in names {
                    self.know_names(op, *dir, name);
                }
                self.moves.load(Relaxed)
            };
            let exclusive = self.namespace.exclusive();
            let is_right = self.moves.load(Relaxed) == moves;
            if is_right || steps <= STEPS_ALONE_MAX {
                op.is_alone_with(if is_right { paths } else { Vec::new() });
                return exclusive;
            }
        }
    }

    /// Reads the names of a directory if one is asked for that is not known, and it is time to read all.
    fn know_names(&self, op: &Op<'_>, dir: InodeId, name: &[u8]) {
        let Some(dir) = self.table.get(dir) else { return };
        if self.should_read_all(&dir.state.read(), name) {
            // Whoever asks for the name then meets the error.
            let _ = self.find(op, &dir, &mut dir.state.write(), name);
        }
    }

    /// Notes that paths of directories change.
    pub(super) fn paths_change(&self, _: &Exclusive<'_>) {
        self.moves.fetch_add(1, Relaxed);
    }
}
