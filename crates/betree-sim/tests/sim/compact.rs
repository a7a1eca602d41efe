//! Compactions: the form that they leave, what they write, what they leave alone, and full disks and crashes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::Arc;

use betree::{Batch, Compacted, Cut, DictId, Env, Error, Geometry};
use betree_platform::Device;
use betree_sim::{Counts, MemDevice, Rng, Setup, SimDisk, format_env, open_env, problems, settled_bytes};

const D: DictId = DictId(0);
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 64 << 10,
        basement_bytes: 8 << 10,
        fanout_max: 8,
        log_bytes: 4 << 20,
        dicts: 1,
    },
    cache_bytes: 2 << 20,
    volume_bytes: 128 << 20,
    seeks: false,
};
/// Small nodes, so that few pairs make a tree of several levels.
const SMALL: Setup = Setup {
    geometry: Geometry {
        node_bytes: 1024,
        basement_bytes: 256,
        fanout_max: 4,
        log_bytes: 256 << 10,
        dicts: 1,
    },
    cache_bytes: 64 << 10,
    volume_bytes: 16 << 20,
    seeks: true,
};
const PAIRS: u32 = 60_000;

fn new_env(setup: &Setup) -> (Arc<MemDevice>, Arc<Env>) {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    format_env(&(Arc::clone(&device) as Arc<dyn Device>), setup).unwrap();
    let env = open(device.clone(), setup);
    (device, env)
}

fn open(device: Arc<dyn Device>, setup: &Setup) -> Arc<Env> {
    Arc::new(open_env(&device, setup).unwrap())
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Bytes that do not compress.
fn value(number: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number));
    (0..25).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn commit(env: &Env, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    env.throttle(batch.bytes()).unwrap();
    env.commit(&batch).unwrap();
}

fn whole(env: &Arc<Env>) -> Result<Compacted, Error> {
    env.compact(D, &Cut::LOW, &Cut::HIGH, |_| ControlFlow::Continue(()))
}

fn all(env: &Env) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    std::iter::from_fn(|| cursor.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

fn check(env: &Env) {
    let problems = problems(env).unwrap();
    assert_eq!(problems, [""; 0]);
}

/// Puts in random order, and deletes of every third pair.
fn aged(env: &Env) {
    let mut numbers: Vec<u32> = (0..PAIRS).collect();
    let mut rng = Rng::new(5);
    (1..numbers.len()).rev().for_each(|at| numbers.swap(at, rng.below(at + 1)));
    for (round, many) in numbers.chunks(50).enumerate() {
        commit(env, |batch| many.iter().for_each(|number| batch.put(D, &key(*number), &value(*number))));
        if round % 20 == 19 {
            env.checkpoint().unwrap();
        }
    }
    for many in numbers.chunks(100) {
        let every_third = many.iter().filter(|number| number.is_multiple_of(3));
        commit(env, |batch| every_third.for_each(|number| batch.delete(D, &key(*number))));
    }
}

fn stays(number: &u32) -> bool {
    !number.is_multiple_of(3)
}

/// What a scan of all costs with nothing in memory.
fn cold_scan(device: &Arc<MemDevice>) -> Counts {
    let env = open(device.clone(), &SETUP);
    let before = device.counts();
    assert_eq!(all(&env).len(), (0..PAIRS).filter(stays).count());
    device.counts().since(&before)
}

#[test]
fn a_compacted_dictionary_is_as_one_that_was_ingested() {
    let (fresh, env) = new_env(&SETUP);
    let pairs = (0..PAIRS).filter(stays).map(|number| Ok::<_, Error>((key(number), value(number))));
    env.ingest(D, pairs).unwrap();
    let fresh_bytes = settled_bytes(&env).unwrap();
    env.close().unwrap();
    let (device, env) = new_env(&SETUP);
    aged(&env);
    let aged_bytes = settled_bytes(&env).unwrap();
    env.close().unwrap();
    drop(env);
    let (should, aged) = (cold_scan(&fresh), cold_scan(&device));
    assert!(
        aged.reads > should.reads * 2 || aged.read_bytes > should.read_bytes * 5 / 4,
        "{aged:?} {should:?}"
    );

    let env = open(device.clone(), &SETUP);
    let before = device.counts();
    let done = whole(&env).unwrap();
    let bytes = (0..PAIRS).filter(stays).count() as u64 * 204;
    assert!(done.steps > 10 && (done.shared, done.busy) == (0, 0), "{done:?}");
    assert!(done.written_bytes > bytes && done.written_bytes < bytes / 5 * 6, "{done:?} for {bytes}");
    env.sync().unwrap();
    let cost = device.counts().since(&before);
    assert!(cost.write_bytes < bytes / 2 * 3, "each byte is written once: {cost:?} for {bytes}");
    assert!(cost.read_bytes < aged.read_bytes * 2, "{cost:?}, a scan {aged:?}");
    let found: Vec<_> =
        (0..PAIRS).filter(stays).map(|number| (key(number).to_vec(), value(number))).collect();
    assert!(all(&env) == found);
    check(&env);
    let compact_bytes = settled_bytes(&env).unwrap();
    assert!(compact_bytes < aged_bytes, "{compact_bytes} bytes, {aged_bytes} before");
    assert!(compact_bytes < fresh_bytes / 20 * 21, "{compact_bytes} bytes, {fresh_bytes} if ingested");
    env.close().unwrap();
    drop(env);
    let compact = cold_scan(&device);
    assert!(compact.reads <= should.reads + should.reads / 10, "{compact:?}, ingested {should:?}");
    assert!(compact.read_bytes <= should.read_bytes / 10 * 11, "{compact:?}, ingested {should:?}");
}

#[test]
fn what_clones_share_is_left_alone() {
    let (_, env) = new_env(&SETUP);
    for number in 0..10_000 {
        commit(&env, |batch| batch.put(D, &[&b"a/"[..], &key(number)].concat(), &value(number)));
        commit(&env, |batch| batch.put(D, &[&b"c/"[..], &key(number)].concat(), &value(number)));
    }
    commit(&env, |batch| batch.clone_range(D, b"a/", b"b/"));
    let before = (settled_bytes(&env).unwrap(), all(&env));
    let part = |name: &str| env.view().usage(D, &Cut::before(name), &Cut::after(name)).unwrap();
    assert!(part("a/").exclusive_bytes < part("a/").stored_bytes / 5);
    let done = whole(&env).unwrap();
    assert!(done.shared > 0 && done.steps > 0, "{done:?}");
    let after_bytes = settled_bytes(&env).unwrap();
    // Copies of what is shared would be 2 MiB; leaves that were put in order are a little fuller.
    assert!(after_bytes <= before.0 + (256 << 10), "{after_bytes} bytes, {} before", before.0);
    assert!(part("a/").exclusive_bytes < part("a/").stored_bytes / 5, "still shared");
    assert!(all(&env) == before.1);
    assert!(done.written_bytes < 3 << 20, "{done:?}");
    commit(&env, |batch| batch.delete_range(D, &Cut::before("b/"), &Cut::after("b/")));
    settled_bytes(&env).unwrap();
    // The first one brings the delete down; what it frees is the dictionary's own for the second.
    for _ in 0..2 {
        whole(&env).unwrap();
        settled_bytes(&env).unwrap();
    }
    let usage = part("a/");
    assert_eq!(usage.exclusive_bytes, usage.stored_bytes);
    check(&env);
}

#[test]
fn views_see_what_they_saw() {
    let (_, env) = new_env(&SETUP);
    aged(&env);
    let view = env.view();
    let mut steps = 0;
    env.compact(D, &Cut::before(key(1000)), &Cut::before(key(40_000)), |_| {
        steps += 1;
        // Others change the range while a step is built: the step is tried again.
        if steps == 2 {
            commit(&env, |batch| batch.delete_range(D, &Cut::before(key(2000)), &Cut::before(key(39_000))));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    let is_there = |number: &u32| stays(number) && !(2000..39_000).contains(number);
    assert_eq!(all(&env).len(), (0..PAIRS).filter(is_there).count());
    let mut cursor = view.cursor(D, Cut::LOW, Cut::HIGH);
    for number in (0..PAIRS).filter(stays) {
        assert_eq!(cursor.next().unwrap(), Some((&key(number)[..], &value(number)[..])));
    }
    drop(cursor);
    drop(view);
    check(&env);
}

#[test]
fn its_caller_may_end_it_and_all_deleted_leaves_go() {
    let (_, env) = new_env(&SETUP);
    aged(&env);
    let before = all(&env).len();
    let stop =
        |done: &Compacted| if done.steps == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    assert_eq!(env.compact(D, &Cut::LOW, &Cut::HIGH, stop).unwrap().steps, 2);
    assert_eq!(all(&env).len(), before);
    let empty_bytes = settled_bytes(&new_env(&SETUP).1).unwrap();
    for number in 0..PAIRS {
        commit(&env, |batch| batch.delete(D, &key(number)));
    }
    whole(&env).unwrap();
    let left_bytes = settled_bytes(&env).unwrap();
    assert!(left_bytes < empty_bytes + (1 << 20), "{left_bytes} bytes are left, {empty_bytes} if empty");
}

#[test]
fn a_full_disk_refuses_it_and_has_the_same_contents() {
    let setup = Setup { volume_bytes: 16 << 20, ..SETUP };
    let (_, env) = new_env(&setup);
    let mut number = 0;
    loop {
        let mut batch = Batch::new();
        batch.put(D, &key(number), &value(number));
        match env.throttle(batch.bytes()).and_then(|()| env.commit(&batch)) {
            Ok(()) => number += 1,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let before = all(&env);
    assert_eq!(whole(&env), Err(Error::NoSpace));
    assert!(all(&env) == before && before.len() == number as usize);
    check(&env);
    commit(&env, |batch| batch.delete_range(D, &Cut::LOW, &Cut::before(key(number / 2))));
    let used_bytes = settled_bytes(&env).unwrap();
    let done = whole(&env);
    assert!(done.is_ok(), "{done:?}, {used_bytes} were used, {:?}", env.space());
    check(&env);
}

#[test]
fn a_crash_at_any_call_leaves_the_same_pairs() {
    let mut crashes = 0;
    for n in 1.. {
        let disk = Arc::new(SimDisk::new(SMALL.volume_bytes).which_seeks(SMALL.seeks));
        format_env(&(Arc::clone(&disk) as Arc<dyn Device>), &SMALL).unwrap();
        let env = open(disk.clone(), &SMALL);
        for number in 0..40 {
            commit(&env, |batch| batch.put(D, &key(number * 7 % 40), &value(number)));
        }
        env.sync().unwrap();
        let before = all(&env);
        disk.cut_power_at(n);
        let is_done = whole(&env).and_then(|_| env.sync()).is_ok();
        assert!(is_done || disk.is_cut());
        env.abandon();
        drop(env);
        let env = open(Arc::new(disk.crash(n)), &SMALL);
        assert!(all(&env) == before, "call {n}");
        check(&env);
        if is_done {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 20, "{crashes} crashes");
}
