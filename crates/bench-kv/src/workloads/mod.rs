//! What is done with a key-value store, one workload a file.

mod insert;
mod point;
mod range_delete;
mod scan;
mod upsert;

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::data::Data;
use super::stores::{Engine, Store};
use bench_harness::scale::Scale;

/// What a run has done when its time was over, or it was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Operations, in the order in which the workload makes them.
    pub operations: u64,
    /// What a user would say those have written, in bytes: keys, values and deltas.
    pub user_bytes: u64,
}

/// A workload.
pub trait Workload {
    /// Its name on the command line and in the tables.
    fn name(&self) -> &'static str;

    /// What it does, in a line.
    fn about(&self) -> String;

    /// The pairs that it works on.
    fn data(&self) -> Data;

    /// Whether all pairs are there before.
    fn is_preloaded(&self) -> bool;

    /// Whether it changes anything: then each round has a new database.
    fn writes(&self) -> bool;

    /// Whether an engine has something of its own for it.
    fn suits(&self, engine: Engine) -> bool {
        engine == engine.family()
    }

    /// How many operations there are.
    fn operations(&self) -> u64;

    /// Brings into memory what is to be there; not timed.
    fn warm(&self, _store: &dyn Store) -> Result<()> {
        Ok(())
    }

    /// Does it, up to a moment. What this and the sync after it take is the figure.
    fn run(&self, store: &mut dyn Store, until: Instant) -> Result<Done>;

    /// Checks, on a cold database, about `sample` keys after so many operations; not timed.
    fn check(&self, _store: &dyn Store, _operations: u64, _sample: u64) -> Result<()> {
        Ok(())
    }
}

/// All workloads, each on so many bytes of pairs.
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

/// Puts pairs of given ranks in batches, up to a moment; gives how many.
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

/// Fills a store for what reads and changes: nine tenths in the order of keys, then the rest in an
/// order without pattern, so that what was written last is all over what was written first.
pub fn load(store: &mut dyn Store, data: &Data) -> Result<()> {
    let is_late = |rank: &u64| super::data::mix(*rank).is_multiple_of(10);
    put_ranks(store, data, (0..data.pairs).filter(|rank| !is_late(rank)), None)?;
    put_ranks(store, data, (0..data.pairs).map(|number| data.shuffled(number)).filter(is_late), None)?;
    store.sync()
}

/// Checks what a store has for a rank.
pub fn check_rank(store: &dyn Store, data: &Data, rank: u64, expected: Option<&[u8]>) -> Result<()> {
    let found = store.get(&data.key(rank))?;
    if found.as_deref() != expected {
        bail!("the key of rank {rank} has {found:02x?} where {expected:02x?} should be");
    }
    Ok(())
}

/// Checks how many pairs a store has, by a scan.
pub fn check_count(store: &dyn Store, data: &Data, expected: u64) -> Result<()> {
    let mut count = 0_u64;
    store.scan(&data.key(0), usize::MAX, &mut |_, _| count += 1)?;
    ensure!(count == expected, "a scan finds {count} pairs where {expected} should be");
    Ok(())
}
