//! How fast sorted pairs come into a dictionary, in turns with what the device takes: a file written in
//! order, past the page cache.
//!
//! The values are random bytes, which do not compress: what is stored is what the user gave. They are parts
//! of a buffer that is there before the clock starts. An operation is a byte of what is stored, so rates are
//! in bytes a second, and the amplification is bytes written for each stored.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use bench_harness::scale::Scale;
use betree_platform::{BLOCK_BYTES, Device};
use betree_std::FileDevice;
use betree_store::{Dict, Durability, Store};

use super::{Place, Suite};
use crate::data::{Data, mix};
use crate::meter::Meter;
use crate::stores::Engine;
use crate::workloads::Done;

const VALUE_BYTES: usize = 1000;
/// How often it takes turns.
const TURNS: usize = 3;
/// A write of the file, in bytes.
const WRITE_BYTES: usize = 1 << 20;
/// The approximate number of pairs that a check compares.
const CHECK_SAMPLE: u64 = 2000;
const DICT: &str = "ingested";
/// The offsets at which values begin: a prime number, so that as many ranks have values of their own.
const OFFSETS: usize = (16 << 20) + 43;

/// The suite.
pub struct Ingest {
    data: Data,
    memory_bytes: u64,
}

impl Ingest {
    /// The suite at a scale, with a memory limit.
    pub fn new(scale: Scale, memory_bytes: u64) -> Ingest {
        let one = Data { pairs: 1, value_bytes: VALUE_BYTES };
        let pairs = scale.part(4 << 20, 256 << 20) / one.pair_bytes();
        Ingest { data: Data { pairs, ..one }, memory_bytes }
    }

    /// What is there is what was ingested.
    fn check(&self, values: &Values, dict: &Dict) -> Result<()> {
        for rank in self.data.sample(CHECK_SAMPLE) {
            let found = dict.get(self.data.key(rank))?;
            ensure!(found.as_deref() == Some(values.of(rank)), "rank {rank} has {found:?}");
        }
        let count = dict.iter().try_fold(0, |count, pair| pair.map(|_| count + 1))?;
        ensure!(count == self.data.pairs, "a scan finds {count} pairs where {} should be", self.data.pairs);
        Ok(())
    }
}

/// Random bytes, of which all values are parts.
struct Values(Vec<u8>);

impl Values {
    fn new() -> Values {
        let words = ((OFFSETS + VALUE_BYTES) as u64).div_ceil(8);
        Values((0..words).flat_map(|word| mix(word).to_le_bytes()).collect())
    }

    /// The value of a rank. Neighbours have no bytes in common.
    fn of(&self, rank: u64) -> &[u8] {
        let start = (rank * VALUE_BYTES as u64 % OFFSETS as u64) as usize;
        self.0.get(start..start + VALUE_BYTES).unwrap_or_default()
    }
}

/// Writes a file in order, makes it durable, and removes it.
fn write_file(path: &Path, bytes: u64) -> Result<Done> {
    let device = FileDevice::create(path, bytes)?;
    let words = (WRITE_BYTES + BLOCK_BYTES) as u64 / 8;
    let buffer: Vec<u8> = (0..words).flat_map(|word| mix(word).to_le_bytes()).collect();
    // At the border of a block, or the device would copy it.
    let start = buffer.as_ptr().align_offset(BLOCK_BYTES);
    let block = buffer.get(start..start + WRITE_BYTES).context("no block begins in the buffer")?;
    let mut written = 0;
    while written + WRITE_BYTES as u64 <= bytes {
        device.write_at(written, block)?;
        written += WRITE_BYTES as u64;
    }
    device.sync()?;
    Ok(Done { operations: written, user_bytes: written, ..Done::default() })
}

impl Suite for Ingest {
    fn name(&self) -> &'static str {
        "kv-ingest"
    }

    fn about(&self) -> String {
        format!("sorted pairs into a dictionary, {} MiB, in turns with a file", self.data_bytes() >> 20)
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
        let open = || {
            let options = Store::options().cache_bytes(place.budget.cache_bytes as usize);
            options.durability(Durability::Manual).open(place.dir.join("store"))
        };
        let (file, mut store) = (place.dir.join("file"), open()?);
        let values = Values::new();
        for _ in 0..TURNS {
            meter.measure("kv-ingest-file".into(), "bytes of a file written in order".into(), || {
                write_file(&file, self.data_bytes())
            })?;
            std::fs::remove_file(&file)?;
            let dict = store.dict(DICT)?;
            meter.measure("kv-ingest-pairs".into(), "bytes of sorted pairs ingested".into(), || {
                dict.ingest((0..self.data.pairs).map(|rank| (self.data.key(rank), values.of(rank))))?;
                let bytes = self.data_bytes();
                Ok(Done { operations: bytes, user_bytes: bytes, ..Done::default() })
            })?;
            store.close()?;
            store = open()?;
            self.check(&values, &store.open_dict(DICT)?)?;
            store.drop_dict(DICT)?;
        }
        Ok(store.close()?)
    }
}
