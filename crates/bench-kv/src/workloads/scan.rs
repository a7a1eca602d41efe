//! Range queries.

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::{Done, Workload};
use crate::data::Data;
use crate::stores::Store;

/// The number of pairs in a short scan.
const SHORT_PAIRS: u64 = 100;

/// Scans pairs from a rank on, and checks each key, and the counter and size of each value.
fn scan(store: &dyn Store, data: &Data, from: u64, pairs: u64) -> Result<u64> {
    let mut rank = from;
    let mut wrong = None;
    store.scan(&data.key(from), pairs as usize, &mut |key, value| {
        let counter = data.counter(rank).to_le_bytes();
        if key != data.key(rank) || !value.starts_with(&counter) || value.len() != data.value_bytes {
            wrong.get_or_insert(rank);
        }
        rank += 1;
    })?;
    match wrong {
        Some(rank) => bail!("the scan from rank {from} on found another pair than that of rank {rank}"),
        None => Ok(rank - from),
    }
}

/// One scan of all pairs.
pub struct Whole {
    /// The pairs.
    pub data: Data,
}

impl Workload for Whole {
    fn name(&self) -> &'static str {
        "kv-scan"
    }

    fn about(&self) -> String {
        format!("scan {} pairs, cold", self.data.pairs)
    }

    fn data(&self) -> Data {
        self.data
    }

    fn is_preloaded(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        false
    }

    fn operations(&self) -> u64 {
        self.data.pairs
    }

    fn run(&self, store: &mut dyn Store, _until: Instant) -> Result<Done> {
        let operations = scan(store, &self.data, 0, self.data.pairs)?;
        ensure!(operations == self.data.pairs, "the scan ended after {operations} pairs");
        Ok(Done::read(operations))
    }
}

/// Short scans from random keys.
pub struct Short {
    /// The pairs.
    pub data: Data,
    /// The number of scans.
    pub scans: u64,
}

impl Workload for Short {
    fn name(&self) -> &'static str {
        "kv-scan-short"
    }

    fn about(&self) -> String {
        format!("{} scans of {SHORT_PAIRS} pairs in {}, cold", self.scans, self.data.pairs)
    }

    fn data(&self) -> Data {
        self.data
    }

    fn is_preloaded(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        false
    }

    fn operations(&self) -> u64 {
        self.scans
    }

    fn run(&self, store: &mut dyn Store, until: Instant) -> Result<Done> {
        for number in 0..self.scans {
            if Instant::now() >= until {
                return Ok(Done::read(number));
            }
            let from = self.data.any(number);
            let expected = SHORT_PAIRS.min(self.data.pairs - from);
            let found = scan(store, &self.data, from, SHORT_PAIRS)?;
            ensure!(found == expected, "the scan from rank {from} on ended after {found} pairs");
        }
        Ok(Done::read(self.scans))
    }
}
