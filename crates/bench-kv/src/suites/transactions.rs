//! Transactions of one get and one put of a counter, on many keys, warm, and on few, contended.
//!
//! Each adds one to a counter. So no isolation may lose one: in the end the counters' sum is the number of
//! commits.

use anyhow::{Context, Result, ensure};
use bench_harness::scale::Scale;
use seeded::Rng;

use super::{Place, Suite};
use crate::data::{Data, Key};
use crate::drive::{Time, drive};
use crate::meter::Meter;
use crate::stores::{BATCH_OPERATIONS, Engine, Isolation, Store, Transactional, added};
use crate::workloads::Done;

const VALUE_BYTES: usize = 100;
/// Keys so few that transactions meet.
const CONTENDED: u64 = 64;

/// The suite.
pub struct Transactions {
    data: Data,
    memory_bytes: u64,
}

/// A measurement.
struct Kind {
    name: &'static str,
    about: &'static str,
    isolation: Isolation,
    is_contended: bool,
    threads: u64,
}

const KINDS: [Kind; 6] = {
    const fn kind(name: &'static str, isolation: Isolation, threads: u64) -> Kind {
        let about = "one get and one put of a random key";
        Kind { name, about, isolation, is_contended: false, threads }
    }
    const fn contended(name: &'static str, isolation: Isolation) -> Kind {
        Kind { name, about: "counters in 64 keys", isolation, is_contended: true, threads: 2 }
    }
    [
        kind("snapshot", Isolation::Snapshot, 1),
        kind("serializable", Isolation::Serializable, 1),
        kind("snapshot", Isolation::Snapshot, 2),
        kind("serializable", Isolation::Serializable, 2),
        contended("snapshot-contended", Isolation::Snapshot),
        contended("serializable-contended", Isolation::Serializable),
    ]
};

impl Transactions {
    /// The suite at a scale, with a memory limit.
    pub fn new(scale: Scale, memory_bytes: u64) -> Transactions {
        let data = Data { pairs: scale.pick(1000, 20_000), value_bytes: VALUE_BYTES };
        Transactions { data, memory_bytes }
    }

    fn load(&self, store: &mut dyn Store) -> Result<()> {
        let ranks: Vec<u64> = (0..self.data.pairs).collect();
        for ranks in ranks.chunks(BATCH_OPERATIONS) {
            let pairs: Vec<(Key, Vec<u8>)> = ranks
                .iter()
                .map(|rank| {
                    let mut value = Vec::new();
                    self.data.value(*rank, &mut value);
                    (self.data.key(*rank), value)
                })
                .collect();
            store.put(&pairs)?;
        }
        store.sync()
    }

    /// The sum of all counters beyond the first values; all else in the values is as it was.
    fn counted(&self, store: &dyn Store) -> Result<u64> {
        let (mut first, mut sum) = (Vec::new(), 0);
        for rank in 0..self.data.pairs {
            self.data.value(rank, &mut first);
            let value = store.get(&self.data.key(rank))?;
            let value = value.with_context(|| format!("the counter of rank {rank} is gone"))?;
            let counter = value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let count = counter.wrapping_sub(self.data.counter(rank));
            ensure!(added(&first, count) == value, "the counter of rank {rank} has {value:02x?}");
            sum += count;
        }
        Ok(sum)
    }
}

impl Suite for Transactions {
    fn name(&self) -> &'static str {
        "kv-transactions"
    }

    fn about(&self) -> String {
        let keys = self.data.pairs;
        format!("transactions of one get and one put in {keys} pairs, and counters in {CONTENDED}")
    }

    fn suits(&self, engine: Engine) -> bool {
        engine.is_transactional()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.data.pairs * self.data.pair_bytes()
    }

    fn run(&self, place: &Place<'_>, meter: &mut Meter<'_>) -> Result<()> {
        let mut store = (place.open)()?;
        self.load(&mut *store)?;
        store.close()?;
        let store = (place.open_transactional)()?;
        let mut committed = 0;
        for kind in KINDS.iter().filter(|kind| store.has(kind.isolation)) {
            let keys = if kind.is_contended { CONTENDED } else { self.data.pairs };
            let data = self.data;
            let work = |thread, store: &mut (dyn Transactional + 'static), time: &mut Time| {
                let mut rng = Rng::new(thread);
                let mut done = Done::default();
                let mut conflicts = 0;
                while !time.is_over() {
                    let key = data.key(rng.below_u64(keys));
                    let mut tries = 0;
                    store.update(kind.isolation, &key, &mut |old| {
                        tries += 1;
                        added(old.unwrap_or_default(), 1)
                    })?;
                    conflicts += tries - 1;
                    done.operations += 1;
                    done.user_bytes += data.pair_bytes();
                }
                done.counters.insert("conflicts".into(), conflicts);
                Ok(done)
            };
            let handles = (0..kind.threads).map(|_| store.another()).collect::<Result<Vec<_>>>()?;
            let syncing = store.another()?;
            let name = super::name_of(&["kv-transactions", kind.name], kind.threads);
            let about = format!("{}, {}", kind.about, super::threads(kind.threads));
            meter.measure(name, about, || {
                let done = drive(handles, syncing, place.step, &work)?;
                committed += done.operations;
                Ok(done)
            })?;
        }
        drop(store);
        let store = (place.open)()?;
        let counted = self.counted(&*store)?;
        ensure!(counted == committed, "{committed} transactions committed, and {counted} were counted");
        store.close()
    }
}
