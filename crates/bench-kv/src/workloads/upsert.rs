//! Adding to counters.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Result;

use super::{Done, Workload, check_rank};
use crate::data::{COUNTER_BYTES, Data, KEY_BYTES, Key, mix};
use crate::stores::{BATCH_OPERATIONS, Engine, Store, added};

/// Adds to the counters of random pairs, half as many times as there are pairs.
pub struct Upsert {
    /// The pairs.
    pub data: Data,
}

impl Upsert {
    fn delta(number: u64) -> u64 {
        mix(number) & 0xffff
    }
}

impl Workload for Upsert {
    fn name(&self) -> &'static str {
        "kv-upsert"
    }

    fn about(&self) -> String {
        format!("add to {} random counters in {} values", self.operations(), self.data.pairs)
    }

    fn data(&self) -> Data {
        self.data
    }

    fn is_preloaded(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        true
    }

    fn suits(&self, _engine: Engine) -> bool {
        true
    }

    fn operations(&self) -> u64 {
        self.data.pairs / 2
    }

    fn run(&self, store: &mut dyn Store, until: Instant) -> Result<Done> {
        let mut operations = 0;
        while operations < self.operations() && Instant::now() < until {
            let end = (operations + BATCH_OPERATIONS as u64).min(self.operations());
            let additions: Vec<(Key, u64)> = (operations..end)
                .map(|number| (self.data.key(self.data.any(number)), Upsert::delta(number)))
                .collect();
            store.add(&additions)?;
            operations = end;
        }
        Ok(Done::wrote(operations, operations * (KEY_BYTES + COUNTER_BYTES) as u64))
    }

    fn check(&self, store: &dyn Store, operations: u64, sample: u64) -> Result<()> {
        let mut sums: HashMap<u64, u64> = self.data.sample(sample).map(|rank| (rank, 0)).collect();
        for number in 0..operations {
            if let Some(sum) = sums.get_mut(&self.data.any(number)) {
                *sum = sum.wrapping_add(Upsert::delta(number));
            }
        }
        let mut value = Vec::new();
        for (rank, sum) in sums {
            self.data.value(rank, &mut value);
            check_rank(store, &self.data, rank, Some(&added(&value, sum)))?;
        }
        Ok(())
    }
}
