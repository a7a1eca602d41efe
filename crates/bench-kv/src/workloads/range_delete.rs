//! Deleting ranges.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Result;

use super::{Done, Workload, check_count, check_rank};
use crate::data::{Data, KEY_BYTES};
use crate::stores::Store;

/// Deletes every second range of equal ranges, in random order: half of all pairs.
pub struct RangeDelete {
    /// The pairs.
    pub data: Data,
    /// The number of ranges to delete.
    pub ranges: u64,
}

impl RangeDelete {
    /// The number of pairs in each range.
    fn width(&self) -> u64 {
        self.data.pairs / (self.ranges * 2)
    }

    fn range(&self, number: u64) -> u64 {
        Data { pairs: self.ranges, ..self.data }.shuffled(number)
    }
}

impl Workload for RangeDelete {
    fn name(&self) -> &'static str {
        "kv-range-delete"
    }

    fn about(&self) -> String {
        format!("delete {} ranges of {} of {} pairs", self.ranges, self.width(), self.data.pairs)
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

    fn operations(&self) -> u64 {
        self.ranges
    }

    fn run(&self, store: &mut dyn Store, until: Instant) -> Result<Done> {
        let mut operations = 0;
        while operations < self.ranges && Instant::now() < until {
            let from = self.range(operations) * 2 * self.width();
            store.delete_range(&self.data.key(from), &self.data.key(from + self.width()))?;
            operations += 1;
        }
        Ok(Done::wrote(operations, operations * 2 * KEY_BYTES as u64))
    }

    fn check(&self, store: &dyn Store, operations: u64, sample: u64) -> Result<()> {
        let deleted: BTreeSet<u64> = (0..operations).map(|number| self.range(number) * 2).collect();
        let mut value = Vec::new();
        for rank in self.data.sample(sample) {
            self.data.value(rank, &mut value);
            let expected = (!deleted.contains(&(rank / self.width()))).then_some(value.as_slice());
            check_rank(store, &self.data, rank, expected)?;
        }
        check_count(store, &self.data, self.data.pairs - operations * self.width())
    }
}
