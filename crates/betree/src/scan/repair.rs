//! Opening a volume for a repair that may take something away.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::Device;

use super::give_up::give_up_unreadable;
use super::lost_part;
use super::salvage::find_pages;
use super::superblock::{beside, by_scan};
use crate::check::{Finding, FindingCode, Place};
use crate::engine::Engine;
use crate::env::Env;
use crate::env::read_table::LostPage;
use crate::env::recover::ForRepair;
use crate::error::{Error, Result, counted};
use crate::format::superblock::features::Features;
use crate::format::superblock::slots::{self, Loaded, Made};
use crate::format::superblock::{Identity, Superblock};
use crate::io::Disk;
use crate::settings::{LogLoss, OpenMode, Options};

impl Env {
    /// Opens a volume for a repair, as [`open`](Env::open) with [`OpenMode::Repair`], also if no copy of its
    /// superblock is good, or both of one generation are lost, if its log has lost something, or if a node
    /// claims blocks that are not its own. `tell` gets what is taken away by that.
    ///
    /// A new superblock is made of the newest node table that is whole, for which the whole device is read,
    /// or of the newest copy that is left, if no newer table is found. It stays in memory until
    /// [`write_repair`](Env::write_repair), which writes it before the repair's own, so that a repair can be
    /// taken back to it. The log ends where it cannot be replayed any further. A node is looked for where the
    /// node table has it, whatever else is there, until [`note_damage`](Env::note_damage) has given it blocks
    /// of its own.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (device, _folder) = doc::device();
    /// # Env::format(device.clone(), &betree::Geometry::for_volume(doc::VOLUME_BYTES, 1), [7; 16])?;
    /// # use std::sync::Arc;
    /// use betree::{Env, Options, Replace};
    /// # use betree_platform::Device;
    ///
    /// // All four copies are lost.
    /// device.write_at(0, &[0; 4 * betree_platform::BLOCK_BYTES])?;
    /// let options = || Options::new(1 << 20, Arc::new(Replace));
    /// assert!(Env::open(device.clone(), options()).is_err());
    /// let mut lost = Vec::new();
    /// let env = Env::open_for_repair(device.clone(), options(), &mut |found| lost.push(found))?;
    /// assert_eq!(lost.len(), 1);
    /// env.write_repair()?;
    /// drop(env);
    /// Env::open(device, options())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Env::open), but for [`LogLoss`]; [`Error::NoMemory`](crate::Error::NoMemory).
    pub fn open_for_repair(
        device: Arc<dyn Device>,
        options: Options,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<Env> {
        let options = Options { mode: OpenMode::Repair, log_loss: LogLoss::Accept, ..options };
        let disk = Arc::new(Disk::watched(device, options.watcher.clone()));
        let error = match slots::load(&disk) {
            Ok(loaded) => return opened(disk, loaded, None, options, tell),
            Err(error) => error,
        };
        let (newest, bad_copies) = slots::newest(&disk)?;
        if newest.is_some_and(|copy| !is_made(&copy)) {
            let (copy, bad_copies) = slots::beside_lost_pair(&disk)?;
            let (mut made, is_newer) = beside(&disk, &copy)?;
            if is_newer {
                made.features.incompat |= MADE_INCOMPAT;
            }
            tell(lost_pair(&error, &copy, is_newer));
            let loaded = Loaded::made(made.clone(), bad_copies);
            return opened(disk, loaded, Some(Made::Pair(made)), options, tell);
        }
        let Some(mut made) = by_scan(&disk, options.dicts_min)? else { return Err(error) };
        made.features.incompat |= MADE_INCOMPAT;
        let what = format!(
            "no copy of the superblock is good; {} is the newest checkpoint whose node table is whole, and a superblock \
             is made of it, without label, UUID, feature words and limit of growth",
            made.generation
        );
        tell(Finding::problem(FindingCode::LostSuperblocks, Place::Superblock { offset: None }, what));
        let loaded = Loaded::made(made.clone(), bad_copies);
        opened(disk, loaded, Some(Made::All(made)), options, tell)
    }
}

/// The finding of two lost copies, with what stands in for them.
fn lost_pair(error: &Error, copy: &Superblock, is_newer: bool) -> Finding {
    let what = match is_newer {
        true => format!(
            "{error}; a newer checkpoint, whose node table is whole, is taken, with the label, UUID, feature words and \
             limit of growth of generation {}",
            copy.generation
        ),
        false => format!(
            "{error}; no newer node table is found, so generation {} is taken, and what a lost one after it had is \
             missing",
            copy.generation
        ),
    };
    Finding::problem(FindingCode::LostSuperblocks, Place::Superblock { offset: error.offset() }, what)
}

/// Opens a volume. Tells what was given up for the log, what the log has lost, and of nodes whose blocks
/// others claim too.
fn opened(
    disk: Arc<Disk>,
    loaded: Loaded,
    made: Option<Made>,
    options: Options,
    tell: &mut dyn FnMut(Finding),
) -> Result<Env> {
    let mut given_up = 0;
    let mut tell_given_up = |found: Finding| {
        given_up += 1;
        tell(found);
    };
    let mut give_up = |engine: &Engine| give_up_unreadable(engine, &mut tell_given_up);
    let mut lost_pages = Vec::new();
    let mut find_pages = |disk: &_, space: &_, superblock: &_, pages: Vec<LostPage>, read: &mut _| {
        lost_pages.extend(pages.iter().map(|page| lost_part(&page.error)));
        find_pages(disk, space, superblock, &pages, read)
    };
    let repair = ForRepair { made, find_pages: &mut find_pages, give_up: &mut give_up };
    let mut env = Env::open_from(disk, loaded, Some(repair), options)?;
    env.opened.given_up = given_up;
    lost_pages.into_iter().for_each(&mut *tell);
    env.check_disputed(tell);
    env.tell_log_loss(tell);
    Ok(env)
}

impl Env {
    /// Tells what the log has lost, if the opening went on without it.
    pub(crate) fn tell_log_loss(&self, tell: &mut dyn FnMut(Finding)) {
        if let Some(error) = self.log_loss() {
            let place = Place::Log { offset: error.offset().unwrap_or_default() };
            let what = format!(
                "changes from here on are missing, after {}: {error}",
                counted(self.replayed_batches(), "batch", "batches")
            );
            tell(Finding::problem(FindingCode::BadLog, place, what));
        }
    }
}

/// The feature bits of a superblock that a repair has made: nothing tells whether a volume needs them.
const MADE_INCOMPAT: u64 = Features::KNOWN_DAMAGE | Features::PAIR_COMPRESSION | Features::NODE_COPIES;

/// Whether a copy is of a superblock that a repair has made: a crash while it wrote all four may have left
/// one pair alone. It has nothing that another scan would not find.
fn is_made(copy: &Superblock) -> bool {
    // Earlier versions did not know of copies.
    let is_made_word = copy.features.incompat | Features::NODE_COPIES == MADE_INCOMPAT;
    let made = Identity::new(copy.identity.volume_id, [0; 16]);
    // Whoever used it since may have given it a UUID.
    (&copy.identity.label, copy.identity.uuid, copy.identity.made_ns)
        == (&made.label, made.uuid, made.made_ns)
        && is_made_word
}
