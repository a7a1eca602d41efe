//! What operations cost, as counts of device calls and bytes: these do not depend on the machine.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use betree::{Batch, Cut, DictId, Env, Geometry};
use betree_platform::Device;
use betrfs_sim::harness::guarded;
use betrfs_sim::{Counts, MemDevice, Rng, Setup, format_env, open_env};

const D: DictId = DictId(0);
const MIB: usize = 1 << 20;
/// Nodes of a real shape, scaled to a sixteenth.
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 256 << 10,
        basement_bytes: 16 << 10,
        fanout_max: 16,
        log_bytes: 16 << 20,
        dicts: 3,
    },
    cache_bytes: 32 * MIB,
    volume_bytes: 512 << 20,
    seeks: true,
};
/// Keys and size of the volume that is larger than its cache.
const KEYS: u32 = 16 << 10;
const VALUE_BYTES: usize = 4096;

fn new_volume(setup: &Setup) -> (Arc<MemDevice>, Env) {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    format_env(&(Arc::clone(&device) as Arc<dyn Device>), setup).unwrap();
    let env = open(&device, setup);
    (device, env)
}

fn open(device: &Arc<MemDevice>, setup: &Setup) -> Env {
    open_env(&(Arc::clone(device) as Arc<dyn Device>), setup).unwrap()
}

fn commit(env: &Env, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    env.throttle(batch.bytes()).unwrap();
    env.commit(&batch).unwrap();
}

fn key(number: u32) -> [u8; 12] {
    let mut key = *b"/dir/...0000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u32) -> Vec<u8> {
    value_of(number, VALUE_BYTES)
}

fn value_of(number: u32, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number));
    (0..len / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// 64 MiB in order, closed.
fn large_volume() -> Arc<MemDevice> {
    large_volume_of(&SETUP)
}

fn large_volume_of(setup: &Setup) -> Arc<MemDevice> {
    let (device, env) = new_volume(setup);
    for number in 0..KEYS {
        commit(&env, |batch| batch.put(D, &key(number), &value(number)));
    }
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    device
}

fn cost(device: &MemDevice, body: impl FnOnce()) -> Counts {
    let before = device.counts();
    body();
    device.counts().since(&before)
}

#[test]
fn ten_thousand_small_puts_read_nothing() {
    let (device, env) = new_volume(&SETUP);
    let mut rng = Rng::new(1);
    let puts = cost(&device, || {
        for _ in 0..10_000 {
            let value = vec![rng.next_u64() as u8; rng.between(100, 200)];
            commit(&env, |batch| batch.put(D, &rng.next_u64().to_be_bytes(), &value));
        }
    });
    assert_eq!(puts.reads, 0, "{puts:?}");
}

#[test]
fn what_a_range_delete_hides_is_not_read_by_scans_wherever_it_waits() {
    let device = large_volume();
    let env = open(&device, &SETUP);
    let (lo, hi) = (Cut::before(key(100)), Cut::before(key(KEYS - 100)));
    commit(&env, |batch| batch.delete_range(D, &lo, &hi));
    commit(&env, |batch| batch.put(D, &key(KEYS / 2), b"later"));
    for place in ["in the memtable", "at the root"] {
        let scanned = cost(&device, || {
            let mut cursor = env.cursor(D, lo.clone(), hi.clone());
            assert_eq!(cursor.next().unwrap(), Some((&key(KEYS / 2)[..], &b"later"[..])));
            assert_eq!(cursor.next().unwrap(), None);
            assert_eq!(cursor.prev().unwrap(), Some((&key(KEYS / 2)[..], &b"later"[..])));
            assert_eq!(cursor.prev().unwrap(), None);
        });
        assert!(scanned.read_bytes < MIB as u64, "{place}: {scanned:?}");
        env.checkpoint().unwrap();
    }
}

#[test]
fn an_fsync_is_one_write_and_one_sync() {
    let (device, env) = new_volume(&SETUP);
    for number in 0..20 {
        let synced = cost(&device, || {
            commit(&env, |batch| batch.put(D, &key(number), &[7; 150]));
            env.sync().unwrap();
        });
        assert_eq!((synced.reads, synced.writes, synced.syncs), (0, 1, 1), "sync {number}: {synced:?}");
    }
    let idle = cost(&device, || env.sync().unwrap());
    assert_eq!((idle.reads, idle.writes, idle.syncs), (0, 0, 0), "nothing to make durable");
}

#[test]
fn random_updates_of_data_on_the_disk_read_none_of_it() {
    let device = large_volume();
    // Room for the buffers of the interior nodes, and for an eighth of the data.
    let env = open(&device, &Setup { cache_bytes: 8 * MIB, ..SETUP });
    let mut rng = Rng::new(2);
    let mut update = |count: usize| {
        cost(&device, || {
            for _ in 0..count {
                let number = rng.below(KEYS as usize) as u32;
                commit(&env, |batch| batch.upsert(D, &key(number), b"new!"));
            }
        })
    };
    // The interior nodes come in once.
    let warm = update(5000);
    let leaves = KEYS as usize * VALUE_BYTES / SETUP.geometry.node_bytes as usize;
    assert!(warm.reads < leaves as u64 / 4, "as few reads as there are interior nodes: {warm:?}");
    let updates = update(10_000);
    assert_eq!(updates.reads, 0, "{updates:?}");
}

/// What a file server does: files of 32 KiB that are written anew all over the volume.
#[test]
fn where_nothing_seeks_leaves_are_written_in_part() {
    let load = |seeks: bool| {
        let setup = Setup { cache_bytes: 8 * MIB, seeks, ..SETUP };
        let device = large_volume_of(&setup);
        let env = open(&device, &setup);
        let mut rng = Rng::new(3);
        let mut expected: Vec<u32> = (0..KEYS).collect();
        let cost = cost(&device, || {
            for round in 1..1500 {
                let first = rng.below(KEYS as usize / 8) as u32 * 8;
                commit(&env, |batch| {
                    for number in first..first + 8 {
                        expected[number as usize] = number + round * KEYS;
                        batch.put(D, &key(number), &value(expected[number as usize]));
                    }
                });
                while env.run_due_work().unwrap() {}
            }
            env.checkpoint().unwrap();
        });
        let kept_bytes = env.stats().kept_bytes;
        env.check(&mut |found| panic!("{found:?}"), &mut |_, _| ()).unwrap();
        let used_bytes = env.space().used_bytes;
        env.close().unwrap();
        // As another opens it, from what the node table says.
        let env = open(&device, &SETUP);
        let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
        for number in 0..KEYS {
            let (found, bytes) = all.next().unwrap().unwrap();
            assert_eq!((found, bytes), (&key(number)[..], &value(expected[number as usize])[..]));
        }
        assert_eq!(all.next().unwrap(), None);
        (cost, kept_bytes, used_bytes)
    };
    let (whole, none_kept, whole_bytes) = load(true);
    let (part, kept_bytes, part_bytes) = load(false);
    assert_eq!(none_kept, 0);
    assert!(kept_bytes > part.write_bytes, "{kept_bytes} bytes stayed, {part:?}");
    assert!(part.write_bytes * 2 < whole.write_bytes, "{part:?}, whole: {whole:?}");
    assert!(part.read_bytes * 2 < whole.read_bytes, "{part:?}, whole: {whole:?}");
    assert!(
        part_bytes < whole_bytes / 8 * 9,
        "{part_bytes} bytes used, {whole_bytes} where all is in one place"
    );
}

/// Small updates all over a volume, with a checkpoint after every hundred: each comes to partitions of the
/// root that the checkpoint before has written.
#[test]
fn where_nothing_seeks_what_comes_to_a_partition_is_written_alone() {
    const ROUNDS: u32 = 40;
    const UPDATES: u32 = 100;
    let load = |seeks: bool| {
        let setup = Setup { seeks, ..SETUP };
        let device = large_volume_of(&setup);
        let env = open(&device, &setup);
        let mut rng = Rng::new(5);
        let mut expected: Vec<(usize, u32)> = (0..KEYS).map(|number| (VALUE_BYTES, number)).collect();
        let cost = cost(&device, || {
            for round in 1..=ROUNDS {
                for _ in 0..UPDATES {
                    let number = rng.below(KEYS as usize) as u32;
                    let (len, seed) = (50, number + round * KEYS);
                    expected[number as usize] = (len, seed);
                    commit(&env, |batch| batch.put(D, &key(number), &value(seed)[..len]));
                }
                env.checkpoint().unwrap();
            }
        });
        env.check(&mut |found| panic!("{found:?}"), &mut |_, _| ()).unwrap();
        env.close().unwrap();
        let env = open(&device, &SETUP);
        for (number, (len, seed)) in (0..KEYS).zip(expected) {
            assert_eq!(env.get(D, &key(number)).unwrap().unwrap(), &value(seed)[..len], "of {number}");
        }
        cost
    };
    let (whole, alone) = (load(true), load(false));
    assert!(alone.write_bytes * 2 < whole.write_bytes, "{alone:?}, whole: {whole:?}");
    assert!(alone.read_bytes <= whole.read_bytes, "{alone:?}, whole: {whole:?}");
}

/// Small pairs that come at random to leaves that are there: their pairs are not looked at for each.
#[test]
fn where_nothing_seeks_what_comes_to_a_leaf_is_written_alone() {
    const PAIRS: u32 = 80_000;
    const SMALL_BYTES: usize = 200;
    let load = |seeks: bool| {
        let setup = Setup { cache_bytes: 4 * MIB, seeks, ..SETUP };
        let (device, env) = new_volume(&setup);
        let mut rng = Rng::new(7);
        let mut expected = BTreeMap::new();
        let cost = cost(&device, || {
            for number in 0..PAIRS {
                let (new, value) = (rng.next_u64().to_be_bytes(), value_of(number, SMALL_BYTES));
                commit(&env, |batch| batch.put(D, &new, &value));
                expected.insert(new, value);
                while env.run_due_work().unwrap() {}
            }
            env.checkpoint().unwrap();
        });
        env.check(&mut |found| panic!("{found:?}"), &mut |_, _| ()).unwrap();
        env.close().unwrap();
        let env = open(&device, &SETUP);
        let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
        for (key, value) in &expected {
            assert_eq!(all.next().unwrap().unwrap(), (&key[..], &value[..]));
        }
        assert_eq!(all.next().unwrap(), None);
        cost
    };
    let (whole, alone) = (load(true), load(false));
    assert!(alone.write_bytes * 2 < whole.write_bytes, "{alone:?}, whole: {whole:?}");
    assert!(alone.read_bytes * 2 < whole.read_bytes, "{alone:?}, whole: {whole:?}");
}

/// What is overwritten again and again stays where it comes to, though it is there in several runs.
#[test]
fn what_is_overwritten_again_and_again_goes_no_further_down() {
    const ROUNDS: u32 = 50;
    let setup = Setup { seeks: false, ..SETUP };
    let device = large_volume_of(&setup);
    let env = open(&device, &setup);
    let mut read_bytes = 0;
    for round in 1..=ROUNDS {
        let cost = cost(&device, || {
            // A hundred kilobytes, where a node has room for 256.
            for number in (0..KEYS).step_by(KEYS as usize / 25) {
                commit(&env, |batch| batch.put(D, &key(number), &value(number + round * KEYS)));
            }
            while env.run_due_work().unwrap() {}
            env.checkpoint().unwrap();
        });
        // The first time, pages of the node table are read.
        read_bytes += if round > 1 { cost.read_bytes } else { 0 };
    }
    // Every round a memtable comes to the root.
    assert_eq!(env.stats().flushes, u64::from(ROUNDS));
    assert_eq!(read_bytes, 0);
    assert_eq!(env.get(D, &key(0)).unwrap().unwrap(), value(ROUNDS * KEYS));
}

/// What comes to a partition that is not in memory waits for no read of it.
#[test]
fn what_comes_to_a_partition_on_the_device_does_not_read_it() {
    let setup = Setup { seeks: false, cache_bytes: 4 * MIB, ..SETUP };
    let device = large_volume_of(&setup);
    let env = open(&device, &setup);
    let put_all_over = |round: u32| {
        for number in (0..KEYS).step_by(64) {
            commit(&env, |batch| batch.put(D, &key(number), &value(round)[..50]));
        }
        env.checkpoint().unwrap();
    };
    put_all_over(1);
    // Sixteen times what the cache holds goes through it.
    let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
    while all.next().unwrap().is_some() {}
    drop(all);
    assert_eq!(cost(&device, || put_all_over(2)).reads, 0);
    let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
    for number in 0..KEYS {
        let (len, seed) = if number % 64 == 0 { (50, 2) } else { (VALUE_BYTES, number) };
        assert_eq!(all.next().unwrap(), Some((&key(number)[..], &value(seed)[..len])));
    }
}

#[test]
fn a_full_scan_reads_what_is_there_and_little_more() {
    let device = large_volume();
    let env = open(&device, &SETUP);
    let space = env.space();
    let mut found = 0;
    let scan = cost(&device, || {
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        while let Some((found_key, found_value)) = cursor.next().unwrap() {
            assert_eq!(found_key, key(found));
            assert_eq!(found_value.len(), VALUE_BYTES);
            found += 1;
        }
    });
    assert_eq!(found, KEYS);
    let used = space.total_bytes - space.free_bytes;
    assert!(scan.read_bytes <= used + used / 10, "{scan:?} of {used} bytes in use");
    assert!(used as usize <= KEYS as usize * VALUE_BYTES * 3 / 2, "{used} bytes in use for 64 MiB");
}

/// Does it while others read ahead.
fn helped(env: &Env, body: impl FnOnce()) {
    thread::scope(|scope| {
        let helpers = [(); 2].map(|()| scope.spawn(|| env.run_readahead()));
        // However it ends, the helpers have to.
        let done = guarded("what is helped", || {
            body();
            Ok(())
        });
        env.stop();
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
        done.unwrap();
    });
}

#[test]
fn a_scan_that_others_read_ahead_of_finds_the_same_with_fewer_reads() {
    const KEYS_AT_A_TIME: u32 = 32;
    let device = large_volume();
    let scan = |env: &Env, pause: Duration| {
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        for number in 0..KEYS {
            let found = cursor.next().unwrap();
            assert!(found == Some((&key(number), &value(number))), "{number} is not what was put");
            if number.is_multiple_of(KEYS_AT_A_TIME) {
                thread::sleep(pause);
            }
        }
        assert!(cursor.next().unwrap().is_none());
    };
    let env = open(&device, &SETUP);
    let alone = cost(&device, || scan(&env, Duration::ZERO));
    drop(env);
    let env = open(&device, &SETUP);
    let helped = cost(&device, || {
        // So slowly that the helpers, and not the schedule, are what is looked at.
        helped(&env, || scan(&env, Duration::from_millis(2)));
    });
    assert!(helped.read_bytes <= alone.read_bytes / 20 * 21, "{helped:?}, {alone:?} without");
    assert!(helped.reads < alone.reads / 3, "{helped:?}, {alone:?} without");
}

#[test]
fn a_point_query_reads_a_piece_of_each_node_on_its_path() {
    let device = large_volume();
    // Data of 256 nodes under a fan-out of 16: an interior level or two under the root, and leaves.
    const PATH_NODES_MAX: u64 = 4;
    let mut rng = Rng::new(3);
    for _ in 0..20 {
        let env = open(&device, &SETUP);
        let number = rng.below(KEYS as usize) as u32;
        let get = cost(&device, || assert_eq!(env.get(D, &key(number)).unwrap(), Some(value(number))));
        // A node's directory and one piece of it.
        assert!(get.reads <= 2 * PATH_NODES_MAX, "{get:?}");
        let piece = u64::from(SETUP.geometry.node_bytes) / 4;
        assert!(get.read_bytes <= PATH_NODES_MAX * piece, "{get:?}");
    }
}

/// Splits leave nodes well filled, also where all that comes is behind all that is there.
#[test]
fn what_was_put_in_order_or_at_random_takes_little_more_than_it_is() {
    let geometry = Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 6, ..SETUP.geometry };
    let setup = Setup { geometry, cache_bytes: 256 << 10, volume_bytes: 64 << 20, seeks: true };
    let mut rng = Rng::new(7);
    for random in [false, true] {
        let (_, env) = new_volume(&setup);
        let empty = env.space().used_bytes;
        const PAIRS: u32 = 20_000;
        const PAIR_BYTES: u64 = 4 + 80;
        for number in 0..PAIRS {
            let key = if random { rng.next_u64() as u32 } else { number };
            commit(&env, |batch| batch.put(D, &key.to_be_bytes(), &value(number)[..80]));
        }
        env.checkpoint().unwrap();
        let mut nodes = 0;
        env.check(&mut |found| panic!("{found:?}"), &mut |_, total| nodes = total).unwrap();
        // Nodes are not compressible, end within a block, and are two thirds full after splits.
        let (used, bytes) = (env.space().used_bytes - empty, u64::from(PAIRS) * PAIR_BYTES);
        assert!(used < bytes * 3, "random {random}: {used} bytes for {bytes}, in {nodes} nodes");
        assert!(nodes < 3 * bytes / 4096, "random {random}: {nodes} nodes for {bytes} bytes");
    }
}

/// Reading on pays only for whoever goes on.
#[test]
fn a_short_scan_reads_a_few_times_what_it_gives() {
    let device = large_volume();
    let env = open(&device, &Setup { cache_bytes: 4 * MIB, ..SETUP });
    // A volume's headers and roots are in memory after the first queries.
    for number in (0..KEYS).step_by(64) {
        env.get(D, &key(number)).unwrap();
    }
    let mut rng = Rng::new(3);
    const SCANS: u64 = 200;
    const PAIRS: u32 = 8;
    let scans = cost(&device, || {
        for _ in 0..SCANS {
            let from = rng.below((KEYS - PAIRS) as usize) as u32;
            let mut cursor = env.cursor(D, Cut::before(key(from)), Cut::before(key(from + PAIRS)));
            for number in from..from + PAIRS {
                assert_eq!(cursor.next().unwrap().map(|(k, _)| k.to_vec()), Some(key(number).to_vec()));
            }
        }
    });
    let given = SCANS * u64::from(PAIRS) * VALUE_BYTES as u64;
    assert!(scans.read_bytes < given * 4, "{} bytes were read to give {given}: {scans:?}", scans.read_bytes);
}

/// The most that was dirty while it was done, as often as that could be asked.
fn most_dirty_bytes(env: &Env, body: impl FnOnce()) -> u64 {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(env.stats().dirty_bytes);
            }
            most
        });
        let done = guarded("what makes dirty", || {
            body();
            Ok(())
        });
        is_done.store(true, Ordering::Relaxed);
        done.unwrap();
        most.join().unwrap()
    })
}

#[test]
fn deletions_all_over_give_their_space_back_in_the_memory_that_there_is() {
    let device = large_volume();
    let setup = Setup { cache_bytes: 4 * MIB, ..SETUP };
    let env = open(&device, &setup);
    let free_before = env.space().free_bytes;
    for first in (0..KEYS).step_by(64) {
        commit(&env, |batch| {
            batch.mark_freeing(32 * VALUE_BYTES as u64);
            (first..first + 64).step_by(2).for_each(|number| batch.delete(D, &key(number)));
        });
    }
    let spent = cost(&device, || {
        let most = most_dirty_bytes(&env, || env.reclaim().unwrap());
        assert!(most <= 2 * setup.cache_bytes as u64, "{most} bytes were dirty");
    });
    let freed = env.space().free_bytes - free_before;
    assert!(freed > u64::from(KEYS) * VALUE_BYTES as u64 * 2 / 5, "{freed} bytes came back");
    // Whatever it takes in parts: each leaf, its header and what its parent has for it once.
    let leaves = u64::from(KEYS) * VALUE_BYTES as u64 / u64::from(SETUP.geometry.node_bytes);
    assert!(spent.reads < leaves * 4, "{spent:?} for {leaves} leaves");
    assert!(spent.read_bytes < u64::from(KEYS) * VALUE_BYTES as u64 * 5 / 4, "{spent:?}");
    assert!(spent.write_bytes < u64::from(KEYS) * VALUE_BYTES as u64, "{spent:?}");
}

/// Files of the same size, each read whole, in an order: the cost, others reading ahead.
fn cost_of_files(order: impl Iterator<Item = u32>) -> Counts {
    let device = large_volume();
    let env = open(&device, &Setup { cache_bytes: 4 * MIB, ..SETUP });
    // A volume's headers and roots are in memory after the first queries.
    for number in (0..KEYS).step_by(64) {
        env.get(D, &key(number)).unwrap();
    }
    cost(&device, || {
        helped(&env, || {
            for file in order {
                let (lo, hi) = (Cut::before(key(file * FILE_KEYS)), Cut::before(key((file + 1) * FILE_KEYS)));
                let mut cursor = env.cursor(D, lo.clone(), hi.clone()).part_of(lo, hi);
                for number in file * FILE_KEYS..(file + 1) * FILE_KEYS {
                    assert!(cursor.next().unwrap() == Some((&key(number), &value(number))), "{number}");
                }
                // So slowly that the helpers do what they are asked.
                thread::sleep(Duration::from_millis(2));
            }
        });
    })
}

/// Six basements.
const FILE_KEYS: u32 = 24;
const FILE_BYTES: u64 = FILE_KEYS as u64 * VALUE_BYTES as u64;
const FILES: u32 = 100;

#[test]
fn a_file_somewhere_is_read_at_once_and_nothing_around_it() {
    let mut rng = Rng::new(3);
    let files = cost_of_files((0..FILES).map(|_| rng.below((KEYS / FILE_KEYS) as usize) as u32));
    let given = u64::from(FILES) * FILE_BYTES;
    assert!(files.read_bytes < given / 10 * 11, "{} bytes were read to give {given}", files.read_bytes);
    // Some lie in two leaves, each with its header.
    assert!(files.reads < u64::from(FILES) * 5 / 2, "{files:?}");
}

#[test]
fn files_in_order_are_read_ahead_of() {
    let files = cost_of_files(0..FILES);
    let given = u64::from(FILES) * FILE_BYTES;
    assert!(files.read_bytes < given / 4 * 5, "{} bytes were read to give {given}", files.read_bytes);
    assert!(files.reads < u64::from(FILES) * 4 / 5, "{files:?}");
}
