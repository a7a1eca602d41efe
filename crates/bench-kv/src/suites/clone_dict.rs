//! Clones of a large dictionary, in turns with those of a small one.

use anyhow::{Result, ensure};
use bench_harness::scale::Scale;
use betree_store::{Durability, Store};

use super::{Place, Suite};
use crate::data::Data;
use crate::meter::Meter;
use crate::stores::Engine;
use crate::workloads::Done;

const VALUE_BYTES: usize = 8;
const SMALL: u64 = 1000;
/// How often it takes turns, and the clones of a turn.
const TURNS: usize = 3;
const CLONES: u64 = 10;
/// Pairs that are put together when a dictionary is made.
const BATCH_PAIRS: u64 = 1000;
/// What the keys begin with that are put before each clone: no other key begins so.
const MARKS: [u8; 8] = [0xff; 8];

/// The suite.
pub struct CloneDict {
    large: Data,
    memory_bytes: u64,
}

impl CloneDict {
    /// The suite at a scale, with a memory limit.
    pub fn new(scale: Scale, memory_bytes: u64) -> CloneDict {
        let pairs = match scale {
            Scale::Full => 10_000_000,
            Scale::Quarter | Scale::Tiny => 100_000,
        };
        CloneDict { large: Data { pairs, value_bytes: VALUE_BYTES }, memory_bytes }
    }
}

fn name_of(pairs: u64) -> String {
    format!("of {pairs}")
}

/// Makes a dictionary, in the order of its keys.
fn make(store: &Store, data: Data) -> Result<()> {
    let dict = store.dict(&name_of(data.pairs))?;
    let mut value = Vec::new();
    for first in (0..data.pairs).step_by(BATCH_PAIRS as usize) {
        let mut batch = store.batch();
        for rank in first..(first + BATCH_PAIRS).min(data.pairs) {
            data.value(rank, &mut value);
            batch.put(&dict, data.key(rank), &value)?;
        }
        batch.commit()?;
    }
    Ok(store.sync()?)
}

fn copy_of(clone: u64) -> String {
    format!("copy {clone}")
}

/// A key behind all others, which is put before a clone is made.
fn mark(clone: u64) -> Vec<u8> {
    [&MARKS[..], &clone.to_be_bytes()].concat()
}

/// A clone has the first pair and the last of its source, and of the keys that were put before each clone
/// those that were there when it was made.
fn check(store: &Store, data: Data) -> Result<()> {
    let mut value = Vec::new();
    for clone in 0..CLONES {
        let copy = store.open_dict(&copy_of(clone))?;
        for rank in [0, data.pairs - 1] {
            data.value(rank, &mut value);
            let found = copy.get(data.key(rank))?;
            ensure!(found.as_deref() == Some(&*value), "rank {rank} of clone {clone} has {found:?}");
        }
        let marks = copy.prefix(MARKS).collect::<betree_store::Result<Vec<_>>>()?.len() as u64;
        ensure!(marks == clone + 1, "clone {clone} has {marks} of the keys that were put between the clones");
    }
    Ok(())
}

impl Suite for CloneDict {
    fn name(&self) -> &'static str {
        "kv-clone-dict"
    }

    fn about(&self) -> String {
        format!("clones of a dictionary of {} pairs, in turns with one of {SMALL}", self.large.pairs)
    }

    fn suits(&self, engine: Engine) -> bool {
        engine == Engine::BetreeStore
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn data_bytes(&self) -> u64 {
        self.large.pairs * self.large.pair_bytes()
    }

    fn run(&self, place: &Place<'_>, meter: &mut Meter<'_>) -> Result<()> {
        let options = Store::options().cache_bytes(place.budget.cache_bytes as usize);
        let store = options.durability(Durability::Manual).open(place.dir.join("store"))?;
        let small = Data { pairs: SMALL, ..self.large };
        make(&store, small)?;
        make(&store, self.large)?;
        for turn in 0..TURNS * 2 {
            let data = if turn % 2 == 0 { small } else { self.large };
            let name = name_of(data.pairs);
            let source = store.open_dict(&name)?;
            let about = format!("clones of a dictionary of {} pairs, each after a put in it", data.pairs);
            // The same at all scales.
            let kind = if turn % 2 == 0 { "small" } else { "large" };
            meter.measure(format!("kv-clone-dict-{kind}"), about, || {
                for clone in 0..CLONES {
                    source.put(mark(clone), "")?;
                    store.clone_dict(&name, &copy_of(clone))?;
                }
                let user_bytes = (0..CLONES).map(|clone| mark(clone).len() as u64).sum();
                Ok(Done { operations: CLONES, user_bytes, ..Done::default() })
            })?;
            check(&store, data)?;
            source.delete_prefix(MARKS)?;
            (0..CLONES).try_for_each(|clone| store.drop_dict(&copy_of(clone)))?;
        }
        Ok(store.close()?)
    }
}
