//! One kind of operation at a time, by the names of RocksDB's `db_bench`, with its sizes: keys of 16 bytes,
//! values of 100.

use anyhow::{Result, ensure};
use bench_harness::scale::Scale;
use seeded::Rng;

use super::{Place, Suite};
use crate::data::{Data, Key};
use crate::drive::{Time, drive};
use crate::meter::Meter;
use crate::records::Records;
use crate::stores::{Engine, Store};
use crate::workloads::{Done, Order};

const VALUE_BYTES: usize = 100;
/// How many times as long as another measurement an insertion of all records may take.
const FILL_STEPS: u32 = 4;

fn data(scale: Scale) -> Data {
    Data { pairs: scale.part(5000, 400_000), value_bytes: VALUE_BYTES }
}

/// What the measurements of a database share.
struct Bench<'b, 'm> {
    place: &'b Place<'b>,
    meter: &'b mut Meter<'m>,
    records: Records,
    store: Box<dyn Store>,
}

impl<'b, 'm> Bench<'b, 'm> {
    fn new(
        place: &'b Place<'b>,
        meter: &'b mut Meter<'m>,
        data: Data,
        order: Order,
    ) -> Result<Bench<'b, 'm>> {
        Ok(Bench { place, meter, records: Records::new(data, order), store: (place.open)()? })
    }

    /// Measures threads that do one thing until the time is over.
    fn measure(
        &mut self,
        name: &str,
        threads: u64,
        steps: u32,
        work: impl Fn(&Records, u64, &mut dyn Store, &mut Time) -> Result<Done> + Sync,
    ) -> Result<()> {
        let Bench { place, meter, records, store } = self;
        let handles = (0..threads).map(|_| store.another()).collect::<Result<Vec<_>>>()?;
        let syncing = store.another()?;
        let about = format!("{name}, {}", super::threads(threads));
        meter.measure(super::name_of(&["kv", name], threads), about, || {
            drive(handles, syncing, place.step * steps, &|thread, store, time| {
                work(records, thread, store, time)
            })
        })
    }

    /// Measures one operation on a random record again and again: its number is drawn for each.
    fn repeat(
        &mut self,
        name: &str,
        threads: u64,
        operation: impl Fn(&Records, &mut dyn Store, u64, &mut (Key, Vec<u8>)) -> Result<u64> + Sync,
    ) -> Result<()> {
        self.measure(name, threads, 1, |records, thread, store, time| {
            repeat(records, (thread, threads), store, time, &operation)
        })
    }

    /// Inserts all records, in the order of their numbers. Those for which the time was too short are
    /// inserted in batches, which is not measured.
    fn fill(&mut self, name: &str) -> Result<()> {
        self.measure(name, 1, FILL_STEPS, |records, _, store, time| {
            let (mut pair, mut done) = (Default::default(), Done::default());
            while !time.is_over()
                && let Some(number) = records.take_new()
            {
                done.user_bytes += records.put(store, number, &mut pair)?;
                done.operations += 1;
            }
            Ok(done)
        })?;
        self.records.fill(&mut *self.store, self.records.data().pairs)
    }

    /// Closes the database, opens it again and checks it.
    fn check(self) -> Result<()> {
        self.store.close()?;
        let store = (self.place.open)()?;
        self.records.check_all(&*store)?;
        store.close()
    }
}

/// One operation on random records until the time is over; a thread's are those whose numbers are its own.
fn repeat(
    records: &Records,
    (thread, threads): (u64, u64),
    store: &mut dyn Store,
    time: &mut Time,
    operation: &impl Fn(&Records, &mut dyn Store, u64, &mut (Key, Vec<u8>)) -> Result<u64>,
) -> Result<Done> {
    let (mut rng, mut pair, mut done) = (Rng::new(thread), Default::default(), Done::default());
    let own = records.len() / threads;
    while !time.is_over() {
        let number = rng.below_u64(own) * threads + thread;
        done.user_bytes += operation(records, store, number, &mut pair)?;
        done.operations += 1;
    }
    Ok(done)
}

fn read(records: &Records, store: &mut dyn Store, number: u64, _: &mut (Key, Vec<u8>)) -> Result<u64> {
    records.read(store, number)?;
    Ok(0)
}

fn overwrite(
    records: &Records,
    store: &mut dyn Store,
    number: u64,
    pair: &mut (Key, Vec<u8>),
) -> Result<u64> {
    records.put(store, number, pair)
}

/// Finds the first pair from a key on, which is that of the key.
fn seek(records: &Records, store: &mut dyn Store, number: u64, _: &mut (Key, Vec<u8>)) -> Result<u64> {
    let key = records.key(number);
    let mut found = None;
    store.scan(&key, 1, &mut |at, value| found = Some(records.check_pair(at, value).map(|()| at == key)))?;
    ensure!(found.transpose()? == Some(true), "a seek to record {number} found another");
    Ok(0)
}

/// Passes over all records in the order of keys or against it, again and again.
fn pass(records: &Records, store: &mut dyn Store, time: &mut Time, is_backward: bool) -> Result<Done> {
    let mut done = Done::default();
    loop {
        let (mut count, mut wrong) = (0, None);
        let mut see = |key: &[u8], value: &[u8]| {
            let number = if is_backward { records.len() - 1 - count } else { count };
            if wrong.is_none() && (key != records.key(number) || records.check_pair(key, value).is_err()) {
                wrong = Some(number);
            }
            count += 1;
        };
        match is_backward {
            true => store.scan_back(usize::MAX, &mut see)?,
            false => store.scan(&Key::default(), usize::MAX, &mut see)?,
        }
        ensure!(wrong.is_none(), "a scan found another than record {wrong:?}");
        ensure!(count == records.len(), "a scan of {} records found {count}", records.len());
        done.operations += count;
        if time.is_over_now() {
            return Ok(done);
        }
    }
}

/// Insertion in the order of keys, and scans.
pub struct InOrder {
    data: Data,
    memory_bytes: u64,
}

impl InOrder {
    /// The suite at a scale, with a memory limit.
    pub fn new(scale: Scale, memory_bytes: u64) -> InOrder {
        InOrder { data: data(scale), memory_bytes }
    }
}

impl Suite for InOrder {
    fn name(&self) -> &'static str {
        "kv-in-order"
    }

    fn about(&self) -> String {
        format!("fillseq, readseq, readreverse of {} records, in memory", self.data.pairs)
    }

    fn suits(&self, engine: Engine) -> bool {
        engine.is_peer()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.data.pairs * self.data.pair_bytes()
    }

    fn run(&self, place: &Place<'_>, meter: &mut Meter<'_>) -> Result<()> {
        let mut bench = Bench::new(place, meter, self.data, Order::OfKeys)?;
        bench.fill("fillseq")?;
        bench.measure("readseq", 1, 1, |records, _, store, time| pass(records, store, time, false))?;
        bench.measure("readreverse", 1, 1, |records, _, store, time| pass(records, store, time, true))?;
        bench.check()
    }
}

/// Insertion at random, and then all that is done with single records.
pub struct AtRandom {
    data: Data,
    memory_bytes: u64,
}

impl AtRandom {
    /// The suite at a scale, with a memory limit.
    pub fn new(scale: Scale, memory_bytes: u64) -> AtRandom {
        AtRandom { data: data(scale), memory_bytes }
    }
}

impl Suite for AtRandom {
    fn name(&self) -> &'static str {
        "kv-at-random"
    }

    fn about(&self) -> String {
        let count = self.data.pairs;
        format!(
            "fillrandom, readrandom, seekrandom, overwrite, readwhilewriting, deleterandom of {count} records, in memory"
        )
    }

    fn suits(&self, engine: Engine) -> bool {
        engine.is_peer()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.data.pairs * self.data.pair_bytes()
    }

    fn run(&self, place: &Place<'_>, meter: &mut Meter<'_>) -> Result<()> {
        let mut bench = Bench::new(place, meter, self.data, Order::Random)?;
        bench.fill("fillrandom")?;
        for threads in [1, 2] {
            bench.repeat("readrandom", threads, read)?;
            bench.repeat("seekrandom", threads, seek)?;
            bench.repeat("overwrite", threads, overwrite)?;
        }
        bench.measure("readwhilewriting", 2, 1, read_while_writing)?;
        bench.measure("deleterandom", 1, 1, delete)?;
        bench.check()
    }
}

/// The first thread writes, which is counted apart; the other reads.
fn read_while_writing(
    records: &Records,
    thread: u64,
    store: &mut dyn Store,
    time: &mut Time,
) -> Result<Done> {
    if thread == 1 {
        return repeat(records, (0, 1), store, time, &read);
    }
    let mut done = repeat(records, (0, 1), store, time, &overwrite)?;
    done.counters.insert("writes".into(), std::mem::take(&mut done.operations));
    Ok(done)
}

/// Deletes records in the order of their numbers, which is none of their keys, until half of them are gone.
fn delete(records: &Records, _: u64, store: &mut dyn Store, time: &mut Time) -> Result<Done> {
    let mut done = Done::default();
    for number in 0..records.len() / 2 {
        if time.is_over() {
            break;
        }
        done.user_bytes += records.delete(store, number)?;
        done.operations += 1;
    }
    Ok(done)
}
