//! Opening what is left of a volume, so that it can be copied out, whatever is broken.
//!
//! Nothing is ever written. In place of structures that opening needs and that are damaged come others:
//!
//! - without the newest superblock, an older one; without any, one that is made of the newest node table;
//! - second copies of the node table's parts;
//! - nodes whose blocks others claim too, if they are there by their checksums;
//! - slots of a damaged page of the node table, each of which must match the header of its node;
//! - nodes whose slots are lost: their headers name them, and are found by reading the whole device;
//! - the log up to its first damaged segment, in memory;
//! - in place of a lost interior node a new one, if its children are found.

mod give_up;
mod headers;
mod repair;
mod salvage;
mod superblock;

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::Device;

use crate::check::children;
use crate::check::damaged::newest_superblock;
use crate::check::{Finding, FindingCode, Place};
use crate::engine::checkpoint::Committed;
use crate::engine::{Engine, Opened};
use crate::env::Env;
use crate::env::recover::{engine_over, log_area, space_of};
use crate::env::replayed_changes::{OnUnreadable, ReplayedChanges};
use crate::error::{Error, Result, counted};
use crate::format::superblock::{LogStart, Superblock};
use crate::io::Disk;
use crate::log::{Log, replay};
use crate::settings::{Options, ReplayProgress};
use give_up::give_up_unreadable;

impl Env {
    /// Opens what is left of a volume for reading, whatever is broken. Nothing is ever written to the device.
    /// Calls `tell` with the damage of superblocks, node table and log, and with what stands in for it;
    /// damage of nodes is an error of their readers ([`Cursor::next_past`](crate::Cursor::next_past)).
    ///
    /// The log is replayed in memory up to its first damaged segment, and takes its own length of memory
    /// there. If a slot of the node table is lost, the whole device is read for headers of nodes.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (device, _folder) = doc::device();
    /// # Env::format(device.clone(), &betree::Geometry::for_volume(doc::VOLUME_BYTES, 1), [7; 16])?;
    /// # use std::sync::Arc;
    /// use betree::{Batch, DictId, Env, Options, Replace};
    ///
    /// let options = || Options::new(1 << 20, Arc::new(Replace));
    /// let env = Env::open(device.clone(), options())?;
    /// let mut batch = Batch::new();
    /// batch.put(DictId(0), b"apple", b"red");
    /// env.commit(&batch)?;
    /// env.sync()?;
    /// // As after a crash: the pair is in the log alone.
    /// env.abandon();
    ///
    /// let mut damage = Vec::new();
    /// let left = Env::open_for_rescue(device, options(), &mut |found| damage.push(found))?;
    /// assert_eq!(left.get(DictId(0), b"apple")?.as_deref(), Some(&b"red"[..]));
    /// assert_eq!(damage, []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotAVolume`], [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::UnknownFeatures`],
    /// [`Error::OtherUpsert`]; [`Error::Corrupt`] if no superblock is good, and none can be made;
    /// [`Error::NoMemory`].
    pub fn open_for_rescue(
        device: Arc<dyn Device>,
        options: Options,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<Env> {
        let disk = Arc::new(Disk::for_reading(device));
        let (mut superblock, bad_copies) = match newest_superblock(&disk, tell) {
            Ok(found) => found,
            Err(error @ (Error::Corrupt { .. } | Error::Device(_) | Error::NotAVolume { .. })) => {
                let made = superblock::by_scan(&disk, options.dicts_min)?.ok_or(error)?;
                let what = format!(
                    "no copy of the superblock is good; {} is the newest checkpoint whose node table is whole",
                    made.generation
                );
                tell(Finding::problem(FindingCode::OldCheckpoint, Place::Volume, what));
                (made, Vec::new())
            }
            Err(error) => return Err(error),
        };
        superblock.bind(&options)?;
        let space = space_of(&superblock);
        let mut parts_lost = 0u64;
        let mut tell_lost = |found: Finding| {
            let is_known = matches!(found.code, FindingCode::BadCopy | FindingCode::DisputedBlocks);
            parts_lost += u64::from(!is_known);
            tell(found);
        };
        let table = salvage::table(&disk, &space, &superblock, &mut tell_lost)?;
        let progress = options.replay_progress.clone();
        let engine = engine_over(disk.clone(), space, table, &superblock, options);
        let mut give_up = |engine: &Engine| give_up_unreadable(engine, tell);
        let on_unreadable = OnUnreadable::GiveUp(&mut give_up);
        let mut changes = ReplayedChanges::new(&engine, superblock.next_msn, on_unreadable);
        let missing = match superblock.clean {
            true => None,
            false => replay_in_memory(&mut changes, &disk, &superblock, progress.as_deref()),
        };
        let ReplayedChanges { next_msn, batches: replayed_batches, .. } = changes;
        missing.into_iter().for_each(&mut *tell);
        // Without all of the node table, nothing tells how many edges should lead to a node.
        if parts_lost == 0 {
            put_back_children(&engine, tell);
        }
        let start = LogStart { epoch: superblock.log_start.epoch, seq: 1, position: 0 };
        let log = Log::open_at(disk, log_area(&superblock), &superblock.identity.volume_id, &start, 0);
        let opened =
            Opened { bad_copies, is_damaged: true, for_reading: true, replayed_batches, ..Opened::default() };
        let env = Env::new(engine, log, next_msn, Committed::without_errors(superblock, None, None), opened);
        // There is nothing to write at its end.
        env.abandon();
        Ok(env)
    }
}

/// Replays the log as far as it goes. Changes stay in the memtables, for the nodes below may be unreadable;
/// only those before a clone arrive at the roots. The first record that cannot be replayed is the last one:
/// what is read is a state that the volume had. Returns the finding of what is missing then.
fn replay_in_memory(
    changes: &mut ReplayedChanges<'_, '_>,
    disk: &Disk,
    superblock: &Superblock,
    progress: Option<&ReplayProgress>,
) -> Option<Finding> {
    let area = log_area(superblock);
    let mut each =
        |first_msn: u64, count: u32, record: &[u8]| changes.take(first_msn, count, record).map(|_| ());
    let start = &superblock.log_start;
    let ended = replay(disk, area, &superblock.identity.volume_id, start, progress, &mut each);
    let error = ended.map_or_else(Some, |end| end.lost)?;
    let place = Place::Log { offset: error.offset().unwrap_or(area.offset) };
    let what = format!(
        "changes from here on are missing, after {}: {error}",
        counted(changes.batches, "batch", "batches")
    );
    Some(Finding::problem(FindingCode::BadLog, place, what))
}

/// Puts the children of lost interior nodes back, as a repair does. It comes after the replay, whose deltas
/// must not change values older than those that their writers saw.
fn put_back_children(engine: &Engine, tell: &mut dyn FnMut(Finding)) {
    let put_back =
        engine.assign_all_unowned().and_then(|()| children::put_back(engine, &engine.lock_structures()));
    match put_back {
        Ok(places) => {
            for place in places {
                let what = format!(
                    "{place} cannot be read; the nodes below it are found again, without the changes that waited in it, \
                     so what is below may be as it was before them"
                );
                tell(Finding::problem(FindingCode::BadNode, place, what));
            }
        }
        Err(error) => {
            let what = format!("the nodes below lost ones are not looked for: {error}");
            tell(Finding::problem(FindingCode::BadNode, Place::Volume, what));
        }
    }
}

/// The finding of a part of the node table that is lost.
fn lost_part(error: &Error) -> Finding {
    let place = Place::NodeTable { offset: error.offset() };
    Finding::problem(FindingCode::BadNodeTable, place, error.to_string())
}

#[cfg(test)]
mod tests;
