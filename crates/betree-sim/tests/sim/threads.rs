//! Many threads at once, with the engine's own at work: each sees its own writes, and reopening finds those
//! of all.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use betree::{Batch, Cut, DictId, Env, Geometry};
use betree_platform::Device;
use betree_sim::harness::effort;
use betree_sim::{
    Edit, Map, MemDevice, ModelEnv, Rng, SMALL_NODES, Setup, batch_of, format_env, open_env, problems,
};
use betree_std::{Workers, WorkersOptions};

const THREADS: u8 = 6;
const DICTS: u8 = 2;
const SETUP: Setup = Setup {
    geometry: Geometry { log_bytes: 512 << 10, dicts: DICTS, ..SMALL_NODES },
    cache_bytes: 256 << 10,
    volume_bytes: 64 << 20,
    seeks: true,
};
/// Nodes of several blocks, on a disk that does not seek: unchanged blocks of a node stay.
const IN_PARTS: Setup = Setup {
    geometry: Geometry { node_bytes: 32 << 10, basement_bytes: 2048, ..SETUP.geometry },
    cache_bytes: 1 << 20,
    seeks: false,
    ..SETUP
};

fn new_volume(setup: &Setup) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    format_env(&device, setup).unwrap();
    device
}

/// One thread's part of the keys: those that start with its number.
struct Owner<'e> {
    env: &'e Env,
    name: u8,
    rng: Rng,
    model: ModelEnv,
}

impl Owner<'_> {
    fn key(&mut self) -> Vec<u8> {
        let number = self.rng.below(400) as u16;
        [&[self.name][..], &number.to_be_bytes()].concat()
    }

    fn change(&mut self) -> Edit {
        let dict = DictId(self.rng.below(usize::from(DICTS)) as u8);
        match self.rng.below(100) {
            0..60 => {
                let value = vec![self.rng.next_u64() as u8; self.rng.between(0, 200)];
                Edit::Put(dict, self.key(), value)
            }
            60..75 => Edit::Delete(dict, self.key()),
            75..95 => Edit::Upsert(dict, self.key(), self.rng.next_u64().to_le_bytes().to_vec()),
            _ => {
                let (a, b) = (self.key(), self.key());
                Edit::DeleteRange(dict, Cut::before(a.clone().min(b.clone())), Cut::before(a.max(b)))
            }
        }
    }

    /// Clones one half of the keys over the other half, or moves it there.
    fn copy(&mut self) -> Vec<Edit> {
        let dict = DictId(self.rng.below(usize::from(DICTS)) as u8);
        let (from, to) = if self.rng.percent(50) { (0, 1) } else { (1, 0) };
        let half = |number: u8| vec![self.name, number];
        let whole = |number| (Cut::before(half(number)), Cut::after(half(number)));
        let deleted = |number| Edit::DeleteRange(dict, whole(number).0, whole(number).1);
        let clone = Edit::Clone(dict, half(from), half(to), Cut::LOW, Cut::HIGH);
        if self.rng.percent(50) { vec![deleted(to), clone] } else { vec![deleted(from), deleted(to), clone] }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..70 => {
                let count = self.rng.between(1, 4);
                let changes: Vec<Edit> = match self.rng.percent(2) {
                    true => self.copy(),
                    false => (0..count).map(|_| self.change()).collect(),
                };
                let batch = batch_of(&changes);
                self.env.throttle(batch.bytes()).unwrap();
                self.env.commit(&batch).unwrap();
                self.model.commit(&changes);
            }
            70..90 => {
                let dict = DictId(self.rng.below(usize::from(DICTS)) as u8);
                let key = self.key();
                let should = self.model.dict(dict).get(&key).cloned();
                assert_eq!(self.env.get(dict, &key).unwrap(), should, "owner {} get {key:?}", self.name);
            }
            90..97 => self.scan(),
            97..99 => self.env.sync().unwrap(),
            _ => self.env.checkpoint().unwrap(),
        }
    }

    fn scan(&mut self) {
        let dict = DictId(self.rng.below(usize::from(DICTS)) as u8);
        let (lo, hi) = (Cut::before([self.name]), Cut::after([self.name]));
        let is_backward = self.rng.percent(50);
        let mut cursor = self.env.cursor(dict, lo, hi.clone());
        let mut found = Vec::new();
        if is_backward {
            cursor.seek(&hi);
            while let Some((key, value)) = cursor.prev().unwrap() {
                found.push((key.to_vec(), value.to_vec()));
            }
            found.reverse();
        } else {
            while let Some((key, value)) = cursor.next().unwrap() {
                found.push((key.to_vec(), value.to_vec()));
            }
        }
        assert!(found.is_sorted(), "owner {}: a scan is in order", self.name);
        let found: Map = found.into_iter().collect();
        assert_eq!(&found, self.model.dict(dict), "owner {} scan, backward {is_backward}", self.name);
    }
}

#[test]
fn each_thread_reads_what_it_wrote_and_reopening_finds_all() {
    all_at_once(&SETUP);
}

#[test]
fn each_thread_reads_what_it_wrote_where_nodes_are_written_in_part() {
    assert!(all_at_once(&IN_PARTS) > 1 << 20, "nodes keep what has not changed");
}

/// Threads and workers at once, three times; returns the number of bytes of nodes that stayed in place.
fn all_at_once(setup: &Setup) -> u64 {
    let steps = effort(3000);
    let mut kept_bytes = 0;
    let device = new_volume(setup);
    let mut kept: Option<ModelEnv> = None;
    for round in 0..3u64 {
        let env = Arc::new(open_env(&device, setup).unwrap());
        let options = WorkersOptions {
            threads: 2,
            sync_every: Duration::from_millis(3),
            checkpoint_every: Duration::from_millis(20),
        };
        let workers = Workers::start(Arc::clone(&env), options).unwrap();
        let before = kept.take().unwrap_or_else(|| ModelEnv::new(DICTS));
        let parts: Vec<ModelEnv> = std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..THREADS)
                .map(|name| {
                    let mut owner = Owner {
                        env: &env,
                        name,
                        rng: Rng::new(round << 8 | u64::from(name)),
                        model: part(&before, name),
                    };
                    scope.spawn(move || {
                        (0..steps).for_each(|_| owner.step());
                        owner.model
                    })
                })
                .collect();
            spawned.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let union = union_of(parts);
        workers.stop();
        let found = ModelEnv::read(&env, DICTS).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found.difference(&union), None, "round {round}");
        env.close().unwrap();
        kept_bytes += env.stats().kept_bytes;
        drop(env);

        let env = open_env(&device, setup).unwrap();
        let found = ModelEnv::read(&env, DICTS).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found.difference(&union), None, "round {round}, reopened");
        let problems = problems(&env).unwrap();
        assert!(problems.is_empty(), "round {round}: {problems:?}");
        kept = Some(union);
    }
    kept_bytes
}

fn part(of: &ModelEnv, name: u8) -> ModelEnv {
    let mut part = ModelEnv::new(DICTS);
    for (dict, map) in part.dicts() {
        map.extend(
            of.dict(dict)
                .iter()
                .filter(|(key, _)| key.first() == Some(&name))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    part
}

fn union_of(parts: Vec<ModelEnv>) -> ModelEnv {
    let mut union = ModelEnv::new(DICTS);
    for mut part in parts {
        for ((_, all), (_, map)) in union.dicts().zip(part.dicts()) {
            all.append(map);
        }
    }
    union
}

#[test]
fn a_batch_is_seen_whole_by_other_threads() {
    let device = new_volume(&SETUP);
    let env = Arc::new(open_env(&device, &SETUP).unwrap());
    let _workers = Workers::start(Arc::clone(&env), WorkersOptions::default()).unwrap();
    let write = |number: u32| {
        let mut batch = Batch::new();
        batch.put(DictId(0), b"left", &number.to_le_bytes());
        batch.put(DictId(0), b"right", &number.to_le_bytes());
        env.throttle(batch.bytes()).unwrap();
        env.commit(&batch).unwrap();
    };
    let read = |key: &[u8]| {
        let value = env.get(DictId(0), key).unwrap().unwrap();
        u32::from_le_bytes(value.try_into().unwrap())
    };
    write(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..5000).for_each(write));
        scope.spawn(move || {
            // Read in the order in which they are written, the second value is never older than the first.
            let mut last = 0;
            while last < 4999 {
                let is_over = writer.is_finished();
                let (left, right) = (read(b"left"), read(b"right"));
                assert!(right >= left, "left {left}, right {right}");
                assert!(left == 4999 || !is_over, "the writer has ended, and {left} is there");
                last = left;
            }
        });
    });
    let all: BTreeMap<Vec<u8>, u32> =
        [(b"left".to_vec(), read(b"left")), (b"right".to_vec(), read(b"right"))].into();
    assert!(all.values().all(|number| *number == 4999));
}

/// Read-ahead moves reads to another thread; it must not make more of them.
#[test]
fn a_scan_that_is_read_ahead_of_reads_every_leaf_once() {
    const PAIRS: u32 = 20_000;
    let device = new_volume(&SETUP);
    let env = open_env(&device, &SETUP).unwrap();
    let value = |number: u32| Rng::new(u64::from(number)).next_u64().to_le_bytes().repeat(8);
    for number in 0..PAIRS {
        let mut batch = Batch::new();
        batch.put(DictId(0), &number.to_be_bytes(), &value(number));
        env.commit(&batch).unwrap();
    }
    env.close().unwrap();
    drop(env);
    let env = Arc::new(open_env(&device, &SETUP).unwrap());
    let options = WorkersOptions { threads: 1, ..WorkersOptions::default() };
    let workers = Workers::start(Arc::clone(&env), options).unwrap();
    let before = env.stats();
    let mut cursor = env.cursor(DictId(0), Cut::LOW, Cut::HIGH);
    for number in 0..PAIRS {
        assert_eq!(cursor.next().unwrap(), Some((&number.to_be_bytes()[..], value(number).as_slice())));
    }
    assert_eq!(cursor.next().unwrap(), None);
    let after = env.stats();
    drop(cursor);
    let used_bytes = env.space().used_bytes;
    let read_bytes = after.device_read_bytes - before.device_read_bytes;
    assert!(read_bytes < used_bytes / 10 * 11, "{read_bytes} bytes were read of {used_bytes}");
    workers.stop();
}
