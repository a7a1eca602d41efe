//! The workloads, one in each file.

mod insert;
mod point;
mod range_delete;
mod scan;
mod upsert;

pub use insert::Order;

use std::collections::BTreeMap;
use std::ops::Add;
use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::data::Data;
use super::stores::{Engine, Store};
use bench_harness::scale::Scale;

/// The work of a run until its end, or until its time was over.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// The number of operations, in the order of the workload.
    pub operations: u64,
    /// Bytes that the user wrote: keys, values and deltas.
    pub user_bytes: u64,
    /// What else was counted.
    pub counters: BTreeMap<String, u64>,
}

impl Done {
    /// Operations that wrote nothing.
    fn read(operations: u64) -> Done {
        Done { operations, ..Done::default() }
    }

    /// Operations that wrote this number of bytes.
    fn wrote(operations: u64, user_bytes: u64) -> Done {
        Done { operations, user_bytes, ..Done::default() }
    }
}

/// The work of two threads.
impl Add for Done {
    type Output = Done;

    fn add(mut self, other: Done) -> Done {
        self.operations += other.operations;
        self.user_bytes += other.user_bytes;
        for (name, count) in other.counters {
            *self.counters.entry(name).or_default() += count;
        }
        self
    }
}

/// A workload.
pub trait Workload {
    /// The name on the command line and in tables.
    fn name(&self) -> &'static str;

    /// The work in one line.
    fn about(&self) -> String;

    /// The pairs that it works on.
    fn data(&self) -> Data;

    /// Whether the database has all pairs before.
    fn is_preloaded(&self) -> bool;

    /// Whether it changes the database: each round then has a new one.
    fn writes(&self) -> bool;

    /// Whether an engine is compared in it: by default, one of each family.
    fn suits(&self, engine: Engine) -> bool {
        engine == engine.family()
    }

    /// The number of operations.
    fn operations(&self) -> u64;

    /// Warms caches where that is part of the workload. Not timed.
    fn warm(&self, _store: &dyn Store) -> Result<()> {
        Ok(())
    }

    /// Does the work, until a time at most. The time of this and of the sync after it is the figure.
    fn run(&self, store: &mut dyn Store, until: Instant) -> Result<Done>;

    /// Checks about `sample` keys after a number of operations, on a cold database. Not timed.
    fn check(&self, _store: &dyn Store, _operations: u64, _sample: u64) -> Result<()> {
        Ok(())
    }
}

/// All workloads, each on `data_bytes` of pairs.
pub fn all(scale: Scale, data_bytes: u64) -> Vec<Box<dyn Workload>> {
    let data = |value_bytes| {
        let one = Data { pairs: 1, value_bytes };
        Data { pairs: data_bytes / one.pair_bytes(), value_bytes }
    };
    let (small, large) = (data(100), data(1000));
    vec![
        Box::new(insert::Insert { name: "kv-random-insert", data: small, order: insert::Order::Random }),
        Box::new(insert::Insert { name: "kv-random-insert-1000", data: large, order: insert::Order::Random }),
        Box::new(insert::Insert { name: "kv-sequential-insert", data: small, order: insert::Order::OfKeys }),
        Box::new(upsert::Upsert { data: small }),
        Box::new(point::Point { data: small, warm: false, queries: scale.pick(1000, 20_000) }),
        Box::new(point::Point { data: small, warm: true, queries: scale.pick(10_000, 500_000) }),
        Box::new(scan::Whole { data: small }),
        Box::new(scan::Short { data: small, scans: scale.pick(100, 5000) }),
        Box::new(range_delete::RangeDelete { data: small, ranges: scale.pick(50, 1000) }),
    ]
}

/// Puts the pairs of `ranks` in batches, until a time at most. Returns the number of pairs.
pub fn put_ranks(
    store: &mut dyn Store,
    data: &Data,
    ranks: impl Iterator<Item = u64>,
    until: Option<Instant>,
) -> Result<u64> {
    let mut batch = vec![([0; _], Vec::new()); super::stores::BATCH_OPERATIONS];
    let mut filled = 0;
    let mut put = 0;
    for rank in ranks {
        if let Some((key, value)) = batch.get_mut(filled) {
            *key = data.key(rank);
            data.value(rank, value);
            filled += 1;
        }
        if filled == batch.len() {
            store.put(&batch)?;
            put += filled as u64;
            filled = 0;
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(put);
            }
        }
    }
    batch.truncate(filled);
    if filled > 0 {
        store.put(&batch)?;
    }
    Ok(put + filled as u64)
}

/// Loads a store for workloads that read or change it: nine tenths of the pairs in the order of keys, then
/// the rest in random order, so that the last writes are spread over the first.
pub fn load(store: &mut dyn Store, data: &Data) -> Result<()> {
    let is_late = |rank: &u64| super::data::mix(*rank).is_multiple_of(10);
    put_ranks(store, data, (0..data.pairs).filter(|rank| !is_late(rank)), None)?;
    put_ranks(store, data, (0..data.pairs).map(|number| data.shuffled(number)).filter(is_late), None)?;
    store.sync()
}

/// Checks the value of a rank.
pub fn check_rank(store: &dyn Store, data: &Data, rank: u64, expected: Option<&[u8]>) -> Result<()> {
    let found = store.get(&data.key(rank))?;
    if found.as_deref() != expected {
        bail!("the key of rank {rank} has {found:02x?} where {expected:02x?} should be");
    }
    Ok(())
}

/// Checks the number of pairs, by a scan.
pub fn check_count(store: &dyn Store, data: &Data, expected: u64) -> Result<()> {
    let mut count = 0_u64;
    store.scan(&data.key(0), usize::MAX, &mut |_, _| count += 1)?;
    ensure!(count == expected, "a scan finds {count} pairs where {expected} should be");
    Ok(())
}
