//! Point queries.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{Done, Workload};
use crate::data::Data;
use crate::stores::Store;

/// With warm caches, one pair in this number is queried.
const WARM_PART: u64 = 64;

/// Queries random existing keys, one after the other.
pub struct Point {
    /// The pairs.
    pub data: Data,
    /// Whether caches are warm: then only the first keys are queried, and each was queried before.
    pub warm: bool,
    /// The number of queries.
    pub queries: u64,
}

impl Point {
    fn range(&self) -> Data {
        let part = if self.warm { WARM_PART } else { 1 };
        Data { pairs: (self.data.pairs / part).max(1), ..self.data }
    }

    fn query(&self, store: &dyn Store, rank: u64, expected: &mut Vec<u8>) -> Result<()> {
        let found = store.get(&self.data.key(rank))?;
        self.data.value(rank, expected);
        ensure!(found.as_ref() == Some(expected), "the key of rank {rank} has {found:02x?}");
        Ok(())
    }
}

impl Workload for Point {
    fn name(&self) -> &'static str {
        if self.warm { "kv-point-warm" } else { "kv-point-cold" }
    }

    fn about(&self) -> String {
        let of = self.range().pairs;
        format!("{} point queries in {of} pairs, {}", self.queries, if self.warm { "warm" } else { "cold" })
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
        self.queries
    }

    fn warm(&self, store: &dyn Store) -> Result<()> {
        let ranks = if self.warm { self.range().pairs } else { 0 };
        let mut expected = Vec::new();
        (0..ranks).try_for_each(|rank| self.query(store, rank, &mut expected))
    }

    fn run(&self, store: &mut dyn Store, until: Instant) -> Result<Done> {
        let mut expected = Vec::new();
        for number in 0..self.queries {
            if Instant::now() >= until {
                return Ok(Done::read(number));
            }
            self.query(store, self.range().any(number), &mut expected)?;
        }
        Ok(Done::read(self.queries))
    }
}
