//! Ingests: what they write, what they give back when they fail, and what a crash leaves of them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use betree::{Batch, Cut, DictId, Env, Error, Geometry, Isolation, Outcome};
use betree_platform::{Device, DeviceOp};
use betree_sim::{EIO, Fault, MemDevice, Rng, Setup, SimDisk, format_env, open_env, problems, settled_bytes};

const D: DictId = DictId(0);
const KIB: usize = 1 << 10;
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 64 << 10,
        basement_bytes: 8 << 10,
        fanout_max: 8,
        log_bytes: 4 << 20,
        dicts: 2,
    },
    cache_bytes: 2 << 20,
    volume_bytes: 64 << 20,
    seeks: true,
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
const VALUE_BYTES: usize = 200;

fn open(device: Arc<dyn Device>, setup: &Setup) -> Arc<Env> {
    Arc::new(open_env(&device, setup).unwrap())
}

fn new_env(setup: &Setup) -> (Arc<MemDevice>, Arc<Env>) {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    format_env(&(Arc::clone(&device) as Arc<dyn Device>), setup).unwrap();
    let env = open(device.clone(), setup);
    (device, env)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Bytes that do not compress.
fn value(number: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number));
    (0..VALUE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

type Pair = Result<([u8; 4], Vec<u8>), Error>;

fn pairs(numbers: impl Iterator<Item = u32>) -> impl Iterator<Item = Pair> {
    numbers.map(|number| Ok((key(number), value(number))))
}

fn put(env: &Env, number: u32, value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(D, &key(number), value);
    env.commit(&batch).unwrap();
}

fn all(env: &Env) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    std::iter::from_fn(|| cursor.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

fn expect(env: &Env, numbers: impl Iterator<Item = u32>) {
    let should: Vec<_> = numbers.map(|number| (key(number).to_vec(), value(number))).collect();
    assert!(all(env) == should, "{} pairs are there, {} should be", all(env).len(), should.len());
}

fn check(env: &Env) {
    let problems = problems(env).unwrap();
    assert_eq!(problems, [""; 0]);
}

#[test]
fn each_byte_is_written_once_and_none_to_the_log() {
    let (device, env) = new_env(&SETUP);
    let before = (device.counts(), env.stats());
    let ingested = env.ingest(D, pairs(0..100_000)).unwrap();
    env.sync().unwrap();
    let (cost, after) = (device.counts().since(&before.0), env.stats());
    let bytes = ingested.pair_bytes;
    assert_eq!((ingested.pairs, bytes), (100_000, 100_000 * (4 + VALUE_BYTES as u64)));
    let stored = env.view().usage(D, &Cut::LOW, &Cut::HIGH).unwrap().stored_bytes;
    assert!(
        stored > bytes && stored < bytes / 5 * 6,
        "17 bytes for each pair, and the rest of last blocks: {stored}"
    );
    assert!(cost.write_bytes <= stored / 100 * 101, "{} bytes were written for {stored}", cost.write_bytes);
    assert!(ingested.written_bytes <= cost.write_bytes && ingested.written_bytes > bytes, "{ingested:?}");
    assert_eq!(after.log_write_bytes, before.1.log_write_bytes, "nothing is logged");
    assert_eq!(after.flushes, before.1.flushes, "nothing goes down the tree");
    assert_eq!(after.checkpoints, before.1.checkpoints + 1, "the sync is a checkpoint");
    // An append behind it costs the same.
    let before = device.counts();
    let appended = env.ingest(D, pairs(100_000..150_000)).unwrap();
    env.sync().unwrap();
    let cost = device.counts().since(&before);
    assert!(cost.write_bytes <= appended.pair_bytes / 5 * 6, "{cost:?}");
    assert!(cost.read_bytes < 64 << 10, "some nodes above leaves are read, and no more: {cost:?}");
    expect(&env, 0..150_000);
    check(&env);
}

#[test]
fn its_memory_does_not_depend_on_the_number_of_pairs() {
    let (_, env) = new_env(&SETUP);
    let mut most_bytes = 0;
    let numbers = (0..150_000).inspect(|_| most_bytes = most_bytes.max(env.stats().cache_bytes));
    let before = env.stats().cache_bytes;
    env.ingest(D, pairs(numbers)).unwrap();
    assert!(most_bytes <= before + 64 * KIB as u64, "{most_bytes} bytes in the cache, {before} before");
}

#[test]
fn pairs_between_stay_and_the_ingested_one_of_two_wins() {
    let (_, env) = new_env(&SETUP);
    env.ingest(D, pairs((0..20_000).map(|number| number * 2))).unwrap();
    // Some in memory alone, others in leaves; odd ones stay, even ones are replaced.
    for number in [1, 7, 4_001, 39_997] {
        put(&env, number, &value(number));
    }
    put(&env, 10, b"older");
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::before(key(20_000)), &Cut::before(key(30_000)));
    env.commit(&batch).unwrap();
    let ingested = env.ingest(D, pairs((5..20_000).map(|number| number * 2))).unwrap();
    let mut should: Vec<u32> = (0..20_000).map(|number| number * 2).chain([1, 7, 4_001, 39_997]).collect();
    should.sort_unstable();
    expect(&env, should.iter().copied());
    let once = ingested.pair_bytes;
    assert!(ingested.written_bytes > once * 2 && ingested.written_bytes < once * 5 / 2, "{ingested:?}");
    check(&env);
    env.close().unwrap();
    drop(env);
}

#[test]
fn a_pending_upsert_below_an_ingested_pair_is_gone() {
    let (_, env) = new_env(&SETUP);
    for number in [3, 500] {
        let mut batch = Batch::new();
        batch.upsert(D, &key(number), b"delta");
        env.commit(&batch).unwrap();
    }
    env.ingest(D, pairs((0..1000).filter(|number| *number != 500))).unwrap();
    assert_eq!(env.get(D, &key(3)).unwrap(), Some(value(3)), "the ingested pair is a put");
    assert_eq!(env.get(D, &key(500)).unwrap().as_deref(), Some(&b"delta"[..]), "one between stays");
}

#[test]
fn few_pairs_go_the_way_of_a_batch() {
    let (_, env) = new_env(&SETUP);
    let before = env.stats();
    let ingested = env.ingest(D, pairs(0..50)).unwrap();
    assert_eq!((ingested.pairs, ingested.written_bytes), (50, 0));
    env.sync().unwrap();
    let after = env.stats();
    assert!(after.log_writes > before.log_writes && after.checkpoints == before.checkpoints);
    expect(&env, 0..50);
    assert_eq!(env.ingest(D, pairs(0..0)).unwrap().pairs, 0);
}

/// What fails, and after how many pairs.
fn refused(pairs: impl Iterator<Item = Pair>, what: impl Fn(&Error) -> bool) {
    let (_, env) = new_env(&SETUP);
    put(&env, 77, b"was there");
    let before = settled_bytes(&env).unwrap();
    let error = env.ingest(D, pairs).unwrap_err();
    assert!(what(&error), "{error}");
    assert_eq!(all(&env), [(key(77).to_vec(), b"was there".to_vec())]);
    assert_eq!(settled_bytes(&env).unwrap(), before, "all space is given back");
    check(&env);
    // Its ids too: the next ingest is as good as the first.
    assert_eq!(env.ingest(D, self::pairs(0..5000)).unwrap().pairs, 5000);
    check(&env);
}

#[test]
fn what_is_refused_leaves_nothing() {
    let order = |position| move |error: &Error| *error == Error::NotInOrder { position };
    refused(pairs((0..9000).chain([8999])), order(9000));
    refused(pairs((0..9000).chain([17])), order(9000));
    refused(pairs([1, 1].into_iter()), order(1));
    let stopped = Error::BadIdentity("the caller's own");
    let fails = pairs(0..9000).chain([Err(stopped.clone())]);
    refused(fails, |error| *error == stopped);
    let large = vec![0; 1 << 20];
    refused(pairs(0..9000).chain([Ok((key(9001), large))]), |error| {
        matches!(error, Error::TooLarge { what: "a pair", bytes: 1_048_580, .. })
    });
    let (_, env) = new_env(&SETUP);
    let long = [Ok::<_, Error>((vec![1; betree::KEY_BYTES_MAX + 1], ""))];
    assert!(matches!(env.ingest(D, long), Err(Error::KeyTooLong { .. })));
    let unknown = env.ingest(DictId(2), pairs(0..10));
    assert_eq!(unknown, Err(Error::NoSuchDictionary { id: 2 }));
}

#[test]
fn a_full_disk_refuses_it_and_has_all_its_room_again() {
    let (_, env) = new_env(&SETUP);
    put(&env, u32::MAX, b"was there");
    let before = settled_bytes(&env).unwrap();
    let error = env.ingest(D, pairs(0..u32::MAX)).unwrap_err();
    assert_eq!(error, Error::NoSpace);
    // The node table keeps its pages.
    assert!(settled_bytes(&env).unwrap() <= before + 64 * KIB as u64, "{before}");
    assert_eq!(all(&env).len(), 1);
    // Three quarters of the volume fit, reserve and log aside.
    env.ingest(D, pairs(0..200_000)).unwrap();
    env.sync().unwrap();
    check(&env);
}

#[test]
fn failed_writes_leave_nothing_of_it() {
    let mut failed = 0;
    for number in 1.. {
        let (device, env) = new_env(&SMALL);
        let op = Some(DeviceOp::Write);
        device.set_fault(Some(Fault { at_call: number, op, errno: EIO, lasting: false }));
        let done = env.ingest(D, pairs(0..60));
        let found = all(&env).len();
        match done {
            Ok(_) => {
                assert_eq!(found, 60);
                break;
            }
            Err(Error::Device(_)) => assert_eq!(found, 0, "write {number}"),
            Err(error) => panic!("write {number}: {error}"),
        }
        failed += 1;
    }
    assert!(failed > 15, "each of {failed} writes failed once");
}

/// Ingests on a disk whose power fails at a call, and returns what the next opening finds.
fn crash_at(n: u64, setup: &Setup) -> (usize, bool, Arc<Env>) {
    let disk = Arc::new(SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks));
    format_env(&(Arc::clone(&disk) as Arc<dyn Device>), setup).unwrap();
    let env = open(disk.clone(), setup);
    put(&env, 1001, b"before");
    env.sync().unwrap();
    disk.cut_power_at(n);
    let done = env.ingest(D, pairs(0..60)).and_then(|_| {
        put(&env, 1002, b"behind");
        env.sync()
    });
    let is_durable = done.is_ok();
    assert!(is_durable || disk.is_cut(), "{done:?}");
    env.abandon();
    drop(env);
    let found = Arc::new(disk.crash(n));
    let env = open(found, setup);
    let here = all(&env);
    assert_eq!(here.iter().filter(|(key, _)| **key == self::key(1001)).count(), 1);
    (here.len() - 1, is_durable, env)
}

#[test]
fn a_crash_at_any_write_leaves_all_of_it_or_nothing_and_no_space() {
    let (mut with, mut without) = (0, 0);
    let mut free_without = None;
    for n in 1.. {
        let (found, is_durable, env) = crash_at(n, &SMALL);
        check(&env);
        match found {
            0 => {
                without += 1;
                let used = settled_bytes(&env).unwrap();
                assert_eq!(*free_without.get_or_insert(used), used, "call {n}");
            }
            // With it, or with the put behind it too: that one was made later.
            60 | 61 => with += 1,
            other => panic!("call {n}: {other} pairs"),
        }
        if is_durable {
            assert_eq!(found, 61, "call {n}");
            break;
        }
        assert!(found != 61 || with > 0);
    }
    assert!(without > 15 && with > 0, "{without} crashes before it was durable, {with} behind");
}

#[test]
fn views_and_transactions_from_before_do_not_see_it() {
    let (_, env) = new_env(&SETUP);
    put(&env, 500, b"old");
    let view = env.view();
    let mut reader = env.begin(Isolation::Serializable);
    let mut other = env.begin(Isolation::Serializable);
    assert_eq!(reader.get(D, &key(700)).unwrap(), None);
    assert_eq!(other.get(D, &key(5000)).unwrap(), None);
    env.ingest(D, pairs(0..2000)).unwrap();
    assert_eq!(view.get(D, &key(500)).unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(view.get(D, &key(700)).unwrap(), None);
    assert_eq!(reader.get(D, &key(701)).unwrap(), None);
    reader.put(D, b"r", b"").unwrap();
    other.put(D, b"o", b"").unwrap();
    let Outcome::Conflict(conflict) = reader.commit().unwrap() else { panic!("the key was ingested") };
    assert_eq!((conflict.dict, conflict.key), (D, key(700).to_vec()));
    assert!(matches!(other.commit().unwrap(), Outcome::Committed(_)), "outside of its keys");
    drop(view);
    check(&env);
}

/// One thread ingests again and again, while others put between its keys.
#[test]
fn threads_that_put_into_the_range_lose_nothing() {
    let (_, env) = new_env(&SETUP);
    let is_done = AtomicBool::new(false);
    let counts: Vec<u32> = thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u32)
            .map(|writer| {
                let (env, is_done) = (&env, &is_done);
                scope.spawn(move || {
                    let mut puts = 0;
                    // One at least, also where it has no turn before the end.
                    while puts == 0 || !is_done.load(Ordering::Relaxed) && puts < 3000 {
                        put(env, (puts * 2 + writer) * 2 + 1, b"between");
                        puts += 1;
                    }
                    puts
                })
            })
            .collect();
        for _ in 0..3 {
            env.ingest(D, pairs((0..6000).map(|number| number * 2))).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(counts.iter().all(|puts| *puts > 0), "{counts:?}");
    for (writer, puts) in (0..).zip(&counts) {
        for number in 0..*puts {
            let key = key((number * 2 + writer) * 2 + 1);
            assert!(env.get(D, &key).unwrap().is_some(), "put {number} of writer {writer}");
        }
    }
    assert_eq!(all(&env).len(), 6000 + counts.iter().sum::<u32>() as usize);
    check(&env);
}
