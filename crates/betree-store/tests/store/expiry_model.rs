//! Random changes of dictionaries whose values expire, with views, transactions and crashes, against maps.

use std::collections::BTreeMap;
use std::path::Path;

use betree_store::{Dict, DictOptions, Isolation, Outcome, Store, View};
use seeded::Rng;

use crate::expiry::{Seconds, time};

/// A value, which a merge may have removed, and when it expires.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    value: Option<Vec<u8>>,
    expires: Option<u64>,
}

impl Held {
    fn lives(&self, now: u64) -> bool {
        self.expires.is_none_or(|at| at > now)
    }
}

type Map = BTreeMap<Vec<u8>, Held>;
/// The dictionaries by name. The first has a merge.
type Dicts = [Map; 2];
/// What a reader sees of a dictionary: values, and when they expire.
type Seen = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

const NAMES: [&str; 2] = ["merged", "plain"];
const STEPS: usize = 300;
const SEEDS: u64 = 16;
/// One that is stored in parts: the test's store has a small log.
const LARGE_BYTES: usize = 600_000;

/// Puts the delta behind the value; an empty one removes the key.
fn merge(old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
    (!delta.is_empty()).then(|| [old.unwrap_or_default(), delta].concat())
}

fn seen(map: &Map, now: u64) -> Seen {
    let live = map.iter().filter(|(_, held)| held.lives(now));
    live.filter_map(|(key, held)| Some((key.clone(), (held.value.clone()?, held.expires)))).collect()
}

fn key(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(4)).map(|_| *rng.pick(&[0, b'k', 0xff])).collect()
}

/// Whether the history has merges that remove keys. A crash does not tell whether a key was removed by one.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Removing,
    Crashing,
}

struct History {
    rng: Rng,
    kind: Kind,
    /// Whether values may be so large that they are stored in parts, which a transaction refuses.
    takes_parts: bool,
    /// The transactions that have committed, which a sweep may have hindered.
    committed: usize,
    seconds: Seconds,
    store: Store,
    dicts: Dicts,
    /// What it was after each commit since the last that is sure to be durable.
    since_sync: Vec<Dicts>,
    views: Vec<(View, [Seen; 2])>,
}

fn open(seconds: &Seconds, path: &Path) -> Store {
    let store = seconds.options().merge("merge", merge).open(path).unwrap();
    let merged = DictOptions::new().expiring().merge("merge");
    store.dict_with(NAMES[0], &merged).unwrap();
    store.dict_with(NAMES[1], &DictOptions::new().expiring()).unwrap();
    store
}

impl History {
    fn new(seed: u64, path: &Path) -> History {
        let (seconds, kind) =
            (Seconds::default(), if seed.is_multiple_of(2) { Kind::Removing } else { Kind::Crashing });
        let store = open(&seconds, path);
        store.sync().unwrap();
        let dicts = Dicts::default();
        let since_sync = vec![dicts.clone()];
        History {
            rng: Rng::new(seed),
            kind,
            takes_parts: true,
            committed: 0,
            seconds,
            store,
            dicts,
            since_sync,
            views: Vec::new(),
        }
    }

    fn dict(&self, number: usize) -> Dict {
        self.store.open_dict(NAMES[number]).unwrap()
    }

    fn value(&mut self, number: usize) -> Vec<u8> {
        let len = match self.rng.below(100) {
            0 if number == 1 && self.takes_parts => LARGE_BYTES,
            0..=5 => self.rng.below(30_000),
            _ => self.rng.below(20),
        };
        seeded::bytes(self.rng.next_u64(), 0, len)
    }

    fn delta(&mut self) -> Vec<u8> {
        let min = usize::from(self.kind == Kind::Crashing);
        seeded::bytes(self.rng.next_u64(), 0, self.rng.between(min, 6))
    }

    /// A change of a key by a reader of a time, of the map and by a call each.
    fn change(&mut self, number: usize, now: u64, by: &mut dyn FnMut(Change<'_>)) {
        let key = key(&mut self.rng);
        match self.rng.below(10) {
            0..=1 => {
                let value = self.value(number);
                by(Change::Put(&key, &value));
                self.dicts[number].insert(key, Held { value: Some(value), expires: None });
            }
            2..=5 => {
                let (value, expires) = (self.value(number), now + self.rng.below(12) as u64);
                by(Change::PutUntil(&key, &value, expires));
                self.dicts[number].insert(key, Held { value: Some(value), expires: Some(expires) });
            }
            6 => {
                by(Change::Delete(&key));
                self.dicts[number].remove(&key);
            }
            _ if number == 0 => {
                let delta = self.delta();
                by(Change::Upsert(&key, &delta));
                let old = self.dicts[0].remove(&key).filter(|old| old.lives(now));
                let expires = old.as_ref().and_then(|old| old.expires);
                let value = merge(old.as_ref().and_then(|old| old.value.as_deref()), &delta);
                if value.is_some() || expires.is_some() {
                    self.dicts[0].insert(key, Held { value, expires });
                }
            }
            _ => {
                by(Change::Delete(&key));
                self.dicts[number].remove(&key);
            }
        }
    }

    fn copy(&mut self, number: usize) {
        let (from, to) = (key(&mut self.rng), key(&mut self.rng));
        let is_rename = self.rng.percent(50);
        let (dict, map) = (self.dict(number), &mut self.dicts[number]);
        if map.keys().any(|key| key.len() > 20) {
            return;
        }
        match is_rename {
            true => dict.rename_prefix(&from, &to).unwrap(),
            false => dict.clone_prefix(&from, &to).unwrap(),
        }
        let source: Map = map
            .iter()
            .filter(|(k, _)| k.starts_with(&from))
            .map(|(k, held)| (k.clone(), held.clone()))
            .collect();
        map.retain(|key, _| !(key.starts_with(&to) || is_rename && key.starts_with(&from)));
        map.extend(source.into_iter().map(|(key, held)| ([&to, &key[from.len()..]].concat(), held)));
    }

    /// Changes of a transaction or of a large one, which takes some time.
    fn transaction(&mut self, number: usize) {
        let (began, dict) = (self.seconds.now(), self.dict(number));
        let before = self.dicts.clone();
        let commits = self.rng.percent(70);
        let outcome = if self.rng.percent(30) {
            let large = self.store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
            let work = large.dict(&dict).unwrap();
            for _ in 0..self.rng.between(1, 5) {
                let now = self.seconds.now();
                self.change(number, now, &mut |change| change.of_dict(&work));
                self.seconds.set(now + 1);
            }
            commits.then(|| large.commit().unwrap())
        } else {
            let mut own = self.store.begin(Isolation::Serializable);
            self.takes_parts = false;
            for _ in 0..self.rng.between(1, 5) {
                self.change(number, began, &mut |change| {
                    let done = match change {
                        Change::Put(key, value) => own.put(&dict, key, value),
                        Change::PutUntil(key, value, at) => own.put_until(&dict, key, value, time(at)),
                        Change::Delete(key) => own.delete(&dict, key),
                        Change::Upsert(key, delta) => own.upsert(&dict, key, delta),
                    };
                    done.unwrap();
                });
                self.seconds.set(self.seconds.now() + 1);
                let expected = seen(&self.dicts[number], began);
                let found = own.iter(&dict).map(|pair| pair.unwrap().0.into_vec());
                assert!(found.eq(expected.keys().cloned()));
            }
            self.takes_parts = true;
            commits.then(|| own.commit().unwrap())
        };
        match outcome {
            Some(Outcome::Committed(_)) => self.committed += 1,
            // The store's thread may have removed what has expired meanwhile.
            Some(Outcome::Conflict(_)) | None => self.dicts = before,
        }
    }

    fn ingest(&mut self, number: usize) {
        let pairs: BTreeMap<_, _> =
            (0..self.rng.below(30)).map(|_| (key(&mut self.rng), self.value(number))).collect();
        self.dict(number).ingest(&pairs).unwrap();
        let held = |value| Held { value: Some(value), expires: None };
        self.dicts[number].extend(pairs.into_iter().map(|(key, value)| (key, held(value))));
    }

    fn found(&self) -> [Seen; 2] {
        [0, 1].map(|number| {
            let dict = self.dict(number);
            let pairs = dict.iter().map(|pair| {
                let (key, value) = pair.unwrap();
                let expires = dict.expires_at(&key).unwrap();
                let seconds = |at: std::time::SystemTime| at.duration_since(time(0)).unwrap().as_secs();
                (key.into_vec(), (value.into_vec(), expires.map(seconds)))
            });
            pairs.collect()
        })
    }

    fn seen(&self) -> [Seen; 2] {
        [0, 1].map(|number| seen(&self.dicts[number], self.seconds.now()))
    }

    fn compare(&mut self, at: &str) {
        assert!(self.found() == self.seen(), "{at}");
        for number in [0, 1] {
            let wanted: Vec<Vec<u8>> = (0..8).map(|_| key(&mut self.rng)).collect();
            let found = self.dict(number).get_many(&wanted).unwrap();
            let expected = seen(&self.dicts[number], self.seconds.now());
            for (key, found) in wanted.iter().zip(found) {
                assert!(found.as_deref() == expected.get(key).map(|(value, _)| &value[..]), "{at}: {key:?}");
            }
            for (view, then) in &self.views {
                let dict = view.dict(NAMES[number]).unwrap();
                let pairs = dict.iter().map(|pair| pair.map(|(k, v)| (k.into_vec(), v.into_vec())).unwrap());
                let then = then[number].iter().map(|(key, (value, _))| (key.clone(), value.clone()));
                assert!(pairs.eq(then), "{at}: a view");
            }
        }
    }

    fn crash(&mut self, path: &Path, at: &str) {
        self.views.clear();
        self.store.abandon();
        self.store = open(&self.seconds, path);
        let (found, now) = (self.found(), self.seconds.now());
        let states = std::mem::take(&mut self.since_sync);
        let mut matching = states.into_iter().filter(|dicts| [0, 1].map(|n| seen(&dicts[n], now)) == found);
        self.dicts =
            matching.next().unwrap_or_else(|| panic!("{at}: it is of no moment since the last sync"));
    }

    fn step(&mut self, path: &Path, at: &str) {
        let number = self.rng.below(2);
        match self.rng.below(100) {
            0..=44 => {
                let (dict, now) = (self.dict(number), self.seconds.now());
                match self.rng.percent(50) {
                    true => self.change(number, now, &mut |change| change.of_dict(&dict)),
                    false => {
                        let mut batch = self.store.batch();
                        for _ in 0..self.rng.between(1, 6) {
                            self.change(number, now, &mut |change| match change {
                                Change::Put(key, value) => batch.put(&dict, key, value).unwrap(),
                                Change::PutUntil(key, value, at) => {
                                    batch.put_until(&dict, key, value, time(at)).unwrap();
                                }
                                Change::Delete(key) => batch.delete(&dict, key).unwrap(),
                                Change::Upsert(key, delta) => batch.upsert(&dict, key, delta).unwrap(),
                            });
                        }
                        batch.commit().unwrap();
                    }
                }
            }
            45..=59 => self.seconds.set(self.seconds.now() + self.rng.between(1, 4) as u64),
            60..=64 => self.copy(number),
            65..=71 => self.transaction(number),
            72..=75 => {
                self.ingest(number);
                self.since_sync.clear();
            }
            76..=79 => drop(self.dict(number).remove_expired().unwrap()),
            80..=83 if self.views.len() < 4 => {
                let seen = self.seen();
                self.views.push((self.store.view(), seen));
            }
            84..=86 if !self.views.is_empty() => drop(self.views.remove(self.rng.below(self.views.len()))),
            87..=91 => {
                self.store.check().unwrap();
                self.since_sync.clear();
            }
            92..=95 if self.kind == Kind::Crashing => {
                self.crash(path, at);
                self.compare(at);
            }
            _ => self.compare(at),
        }
        self.since_sync.push(self.dicts.clone());
    }
}

/// A change of a key.
enum Change<'c> {
    Put(&'c [u8], &'c [u8]),
    PutUntil(&'c [u8], &'c [u8], u64),
    Delete(&'c [u8]),
    Upsert(&'c [u8], &'c [u8]),
}

impl Change<'_> {
    fn of_dict(self, dict: &Dict) {
        let done = match self {
            Change::Put(key, value) => dict.put(key, value),
            Change::PutUntil(key, value, at) => dict.put_until(key, value, time(at)),
            Change::Delete(key) => dict.delete(key),
            Change::Upsert(key, delta) => dict.upsert(key, delta),
        };
        done.unwrap();
    }
}

#[test]
fn random_histories_are_those_of_maps() {
    let folder = tempfile::tempdir().unwrap();
    let mut committed = 0;
    for seed in 0..SEEDS {
        let path = folder.path().join(seed.to_string());
        let mut history = History::new(seed, &path);
        for step in 0..STEPS {
            history.step(&path, &format!("seed {seed}, step {step}"));
        }
        history.compare(&format!("seed {seed}, in the end"));
        // Blocks are not counted while views hold some, such as that of the store's thread.
        let mut found = history.store.check().unwrap();
        found.retain(|finding| finding.is_problem);
        assert_eq!(found, [], "seed {seed}");
        committed += history.committed;
    }
    assert!(committed > 10 * SEEDS as usize, "{committed} transactions have committed");
}
