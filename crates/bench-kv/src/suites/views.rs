//! What idle views cost a writer: puts beside a thousand views of as many moments, in turns with none.

use anyhow::{Result, ensure};
use bench_harness::scale::Scale;
use betree_store::View;
use seeded::Rng;

use super::{Place, Suite};
use crate::data::Data;
use crate::drive::{Time, drive};
use crate::meter::Meter;
use crate::records::{Records, Version};
use crate::stores::{BetreeStore, Engine, Store};
use crate::workloads::{Done, Order};

/// The idle views.
const VIEWS: usize = 1000;
/// How often it takes turns.
const TURNS: usize = 3;

/// The suite.
pub struct Views {
    data: Data,
    memory_bytes: u64,
}

impl Views {
    /// The suite at a scale, with a memory limit.
    pub fn new(scale: Scale, memory_bytes: u64) -> Views {
        let data = Data { pairs: scale.part(5000, 400_000), value_bytes: 100 };
        Views { data, memory_bytes }
    }
}

impl Suite for Views {
    fn name(&self) -> &'static str {
        "kv-views"
    }

    fn about(&self) -> String {
        format!("puts over {} records beside {VIEWS} idle views, in turns with none", self.data.pairs)
    }

    fn suits(&self, engine: Engine) -> bool {
        engine == Engine::BetreeStore
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.data.pairs * self.data.pair_bytes()
    }

    fn run(&self, place: &Place<'_>, meter: &mut Meter<'_>) -> Result<()> {
        let mut store = BetreeStore::open(place.dir, place.budget)?;
        let records = Records::new(self.data, Order::Random);
        records.fill(&mut store, self.data.pairs)?;
        for turn in 0..TURNS * 2 {
            let count = if turn % 2 == 0 { 0 } else { VIEWS };
            let mut rng = Rng::new(turn as u64);
            let idle = (0..count)
                .map(|_| Idle::begin(&mut store, &records, rng.below_u64(records.len())))
                .collect::<Result<Vec<_>>>()?;
            let work = |_, store: &mut (dyn Store + 'static), time: &mut Time| {
                let (mut pair, mut done, mut rng) = (Default::default(), Done::default(), Rng::new(!0));
                while !time.is_over() {
                    let number = rng.below_u64(records.len());
                    done.user_bytes += records.put(store, number, &mut pair)?;
                    done.operations += 1;
                }
                Ok(done)
            };
            let (handle, syncing) = (store.another()?, store.another()?);
            let about = format!("puts beside {count} idle views, one thread");
            meter.measure(format!("kv-views-{count}"), about, || {
                drive(vec![handle], syncing, place.step, &work)
            })?;
            idle.iter().try_for_each(|idle| idle.check(&records))?;
        }
        Box::new(store).close()?;
        let store = (place.open)()?;
        records.check_all(&*store)?;
        store.close()
    }
}

/// A view that nobody reads until the end.
struct Idle {
    view: View,
    /// The record that was put before it began, and its version.
    number: u64,
    version: Version,
}

impl Idle {
    fn begin(store: &mut BetreeStore, records: &Records, number: u64) -> Result<Idle> {
        records.put(store, number, &mut Default::default())?;
        Ok(Idle { view: store.store().view(), number, version: records.version(number) })
    }

    /// Reads its record, which is as it was.
    fn check(&self, records: &Records) -> Result<()> {
        let found = self.view.dict(BetreeStore::DICT)?.get(records.key(self.number))?;
        let mut expected = Vec::new();
        records.value(self.number, self.version, &mut expected);
        let (number, version) = (self.number, self.version);
        ensure!(found.as_deref() == Some(&*expected), "a view of record {number}, {version} has {found:?}");
        Ok(())
    }
}
