//! Looking at a volume that does not open.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::Device;

use super::table::{bad_copy, bad_superblocks, one_bad};
use super::{Finding, FindingCode, Place};
use crate::engine::checkpoint::Committed;
use crate::engine::{Engine, Opened};
use crate::env::Env;
use crate::env::disputed::OnDispute;
use crate::env::read_table::{LostPage, ReadTable, read_table};
use crate::env::recover::{engine_over, log_area, space_of};
use crate::error::{Error, Result, counted};
use crate::format::record::Changes;
use crate::format::superblock::slots::{self, BadSlot};
use crate::format::superblock::{LogStart, Superblock};
use crate::format::table::slots_per_page;
use crate::invariant::internal;
use crate::io::Disk;
use crate::log::{Log, replay};
use crate::settings::Options;
use crate::space::Extent;
use crate::table::{Disputed, Table};

impl Env {
    /// Opens the readable parts of a volume that [`open`](Env::open) refuses, for reading and a
    /// [`check`](Env::check). Nothing is ever written to the device. It shows the last checkpoint: the log is
    /// checked but not replayed. Calls `tell` with the damage of superblocks, log and node table; `check`
    /// reports the rest.
    ///
    /// # Errors
    /// [`Error::NotAVolume`], [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::UnknownFeatures`],
    /// [`Error::OtherUpsert`]; [`Error::Corrupt`] if no superblock is good, after `tell` was called with
    /// each; [`Error::NoMemory`].
    pub fn open_damaged(
        device: Arc<dyn Device>,
        options: Options,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<Env> {
        let Checkpoint { disk, bad_copies, superblock, engine, directory, directory_copy, disputed } =
            last_checkpoint(device, options, tell)?;
        check_log(&disk, &superblock, tell);
        let start = LogStart { epoch: superblock.log_start.epoch, seq: 1, position: 0 };
        let log = Log::open_at(disk, log_area(&superblock), &superblock.identity.volume_id, &start, 0);
        let opened =
            Opened { bad_copies, disputed, is_damaged: true, for_reading: true, ..Opened::default() };
        let next_msn = superblock.next_msn;
        Ok(Env::new(
            engine,
            log,
            next_msn,
            Committed::without_errors(superblock, directory, directory_copy),
            opened,
        ))
    }
}

/// The readable parts of the last checkpoint. Nothing is ever written to the device.
pub(crate) struct Checkpoint {
    pub disk: Arc<Disk>,
    pub superblock: Superblock,
    /// The bad copies of the superblock.
    pub bad_copies: Vec<BadSlot>,
    pub engine: Engine,
    /// The extent of the node table's directory, if that can be read.
    pub directory: Option<Arc<Extent>>,
    /// That of the second copy, if there is one that can be read.
    pub directory_copy: Option<Arc<Extent>>,
    /// Nodes whose blocks others claim too.
    pub disputed: Disputed,
}

/// Opens the readable parts of the last checkpoint, without the log. Calls `tell` with the damage of
/// superblocks and node table.
///
/// # Errors
/// As [`Env::open_damaged`].
pub(crate) fn last_checkpoint(
    device: Arc<dyn Device>,
    options: Options,
    tell: &mut dyn FnMut(Finding),
) -> Result<Checkpoint> {
    let disk = Arc::new(Disk::for_reading(device));
    let (mut superblock, bad_copies) = newest_superblock(&disk, tell)?;
    superblock.bind(&options)?;
    let space = space_of(&superblock);
    let mut lost = |page: LostPage| {
        tell(Finding::lost(page.error));
        Ok(())
    };
    let ReadTable { table, directory, directory_copy, healed, disputed } =
        read_table(&disk, &space, &superblock, OnDispute::Look, &mut lost).unwrap_or_else(|error| {
            tell(Finding::lost(error.clone()));
            let table = Table::lost(slots_per_page(superblock.table_page_bytes), error);
            let (healed, disputed) = (Vec::new(), Disputed::default());
            ReadTable { table, directory: None, directory_copy: None, healed, disputed }
        });
    healed.iter().for_each(|error| tell(one_bad(error)));
    disputed.nodes.iter().for_each(|node| tell(Finding::disputed(node)));
    let engine = engine_over(disk.clone(), space, table, &superblock, options);
    Ok(Checkpoint { disk, superblock, bad_copies, engine, directory, directory_copy, disputed })
}

/// The newest good superblock, and the bad copies. Calls `tell` with the damage.
///
/// # Errors
/// As [`Env::open_damaged`].
pub(crate) fn newest_superblock(
    disk: &Disk,
    tell: &mut dyn FnMut(Finding),
) -> Result<(Superblock, Vec<BadSlot>)> {
    let (superblock, bad_copies) = slots::newest(disk)?;
    let Some(superblock) = superblock else {
        let error = slots::load(disk).err();
        let error = error.unwrap_or_else(|| internal!("a superblock that was good can be decoded"));
        // The blocks of another file are no bad copies.
        if !matches!(error, Error::NotAVolume { .. }) {
            bad_copies.iter().for_each(|slot| tell(bad_copy(slot)));
        }
        return Err(error);
    };
    bad_copies.iter().for_each(|slot| tell(bad_copy(slot)));
    if let Err(error) = slots::load(disk) {
        if bad_copies.is_empty() {
            tell(bad_superblocks(&error));
        }
        let what = alloc::format!(
            "the findings below are of checkpoint {}, which may be out of date: {error}",
            superblock.generation
        );
        tell(Finding::note(FindingCode::OldCheckpoint, Place::Volume, what));
    }
    Ok((superblock, bad_copies))
}

/// Checks the log, if there is one to replay.
fn check_log(disk: &Disk, superblock: &Superblock, tell: &mut dyn FnMut(Finding)) {
    if superblock.clean {
        return;
    }
    let mut bad = 0u64;
    let mut each = |_: u64, count: u32, record: &[u8]| {
        let changes =
            Changes::of(record).try_fold(0u32, |count, change| change.map(|_| count.saturating_add(1)));
        match changes {
            // The replay adds the place, and ends.
            Err(error @ Error::UnknownKind { .. }) => return Err(error),
            changes => bad += u64::from(changes != Ok(count)),
        }
        Ok(())
    };
    let area = log_area(superblock);
    let end = replay(disk, area, &superblock.identity.volume_id, &superblock.log_start, None, &mut each);
    let (is_empty, problem) = match end {
        Ok(end) => (end.records == 0 && end.lost.is_none(), end.lost),
        Err(error) => (false, Some(error)),
    };
    if bad > 0 {
        let what = alloc::format!(
            "{} of the log, which begins at byte {}, {}",
            counted(bad, "record", "records"),
            area.offset,
            if bad == 1 {
                "does not hold the changes that it counts"
            } else {
                "do not hold the changes that they count"
            }
        );
        tell(Finding::problem(FindingCode::BadLog, Place::Log { offset: area.offset }, what));
    }
    if let Some(error) = problem {
        let place = Place::Log { offset: error.offset().unwrap_or(area.offset) };
        tell(Finding::problem(FindingCode::BadLog.by(&error), place, error.to_string()));
    }
    if !is_empty {
        let what = "not checked: the changes since the last checkpoint, because the log cannot be replayed into \
                    a damaged volume";
        tell(Finding::note(FindingCode::LogNotChecked, Place::Log { offset: area.offset }, what.into()));
    }
}
