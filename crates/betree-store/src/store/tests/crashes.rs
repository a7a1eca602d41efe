//! Histories of a store on a simulated disk whose power fails in the middle of them, and again after that.

use std::collections::{BTreeMap, BTreeSet};

use betree::{Cut, Geometry};
use betree_sim::SimDisk;
use seeded::Rng;

use super::*;
use crate::keys::ENGINE_DICT;
use crate::options::DictOptions;
use crate::transaction::{Isolation, Outcome};

const GEOMETRY: Geometry =
    Geometry { node_bytes: 8192, basement_bytes: 1024, fanout_max: 6, log_bytes: 1 << 20, dicts: 1 };
const CACHE_BYTES: usize = 256 << 10;
const VOLUME_BYTES: u64 = 64 << 20;
/// One that is stored in parts: with such a log they begin at 64 KiB.
const LARGE_BYTES: usize = 80_000;
const SEEDS: u64 = 40;
const STEPS: usize = 60;
/// The last call after the recovery at which the power fails again.
const SECOND_CUT_MAX: usize = 40;
/// Those of the first two have a merge.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Dicts = BTreeMap<String, Map>;

/// A store beside what it should hold.
struct Running {
    disk: Arc<SimDisk>,
    store: Store,
    now: Dicts,
    /// What a crash may leave: what it was at the last sync, and after each change since, whether that was
    /// acknowledged or not.
    possible: Vec<Dicts>,
}

fn options() -> StoreOptions {
    let append = |old: Option<&[u8]>, delta: &[u8]| Some([old.unwrap_or_default(), delta].concat());
    Store::options().cache_bytes(CACHE_BYTES).durability(Durability::Manual).merge("append", append)
}

/// Opens the store on a disk, without threads: so calls of the disk come in the same order each time.
fn open(disk: &Arc<SimDisk>, folder: &Path) -> Result<Store> {
    // It stands for the lock alone.
    let path = folder.join("lock");
    let _ = std::fs::remove_file(&path);
    let file = Arc::new(FileDevice::create(&path, 4096).unwrap());
    let merges = Arc::new(options().registered().unwrap());
    let store = Store::open_over(&path, &options(), &merges, file, disk.clone())?;
    drop(store.shared.workers.lock().take());
    Ok(store)
}

fn new_disk(folder: &Path) -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(VOLUME_BYTES));
    let merges = Arc::new(options().registered().unwrap());
    file::make_on(disk.clone(), &folder.join("made"), &GEOMETRY, CACHE_BYTES, &merges).unwrap();
    disk
}

fn has_merge(name: &str) -> bool {
    name < "c"
}

fn dict_options(name: &str) -> DictOptions {
    if has_merge(name) { DictOptions::new().merge("append") } else { DictOptions::new() }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(4)).map(|_| *rng.pick(&[0, b'k', 0xff])).collect()
}

fn value(rng: &mut Rng, name: &str) -> Vec<u8> {
    let len = if !has_merge(name) && rng.percent(4) { LARGE_BYTES } else { rng.below(400) };
    seeded::bytes(rng.next_u64(), 0, len)
}

fn contents(store: &Store) -> Result<Dicts> {
    let view = store.view();
    let mut found = Dicts::new();
    for name in view.dicts()? {
        let pairs = view.dict(&name)?;
        let map: Result<Map> =
            pairs.iter().map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect();
        found.insert(name, map?);
    }
    Ok(found)
}

impl Running {
    fn new(disk: Arc<SimDisk>, store: Store, now: Dicts) -> Running {
        Running { disk, store, possible: vec![now.clone()], now }
    }

    /// Makes a change, which takes effect or not where it fails.
    fn change(&mut self, next: Dicts, make: impl FnOnce(&Store) -> Result<()>) -> Result<()> {
        self.possible.push(next.clone());
        make(&self.store)?;
        self.now = next;
        Ok(())
    }

    fn durable(&mut self) {
        self.possible = vec![self.now.clone()];
    }

    fn sync(&mut self) -> Result<()> {
        self.store.sync()?;
        self.durable();
        Ok(())
    }

    fn step(&mut self, rng: &mut Rng) -> Result<()> {
        let name = (*rng.pick(&NAMES)).to_owned();
        if !self.now.contains_key(&name) {
            let mut next = self.now.clone();
            next.insert(name.clone(), Map::new());
            return self.change(next, |store| store.create(&name, &dict_options(&name)).map(|_| ()));
        }
        match rng.below(100) {
            0..30 => self.batch(rng),
            30..40 => self.change_names(rng, &name),
            40..50 => self.transaction(rng, &name),
            50..60 => self.large_transaction(rng, &name),
            60..67 => self.ingest(rng, &name),
            67..80 => self.sync(),
            80..83 => {
                self.store.shared.env.checkpoint().map_err(|error| self.store.shared.error(error))?;
                self.durable();
                Ok(())
            }
            _ => {
                for _ in 0..rng.below(6) {
                    self.store.shared.env.run_due_work().map_err(|error| self.store.shared.error(error))?;
                }
                Ok(())
            }
        }
    }

    fn batch(&mut self, rng: &mut Rng) -> Result<()> {
        let mut next = self.now.clone();
        let mut batch = self.store.batch();
        for _ in 0..rng.between(1, 5) {
            let Some(name) = next.keys().nth(rng.below(next.len())).cloned() else { continue };
            let (dict, key, value) = (self.store.open_dict(&name)?, key(rng), value(rng, &name));
            let Some(map) = next.get_mut(&name) else { continue };
            match rng.below(10) {
                0..6 => {
                    batch.put(&dict, &key, &value)?;
                    map.insert(key, value);
                }
                6..8 if has_merge(&name) => {
                    batch.upsert(&dict, &key, &value)?;
                    map.entry(key).or_default().extend(value);
                }
                6..9 => {
                    batch.delete(&dict, &key)?;
                    map.remove(&key);
                }
                _ => {
                    batch.delete_prefix(&dict, &key)?;
                    map.retain(|other, _| !other.starts_with(&key));
                }
            }
        }
        self.change(next, |_| batch.commit())
    }

    fn change_names(&mut self, rng: &mut Rng, name: &str) -> Result<()> {
        let (to, mut next) = (*rng.pick(&NAMES), self.now.clone());
        let fits = has_merge(name) == has_merge(to) && !next.contains_key(to);
        match rng.below(3) {
            0 => {
                next.remove(name);
                self.change(next, |store| store.drop_dict(name))
            }
            1 if fits => {
                next.insert(to.into(), self.now[name].clone());
                self.change(next, |store| store.clone_dict(name, to).map(|_| ()))
            }
            2 if fits => {
                let map = next.remove(name).unwrap_or_default();
                next.insert(to.into(), map);
                self.change(next, |store| store.rename_dict(name, to))
            }
            _ => {
                let (from, to) = (key(rng), key(rng));
                let map = next.entry(name.into()).or_default();
                let source: Map = map
                    .iter()
                    .filter_map(|(key, value)| Some((key.strip_prefix(&*from)?.to_vec(), value.clone())))
                    .collect();
                if map.keys().any(|key| key.len() > 40) {
                    return Ok(());
                }
                map.retain(|key, _| !key.starts_with(&to));
                map.extend(source.into_iter().map(|(rest, value)| ([&to[..], &rest].concat(), value)));
                self.change(next, |store| store.open_dict(name)?.clone_prefix(&from, &to))
            }
        }
    }

    /// Changes a dictionary, and makes or drops another one.
    fn transaction(&mut self, rng: &mut Rng, name: &str) -> Result<()> {
        let (other, mut next) = (*rng.pick(&NAMES), self.now.clone());
        let isolation = *rng.pick(&[Isolation::Snapshot, Isolation::Serializable]);
        let (dict, mut own) = (self.store.open_dict(name)?, self.store.begin(isolation));
        let map = next.entry(name.into()).or_default();
        for _ in 0..rng.between(1, 4) {
            let (key, value) = (key(rng), seeded::bytes(rng.next_u64(), 0, rng.below(300)));
            assert_eq!(own.get(&dict, &key)?.map(Vec::from), map.get(&key).cloned());
            own.put(&dict, &key, &value)?;
            map.insert(key, value);
        }
        match next.contains_key(other) {
            true if other != name => {
                own.drop_dict(other)?;
                next.remove(other);
            }
            true => {}
            false => {
                own.create(other, &dict_options(other))?;
                next.insert(other.into(), Map::new());
            }
        }
        self.change(next, |_| {
            assert!(matches!(own.commit()?, Outcome::Committed(_)));
            Ok(())
        })
    }

    /// One that begins, changes much, and commits or is given up; with syncs between.
    fn large_transaction(&mut self, rng: &mut Rng, name: &str) -> Result<()> {
        let mut next = self.now.clone();
        let dict = self.store.open_dict(name)?;
        let large = self.store.begin_large(Isolation::Snapshot, &[&dict])?;
        let work = large.dict(&dict)?;
        let map = next.entry(name.into()).or_default();
        for _ in 0..rng.between(1, 12) {
            let (key, value) = (key(rng), value(rng, name));
            work.put(&key, &value)?;
            map.insert(key, value);
            if rng.percent(20) {
                self.store.sync()?;
                self.possible = vec![self.now.clone()];
            }
        }
        drop(work);
        if rng.percent(30) {
            drop(large);
            return Ok(());
        }
        self.change(next, |_| {
            assert!(matches!(large.commit()?, Outcome::Committed(_)));
            Ok(())
        })
    }

    /// It is durable when it is done.
    fn ingest(&mut self, rng: &mut Rng, name: &str) -> Result<()> {
        let mut next = self.now.clone();
        let pairs: Map = (0..rng.between(1, 40)).map(|_| (key(rng), value(rng, name))).collect();
        next.entry(name.into()).or_default().extend(pairs.clone());
        self.change(next, |store| store.open_dict(name)?.ingest(&pairs).map(|_| ()))?;
        self.durable();
        Ok(())
    }

    /// Takes steps until the power fails, or there are no more.
    fn run(&mut self, rng: &mut Rng, steps: usize, at: &str) {
        for step in 0..steps {
            if let Err(error) = self.step(rng) {
                assert!(self.disk.is_cut(), "{at}, step {step}: {error}");
                return;
            }
        }
    }

    /// Ends it as a power cut does, and opens what the disk holds then.
    fn crash(self, folder: &Path, seed: u64, at: &str) -> Running {
        self.store.abandon();
        let Running { disk, store, possible, .. } = self;
        drop(store);
        let disk = Arc::new(disk.crash(seed));
        let store = open(&disk, folder).unwrap_or_else(|error| panic!("{at}: {error}"));
        let found = contents(&store).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(possible.contains(&found), "{at}: it is of none of {} moments", possible.len());
        let problems: Vec<_> = store.check().unwrap().into_iter().filter(|found| found.is_problem).collect();
        assert_eq!(problems, [], "{at}");
        // Of large transactions that did not commit nothing is left.
        let live: BTreeSet<u32> =
            store.dicts().iter().map(|name| store.open_dict(name).unwrap().state.number).collect();
        let mut cursor = store.shared.env.cursor(ENGINE_DICT, Cut::before(1_u32.to_be_bytes()), Cut::HIGH);
        while let Some((key, _)) = cursor.next().unwrap() {
            let number = u32::from_be_bytes(key[..4].try_into().unwrap());
            assert!(live.contains(&number), "{at}: dictionary {number} is nobody's");
        }
        drop(cursor);
        Running::new(disk, store, found)
    }
}

#[test]
fn after_a_crash_a_store_is_as_at_a_moment_since_its_last_sync() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut cut, mut moments) = (0, 0);
    for seed in 0..SEEDS {
        let begin = || {
            let disk = new_disk(folder);
            let store = open(&disk, folder).unwrap();
            (disk.changing_calls(), Running::new(disk, store, Dicts::new()))
        };
        let (opened, mut whole) = begin();
        whole.run(&mut Rng::new(seed), STEPS, &format!("seed {seed} without a crash"));
        let calls = whole.disk.changing_calls() - opened;
        whole.store.abandon();
        let mut rng = Rng::new(seed ^ 1 << 40);
        for _ in 0..3 {
            let n = rng.between(1, calls as usize) as u64;
            let at = format!("seed {seed}, cut at call {n} of {calls}");
            let (_, mut running) = begin();
            running.disk.cut_power_at(n);
            running.run(&mut Rng::new(seed), STEPS, &at);
            cut += usize::from(running.disk.is_cut());
            moments += running.possible.len();
            let mut running = running.crash(folder, rng.next_u64(), &at);
            running.disk.cut_power_at(rng.between(1, SECOND_CUT_MAX) as u64);
            running.run(&mut rng, STEPS, &at);
            let running = running.crash(folder, rng.next_u64(), &format!("{at}, and again"));
            running.store.close().unwrap();
        }
    }
    assert!(cut > SEEDS as usize * 2, "{cut} power cuts");
    assert!(moments > cut * 3, "{moments} moments that {cut} crashes could have left");
}
