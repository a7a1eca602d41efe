//! Opening a volume: the last checkpoint, then the log behind it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, AtomicU64};
use betree_platform::{BLOCK_BYTES, Device};

use crate::cache::Cache;
use crate::dict::Dict;
use crate::engine::checkpoint::Committed;
use crate::engine::{Engine, Opened};
use crate::env::Env;
use crate::env::disputed::OnDispute;
use crate::env::read_table::{LostPage, ReadTable, read_table};
use crate::env::replayed_changes::{GiveUp, OnUnreadable, ReplayedChanges};
use crate::error::{Error, Result, bit_numbers};
use crate::events;
use crate::expiry::Clock;
use crate::format::limits::Limits;
use crate::format::superblock::error_record;
use crate::format::superblock::features::Features;
use crate::format::superblock::slots::{self, Loaded, Made};
use crate::format::superblock::table_copy::TableCopy;
use crate::format::superblock::{DICTS_MAX, DictRoot, LogStart, Superblock};
use crate::health::ErrorKind;
use crate::io::Disk;
use crate::log::{Log, LogArea, replay};
use crate::node_id::NodeId;
use crate::planted;
use crate::settings::{LogLoss, OpenMode, Options};
use crate::space::Space;
use crate::store::{CopyState, Readahead, Reading, Store, Writeback};
use crate::table::Table;
use crate::upsert::Bounded;

/// Log records may wait in memory up to one part in this many of the cache or of the log, whichever is
/// smaller.
const PENDING_SHARE: u64 = 16;
/// They may always take this much; else a tiny cache would make each sync a checkpoint.
const PENDING_BYTES_MIN: u64 = 16 << 10;
/// One part in this many of the cache's budget is left to the memtables.
const MEMTABLES_SHARE: usize = 8;
/// Why a volume opened for reading, or for a repair, takes no changes.
pub(crate) const FOR_READING: &str = "it was opened for reading";
const BLOCK: u64 = BLOCK_BYTES as u64;

pub(crate) fn log_area(superblock: &Superblock) -> LogArea {
    LogArea { offset: superblock.log_offset, len: superblock.geometry.log_bytes }
}

/// Says of what lies behind the end of an open-ended device that this was cut short.
fn cut_short(disk: &Disk, error: Error) -> Error {
    let device_bytes = disk.contents_len();
    match error {
        Error::Corrupt { offset, len, .. } if disk.is_open_ended() && offset >= device_bytes => {
            Error::Truncated { volume_bytes: offset.saturating_add(len), device_bytes }
        }
        error => error,
    }
}

pub(crate) fn space_of(superblock: &Superblock) -> Arc<Space> {
    let first = (superblock.log_offset + superblock.geometry.log_bytes) / BLOCK;
    Space::new(first, superblock.volume_bytes / BLOCK - first)
}

impl Env {
    /// Opens a volume at its last durable state: the last checkpoint, then the log's records up to the first
    /// one that was not written whole.
    ///
    /// With [`OpenMode::ReadOnly`], and for a volume with features that allow only readers, it is opened for
    /// reading: the log is replayed in memory, nothing is written then or later, and [`state`](Env::state)
    /// says why changes are refused.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (device, _folder) = doc::device();
    /// # Env::format(device.clone(), &betree::Geometry::for_volume(doc::VOLUME_BYTES, 1), [7; 16])?;
    /// # use std::sync::Arc;
    /// use betree::{Env, Options, Replace};
    ///
    /// let cache_bytes = 1 << 20;
    /// let env = Env::open(device, Options::new(cache_bytes, Arc::new(Replace)))?;
    /// assert_eq!(env.replayed_batches(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotAVolume`], [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::UnknownFeatures`],
    /// [`Error::OtherUpsert`], [`Error::Corrupt`] with the place; those of the device.
    pub fn open(device: Arc<dyn Device>, options: Options) -> Result<Env> {
        let disk = Arc::new(Disk::watched(device, options.watcher.clone()));
        let loaded = slots::load(&disk)?;
        Env::open_from(disk, loaded, None, options)
    }

    /// As [`open`](Env::open), from the superblock that counts. Only a repair may look at disputed nodes, and
    /// at what agrees with its nodes in damaged pages of the node table.
    pub(crate) fn open_from(
        disk: Arc<Disk>,
        loaded: Loaded,
        repair: Option<ForRepair<'_>>,
        options: Options,
    ) -> Result<Env> {
        let unknown = loaded.superblock.features.unknown_ro_compat();
        let for_reading = unknown != 0 || options.mode != OpenMode::ReadWrite;
        if unknown != 0 {
            let why = alloc::format!(
                "it has features that this version does not know, {} (bits {unknown:#x}), and may only be read",
                bit_numbers(unknown)
            );
            disk.refuse_from_now_on(&why);
            disk.health.refuse_changes(&why);
        } else if for_reading {
            disk.refuse_from_now_on(FOR_READING);
            disk.health.begin_for_reading(FOR_READING);
        } else {
            loaded.repair_slots(&disk)?;
        }
        for _ in loaded.bad_slots.iter().filter(|slot| slot.is_rotten) {
            disk.health.count_error(ErrorKind::Checksum);
        }
        let kept_errors = error_record::of(&loaded.superblock.tail).unwrap_or_default();
        disk.health.take_earlier_errors(kept_errors.clone());
        let mut superblock = loaded.superblock;
        superblock.bind(&options)?;
        let space = space_of(&superblock);
        let (made, mut find_pages, give_up) = match repair {
            Some(ForRepair { made, find_pages, give_up }) => (made, Some(find_pages), Some(give_up)),
            None => (None, None, None),
        };
        let mut lost_pages = Vec::new();
        let on_dispute = if find_pages.is_some() { OnDispute::Look } else { OnDispute::Refuse };
        let mut read = read_table(&disk, &space, &superblock, on_dispute, &mut |page| match find_pages {
            Some(_) => {
                lost_pages.push(page);
                Ok(())
            }
            None => Err(page.error),
        })
        .map_err(|error| cut_short(&disk, error))?;
        if let Some(find_pages) = find_pages.as_mut().filter(|_| !lost_pages.is_empty()) {
            find_pages(&disk, &space, &superblock, lost_pages, &mut read)?;
        }
        let ReadTable { table, directory, directory_copy, healed, disputed } = read;
        if !for_reading && directory_copy.is_none() && TableCopy::of(&superblock).is_some() {
            // The blocks of the pages that its directory names are not known, and are written over from now
            // on. After a crash the directory may be read again.
            superblock.generation += 1;
            let _has_none = TableCopy::put(None, superblock.generation, &mut superblock.tail);
            slots::store(&disk, &superblock)?;
        }
        if superblock.features.is_open_ended() {
            let volume_bytes = space.withhold_end() * BLOCK;
            let device_bytes = disk.contents_len();
            if device_bytes < volume_bytes {
                return Err(Error::Truncated { volume_bytes, device_bytes });
            }
        }
        if disk.is_sparse() && !for_reading {
            space.doubt_backing();
        }
        let discards = options.discard && !for_reading;
        if discards {
            space.note_freed();
            if !superblock.clean {
                discard_free(&disk, &space);
            }
        }
        let (cache_bytes, accepts_loss, mode) = (options.cache_bytes as u64, options.log_loss, options.mode);
        let progress = options.replay_progress.clone();
        let engine = engine_over(disk.clone(), space, table, &superblock, options);
        if let Some(root) =
            engine.dicts.iter().map(|dict| dict.state.read().root).find(|id| !engine.table.lock().holds(*id))
        {
            return Err(Error::Corrupt {
                what: "superblock",
                offset: 0,
                len: BLOCK,
                why: alloc::format!("the root {root} of a dictionary is not in the node table"),
            });
        }
        let mut committed = Committed {
            superblock: superblock.clone(),
            directory,
            directory_copy,
            kept_errors,
            is_half_stored: false,
        };
        let on_unreadable = match give_up {
            Some(give_up) => OnUnreadable::GiveUp(give_up),
            None if for_reading => OnUnreadable::Wait,
            None => OnUnreadable::Refuse,
        };
        let mut changes = ReplayedChanges::new(&engine, superblock.next_msn, on_unreadable);
        let mut log_loss = None;
        let mut log_position = superblock.log_start.position;
        let was_closed = superblock.clean;
        if !was_closed {
            // Nothing was logged after a clean close: opening writes a superblock that is not clean before
            // any log record.
            let from = &superblock.log_start;
            let (area, volume_id) = (log_area(&superblock), &superblock.identity.volume_id);
            let mut each = |first_msn: u64, count: u32, record: &[u8]| -> Result<()> {
                let cache = &engine.store.cache;
                let have_arrived = changes.take(first_msn, count, record)?;
                if have_arrived && !for_reading && cache.dirty_bytes() > cache.budget_bytes() / 3 {
                    // The log stays as it is: if the replay has to begin anew, it skips the changes that this
                    // checkpoint holds.
                    events::checkpoint_begins(false);
                    let captured = engine.capture(changes.next_msn);
                    engine.write_checkpoint(&mut committed, captured, superblock.clone(), &|| ())?;
                }
                Ok(())
            };
            let lost = match replay(&disk, area, volume_id, from, progress.as_deref(), &mut each) {
                Ok(end) => {
                    events::replayed(end.segments, end.records, changes.next_msn);
                    log_position = end.next.position;
                    end.lost
                }
                Err(error) if changes.has_ended => Some(error),
                Err(error) => return Err(error),
            };
            if let Some(lost) = lost {
                if accepts_loss == LogLoss::Refuse {
                    return Err(lost);
                }
                log_loss = disk.health.count_damage(Err::<(), Error>(lost)).err();
            }
        }
        changes.finish()?;
        let ReplayedChanges { next_msn, batches: replayed_batches, .. } = changes;
        // Always a new epoch: bytes that a crash left behind the last good segment (or at the start, if there
        // is none) must never be taken for a successor of new segments.
        let epochs = if planted::is(planted::Bug::EpochKept) { 0 } else { 1 };
        let log_start =
            LogStart { epoch: superblock.log_start.epoch + epochs, seq: 1, position: log_position };
        let superblock = Superblock { clean: false, log_start, ..superblock };
        if !for_reading {
            events::checkpoint_begins(false);
            let captured = engine.capture(next_msn);
            engine.write_checkpoint(&mut committed, captured, superblock.clone(), &|| ())?;
            engine.replenish();
        }
        let log = Log::open_at(
            disk,
            log_area(&superblock),
            &superblock.identity.volume_id,
            &log_start,
            (cache_bytes.min(superblock.geometry.log_bytes) / PENDING_SHARE).max(PENDING_BYTES_MIN),
        );
        for dict in &engine.dicts {
            // Every change ends at a root: with the roots in memory, small changes read nothing. An
            // unreadable part does not hinder opening; a caller that reads it gets the error.
            let root = dict.state.read().root;
            match engine.tree_of(dict).node(root) {
                Ok(root) => drop(engine.store.load(&root.pieces())),
                // A repair may find what was below it.
                Err(error) if mode == OpenMode::Repair && error.is_unreadable() => {}
                Err(error) => return Err(error),
            }
        }
        events::opened(committed.superblock.generation, engine.dicts.len(), was_closed);
        let opened = Opened {
            bad_copies: loaded.bad_slots,
            healed,
            disputed,
            is_damaged: false,
            for_reading,
            mode,
            has_unknown_features: unknown != 0,
            discards,
            replayed_batches,
            log_loss,
            given_up: 0,
            made,
        };
        Ok(Env::new(engine, log, next_msn, committed, opened))
    }
}

/// Adds the nodes of lost pages to a node table, as far as they are known.
pub(crate) type FindPages<'r> =
    &'r mut dyn FnMut(&Disk, &Arc<Space>, &Superblock, Vec<LostPage>, &mut ReadTable) -> Result<()>;

/// What an opening for a repair has beside others.
pub(crate) struct ForRepair<'r> {
    /// A superblock that was made, as copies are lost: the repair writes it before its checkpoint.
    pub made: Option<Made>,
    /// Adds what is known of lost pages of the node table.
    pub find_pages: FindPages<'r>,
    /// Gives up what clones in the log need and cannot be read.
    pub give_up: GiveUp<'r>,
}

/// The engine that a superblock describes, with the list of nodes that are still to be freed.
pub(crate) fn engine_over(
    disk: Arc<Disk>,
    space: Arc<Space>,
    table: Table,
    superblock: &Superblock,
    options: Options,
) -> Engine {
    let roots = superblock.dicts.iter().take(usize::from(superblock.geometry.dicts).min(DICTS_MAX));
    let dict = |(index, root): (usize, &DictRoot)| {
        Dict::new(index, NodeId { slot: root.slot, generation: root.generation }, root.applied_msn)
    };
    let dicts = roots.enumerate().map(dict).collect();
    let dead: Vec<NodeId> = table.nodes().filter(|(_, _, refs)| *refs == 0).map(|(id, ..)| id).collect();
    let store = Store {
        disk,
        limits: Limits::of(&superblock.geometry, space.total_blocks()),
        next_msn: AtomicU64::new(superblock.next_msn),
        volume_id: superblock.identity.volume_id,
        generation: AtomicU64::new(superblock.generation),
        space,
        cache: Cache::new(
            options.cache_bytes - options.cache_bytes / MEMTABLES_SHARE,
            superblock.geometry.fanout_max,
        ),
        compression: options.compression,
        pairs_ask: AtomicBool::new(superblock.features.incompat & Features::PAIR_COMPRESSION != 0),
        copies: CopyState::of(superblock),
        zstd: options.zstd,
        upsert: Bounded::new(options.upsert, superblock.geometry.batch_bytes_max()),
        clock: Clock::of(options.clock),
        reading: Reading::default(),
        readahead: Readahead::default(),
        writeback: Writeback::default(),
    };
    let engine = Engine::new(store, superblock.geometry, table, dicts);
    *engine.unowned.lock() = dead;
    engine
}

/// Discards all free blocks: a crash may have come between a checkpoint and its discards.
fn discard_free(disk: &Disk, space: &Space) {
    for range in space.free_ranges() {
        if let Err(error) = disk.discard(range.start_block * BLOCK, range.len_blocks * BLOCK) {
            disk.health.note_failed_work(&error);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::io::mem::MemDevice;
    use crate::settings::{DictId, Geometry};
    use crate::upsert::Append;
    use betree_platform::Device;

    fn open(device: &Arc<MemDevice>) -> Env {
        Env::open(device.clone(), Options::new(1 << 20, Arc::new(Append))).unwrap()
    }

    /// A checkpoint in the middle of a replay does not move the log's start: a replay that begins anew must
    /// skip exactly the changes that each dictionary's tree holds already.
    #[test]
    fn replay_skips_exactly_the_changes_that_a_tree_holds() {
        let geometry =
            Geometry { node_bytes: 512, basement_bytes: 128, fanout_max: 4, log_bytes: 128 << 10, dicts: 2 };
        let device = MemDevice::new(512);
        Env::format(device.clone(), &geometry, [1; 16]).unwrap();
        let env = open(&device);
        let append = |delta: &[u8]| {
            let mut batch = Batch::new();
            batch.upsert(DictId(1), b"k", delta);
            batch.upsert(DictId(0), b"k", delta);
            env.commit(&batch).unwrap();
        };
        append(b"1,");
        append(b"2,");
        // The first dictionary's tree has two messages, the second's none.
        env.engine.freeze(true);
        assert!(env.engine.absorb(&env.engine.dicts[0]).unwrap());
        // The next number belongs to the first dictionary too.
        let mut next = Batch::new();
        next.upsert(DictId(0), b"k", b"3,");
        next.upsert(DictId(1), b"k", b"3,");
        env.commit(&next).unwrap();
        env.sync().unwrap();
        {
            let mut committed = env.checkpoint.lock();
            let superblock = committed.superblock.clone();
            let captured = env.engine.capture(7);
            assert_eq!(captured.first_unapplied(2), 1, "the second dictionary's first message");
            env.engine.write_checkpoint(&mut committed, captured, superblock, &|| ()).unwrap();
        }
        env.abandon();
        drop(env);
        let env = open(&device);
        for dict in [DictId(0), DictId(1)] {
            assert_eq!(env.get(dict, b"k").unwrap().as_deref(), Some(&b"1,2,3,"[..]), "{dict:?}");
        }
        env.close().unwrap();
        let env = open(&device);
        assert_eq!(env.get(DictId(0), b"k").unwrap().as_deref(), Some(&b"1,2,3,"[..]));
    }

    /// With free space in single blocks only, every node and page of the table has several parts, which must
    /// be found again.
    #[test]
    fn nodes_in_several_parts_are_read_back_after_opening() {
        let geometry = Geometry {
            node_bytes: 16 << 10,
            basement_bytes: 4096,
            fanout_max: 4,
            log_bytes: 1 << 20,
            dicts: 1,
        };
        let device = MemDevice::new(4096);
        Env::format(device.clone(), &geometry, [1; 16]).unwrap();
        let env = open(&device);
        let space = env.engine.store.space.clone();
        let all: Vec<_> = core::iter::from_fn(|| space.allocate(1, 1)).collect();
        let walls: Vec<_> = all.into_iter().step_by(2).collect();
        let value = |number: u32| seeded::bytes(u64::from(number), 0, 1000);
        for number in 0..2000u32 {
            let mut batch = Batch::new();
            batch.put(DictId(0), &number.to_be_bytes(), &value(number));
            env.commit(&batch).unwrap();
        }
        env.close().unwrap();
        let in_parts = space.further_parts();
        assert!(in_parts > 300, "{in_parts} parts beyond the first");
        let pages_in_parts = env.engine.table.lock().extents().filter(|e| e.parts().len() > 1).count();
        assert!(pages_in_parts > 100, "{pages_in_parts} nodes and pages are in parts");
        drop((env, walls));

        let env = open(&device);
        assert!(env.engine.store.space.further_parts() >= in_parts);
        for number in 0..2000u32 {
            assert!(env.get(DictId(0), &number.to_be_bytes()).unwrap() == Some(value(number)), "{number}");
        }
        let mut problems = Vec::new();
        env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
    }

    fn put(env: &Env, number: u32) {
        let mut batch = Batch::new();
        batch.put(DictId(0), &number.to_be_bytes(), b"value");
        env.commit(&batch).unwrap();
        env.sync().unwrap();
    }

    /// A volume as after a crash, with a segment of one block for each of ten pairs. Returns it with the
    /// first byte of the seventh.
    fn ten_segments() -> (Arc<MemDevice>, u64) {
        let geometry =
            Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 4, log_bytes: 1 << 20, dicts: 1 };
        let device = MemDevice::new(1024);
        Env::format(device.clone(), &geometry, [1; 16]).unwrap();
        let env = open(&device);
        let start = env.checkpoint.lock().superblock.clone();
        (0..10).for_each(|number| put(&env, number));
        env.abandon();
        (device, start.log_offset + start.log_start.position + 6 * BLOCK)
    }

    fn accepting(log_loss: LogLoss) -> Options {
        let mut options = Options::new(1 << 20, Arc::new(Append));
        options.log_loss = log_loss;
        options
    }

    /// Without a durable segment the volume is refused, unless the caller gives up all from there on.
    #[test]
    fn a_loss_of_the_log_is_refused_or_accepted() {
        let (device, at) = ten_segments();
        let mut block = [0; BLOCK_BYTES];
        device.read_at(at, &mut block).unwrap();
        block[300] ^= 1;
        device.write_at(at, &block).unwrap();

        let refused = Env::open(device.clone(), accepting(LogLoss::Refuse)).unwrap_err();
        assert!(matches!(&refused, Error::Corrupt { offset, .. } if *offset == at), "{refused}");
        let found_in_use = |env: &Env| {
            let mut codes = Vec::new();
            let mut tell = |found: crate::Finding| codes.extend(found.is_problem.then_some(found.code));
            env.check_in_use(&mut tell, &mut |_, _| core::ops::ControlFlow::Continue(())).unwrap();
            codes
        };
        let reader = Options { mode: OpenMode::ReadOnly, ..accepting(LogLoss::Accept) };
        let env = Env::open(device.clone(), reader).unwrap();
        assert_eq!(found_in_use(&env), [crate::FindingCode::BadLog], "it is on the device still");
        drop(env);
        let env = Env::open(device.clone(), accepting(LogLoss::Accept)).unwrap();
        assert_eq!(env.log_loss(), Some(&refused));
        assert_eq!(found_in_use(&env), []);
        put(&env, 100);
        env.close().unwrap();
        let env = Env::open(device, accepting(LogLoss::Refuse)).unwrap();
        assert_eq!(env.log_loss(), None);
        let has = |number: u32| env.get(DictId(0), &number.to_be_bytes()).unwrap().is_some();
        assert!((0..6).chain([100]).all(has) && !(6..10).any(has));
        let mut problems = Vec::new();
        env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
    }

    /// As one that is damaged.
    #[test]
    fn a_segment_that_the_device_does_not_read_is_a_loss() {
        let (device, at) = ten_segments();
        let bad = at as usize..(at + BLOCK) as usize;
        device.fail_reads_of(bad);
        let refused = Env::open(device.clone(), accepting(LogLoss::Refuse)).unwrap_err();
        assert!(matches!(&refused, Error::Device(error) if error.offset == at), "{refused}");
        let mut told = Vec::new();
        let repair = Env::open_for_repair(device.clone(), accepting(LogLoss::Refuse), &mut |found| {
            told.push((found.code, found.place));
        });
        assert_eq!(told, [(crate::FindingCode::BadLog, crate::Place::Log { offset: at })]);
        drop(repair.unwrap());
        let env = Env::open(device.clone(), accepting(LogLoss::Accept)).unwrap();
        assert_eq!(env.log_loss(), Some(&refused));
        let has = |number: u32| env.get(DictId(0), &number.to_be_bytes()).unwrap().is_some();
        assert!((0..6).all(has) && !(6..10).any(has));
    }
}
