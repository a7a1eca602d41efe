//! The check of a volume: walks everything and compares it with the format's rules.
//!
//! Unreadable parts are reported and skipped. Checks that would need them are reported as not done, not as
//! problems.

pub(crate) mod children;
pub(crate) mod damaged;
mod disputed;
mod finding;
mod mend;
mod pieces;
mod references;
mod scrub;
pub(crate) mod table;
mod walk;

use alloc::format;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use crate::dict::Dict;
use crate::engine::checkpoint::Committed;
use crate::env::Env;
use crate::error::{Error, Result, counted};
use crate::node_id::NodeId;
use crate::views::Live;
pub use finding::{Finding, FindingCode, KeyRange, Place, Remedy};
pub use mend::{NotedDamage, undo_repair};
pub use scrub::{OnDamage, ScrubFrom, ScrubOptions, ScrubStep};
use walk::Walk;
pub(crate) use walk::all_unreadable;

impl Env {
    /// Walks everything on the device: structure, checksums, references, space. Calls `tell` with each
    /// finding and `progress` with (nodes done, nodes in all). Writes a checkpoint first, so that the device
    /// has all changes; others who change something wait until it is over. Of a volume opened for reading
    /// nothing is written: what is only in memory is looked at there.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// let mut findings = Vec::new();
    /// env.check(&mut |found| findings.push(found), &mut |done, total| assert!(done <= total))?;
    /// assert_eq!(findings, []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint); a problem found is not an error.
    pub fn check(&self, tell: &mut dyn FnMut(Finding), progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let mut progress = |done, total| {
            progress(done, total);
            ControlFlow::Continue(())
        };
        self.refuse_unknown_features()?;
        if self.opened.for_reading {
            return self.check_unwritten(tell, &mut progress);
        }
        // Before anything is written.
        self.check_superblocks(self.opened.bad_copies.clone(), tell);
        self.check_copies(tell);
        self.checkpoint()?;
        while self.engine.free_one()? {}
        loop {
            self.checkpoint()?;
            let committed = self.checkpoint.lock();
            let structures = self.engine.lock_structures();
            if self.engine.dicts.iter().any(|d| d.state.read().is_dirty()) {
                continue;
            }
            self.walk(&structures, tell, &mut progress)?;
            if self.engine.views.lock().count() > 0 {
                let what = "not checked: whether every block is free or in use, because views hold some";
                tell(Finding::note(FindingCode::SpaceNotChecked, Place::Volume, what.into()));
            } else if self.engine.unnamed.unless_any(|| self.check_space(&committed, 0, tell)).is_none() {
                let what = "not checked: whether every block is free or in use, because an ingest or a backup holds some";
                tell(Finding::note(FindingCode::SpaceNotChecked, Place::Volume, what.into()));
            }
            return Ok(());
        }
    }

    /// As [`check`](Env::check), of a volume to which nothing is written.
    fn check_unwritten(
        &self,
        tell: &mut dyn FnMut(Finding),
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        if !self.opened.is_damaged {
            // Those of a damaged volume were told when it was opened.
            self.check_superblocks(self.opened.bad_copies.clone(), tell);
            self.check_copies(tell);
            self.check_disputed(tell);
        }
        let committed = self.checkpoint.lock();
        self.engine.assign_all_unowned()?;
        self.walk(&self.engine.lock_structures(), tell, progress)?;
        if self.opened.is_damaged {
            let what =
                "not checked: whether every block is free or in use, because the volume cannot be opened";
            tell(Finding::note(FindingCode::SpaceNotChecked, Place::Volume, what.into()));
        } else {
            // Nothing was captured since: what replay has let go of is still in its place.
            let held = &self.opened.disputed.held;
            let kept =
                self.engine.store.space.blocks_of(self.engine.table.lock().retired().iter().chain(held));
            self.check_space(&committed, kept, tell);
        }
        Ok(())
    }

    /// As [`check`](Env::check) while others go on: as of the moment at which it begins, by a
    /// [view](Env::view). Writes nothing, holds no lock for long, and reads past the cache what is on the
    /// device. Whether each block is free or in use is left out. `progress` ends it with `Break`.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use std::ops::ControlFlow;
    ///
    /// let mut problems = Vec::new();
    /// let mut tell = |found: betree::Finding| problems.extend(found.into_problem());
    /// env.check_in_use(&mut tell, &mut |_, _| ControlFlow::Continue(()))?;
    /// assert!(problems.is_empty());
    ///
    /// let stopped = env.check_in_use(&mut |_| (), &mut |_, _| ControlFlow::Break(()));
    /// assert_eq!(stopped, Err(betree::Error::Interrupted));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Interrupted`] by `progress` or by a close; [`Error::ViewEnded`] if space is short;
    /// [`Error::ReadOnly`] for a volume with features of later versions. A problem found is not an error.
    pub fn check_in_use(
        &self,
        tell: &mut dyn FnMut(Finding),
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let disk = &self.engine.store.disk;
        let mut tell_of_open = |found| {
            if !disk.is_released() {
                tell(found);
            }
        };
        let checked = self.check_all_in_use(&mut tell_of_open, progress);
        if disk.is_released() { Err(Error::Interrupted) } else { checked }
    }

    fn check_all_in_use(
        &self,
        tell: &mut dyn FnMut(Finding),
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        self.refuse_unknown_features()?;
        // The next checkpoint makes the log anew.
        let is_read_only = self.engine.store.disk.health.refuse_if_read_only().is_err();
        if is_read_only && self.engine.counters.checkpoints.load(Ordering::Relaxed) == 0 {
            self.tell_log_loss(tell);
        }
        // They stay as they are.
        let _bad_pages = self.check_table(tell);
        self.engine.assign_all_unowned()?;
        let (live, dead) = self.engine.begin_fixed(&self.engine.lock_structures());
        let walked = self.walk_from(&live, dead, tell, progress);
        self.engine.end_view(&live);
        let Unfreed { stray, unread } = walked?;
        let mut unfreed = self.engine.unfreed(stray, &self.engine.lock_structures());
        unfreed.extend(unread);
        Walk::new(&self.engine, &live, tell).unfreed(unfreed);
        let what = "not checked: whether every block is free or in use, because the volume is in use";
        tell(Finding::note(FindingCode::SpaceNotChecked, Place::Volume, what.into()));
        Ok(())
    }

    /// Refuses a volume with features that nobody here knows.
    fn refuse_unknown_features(&self) -> Result<()> {
        if self.opened.has_unknown_features {
            return self.engine.store.disk.health.refuse_if_read_only();
        }
        Ok(())
    }

    /// Walks the trees with their structures locked.
    fn walk(
        &self,
        structures: &[MutexGuard<'_, ()>],
        tell: &mut dyn FnMut(Finding),
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let (live, dead) = self.engine.begin_fixed(structures);
        let walked = self.walk_from(&live, dead, tell, progress);
        self.engine.end_view(&live);
        let Unfreed { stray, unread } = walked?;
        let mut unfreed = self.engine.unfreed(stray, structures);
        unfreed.extend(unread);
        Walk::new(&self.engine, &live, tell).unfreed(unfreed);
        Ok(())
    }

    /// Walks what a view sees. Returns nodes that nothing refers to.
    fn walk_from(
        &self,
        live: &Live,
        dead: Vec<(&Dict, NodeId)>,
        tell: &mut dyn FnMut(Finding),
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Unfreed> {
        let mut walk = Walk::new(&self.engine, live, tell);
        walk.trees(progress)?;
        let unread = walk.dead(dead, progress)?;
        Ok(Unfreed { stray: walk.references()?, unread })
    }

    /// Every block must be free or part of an extent that the table names, except for `kept` blocks that only
    /// the last checkpoint names.
    fn check_space(&self, committed: &Committed, kept: u64, tell: &mut dyn FnMut(Finding)) {
        let table = self.engine.table.lock();
        let space = &self.engine.store.space;
        let named = space.blocks_of(table.extents().chain(committed.directories())) + kept;
        let taken = space.total_blocks() - space.free_blocks();
        if named != taken {
            let what = format!(
                "{} in use, but the volume's contents need {named}",
                counted(taken, "block is", "blocks are")
            );
            tell(Finding::problem(FindingCode::WrongSpace, Place::Volume, what));
        }
    }
}

/// Nodes that nothing refers to and that are not freed.
struct Unfreed {
    /// Those that were not dead by then.
    stray: Vec<NodeId>,
    /// Those that wait to be freed, and cannot be read for that.
    unread: Vec<NodeId>,
}

#[cfg(test)]
mod tests;
