//! Transactions of a store side by side, small and large ones, have no anomaly that their isolation forbids.

use std::collections::BTreeSet;
use std::ops::Range;

use betree_sim::Failure;
use betree_sim::interleaving::{
    CLONED_ELEMENTS, DICTS, Direction, KEYS_PER_DICT, Room, Scanned, Subject, elements_of, in_threads,
    interleaved, text_of,
};
use betree_sim::isolation::{Anomaly, Element, End, Key, Recorded, anomalies, forbidden};
use betree_store::{Dict, Error, Isolation, LargeTransaction, Outcome, Store, Transaction};
use seeded::Rng;
use tempfile::TempDir;

use crate::{appending, store};

const SEEDS: u64 = 25;
const TRANSACTIONS: usize = 40;

/// Which of the transactions are large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    Small,
    Large,
    /// Every other one.
    Mixed,
}

struct StoreSubject {
    store: Store,
    dicts: Vec<Dict>,
    sizes: Sizes,
    begun: std::sync::atomic::AtomicU64,
    _folder: TempDir,
}

enum Either {
    Small(Box<Transaction>),
    Large(LargeTransaction),
}

fn failed(error: Error) -> Failure {
    Failure::Wrong(error.to_string())
}

fn room(done: betree_store::Result<()>) -> Result<Room, Failure> {
    match done {
        Ok(()) => Ok(Room::Enough),
        Err(Error::TransactionTooLarge { .. } | Error::TooManyClones { .. }) => Ok(Room::TooLittle),
        Err(error) => Err(failed(error)),
    }
}

fn prefix_of(key: Key) -> String {
    format!("k{:03}/", key % KEYS_PER_DICT)
}

fn name_of(key: Key) -> String {
    prefix_of(key) + "v"
}

fn source_of(element: Element) -> String {
    format!("s{element:03}/")
}

impl StoreSubject {
    fn new(sizes: Sizes) -> StoreSubject {
        let (folder, store) = store();
        let dict = |number| store.dict_with(&format!("d{number}"), &appending()).unwrap();
        let dicts: Vec<Dict> = (0..DICTS).map(dict).collect();
        for dict in &dicts {
            for element in 1..=CLONED_ELEMENTS {
                dict.put(source_of(element) + "v", text_of(&[element])).unwrap();
            }
        }
        StoreSubject { store, dicts, sizes, begun: 0.into(), _folder: folder }
    }

    fn dict(&self, key: Key) -> &Dict {
        &self.dicts[(key / KEYS_PER_DICT) as usize]
    }
}

impl Subject for StoreSubject {
    type Transaction = Either;

    fn begin(&self, isolation: betree::Isolation) -> Result<Either, Failure> {
        let isolation = match isolation {
            betree::Isolation::Snapshot => Isolation::Snapshot,
            betree::Isolation::Serializable => Isolation::Serializable,
        };
        let number = self.begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let is_large = match self.sizes {
            Sizes::Small => false,
            Sizes::Large => true,
            Sizes::Mixed => number % 2 == 1,
        };
        if !is_large {
            return Ok(Either::Small(Box::new(self.store.begin(isolation))));
        }
        let dicts: Vec<&Dict> = self.dicts.iter().collect();
        self.store.begin_large(isolation, &dicts).map(Either::Large).map_err(failed)
    }

    fn read(&self, transaction: &Either, key: Key) -> Result<Vec<Element>, Failure> {
        let dict = self.dict(key);
        let found = match transaction {
            Either::Small(small) => small.get(dict, name_of(key)),
            Either::Large(large) => large.dict(dict).and_then(|work| work.get(name_of(key))),
        };
        elements_of(&found.map_err(failed)?.unwrap_or_default())
    }

    fn scan(
        &self,
        transaction: &Either,
        keys: Range<Key>,
        direction: Direction,
        pairs_max: usize,
    ) -> Result<Scanned, Failure> {
        let dict = self.dict(keys.start);
        let range = prefix_of(keys.start)..=name_of(keys.end - 1);
        let work;
        let mut pairs = match transaction {
            Either::Small(small) => small.range(dict, range),
            Either::Large(large) => {
                work = large.dict(dict).map_err(failed)?;
                work.range(range)
            }
        };
        let first = keys.start / KEYS_PER_DICT * KEYS_PER_DICT;
        let mut met = Vec::new();
        for _ in 0..pairs_max {
            let pair = match direction {
                Direction::Forward => pairs.next(),
                Direction::Backward => pairs.next_back(),
            };
            let Some(pair) = pair else { return Ok((keys, met)) };
            let (name, value) = pair.map_err(failed)?;
            let key = (first..first + KEYS_PER_DICT).find(|key| name == name_of(*key).into_bytes());
            let key = key.ok_or_else(|| Failure::Wrong(format!("a scan met {name:?}")))?;
            met.push((key, elements_of(&value)?));
        }
        let passed = match (met.last(), direction) {
            (None, _) => keys,
            (Some((last, _)), Direction::Forward) => keys.start..last + 1,
            (Some((last, _)), Direction::Backward) => *last..keys.end,
        };
        Ok((passed, met))
    }

    fn append(&self, transaction: &mut Either, key: Key, element: Element) -> Result<Room, Failure> {
        let (dict, delta) = (self.dict(key), text_of(&[element]));
        room(match transaction {
            Either::Small(small) => small.upsert(dict, name_of(key), delta),
            Either::Large(large) => large.dict(dict).and_then(|work| work.upsert(name_of(key), delta)),
        })
    }

    fn put(&self, transaction: &mut Either, key: Key, elements: &[Element]) -> Result<Room, Failure> {
        let (dict, value) = (self.dict(key), text_of(elements));
        room(match transaction {
            Either::Small(small) => small.put(dict, name_of(key), value),
            Either::Large(large) => large.dict(dict).and_then(|work| work.put(name_of(key), value)),
        })
    }

    fn put_clone(&self, transaction: &mut Either, key: Key, element: Element) -> Result<Room, Failure> {
        let (dict, from, to) = (self.dict(key), source_of(element), prefix_of(key));
        room(match transaction {
            Either::Small(small) => small.clone_prefix(dict, from, to),
            Either::Large(large) => large.dict(dict).and_then(|work| work.clone_prefix(from, to)),
        })
    }

    fn commit(&self, transaction: Either) -> Result<End, Failure> {
        let outcome = match transaction {
            Either::Small(small) => small.commit(),
            Either::Large(large) => large.commit(),
        };
        match outcome.map_err(failed)? {
            Outcome::Committed(_) => Ok(End::Committed),
            Outcome::Conflict(_) => Ok(End::Aborted),
        }
    }

    fn append_at_once(&self, changes: &[(Key, Element)]) -> Result<(), Failure> {
        let mut batch = self.store.batch();
        for (key, element) in changes {
            batch.upsert(self.dict(*key), name_of(*key), text_of(&[*element])).map_err(failed)?;
        }
        batch.commit().map_err(failed)
    }

    /// Changes what no transaction looks at; syncs now and then.
    fn work(&self, rng: &mut Rng) -> Result<(), Failure> {
        let mut batch = self.store.batch();
        for _ in 0..rng.below(5) {
            let (dict, key) = (rng.pick(&self.dicts), format!("z{:03}", rng.below(100)));
            batch.put(dict, key, seeded::bytes(rng.next_u64(), 0, 1000)).map_err(failed)?;
        }
        batch.commit().map_err(failed)?;
        if rng.percent(5) { self.store.sync().map_err(failed) } else { Ok(()) }
    }
}

/// The anomalies of some histories, none of which is forbidden; and how many transactions aborted.
fn judged(
    isolation: betree::Isolation,
    sizes: Sizes,
    history: impl Fn(&StoreSubject, u64) -> Result<Vec<Recorded>, Failure>,
) -> (BTreeSet<Anomaly>, usize) {
    let (mut met, mut aborted) = (BTreeSet::new(), 0);
    for seed in 0..SEEDS {
        let subject = StoreSubject::new(sizes);
        let history = history(&subject, seed).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        let found = forbidden(&history, isolation);
        assert!(found.is_empty(), "{isolation:?}, {sizes:?}, seed {seed}: {found:#?} in {history:#?}");
        met.extend(anomalies(&history).iter().map(|found| found.anomaly));
        aborted += history.iter().filter(|one| one.end == End::Aborted).count();
    }
    (met, aborted)
}

#[test]
fn small_and_large_transactions_have_no_forbidden_anomaly() {
    for sizes in [Sizes::Small, Sizes::Large, Sizes::Mixed] {
        let of_seed = |isolation| {
            move |subject: &StoreSubject, seed| interleaved(subject, isolation, seed, TRANSACTIONS)
        };
        let snapshot = betree::Isolation::Snapshot;
        let (met, aborted) = judged(snapshot, sizes, of_seed(snapshot));
        assert!(met.contains(&Anomaly::G2Item), "{sizes:?}: write skew comes, not {met:?}");
        assert!(aborted > SEEDS as usize * TRANSACTIONS / 10, "{sizes:?}: {aborted}");
        let serializable = betree::Isolation::Serializable;
        let (met, aborted) = judged(serializable, sizes, of_seed(serializable));
        assert_eq!(met, BTreeSet::new(), "{sizes:?}");
        assert!(aborted > SEEDS as usize * TRANSACTIONS / 10, "{sizes:?}: {aborted}");
    }
}

#[test]
fn transactions_of_threads_have_no_forbidden_anomaly() {
    for isolation in [betree::Isolation::Snapshot, betree::Isolation::Serializable] {
        let subject = StoreSubject::new(Sizes::Mixed);
        let history = in_threads(&subject, isolation, 1, 4, 40).unwrap_or_else(|e| panic!("{e}"));
        let found = forbidden(&history, isolation);
        assert!(found.is_empty(), "{isolation:?}: {found:#?} in {history:#?}");
        assert!(history.iter().any(|one| one.end == End::Committed));
    }
}
