//! Superblocks and node table, as they are on the device.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Finding, FindingCode, Place};
use crate::env::Env;
use crate::env::read_table::{DIRECTORY_COPY, read_checked};
use crate::error::{Error, Result};
use crate::format::superblock::slots::{self, BadSlot};
use crate::format::superblock::table_copy::TableCopy;
use crate::space::Extent;
use crate::table::PagePlace;

const DIRECTORY: &str = "the node table's directory";
const PAGE: &str = "a page of the node table";
const PAGE_COPY: &str = "the second copy of a page of the node table";

/// What is wrong with the first and the second copy of a part of the node table.
type Pair = (Result<()>, Option<Result<()>>);

/// Tells what is wrong with a pair; returns whether it is to be written anew.
fn tell_pair(pair: Pair, tell: &mut dyn FnMut(Finding)) -> bool {
    match pair {
        (Ok(()), None | Some(Ok(()))) => return false,
        (Err(error), Some(Ok(()))) | (Ok(()), Some(Err(error))) => tell(one_bad(&error)),
        (Err(error), None | Some(Err(_))) => tell(Finding::lost(error)),
    }
    true
}

/// The finding of a part of the node table of which another copy is good.
pub(crate) fn one_bad(error: &Error) -> Finding {
    let place = Place::NodeTable { offset: error.offset() };
    Finding::problem(FindingCode::BadCopy, place, format!("{error}; its other copy is good"))
}

impl Env {
    /// The copies of the superblock as they are now, and the bad ones before.
    pub(super) fn check_superblocks(&self, mut bad_copies: Vec<BadSlot>, tell: &mut dyn FnMut(Finding)) {
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

    /// The superblocks and both copies of the node table, which opening has read, as they are on the device
    /// by now. Returns the pages of which a copy is bad.
    pub(super) fn check_table(&self, tell: &mut dyn FnMut(Finding)) -> Vec<u32> {
        self.check_directories(tell);
        self.bad_pages(tell)
    }

    fn check_directories(&self, tell: &mut dyn FnMut(Finding)) {
        let disk = &self.engine.store.disk;
        let (first, second) = {
            let committed = self.checkpoint.lock();
            // Nobody writes a superblock meanwhile.
            self.check_superblocks(Vec::new(), tell);
            let place = &committed.superblock.table;
            let first = committed.directory.clone().map(|extent| (extent, place.len, place.checksum));
            let copy = TableCopy::of(&committed.superblock).zip(committed.directory_copy.clone());
            (first, copy.map(|(TableCopy { len, checksum, .. }, extent)| (extent, len, checksum)))
        };
        let read = |what, (extent, len, checksum): (alloc::sync::Arc<Extent>, u32, u64)| {
            read_checked(disk, what, &extent, len, checksum).map(drop)
        };
        let second = second.map(|copy| read(DIRECTORY_COPY, copy));
        // A checkpoint writes it anew in any case.
        match first {
            Some(first) => drop(tell_pair((read(DIRECTORY, first), second), tell)),
            // An opening that told of the first one uses the second.
            None => second.and_then(Result::err).into_iter().for_each(|error| tell(Finding::lost(error))),
        }
    }

    /// Reads both copies of each page. Returns the pages of which one is bad.
    fn bad_pages(&self, tell: &mut dyn FnMut(Finding)) -> Vec<u32> {
        let disk = &self.engine.store.disk;
        let mut bad = Vec::new();
        for index in 0.. {
            let Some(page) = self.engine.table.lock().page(index as usize) else { break };
            let Some(PagePlace { extent, copy, len_bytes, checksum }) = page else { continue };
            let read =
                |what, extent: &Extent| read_checked(disk, what, extent, len_bytes, checksum).map(drop);
            let pair = (read(PAGE, &extent), copy.map(|copy| read(PAGE_COPY, &copy)));
            if tell_pair(pair, tell) {
                bad.push(index);
            }
        }
        bad
    }

    /// Tells of parts of the node table of which one copy is bad, by the opening or by now. The opening has
    /// read the first ones.
    pub(super) fn check_copies(&self, tell: &mut dyn FnMut(Finding)) {
        self.opened.healed.iter().for_each(|error| tell(one_bad(error)));
        let disk = &self.engine.store.disk;
        for index in 0.. {
            let Some(page) = self.engine.table.lock().page(index) else { break };
            let Some(PagePlace { copy: Some(copy), len_bytes, checksum, .. }) = page else { continue };
            if let Err(error) = read_checked(disk, PAGE_COPY, &copy, len_bytes, checksum) {
                tell(one_bad(&error));
            }
        }
    }

    /// Completes the copies of the newest superblock, and has the next checkpoint write these pages anew. It
    /// writes the directory and the older superblock's copies anew in any case.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn mend_copies(&self, bad_pages: Vec<u32>) -> Result<()> {
        {
            let _committed = self.checkpoint.lock();
            let disk = &self.engine.store.disk;
            // Where too many are lost to tell which one counts, the next checkpoints write all.
            if let Ok(loaded) = slots::load(disk) {
                loaded.repair_slots(disk)?;
            }
        }
        let mut table = self.engine.table.lock();
        bad_pages.into_iter().for_each(|index| table.touch_page(index));
        Ok(())
    }

    /// Has the next checkpoint write the pages anew of which a copy is bad: memory has what they hold.
    pub(super) fn mend_table(&self) {
        let bad = self.bad_pages(&mut |_| ());
        let mut table = self.engine.table.lock();
        bad.into_iter().for_each(|index| table.touch_page(index));
    }
}

/// The finding of an error that is about all copies of the superblock.
pub(super) fn bad_superblocks(error: &Error) -> Finding {
    let place = Place::Superblock { offset: error.offset() };
    Finding::problem(FindingCode::BadSuperblock, place, error.to_string())
}

/// The finding of a bad copy of the superblock.
pub(super) fn bad_copy(slot: &BadSlot) -> Finding {
    let BadSlot { offset, why, may_be_torn, .. } = slot;
    let what = format!("the superblock's copy at byte {offset} is bad: {why}");
    let (code, place) = (FindingCode::BadSuperblock, Place::Superblock { offset: Some(*offset) });
    if *may_be_torn {
        let what = format!("{what}; a crash while it is written leaves such a copy");
        return Finding::note(code, place, what);
    }
    Finding::problem(code, place, what)
}
