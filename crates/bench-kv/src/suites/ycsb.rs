//! The core workloads of YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010).
//!
//! An update replaces the whole record, without reading it. A thread updates only records of its own, the
//! numbers that its number is left of when they are divided by that of threads, and reads all: so it is known
//! what each read may find. As in YCSB, A, B, C, F and D run on the loaded records, then E.

use anyhow::{Result, ensure};
use bench_harness::scale::Scale;
use seeded::Rng;

use super::{Place, Suite};
use crate::data::Data;
use crate::drive::{Time, drive};
use crate::meter::Meter;
use crate::records::Records;
use crate::stores::{Engine, Store};
use crate::workloads::{Done, Order};
use crate::zipfian::Zipfian;

/// A record's value in bytes: YCSB's ten fields of a hundred.
const VALUE_BYTES: usize = 1000;
/// The most records that E scans.
const SCAN_RECORDS_MAX: u64 = 100;
/// For each loaded record, how many can be inserted.
const ROOM: u64 = 3;

/// How a record is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// A few are chosen often; which, has no pattern.
    Zipfian,
    /// Those that were inserted last are chosen most often.
    Latest,
    /// All equally often.
    Uniform,
}

/// A workload: what comes how often, in percent. The rest reads a record and updates it.
struct Mix {
    name: &'static str,
    about: &'static str,
    choice: Choice,
    reads: u64,
    updates: u64,
    inserts: u64,
    scans: u64,
}

const NONE: Mix =
    Mix { name: "", about: "", choice: Choice::Zipfian, reads: 0, updates: 0, inserts: 0, scans: 0 };

/// The workloads in their order.
const MIXES: [Mix; 7] = [
    Mix { name: "a", about: "half reads, half updates", reads: 50, updates: 50, ..NONE },
    Mix { name: "b", about: "95 % reads, 5 % updates", reads: 95, updates: 5, ..NONE },
    Mix { name: "c", about: "reads", reads: 100, ..NONE },
    Mix {
        name: "c-uniform",
        about: "reads of all records alike",
        choice: Choice::Uniform,
        reads: 100,
        ..NONE
    },
    Mix { name: "f", about: "half reads, half reads and updates of one record", reads: 50, ..NONE },
    Mix {
        name: "d",
        about: "95 % reads of the latest, 5 % inserts",
        choice: Choice::Latest,
        reads: 95,
        inserts: 5,
        ..NONE
    },
    Mix { name: "e", about: "95 % scans of 1 to 100 records, 5 % inserts", scans: 95, inserts: 5, ..NONE },
];

/// All workloads on one database, with one thread and then with two.
pub struct Ycsb {
    /// The suite's name, with which those of its workloads begin.
    pub name: &'static str,
    /// The memory limit in bytes.
    pub memory_bytes: u64,
    /// The number of records that are loaded.
    pub records: u64,
    /// Whether they fit into the memory.
    pub in_memory: bool,
}

impl Ycsb {
    /// Records that fit into the memory.
    pub fn in_memory(scale: Scale, memory_bytes: u64) -> Ycsb {
        Ycsb { name: "kv-ycsb", memory_bytes, records: scale.part(2000, 100_000), in_memory: true }
    }

    /// Records that do not.
    pub fn larger(memory_bytes: u64, data_bytes: u64) -> Ycsb {
        let one = Data { pairs: 1, value_bytes: VALUE_BYTES };
        Ycsb { name: "kv-ycsb-large", memory_bytes, records: data_bytes / one.pair_bytes(), in_memory: false }
    }

    fn data(&self) -> Data {
        Data { pairs: self.records * (1 + ROOM), value_bytes: VALUE_BYTES }
    }
}

impl Suite for Ycsb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let fit = if self.in_memory { "in memory" } else { "larger than memory" };
        format!("YCSB A to F, {} records of {VALUE_BYTES} bytes, {fit}, one thread and two", self.records)
    }

    fn suits(&self, engine: Engine) -> bool {
        engine.is_peer()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.records * self.data().pair_bytes()
    }

    fn is_preloaded(&self) -> bool {
        !self.in_memory
    }

    fn load(&self, place: &Place<'_>) -> Result<()> {
        let mut store = (place.open)()?;
        Records::new(self.data(), Order::Random).fill(&mut *store, self.records)?;
        store.close()
    }

    fn run(&self, place: &Place<'_>, meter: &mut Meter<'_>) -> Result<()> {
        let mut store = (place.open)()?;
        let records = match self.is_preloaded() {
            true => Records::loaded(self.data(), Order::Random, self.records),
            false => {
                let records = Records::new(self.data(), Order::Random);
                records.fill(&mut *store, self.records)?;
                (0..self.records).try_for_each(|number| records.read(&*store, number))?;
                records
            }
        };
        for threads in [1, 2] {
            for mix in &MIXES {
                let name = super::name_of(&[self.name, mix.name], threads);
                let about = format!("{}, {}", mix.about, super::threads(threads));
                let handles = (0..threads).map(|_| store.another()).collect::<Result<Vec<_>>>()?;
                let syncing = store.another()?;
                let run = Run { mix, records: &records, threads, zipfian: Zipfian::new(records.len()) };
                let loaded = records.len();
                meter.measure(name, about, || {
                    drive(handles, syncing, place.step, &|thread, store, time| {
                        run.work(store, thread, loaded, time)
                    })
                })?;
            }
        }
        store.close()?;
        let store = (place.open)()?;
        records.check_all(&*store)?;
        store.close()
    }
}

/// One workload under way.
struct Run<'r> {
    mix: &'r Mix,
    records: &'r Records,
    threads: u64,
    /// Over the records that there were when it began.
    zipfian: Zipfian,
}

impl Run<'_> {
    fn choose(&self, rng: &mut Rng, loaded: u64) -> u64 {
        match self.mix.choice {
            Choice::Uniform => rng.below_u64(loaded),
            Choice::Zipfian => {
                let scattered = Data { pairs: loaded, value_bytes: 0 };
                scattered.shuffled(self.zipfian.draw(rng))
            }
            Choice::Latest => (self.records.len() - 1).saturating_sub(self.zipfian.draw(rng)),
        }
    }

    fn work(&self, store: &mut dyn Store, thread: u64, loaded: u64, time: &mut Time) -> Result<Done> {
        let Run { mix, records, threads, .. } = *self;
        let mut rng = Rng::new(thread * 1000 + threads);
        let mut pair = Default::default();
        let mut done = Done::default();
        // A number nearby that is this thread's.
        let own = |number: u64| {
            let own = number - number % threads + thread;
            if own < loaded { own } else { own - threads }
        };
        while !time.is_over() {
            let drawn = rng.below_u64(100);
            let number = self.choose(&mut rng, loaded);
            if drawn < mix.reads {
                records.read(store, number)?;
            } else if drawn < mix.reads + mix.updates {
                done.user_bytes += records.put(store, own(number), &mut pair)?;
            } else if drawn < mix.reads + mix.updates + mix.inserts {
                // Where there is no room for more, the workload is at its end.
                let Some(new) = records.take_new() else { break };
                done.user_bytes += records.put(store, new, &mut pair)?;
            } else if drawn < mix.reads + mix.updates + mix.inserts + mix.scans {
                scan(store, records, number, 1 + rng.below_u64(SCAN_RECORDS_MAX))?;
            } else {
                records.read(store, own(number))?;
                done.user_bytes += records.put(store, own(number), &mut pair)?;
            }
            done.operations += 1;
        }
        Ok(done)
    }
}

/// Scans from a record on, and checks each.
fn scan(store: &dyn Store, records: &Records, from: u64, count: u64) -> Result<()> {
    let start = records.key(from);
    let (mut found, mut wrong) = (0_u64, None);
    let mut last = Vec::new();
    store.scan(&start, count as usize, &mut |key, value| {
        let in_order = if found == 0 { key == start } else { *last < *key };
        let checked = records.check_pair(key, value);
        let checked = checked.and_then(|()| {
            ensure!(in_order, "a scan from record {from} found a key out of order");
            Ok(())
        });
        if let Err(error) = checked {
            wrong.get_or_insert(error);
        }
        last.clear();
        last.extend_from_slice(key);
        found += 1;
    })?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    ensure!(found > 0, "a scan from record {from} on found nothing");
    Ok(())
}
