use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::{BLOCK_BYTES, Device};

use crate::batch::Batch;
use crate::debug::{Superblock, superblocks};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::health::{ErrorCount, ErrorRecord, State, Watcher};
use crate::io::mem::MemDevice;
use crate::settings::{DictId, Geometry, Options};
use crate::upsert::Replace;

const GEOMETRY: Geometry =
    Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 4, log_bytes: 256 << 10, dicts: 1 };

/// Where the nodes begin: behind superblocks and log.
const NODES_BYTE: usize = (16 << 10) + (256 << 10);

/// A clock that stands still.
struct At(i64);

impl Watcher for At {
    fn now_ns(&self) -> i64 {
        self.0
    }
    fn state_changed(&self, _: &State) {}
    fn work_failed(&self, _: &Error) {}
    fn copy_used(&self, _: &Error) {}
}

fn open_at(device: &Arc<MemDevice>, now_ns: i64) -> Env {
    let watcher = Some(Arc::new(At(now_ns)) as Arc<dyn Watcher>);
    Env::open(device.clone(), Options { watcher, ..Options::new(1 << 20, Arc::new(Replace)) }).unwrap()
}

fn volume() -> Arc<MemDevice> {
    let device = MemDevice::new(2048);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    device
}

fn put(env: &Env, number: u32) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(DictId(0), &number.to_be_bytes(), &seeded::bytes(number.into(), 0, 700));
    env.commit(&batch)
}

fn read(env: &Env, number: u32) -> Result<bool> {
    Ok(env.get(DictId(0), &number.to_be_bytes())? == Some(seeded::bytes(number.into(), 0, 700)))
}

fn stored(device: &Arc<MemDevice>) -> Superblock {
    superblocks(device.clone(), &mut |_| ()).unwrap().current.unwrap()
}

/// A closed volume of 40 pairs.
fn with_pairs() -> Arc<MemDevice> {
    let device = volume();
    let env = open_at(&device, 1);
    (0..40).for_each(|number| put(&env, number).unwrap());
    env.close().unwrap();
    device
}

/// How many of the pairs cannot be read.
fn unreadable(env: &Env) -> u64 {
    (0..40).filter(|number| read(env, *number).is_err()).count() as u64
}

#[test]
fn without_errors_nothing_is_written_and_no_tag_is_there() {
    let device = volume();
    let env = open_at(&device, 5);
    put(&env, 1).unwrap();
    env.sync().unwrap();
    let before = env.stats();
    env.keep_errors().unwrap();
    let after = env.stats();
    assert_eq!((before.device_writes, before.device_syncs), (after.device_writes, after.device_syncs));
    assert_eq!(env.errors(), ErrorRecord::default());
    env.close().unwrap();
    let superblock = stored(&device);
    assert!(superblock.tail.iter().all(|(tag, _)| tag != 5), "{:?}", superblock.tail);
    assert_eq!(superblock.errors(), ErrorRecord::default());
}

#[test]
fn checksum_errors_outlive_a_close() {
    let device = with_pairs();
    let env = open_at(&device, 100);
    (NODES_BYTE..device.len() as usize).step_by(BLOCK_BYTES).for_each(|block| device.flip((block + 600) * 8));
    let damaged = unreadable(&env);
    let errors = env.errors();
    assert!(damaged > 10 && errors.checksums.count >= damaged, "{damaged}: {errors:?}");
    assert_eq!((errors.checksums.first_ns, errors.checksums.last_ns), (100, 100));
    assert_eq!(errors.reads, ErrorCount::default());
    env.close().unwrap();
    assert_eq!(stored(&device).errors(), errors);
}

#[test]
fn read_errors_outlive_a_close_and_go_on_being_counted() {
    let device = with_pairs();
    let env = open_at(&device, 100);
    device.fail_reads_of(NODES_BYTE..device.len() as usize);
    let failed = unreadable(&env);
    let first = env.errors();
    assert!(failed > 10 && first.reads.count >= failed, "{failed}: {first:?}");
    assert_eq!(stored(&device).errors(), ErrorRecord::default(), "nothing is written for one error");
    env.close().unwrap();
    drop(env);
    assert_eq!(stored(&device).errors(), first);

    let whole = MemDevice::holding(device.bytes());
    let env = open_at(&whole, 200);
    assert_eq!(env.errors(), first);
    whole.fail_reads_of(NODES_BYTE..device.len() as usize);
    let again = unreadable(&env);
    let ErrorCount { count, first_ns, last_ns } = env.errors().reads;
    assert!(again > 10 && count >= first.reads.count + again, "{count}");
    assert_eq!((first_ns, last_ns), (100, 200));
}

#[test]
fn counts_are_kept_by_one_checkpoint_and_begun_anew_by_another() {
    let device = with_pairs();
    let env = open_at(&device, 7);
    device.fail_reads_of(NODES_BYTE..device.len() as usize);
    assert!(unreadable(&env) > 10);
    let before = env.stats();
    env.keep_errors().unwrap();
    assert_eq!(env.stats().checkpoints, before.checkpoints + 1);
    assert_eq!(stored(&device).errors(), env.errors());
    env.keep_errors().unwrap();
    assert_eq!(env.stats().checkpoints, before.checkpoints + 1, "they are on the volume already");
    env.reset_errors().unwrap();
    assert_eq!((env.errors(), stored(&device).errors()), Default::default());
    env.abandon();
    drop(env);
    let env = open_at(&MemDevice::holding(device.durable_bytes()), 8);
    assert_eq!(env.errors(), ErrorRecord::default());
}

#[test]
fn a_failed_write_or_sync_is_counted_and_its_note_is_tried_again() {
    for failing_sync in [false, true] {
        let device = volume();
        let env = open_at(&device, 70);
        put(&env, 1).unwrap();
        device.fail_writes(!failing_sync);
        device.fail_syncs(failing_sync);
        assert!(matches!(env.sync(), Err(Error::Device(_))));
        let before = env.stats();
        let refused = env.close();
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
        device.fail_writes(false);
        device.fail_syncs(false);
        // The first has failed, the third is not needed.
        env.keep_errors().unwrap();
        env.keep_errors().unwrap();
        assert_eq!(env.stats().device_writes, before.device_writes + 2);
        assert_eq!(stored(&device).errors(), env.errors());
        let errors = env.errors();
        let once = ErrorCount { count: 1, first_ns: 70, last_ns: 70 };
        let (failed, other) =
            if failing_sync { (errors.syncs, errors.writes) } else { (errors.writes, errors.syncs) };
        assert_eq!((failed, other), (once, ErrorCount::default()));
        assert_eq!(errors.read_only.map(|trouble| trouble.since_ns), Some(70));
        env.abandon();
    }
}

#[test]
fn the_note_of_a_failure_survives_and_a_torn_one_does_no_harm() {
    let device = volume();
    let env = open_at(&device, 70);
    (0..10).for_each(|number| put(&env, number).unwrap());
    env.sync().unwrap();
    env.checkpoint().unwrap();
    (10..20).for_each(|number| put(&env, number).unwrap());
    env.sync().unwrap();
    let last = stored(&device);
    put(&env, 20).unwrap();
    device.fail_syncs(true);
    assert!(matches!(env.sync(), Err(Error::Device(_))));
    device.fail_syncs(false);
    let (before, stats) = (device.durable_bytes(), env.stats());
    env.keep_errors().unwrap();
    let wrote = env.stats();
    assert_eq!(
        (wrote.device_writes, wrote.device_write_bytes, wrote.device_syncs),
        (stats.device_writes + 1, stats.device_write_bytes + BLOCK_BYTES as u64, stats.device_syncs + 1)
    );
    let errors = env.errors();
    let noted = stored(&device);
    assert_eq!((noted.generation, noted.errors()), (last.generation + 1, errors.clone()));
    assert_eq!((noted.table, noted.dicts, noted.log_start), (last.table, last.dicts, last.log_start));
    env.abandon();
    drop(env);
    let after = device.durable_bytes();
    let slot = (noted.generation & 1) as usize * 2 * BLOCK_BYTES;
    let changed: Vec<usize> = (0..after.len())
        .step_by(BLOCK_BYTES)
        .filter(|at| before[*at..at + BLOCK_BYTES] != after[*at..at + BLOCK_BYTES])
        .collect();
    // The sync made the record of the last change durable too.
    assert!(
        changed.contains(&slot) && changed.iter().filter(|at| **at < 16 << 10).count() == 1,
        "{changed:?}"
    );
    for sectors in 0..=8 {
        let mut bytes = before.clone();
        let torn = slot..slot + sectors * 512;
        bytes[torn.clone()].copy_from_slice(&after[torn]);
        let env = open_at(&MemDevice::holding(bytes), 80);
        assert!((0..20).all(|number| read(&env, number).unwrap()), "{sectors} sectors");
        let kept = env.errors();
        if sectors == 8 {
            assert_eq!(kept, errors);
            let why = kept.read_only.unwrap().why;
            assert!(why.contains("device sync"), "{why}");
        } else {
            assert_eq!(kept, ErrorRecord::default(), "{sectors} sectors");
        }
        let mut problems = Vec::new();
        env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        env.close().unwrap();
    }
}

#[test]
fn a_superblock_that_counts_by_its_first_copy_stays() {
    let device = volume();
    let env = open_at(&device, 70);
    put(&env, 1).unwrap();
    {
        let mut committed = env.checkpoint.lock();
        committed.is_half_stored = true;
    }
    env.engine.store.disk.health.fail("the second copy was not stored");
    let before = device.bytes();
    env.keep_errors().unwrap();
    assert!(device.bytes() == before);
    env.abandon();
}

#[test]
fn a_backup_has_no_errors() {
    let device = with_pairs();
    let env = Arc::new(open_at(&device, 7));
    env.engine.store.disk.health.count_error(crate::health::ErrorKind::Read);
    let mut backup = env.backup().unwrap();
    let mut copy = alloc::vec![0; device.len() as usize];
    while let Some((offset, piece)) = backup.next_piece().unwrap() {
        copy[offset as usize..offset as usize + piece.len()].copy_from_slice(piece);
    }
    assert_eq!(stored(&device).errors().reads.count, 1);
    assert_eq!(stored(&MemDevice::holding(copy)).errors(), ErrorRecord::default());
}
