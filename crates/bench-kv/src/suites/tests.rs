//! Suites on a map in place of an engine, whole and with faults: each suite that can meet a fault notices it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Result;
use bench_harness::disk::Counters;
use bench_harness::scale::Scale;

use super::{Place, Suite, basic, clone_dict, ingest, transactions, views, ycsb};
use crate::data::Key;
use crate::meter::Meter;
use crate::stores::{Budget, Engine, Isolation, See, Store, Synced, Transactional};

const STEP: Duration = Duration::from_millis(20);
const MEMORY_BYTES: u64 = 64 << 20;

/// What is wrong with a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Some puts are not done.
    PutLost,
    /// Some puts change a byte.
    PutChanged,
    /// Some gets find the value before the last.
    GetOld,
    /// Some gets find the value of another key.
    GetOther,
    /// Some gets find nothing.
    GetNothing,
    /// Some deletes are not done.
    DeleteLost,
    /// Some transactions commit without their change.
    UpdateLost,
    /// Scans skip their first pair, or end before their last.
    ScanWithoutFirst,
    ScanWithoutLast,
    /// Scans backwards end before their last.
    ScanBackWithoutLast,
    /// A pair is gone when the map is opened again, or there is one more.
    LostAtClose,
    MadeAtClose,
    /// Syncs fail.
    SyncFails,
}

type Pairs = BTreeMap<Key, Vec<u8>>;

/// A handle of a map.
#[derive(Clone)]
struct Map {
    fault: Fault,
    pairs: Arc<Mutex<Pairs>>,
    /// The values before.
    old: Arc<Mutex<Pairs>>,
    calls: Arc<AtomicU64>,
}

impl Map {
    fn new(fault: Fault) -> Map {
        Map { fault, pairs: Arc::default(), old: Arc::default(), calls: Arc::default() }
    }

    fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap()
    }

    /// Whether this call meets the fault: every fourth does.
    fn meets(&self, fault: Fault) -> bool {
        self.fault == fault && self.calls.fetch_add(1, Ordering::Relaxed) % 4 == 3
    }

    fn pass<'p>(&self, pairs: impl Iterator<Item = (&'p Key, &'p Vec<u8>)>, pairs_max: usize, see: See<'_>) {
        let found: Vec<_> = pairs.take(pairs_max).collect();
        let without_first = usize::from(self.fault == Fault::ScanWithoutFirst).min(found.len());
        let without_last = found.len() - usize::from(self.fault == Fault::ScanWithoutLast).min(found.len());
        found[without_first..without_last.max(without_first)]
            .iter()
            .for_each(|(key, value)| see(*key, value));
    }
}

impl Synced for Map {
    fn sync(&mut self) -> Result<()> {
        anyhow::ensure!(self.fault != Fault::SyncFails, "a sync that fails");
        Ok(())
    }
}

impl Store for Map {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(self.clone()))
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        for (key, value) in pairs {
            let mut value = value.clone();
            if self.meets(Fault::PutLost) {
                continue;
            }
            if self.meets(Fault::PutChanged) {
                *value.last_mut().unwrap() ^= 1;
            }
            if let Some(old) = self.pairs().insert(*key, value) {
                self.old.lock().unwrap().insert(*key, old);
            }
        }
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        if !self.meets(Fault::DeleteLost) {
            self.pairs().remove(key);
        }
        Ok(())
    }

    fn add(&mut self, _additions: &[(Key, u64)]) -> Result<()> {
        anyhow::bail!("no suite adds")
    }

    fn delete_range(&mut self, _from: &Key, _until: &Key) -> Result<()> {
        anyhow::bail!("no suite deletes ranges")
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let found = match () {
            () if self.meets(Fault::GetNothing) => None,
            () if self.meets(Fault::GetOther) => {
                self.pairs().range::<Key, _>(..key).next_back().map(|(_, v)| v.clone())
            }
            () if self.meets(Fault::GetOld) => self.old.lock().unwrap().get(key).cloned(),
            () => self.pairs().get(key).cloned(),
        };
        Ok(found)
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        self.pass(self.pairs().range::<Key, _>(from..), pairs_max, see);
        Ok(())
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        let fewer = usize::from(self.fault == Fault::ScanBackWithoutLast);
        let pairs = self.pairs();
        self.pass(pairs.iter().rev(), pairs_max.min(pairs.len() - fewer), see);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.fault == Fault::LostAtClose {
            self.pairs().pop_first();
        }
        if self.fault == Fault::MadeAtClose {
            self.pairs().insert([1; _], vec![1]);
        }
        Ok(())
    }
}

impl Transactional for Map {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(Box::new(self.clone()))
    }

    fn has(&self, _isolation: Isolation) -> bool {
        true
    }

    fn update(
        &mut self,
        _isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        let is_lost = self.meets(Fault::UpdateLost);
        let mut pairs = self.pairs();
        let new = change(pairs.get(key).map(Vec::as_slice));
        if !is_lost {
            pairs.insert(*key, new);
        }
        Ok(())
    }
}

/// Runs a suite on a map with a fault, and returns the names of its measurements.
fn run(suite: &dyn Suite, fault: Fault) -> Result<Vec<String>> {
    let map = Map::new(fault);
    let open = || Ok(Box::new(map.clone()) as Box<dyn Store>);
    let open_transactional = || Ok(Box::new(map.clone()) as Box<dyn Transactional>);
    let folder = tempfile::tempdir()?;
    run_at(suite, &open, &open_transactional, folder.path())
}

fn run_at(
    suite: &dyn Suite,
    open: &dyn Fn() -> Result<Box<dyn Store>>,
    open_transactional: &dyn Fn() -> Result<Box<dyn Transactional>>,
    dir: &std::path::Path,
) -> Result<Vec<String>> {
    let budget = Budget::of(MEMORY_BYTES, suite.data_bytes());
    let place = Place { open, open_transactional, dir, budget, step: STEP };
    let counters = || Ok(Counters::default());
    let mut meter = Meter::new(&counters);
    if suite.is_preloaded() {
        suite.load(&place)?;
    }
    suite.run(&place, &mut meter)?;
    assert!(meter.figures.iter().all(|figure| figure.sample.operations > 0 && figure.sample.seconds > 0.0));
    Ok(meter.figures.into_iter().map(|figure| figure.name).collect())
}

fn assert_finds(suite: &dyn Suite, faults: &[Fault]) {
    for fault in faults {
        let found = run(suite, *fault);
        assert!(found.is_err(), "{} does not notice {fault:?}", suite.name());
    }
}

#[test]
fn ycsb_measures_each_workload_and_notices_what_is_wrong() {
    let suite = ycsb::Ycsb::in_memory(Scale::Tiny, MEMORY_BYTES);
    let names = run(&suite, Fault::None).unwrap();
    let letters = ["a", "b", "c", "c-uniform", "f", "d", "e"];
    let expected = ["", "-2"].iter().flat_map(|end| letters.map(|letter| format!("kv-ycsb-{letter}{end}")));
    assert_eq!(names, expected.collect::<Vec<_>>());
    assert_finds(
        &suite,
        &[
            Fault::PutLost,
            Fault::PutChanged,
            Fault::GetOld,
            Fault::GetOther,
            Fault::GetNothing,
            Fault::ScanWithoutFirst,
            Fault::ScanWithoutLast,
            Fault::LostAtClose,
            Fault::SyncFails,
        ],
    );
}

#[test]
fn a_preloaded_ycsb_begins_with_what_was_loaded() {
    let suite = ycsb::Ycsb::larger(MEMORY_BYTES, 2 << 20);
    assert!(run(&suite, Fault::None).unwrap().contains(&"kv-ycsb-large-a".to_owned()));
    assert_finds(&suite, &[Fault::LostAtClose, Fault::PutLost]);
}

#[test]
fn insertion_in_order_and_scans_notice_what_is_wrong() {
    let suite = basic::InOrder::new(Scale::Tiny, MEMORY_BYTES);
    assert_eq!(run(&suite, Fault::None).unwrap(), ["kv-fillseq", "kv-readseq", "kv-readreverse"]);
    assert_finds(
        &suite,
        &[
            Fault::PutLost,
            Fault::PutChanged,
            Fault::ScanWithoutFirst,
            Fault::ScanWithoutLast,
            Fault::ScanBackWithoutLast,
            Fault::LostAtClose,
            Fault::MadeAtClose,
        ],
    );
}

#[test]
fn operations_on_random_records_notice_what_is_wrong() {
    let suite = basic::AtRandom::new(Scale::Tiny, MEMORY_BYTES);
    let names = run(&suite, Fault::None).unwrap();
    let (reads, others) = (["readrandom", "seekrandom", "overwrite"], ["readwhilewriting-2", "deleterandom"]);
    let repeated = ["", "-2"].iter().flat_map(|end| reads.map(|name| format!("kv-{name}{end}")));
    let expected = ["kv-fillrandom".to_owned()].into_iter().chain(repeated);
    let expected: Vec<String> = expected.chain(others.map(|name| format!("kv-{name}"))).collect();
    assert_eq!(names, expected);
    assert_finds(
        &suite,
        &[
            Fault::PutLost,
            Fault::PutChanged,
            Fault::GetOld,
            Fault::GetOther,
            Fault::GetNothing,
            Fault::DeleteLost,
            Fault::ScanWithoutFirst,
            Fault::LostAtClose,
        ],
    );
}

#[test]
fn transactions_are_counted_and_a_lost_one_is_noticed() {
    let suite = transactions::Transactions::new(Scale::Tiny, MEMORY_BYTES);
    let expected = ["snapshot", "serializable", "snapshot-2", "serializable-2"].into_iter();
    let expected = expected.chain(["snapshot-contended-2", "serializable-contended-2"]);
    let expected: Vec<_> = expected.map(|name| format!("kv-transactions-{name}")).collect();
    assert_eq!(run(&suite, Fault::None).unwrap(), expected);
    assert_finds(&suite, &[Fault::UpdateLost, Fault::PutLost, Fault::PutChanged, Fault::LostAtClose]);
}

/// The suites of the store alone, and one of all, on real files.
#[test]
fn the_store_passes_its_own_suites() {
    let budget = Budget::of(MEMORY_BYTES, 1 << 20);
    let suites: [(&dyn Suite, &[&str]); 4] = [
        (&ingest::Ingest::new(Scale::Tiny, MEMORY_BYTES), &["kv-ingest-file", "kv-ingest-pairs"]),
        (&views::Views::new(Scale::Tiny, MEMORY_BYTES), &["kv-views-0", "kv-views-1000"]),
        (
            &clone_dict::CloneDict::new(Scale::Tiny, MEMORY_BYTES),
            &["kv-clone-dict-small", "kv-clone-dict-large"],
        ),
        (&transactions::Transactions::new(Scale::Tiny, MEMORY_BYTES), &["kv-transactions-snapshot"]),
    ];
    for (suite, expected) in suites {
        assert!(suite.suits(Engine::BetreeStore));
        let folder = tempfile::tempdir().unwrap();
        let open = || Engine::BetreeStore.open(folder.path(), budget);
        let open_transactional = || Engine::BetreeStore.open_transactional(folder.path(), budget);
        let names = run_at(suite, &open, &open_transactional, folder.path()).unwrap();
        assert!(expected.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    }
}
