//! The check of a volume: walks everything and compares it with the format's rules.
//!
//! Unreadable parts are reported and skipped. Checks that would need them are reported as not done, not as
//! problems.

pub(crate) mod damaged;
mod finding;
mod pieces;
mod walk;

use alloc::format;
use alloc::string::ToString;

use crate::engine::checkpoint::Committed;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::format::superblock::slots::{self, BadSlot};
pub use finding::{Finding, FindingCode, Place};
use walk::Walk;

impl Env {
    /// Walks everything on the device: structure, checksums, references, space. Calls `tell` with each
    /// finding and `progress` with (nodes done, nodes in all). Writes a checkpoint first, so that the device
    /// has all changes.
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
        if self.opened.is_damaged {
            self.walk(&self.checkpoint.lock(), tell, progress);
            return Ok(());
        }
        if self.opened.for_reading {
            // The log's changes are in memory alone, and this version does not know the volume's features.
            self.engine.store.disk.health.refuse_if_read_only()?;
        }
        // Before anything is written.
        self.check_superblocks(tell);
        self.checkpoint()?;
        while self.engine.free_one()? {}
        loop {
            self.checkpoint()?;
            let committed = self.checkpoint.lock();
            let _structures = self.engine.lock_structures();
            if self.engine.dicts.iter().any(|d| d.state.read().is_dirty()) {
                continue;
            }
            self.walk(&committed, tell, progress);
            return Ok(());
        }
    }

    /// The copies as they are now, and those that opening has repaired.
    fn check_superblocks(&self, tell: &mut dyn FnMut(Finding)) {
        let mut bad_copies = self.opened.bad_copies.clone();
        match slots::load(&self.engine.store.disk) {
            Ok(loaded) => bad_copies.extend(loaded.bad_slots),
            Err(error) => tell(bad_superblocks(&error)),
        }
        bad_copies.sort_by_key(|slot| slot.offset);
        bad_copies.dedup_by_key(|slot| slot.offset);
        for slot in bad_copies {
            tell(bad_copy(&slot));
        }
    }

    fn walk(&self, committed: &Committed, tell: &mut dyn FnMut(Finding), progress: &mut dyn FnMut(u64, u64)) {
        let mut walk = Walk::new(&self.engine, tell);
        walk.trees(progress);
        let of_dicts = self.engine.dicts.iter().flat_map(|dict| dict.dead.lock().clone());
        let dead = of_dicts.chain(self.engine.unowned.lock().clone()).collect();
        walk.references();
        walk.unfreed(&dead);
        if self.opened.is_damaged {
            let what = "not checked: whether every block is free or in use, because not all of the node table can be \
                        believed";
            tell(Finding::note(FindingCode::SpaceNotChecked, Place::Volume, what.into()));
        } else if self.engine.views.lock().count() > 0 {
            let what = "not checked: whether every block is free or in use, because views hold some";
            tell(Finding::note(FindingCode::SpaceNotChecked, Place::Volume, what.into()));
        } else if self.engine.ingests.unless_any(|| self.check_space(committed, tell)).is_none() {
            let what = "not checked: whether every block is free or in use, because an ingest holds some";
            tell(Finding::note(FindingCode::SpaceNotChecked, Place::Volume, what.into()));
        }
    }

    /// Every block must be free or part of an extent that the table names.
    fn check_space(&self, committed: &Committed, tell: &mut dyn FnMut(Finding)) {
        let table = self.engine.table.lock();
        let directory = committed.directory.as_ref().map_or(0, |e| e.len_blocks());
        let named: u64 = table.extents().map(|e| e.len_blocks()).sum::<u64>() + directory;
        let space = &self.engine.store.space;
        let taken = space.total_blocks() - space.free_blocks();
        if named != taken {
            let what = format!("{taken} blocks are in use, but the volume's contents need {named}");
            tell(Finding::problem(FindingCode::WrongSpace, Place::Volume, what));
        }
    }
}

/// The finding of an error that is about all copies of the superblock.
fn bad_superblocks(error: &Error) -> Finding {
    let place = Place::Superblock { offset: error.offset() };
    Finding::problem(FindingCode::BadSuperblock, place, error.to_string())
}

/// The finding of a bad copy of the superblock.
fn bad_copy(slot: &BadSlot) -> Finding {
    let BadSlot { offset, why, may_be_torn } = slot;
    let what = format!("the superblock's copy at byte {offset} is bad: {why}");
    let (code, place) = (FindingCode::BadSuperblock, Place::Superblock { offset: Some(*offset) });
    if *may_be_torn {
        let what = format!("{what}; a crash while it is written leaves such a copy");
        return Finding::note(code, place, what);
    }
    Finding::problem(code, place, what)
}
