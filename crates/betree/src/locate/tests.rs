//! Places of keys, held to the bytes of the device.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;

use super::*;
use crate::batch::Batch;
use crate::env::Env;
use crate::io::mem::MemDevice;
use crate::settings::{Compression, Geometry, Options};
use crate::upsert::Replace;

const D: DictId = DictId(0);

fn options() -> Options {
    Options { compression: Compression::None, ..Options::new(4 << 20, Arc::new(Replace)) }
}

/// A volume of 64 MiB with tiny nodes, whose runs are not compressed.
fn volume() -> (Arc<MemDevice>, Arc<Env>) {
    let geometry =
        Geometry { node_bytes: 8192, basement_bytes: 1024, fanout_max: 4, log_bytes: 4 << 20, dicts: 1 };
    let device = MemDevice::new(16 << 10);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    let env = Arc::new(Env::open(device.clone(), options()).unwrap());
    (device, env)
}

fn key(number: u64) -> Vec<u8> {
    format!("k{number:05}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let mut rng = seeded::Rng::new(number * 1000 + round);
    (0..40).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn located(env: &Arc<Env>, lo: &Cut, hi: &Cut) -> Vec<Located> {
    let mut all = Vec::new();
    env.view().locate(D, lo, hi, &mut |found| all.push(found)).unwrap();
    all
}

/// The bytes of a run as they are on the device.
fn bytes_of(device: &[u8], run: &StoredRun) -> Vec<u8> {
    let part = |(offset, len): &(u64, u64)| device[*offset as usize..(offset + len) as usize].to_vec();
    let bytes: Vec<u8> = run.places.iter().flat_map(part).collect();
    assert_eq!(
        (bytes.len() as u64, run.stored_as, run.stored_bytes),
        (run.stored_bytes, StoredAs::Raw, run.raw_bytes)
    );
    bytes
}

fn holds(device: &[u8], found: &Located, value: &[u8]) -> bool {
    found.runs.iter().any(|run| bytes_of(device, run).windows(value.len()).any(|window| window == value))
}

/// The newest place of a key among those that were found.
fn newest<'f>(found: &'f [Located], key: &[u8]) -> &'f Located {
    let shows = found.iter().filter(|found| !found.lo.is_above(key) && found.hi.is_above(key));
    shows.max_by_key(|found| found.level).unwrap()
}

#[test]
fn each_value_is_in_the_runs_that_are_told() {
    let (device, env) = volume();
    let mut rounds: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..12 {
        let mut batch = Batch::new();
        for number in (0..400).filter(|number| (number * 7 + round) % (round + 1) == 0) {
            batch.put(D, &key(number), &value(number, round));
            rounds.insert(number, round);
        }
        env.commit(&batch).unwrap();
        if round % 3 == 2 {
            env.checkpoint().unwrap();
        }
    }
    env.checkpoint().unwrap();
    let bytes = device.bytes();
    let found = located(&env, &Cut::LOW, &Cut::HIGH);
    let mut levels: Vec<Level> = rounds
        .iter()
        .map(|(number, round)| {
            let place = newest(&found, &key(*number));
            assert!(holds(&bytes, place, &value(*number, *round)), "{number} in round {round}: {place:?}");
            place.level
        })
        .collect();
    levels.sort_unstable();
    levels.dedup();
    assert!(levels.len() >= 2 && levels[0] == Level::Leaf, "{levels:?}");
    assert!(found.iter().all(|found| found.sharing == Sharing::Own));

    // What came since is in memory; a key that is deleted is not told.
    let mut batch = Batch::new();
    batch.put(D, &key(7), &value(7, 99));
    batch.delete(D, &key(8));
    env.commit(&batch).unwrap();
    let found = located(&env, &Cut::before(key(7)), &Cut::before(key(9)));
    let place = newest(&found, &key(7));
    assert_eq!((place.level, place.runs.len()), (Level::Memtable, 0));
    assert!(found.iter().all(|found| found.level != Level::Memtable || !found.lo.is_above(&key(7))));
}

#[test]
fn a_copys_keys_are_told_by_its_own_names_and_share_the_blocks() {
    let (device, env) = volume();
    for first in (0..600).step_by(50) {
        let mut batch = Batch::new();
        (first..first + 50)
            .for_each(|number| batch.put(D, &[b"a/", &key(number)[..]].concat(), &value(number, 0)));
        env.commit(&batch).unwrap();
    }
    // What the copy hides is not told: it stays in a leaf with its neighbours.
    let mut batch = Batch::new();
    for hidden in [0, 300, 599] {
        batch.put(D, &[b"copies/first/", &key(hidden)[..]].concat(), &value(hidden, 1));
    }
    for neighbour in [&b"copies/a"[..], b"copies/z"] {
        batch.put(D, neighbour, &value(0, 2));
    }
    env.commit(&batch).unwrap();
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    let mut batch = Batch::new();
    batch.clone_range(D, b"a/", b"copies/first/");
    env.commit(&batch).unwrap();
    for _ in 0..2 {
        env.checkpoint().unwrap();
        let bytes = device.bytes();
        for prefix in ["a/", "copies/first/"] {
            let found = located(&env, &Cut::before(prefix), &Cut::after(prefix));
            assert!(found.iter().any(|found| found.sharing == Sharing::Shared), "{found:?}");
            for number in 0..600 {
                let key = [prefix.as_bytes(), &key(number)[..]].concat();
                assert!(holds(&bytes, newest(&found, &key), &value(number, 0)), "{prefix} {number}");
                let shows = found.iter().filter(|found| !found.lo.is_above(&key) && found.hi.is_above(&key));
                assert_eq!(shows.count(), 1, "{prefix} {number}");
            }
        }
        env.reclaim().unwrap();
    }
}

/// A clone that waits above a child hides what the child has.
#[test]
fn what_a_waiting_clone_hides_is_not_told() {
    let (_device, env) = volume();
    let name = |prefix: &str, number: u64| [prefix.as_bytes(), &key(number)[..]].concat();
    for first in (0..2000).step_by(50) {
        let mut batch = Batch::new();
        (first..first + 50).for_each(|number| batch.put(D, &name("a/", number), &value(number, 0)));
        env.commit(&batch).unwrap();
        while env.run_due_work().unwrap() {}
    }
    // Their keys are hidden by the clone, those before and behind it are not.
    let old = |number: u64| name("a/k01500+/", number);
    let mut batch = Batch::new();
    (10..30).for_each(|number| batch.put(D, &old(number), &value(number, 1)));
    env.commit(&batch).unwrap();
    env.reclaim().unwrap();
    let mut batch = Batch::new();
    batch.clone_range(D, b"a/k002", b"a/k01500+/k0001");
    env.commit(&batch).unwrap();
    let root = {
        let dict = &env.engine.dicts[0];
        let root = dict.state.read().root;
        env.engine.tree_of(dict).node(root).unwrap()
    };
    let gotos = root.edges().iter().flat_map(|edge| &edge.gotos);
    let waiting = gotos.filter(|goto| goto.lo == Cut::before("a/k01500+/k0001"));
    assert_eq!(waiting.count(), 1, "it waits nowhere: {root:?}");
    let found = located(&env, &Cut::before("a/k015"), &Cut::after("a/k015"));
    let times = |key: &[u8]| {
        let shows = |found: &&Located| !found.lo.is_above(key) && found.hi.is_above(key);
        found.iter().filter(shows).map(|found| found.sharing).collect::<Vec<_>>()
    };
    for number in 20..30 {
        assert_eq!(times(&old(number)), [Sharing::Own], "{number} is not hidden");
    }
    for number in 0..100 {
        let copy = [&b"a/k01500+/k0001"[..], &key(200 + number)[4..]].concat();
        assert_eq!(times(&copy), [Sharing::Shared], "the copy of {number}");
        assert_eq!(times(&name("a/", 1500 + number)), [Sharing::Own], "{number}");
    }
}

/// Messages of several runs of a partition, also of the same keys.
#[test]
fn each_message_is_in_the_run_that_is_told_and_the_older_one_of_a_key_comes_first() {
    let (device, mut env) = volume();
    // So that what is stored stays as it is, and what is newer becomes a run of its own.
    device.do_not_seek();
    let mut batch = Batch::new();
    (0..400).for_each(|number| batch.put(D, &key(number), &value(number, 0)));
    env.commit(&batch).unwrap();
    for round in 1..=3 {
        // What is not in memory gets a run more.
        env.close().unwrap();
        env = Arc::new(Env::open(device.clone(), options()).unwrap());
        let mut batch = Batch::new();
        batch.put(D, &key(round), &value(round, round));
        batch.upsert(D, &key(300), &value(300, round));
        env.commit(&batch).unwrap();
        env.checkpoint().unwrap();
    }
    let bytes = device.bytes();
    let mut found = located(&env, &Cut::LOW, &Cut::HIGH);
    found.retain(|found| found.level > Level::Leaf);
    found.sort_by(|one, other| one.lo.cmp(&other.lo));
    let told = [1, 2, 3, 300, 300, 300].map(|number| Cut::before(key(number)));
    assert!(found.iter().map(|found| &found.lo).eq(&told), "{found:?}");
    for (place, (number, round)) in found.iter().zip([(1, 1), (2, 2), (3, 3), (300, 1), (300, 2), (300, 3)]) {
        assert!(holds(&bytes, place, &value(number, round)), "{number} in round {round}: {place:?}");
    }
}

/// More than are looked at while writers wait, in two memtables.
#[test]
fn each_message_in_memory_is_told_once_as_of_the_view_and_the_older_one_of_a_key_first() {
    let (_device, env) = volume();
    let put = |numbers: core::ops::Range<u64>| {
        let mut batch = Batch::new();
        numbers.for_each(|number| batch.put(D, &key(number), b"value"));
        env.commit(&batch).unwrap();
    };
    put(0..700);
    env.engine.freeze(true);
    let mut batch = Batch::new();
    for number in (0..700).step_by(7) {
        batch.upsert(D, &key(number), b"delta");
        batch.delete(D, &key(number + 1));
    }
    env.commit(&batch).unwrap();
    let view = env.view();
    assert_eq!(env.engine.dicts[0].state.read().frozen.len(), 1);
    put(0..900);
    for (first, end) in [(0, 900), (3, 650), (256, 257), (650, 900)] {
        let mut told: BTreeMap<Cut, Vec<Holds>> = BTreeMap::new();
        let (lo, hi) = (Cut::before(key(first)), Cut::before(key(end)));
        view.locate(D, &lo, &hi, &mut |found| {
            assert_eq!((found.level, found.runs.len()), (Level::Memtable, 0));
            told.entry(found.lo).or_default().push(found.holds);
        })
        .unwrap();
        let holds = |number: u64| match number % 7 {
            0 => Vec::from([Holds::Values, Holds::Deltas]),
            _ => Vec::from([Holds::Values]),
        };
        let expected = (first..end.min(700)).map(|number| (Cut::before(key(number)), holds(number)));
        assert!(told.into_iter().eq(expected), "{first} to {end}");
    }
}

/// No basement is read: headers, and partitions with messages.
#[test]
fn a_range_costs_the_headers_of_its_nodes() {
    let (device, env) = volume();
    for first in (0..4000).step_by(50) {
        let mut batch = Batch::new();
        (first..first + 50).for_each(|number| batch.put(D, &key(number), &value(number, 0)));
        env.commit(&batch).unwrap();
    }
    env.reclaim().unwrap();
    env.close().unwrap();
    let env = Arc::new(Env::open(device, options()).unwrap());
    let nodes = env.engine.table.lock().nodes_len();
    let before = env.stats().device_reads;
    let few = located(&env, &Cut::before(key(1000)), &Cut::before(key(1050)));
    let reads = env.stats().device_reads - before;
    assert!(few.len() > 10 && reads < 12, "{} places, {reads} reads", few.len());
    let all = located(&env, &Cut::LOW, &Cut::HIGH);
    let reads = env.stats().device_reads - before;
    assert!(
        all.len() as u64 > nodes * 3 && reads <= nodes,
        "{} places, {reads} reads, {nodes} nodes",
        all.len()
    );
}
