//! The exclusive lock of the namespace, and how long it is held.
//!
//! While one operation holds it, every other user of the volume waits. So the work under it must not grow
//! with what others have in memory, whatever they do:
//!
//! | operation | objects it looks at one by one while it holds the namespace alone |
//! |---|---|
//! | `rename` | unlinked open files below a directory that moves, 16 at a time |
//! | `link` | nothing |
//! | `clone_inode`, `clone_onto` | unlinked open files below the source and the target, 16 at a time; files of up to 64 names of files with several below the source |
//! | `share_range` | nothing |
//! | making a snapshot | as `clone_inode` |
//! | removing a snapshot, `remove_below` | open files below it, 16 at a time, and the directories that lead to them; names of files with several, 64 at a time |
//! | `restore_snapshot` | as `remove_below`, and as `clone_inode` below the directory and the snapshot |
//! | `set_quota`, `clear_quota` | files with several names below it, in memory |
//! | `check` | everything: nobody else can use the volume |
//!
//! Each of them makes a fixed number of queries, in memory as far as the cache reaches
//! ([`Op::without_waiting`]), and one more for each file with several names; a batch is as large as the log
//! allows. [`OpCount::visited`](crate::OpCount::visited) counts the objects of the table above. The means:
//!
//! - **A part of the files at a time**: what is moved away from below a directory is done for good, so the
//!   operation gives others their turn, and begins anew ([`Op::give_turn`]). Names of files with several are
//!   gone through in a tree that nobody else comes to (`detached.rs`).
//! - **Paths** are found before, with the namespace shared ([`Volume::exclusive`]): a path of 32,000
//!   directories, which any user can make, is then a cost of that user's operations alone. The paths hold as
//!   long as no directory has moved since, as counted by `moves`; after a move, short paths are found again,
//!   and an operation with a long one tries again.
//! - **Directories** with unknown names are read before, too, and in pieces (`known_names.rs`).
//! - **Open files** below a directory are found by notes that lead to them (`names/openings.rs`); notes
//!   that lead nowhere are removed before.
//! - **A removed tree** is cut off in one step, and each inode in memory is marked afterwards
//!   (`removed_inodes.rs`).
//! - **Inodes evicted** to make room are torn down when the operation ends.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::names::Exclusive;
use crate::op::Op;
use crate::types::InodeId;
use crate::volume::Volume;

/// Number of steps up that may be taken in all while the namespace is held alone.
const STEPS_ALONE_MAX: usize = 1024;

impl Volume {
    /// Takes the namespace alone. Before that, finds what the operation will need: the paths of the
    /// directories `nodes`, or of their parents for other objects, those of directories that a snapshot is
    /// still to be made of (`kept.rs`), and the names in directories with an unknown one among `names`.
    pub(super) fn exclusive(
        &self,
        op: &Op<'_>,
        nodes: &[InodeId],
        names: &[(InodeId, &[u8])],
    ) -> Exclusive<'_> {
        loop {
            for (dir, name) in names {
                if let Some(dir) = self.table.get(*dir) {
                    self.know_names(op, &dir, name);
                }
            }
            let mut paths = Vec::with_capacity(nodes.len());
            let mut steps = 0;
            let moves = {
                let _shared = self.namespace.shared();
                let nodes = nodes.iter().filter_map(|node| self.table.get(*node));
                for inode in nodes.chain(self.kept_dirs()) {
                    let is_dir = inode.state.read().dir.is_some();
                    let dir =
                        if is_dir { inode } else { inode.place().parent().unwrap_or(&self.root).clone() };
                    // The operation itself refuses an inode without a path.
                    if let Ok(path) = dir.climb(&paths) {
                        steps += path.steps;
                        paths.push((dir, path));
                    }
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

    /// Counts a change to paths of directories.
    pub(super) fn paths_change(&self, _: &Exclusive<'_>) {
        self.moves.fetch_add(1, Relaxed);
    }
}
