use alloc::format;

use alloc::collections::BTreeSet;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::AtomicUsize;
use betree_platform::{BLOCK_BYTES, Device, DeviceError, DeviceOp};

use super::*;
use crate::batch::Batch;
use crate::error::Error;
use crate::io::mem::MemDevice;
use crate::settings::{Geometry, Options};
use crate::stats::Stats;
use crate::upsert::Replace;

const D: DictId = DictId(0);
const OTHER: DictId = DictId(1);
const CACHE_BYTES: usize = 512 << 10;
const VALUE_BYTES: usize = 500;
const KEYS: u32 = 2000;

/// An environment of two dictionaries on a device of 8 MiB.
fn env() -> Arc<Env> {
    let geometry =
        Geometry { node_bytes: 16 << 10, basement_bytes: 2048, fanout_max: 8, log_bytes: 1 << 20, dicts: 2 };
    let device = MemDevice::new(2048);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    Arc::new(Env::open(device, Options::new(CACHE_BYTES, Arc::new(Replace))).unwrap())
}

fn value(round: u32, number: u32) -> Vec<u8> {
    value_of(round, number, VALUE_BYTES)
}

/// Bytes that do not compress.
fn value_of(round: u32, number: u32, bytes: usize) -> Vec<u8> {
    let mut value = format!("{round}:{number}:").into_bytes();
    let mut state = u64::from(round) << 32 | u64::from(number) | 1;
    value.resize_with(bytes, || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    value
}

fn put(env: &Env, round: u32, numbers: impl Iterator<Item = u32>) -> Result<()> {
    for number in numbers {
        let mut batch = Batch::new();
        batch.put(D, &number.to_be_bytes(), &value(round, number));
        batch.put(OTHER, &number.to_be_bytes(), &round.to_be_bytes());
        env.commit(&batch)?;
        env.run_due_work()?;
    }
    Ok(())
}

/// Reads all of a view and checks that each pair is of one round.
fn read(view: &View, round: u32) -> Result<u32> {
    let mut cursor = view.cursor(D, Cut::LOW, Cut::HIGH);
    let mut pairs = 0;
    while let Some((key, found)) = cursor.next()? {
        let number = u32::from_be_bytes(key.try_into().unwrap());
        assert!(found == value(round, number), "key {number}");
        assert_eq!(view.get(OTHER, &number.to_be_bytes())?, Some(round.to_be_bytes().to_vec()));
        pairs += 1;
    }
    Ok(pairs)
}

fn history_is_empty(env: &Env) -> bool {
    env.engine.dicts.iter().all(|dict| dict.state.read().history.is_empty())
}

#[test]
fn a_view_begins_and_ends_without_a_read_a_write_or_a_trace() {
    let env = env();
    put(&env, 0, 0..50).unwrap();
    let counts = |Stats { device_reads, device_writes, device_syncs, checkpoints, flushes, .. }: Stats| {
        [device_reads, device_writes, device_syncs, checkpoints, flushes]
    };
    let before = counts(env.stats());
    let view = env.view();
    assert_eq!(read(&view, 0).unwrap(), 50);
    drop(view);
    assert_eq!(counts(env.stats()), before);
    let frozen = env.engine.dicts.iter().map(|dict| dict.state.read().frozen.len()).sum::<usize>();
    assert!(history_is_empty(&env) && frozen == 0);
}

#[test]
fn a_view_that_is_ended_reads_nothing_more_and_holds_nothing() {
    let env = env();
    put(&env, 0, 0..KEYS).unwrap();
    let [ended, other] = [env.view(), env.view()];
    put(&env, 1, 0..KEYS).unwrap();
    assert!(!history_is_empty(&env));
    let mut cursor = ended.cursor(D, Cut::LOW, Cut::HIGH);
    assert!(cursor.next().unwrap().is_some());
    ended.end();
    ended.end();
    assert_eq!(ended.get(D, &1u32.to_be_bytes()), Err(Error::ViewEnded));
    cursor.seek(&Cut::before(1000u32.to_be_bytes()));
    assert_eq!(cursor.next(), Err(Error::ViewEnded));
    assert_eq!(read(&other, 0).unwrap(), KEYS, "another view of the same moment lasts");
    other.end();
    assert!(history_is_empty(&env));
    assert_eq!(read(&env.view(), 1).unwrap(), KEYS);
}

#[test]
fn a_view_over_much_overwriting_stays_within_memory_and_space() {
    let env = env();
    put(&env, 0, 0..KEYS).unwrap();
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let used_at_begin = env.space().used_bytes;
    let view = env.view();
    let checkpoints_before = env.stats().checkpoints;
    for round in 1..6 {
        put(&env, round, 0..KEYS).unwrap();
        assert!(env.stats().cache_bytes <= CACHE_BYTES as u64 * 2, "{:?}", env.stats());
    }
    let memtables = env.engine.dicts.iter().map(|dict| dict.state.read().history.memtables_len());
    assert!(memtables.max() <= Some(3), "memtables that came after the view are not kept");
    let checkpoints = env.stats().checkpoints - checkpoints_before;
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    // The view holds what was there, and the newest takes as much. Deletes that are not carried out take
    // more.
    let used = env.space().used_bytes;
    assert!(used < used_at_begin * 3, "{used} of {used_at_begin}");
    assert_eq!(read(&view, 0).unwrap(), KEYS);
    let last = env.view();
    assert_eq!(read(&last, 5).unwrap(), KEYS);
    drop(view);
    drop(last);
    assert!(history_is_empty(&env));
    env.checkpoint().unwrap();
    env.checkpoint().unwrap();
    let mut problems = Vec::new();
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");

    // As many checkpoints as without a view, but for a few.
    let without = self::env();
    put(&without, 0, 0..KEYS).unwrap();
    let before = without.stats().checkpoints;
    (1..6).for_each(|round| put(&without, round, 0..KEYS).unwrap());
    let without = without.stats().checkpoints - before;
    assert!(checkpoints <= without + without / 4 + 2, "{checkpoints} checkpoints, {without} without a view");
}

#[test]
fn idle_views_add_no_checkpoint_and_no_byte_written() {
    let [with, without] = [1000, 0].map(|views| {
        let env = env();
        put(&env, 0, 0..KEYS).unwrap();
        let before = env.stats();
        let views: Vec<View> = (0..views).map(|_| env.view()).collect();
        put(&env, 1, 0..KEYS / 4).unwrap();
        let after = env.stats();
        assert_eq!(
            views.first().map_or(Ok(0), |view| read(view, 0)).unwrap(),
            if views.is_empty() { 0 } else { KEYS }
        );
        (after.checkpoints - before.checkpoints, after.device_write_bytes - before.device_write_bytes)
    });
    assert_eq!(with.0, without.0);
    // Versions that would be written by a later checkpoint as well.
    assert!(with.1 <= without.1 * 5 / 4, "{with:?} {without:?}");
}

#[test]
fn where_space_is_short_a_view_ends_before_a_change_is_refused() {
    let env = env();
    put(&env, 0, 0..KEYS * 4).unwrap();
    let view = env.view();
    let mut rounds = 0;
    // Overwriting always fits where no view holds the old.
    for round in 1..12 {
        put(&env, round, 0..KEYS * 4).unwrap();
        match read(&view, 0) {
            Ok(pairs) => assert_eq!(pairs, KEYS * 4),
            Err(error) => {
                assert_eq!(error, Error::ViewEnded);
                break;
            }
        }
        rounds += 1;
    }
    assert!(rounds < 11, "the view never ended");
    assert!(history_is_empty(&env));
    assert_eq!(view.get(D, &1u32.to_be_bytes()), Err(Error::ViewEnded));
    assert!(env.view().get(D, &1u32.to_be_bytes()).unwrap().is_some());
}

#[test]
fn no_change_is_refused_for_want_of_space_that_only_a_view_holds() {
    const LARGE_BYTES: usize = 100 << 10;
    let env = env();
    put(&env, 0, 0..KEYS * 4).unwrap();
    let view = env.view();
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::LOW, &Cut::HIGH);
    env.commit(&batch).unwrap();
    // More than is free beside it. Without a worker, which would end the view before.
    for number in 0..KEYS * 2 * VALUE_BYTES as u32 / LARGE_BYTES as u32 * 2 {
        let mut batch = Batch::new();
        batch.put(D, &number.to_be_bytes(), &value_of(1, number, LARGE_BYTES));
        env.commit(&batch).unwrap();
    }
    assert_eq!(view.get(D, &1u32.to_be_bytes()), Err(Error::ViewEnded));
}

#[test]
fn versions_that_only_views_see_are_written_by_no_checkpoint_and_leave_memory() {
    const VIEWS: u32 = 150;
    const SEEN: u32 = 40;
    let env = env();
    let before = env.stats().checkpoints;
    // Six caches of versions that are replaced before a checkpoint comes, each seen by one view alone.
    let views: Vec<View> = (0..VIEWS)
        .map(|round| {
            put(&env, round, 0..SEEN).unwrap();
            assert!(env.stats().cache_bytes <= CACHE_BYTES as u64 / 2, "{:?}", env.stats());
            env.view()
        })
        .collect();
    // While such versions count as dirty, one checkpoint follows the other and writes nothing of them.
    let checkpoints = env.stats().checkpoints - before;
    assert!(checkpoints <= 5, "{checkpoints} checkpoints");
    for (round, view) in (0..).zip(&views) {
        assert_eq!(read(view, round).unwrap(), SEEN);
    }
    drop(views);
    assert!(history_is_empty(&env));
}

/// A sparse file on a disk that has room for so many blocks. Blocks that are written take room until they are
/// discarded.
struct Sparse {
    file: Arc<MemDevice>,
    blocks: Mutex<BTreeSet<u64>>,
    room_blocks: AtomicUsize,
}

fn blocks_of(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    let block = BLOCK_BYTES as u64;
    offset / block..(offset + len) / block
}

impl Device for Sparse {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> core::result::Result<(), DeviceError> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> core::result::Result<(), DeviceError> {
        let mut blocks = self.blocks.lock();
        let len = buf.len() as u64;
        let new = blocks_of(offset, len).filter(|block| !blocks.contains(block)).count();
        if new > 0 && blocks.len() + new > self.room_blocks.load(Ordering::Relaxed) {
            return Err(DeviceError { op: DeviceOp::Write, offset, len, errno: 28 });
        }
        blocks.extend(blocks_of(offset, len));
        self.file.write_at(offset, buf)
    }

    fn sync(&self) -> core::result::Result<(), DeviceError> {
        self.file.sync()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn seeks(&self) -> bool {
        false
    }

    fn discard(&self, offset: u64, len: u64) -> core::result::Result<(), DeviceError> {
        let mut blocks = self.blocks.lock();
        blocks_of(offset, len).for_each(|block| {
            blocks.remove(&block);
        });
        Ok(())
    }
}

/// An environment on a sparse file of 64 MiB, on a disk with so much more room than it takes when new.
fn sparse(room_bytes: usize) -> (Arc<Sparse>, Arc<Env>) {
    let geometry =
        Geometry { node_bytes: 16 << 10, basement_bytes: 2048, fanout_max: 8, log_bytes: 1 << 20, dicts: 2 };
    let file = MemDevice::new(16 << 10);
    Env::format(file.clone(), &geometry, [1; 16]).unwrap();
    let room_blocks = AtomicUsize::new(room_bytes / BLOCK_BYTES);
    let device = Arc::new(Sparse { file, blocks: Mutex::default(), room_blocks });
    let mut options = Options::new(CACHE_BYTES, Arc::new(Replace));
    options.discard = true;
    (device.clone(), Arc::new(Env::open(device, options).unwrap()))
}

#[test]
fn where_the_disk_under_the_device_is_full_views_end_and_no_change_is_refused() {
    // The pairs take about 1 MiB, and the log as much.
    let (device, env) = sparse(7 << 20);
    put(&env, 0, 0..KEYS).unwrap();
    let views: Vec<View> = (1..9)
        .map(|round| {
            let view = env.view();
            put(&env, round, 0..KEYS).unwrap();
            env.checkpoint().unwrap();
            view
        })
        .collect();
    let ended = |(round, view): (u32, &View)| read(view, round) == Err(Error::ViewEnded);
    let ended: Vec<bool> = (0..).zip(&views).map(ended).collect();
    assert!(
        ended.first() == Some(&true) && ended.is_sorted_by(|older, younger| older >= younger),
        "{ended:?}"
    );
    let last = views.last().unwrap();
    assert_eq!(read(last, 7).unwrap(), KEYS, "views that need not end last");
    // With less and less room that one ends too, and a sync is refused as little as a checkpoint.
    let mut room_blocks = device.blocks.lock().len();
    let ended = (9..40).find(|round| {
        room_blocks -= 32;
        device.room_blocks.store(room_blocks, Ordering::Relaxed);
        put(&env, *round, 0..KEYS).unwrap();
        env.sync().unwrap();
        read(last, 7) == Err(Error::ViewEnded)
    });
    assert_eq!(read(&env.view(), ended.unwrap()).unwrap(), KEYS);
}

#[test]
fn where_no_view_holds_room_of_a_full_disk_it_is_told_and_all_goes_on_once_there_is_room() {
    let (device, env) = sparse(4 << 20);
    let refused = (0..100).find_map(|round| {
        let numbers = round * KEYS..(round + 1) * KEYS;
        put(&env, 0, numbers).and_then(|()| env.sync()).err()
    });
    assert!(matches!(refused, Some(Error::DeviceFull(_))), "{refused:?}");
    let view = env.view();
    let pairs = read(&view, 0).unwrap();
    assert!(matches!(env.checkpoint(), Err(Error::DeviceFull(_))));
    assert_eq!(read(&view, 0).unwrap(), pairs, "a view that holds nothing does not end");
    device.room_blocks.store(usize::MAX, Ordering::Relaxed);
    env.checkpoint().unwrap();
    put(&env, 0, pairs..pairs + 1).unwrap();
    assert_eq!(read(&env.view(), 0).unwrap(), pairs + 1);
}

/// What the nodes of the trees take on the device, all of which are there.
fn device_bytes(env: &Env) -> u64 {
    let table = env.engine.table.lock();
    let extents = table.nodes().map(|(id, ..)| table.place(id).unwrap().extent.len_blocks());
    extents.sum::<u64>() * betree_platform::BLOCK_BYTES as u64
}

fn whole(view: &View) -> crate::usage::Usage {
    let of = |dict| view.usage(dict, &Cut::LOW, &Cut::HIGH).unwrap();
    let (d, other) = (of(D), of(OTHER));
    assert_eq!((d.stored_bytes, other.stored_bytes), (d.exclusive_bytes, other.exclusive_bytes));
    crate::usage::Usage {
        stored_bytes: d.stored_bytes + other.stored_bytes,
        exclusive_bytes: d.exclusive_bytes + other.exclusive_bytes,
    }
}

/// All work is done, and everything is on the device.
fn settle(env: &Env) {
    for _ in 0..2 {
        while env.run_due_work().unwrap() {}
        env.checkpoint().unwrap();
    }
}

#[test]
fn usage_is_what_the_nodes_take_on_the_device_and_is_told_without_a_write() {
    let env = env();
    put(&env, 0, 0..KEYS).unwrap();
    settle(&env);
    let counts = |Stats { device_writes, device_syncs, checkpoints, flushes, .. }: Stats| {
        [device_writes, device_syncs, checkpoints, flushes]
    };
    let before = counts(env.stats());
    assert_eq!(whole(&env.view()).stored_bytes, device_bytes(&env));
    // What is in memory alone counts as it is there.
    let was = whole(&env.view()).stored_bytes;
    let mut batch = Batch::new();
    (0..10u32).for_each(|number| batch.put(D, &(KEYS + number).to_be_bytes(), &[7; 900]));
    env.commit(&batch).unwrap();
    assert_eq!(whole(&env.view()).stored_bytes, was + 10 * 904);
    assert_eq!(counts(env.stats()), before);
    assert!(history_is_empty(&env));
}

#[test]
fn usage_is_as_of_the_views_moment_whatever_comes_meanwhile() {
    let env = env();
    put(&env, 0, 0..KEYS).unwrap();
    settle(&env);
    let view = env.view();
    let half = |view: &View| view.usage(D, &Cut::LOW, &Cut::before((KEYS / 2).to_be_bytes())).unwrap();
    let then = (whole(&view), half(&view));
    assert!(then.1.exclusive_bytes > then.0.stored_bytes / 3 && then.1.stored_bytes < then.0.stored_bytes);
    // A copy shares the nodes, and changes, splits and deletes make others of them.
    let mut batch = Batch::new();
    batch.clone_range(D, b"\0", b"copy");
    env.commit(&batch).unwrap();
    assert_eq!((whole(&view), half(&view)), then);
    let now = env.view();
    assert!(half(&now).exclusive_bytes < then.1.exclusive_bytes / 2, "the copy has the same nodes");
    put(&env, 1, (0..KEYS).step_by(3)).unwrap();
    assert_eq!((whole(&view), half(&view)), then);
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::LOW, &Cut::before(100u32.to_be_bytes()));
    batch.mark_freeing(1 << 20);
    env.commit(&batch).unwrap();
    env.reclaim().unwrap();
    settle(&env);
    assert_eq!((whole(&view), half(&view)), then);
    drop((view, now));
    assert!(history_is_empty(&env));
    assert_ne!(whole(&env.view()), then.0);
}
