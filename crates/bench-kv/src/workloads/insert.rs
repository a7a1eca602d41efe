//! Inserting pairs.

use std::time::Instant;

use anyhow::Result;

use super::{Done, Workload, check_count, check_rank, put_ranks};
use crate::data::Data;
use crate::stores::{Engine, Store};

/// The order of inserts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Random.
    Random,
    /// By key.
    OfKeys,
}

/// Inserts all pairs into an empty store.
pub struct Insert {
    /// The workload's name.
    pub name: &'static str,
    /// The pairs.
    pub data: Data,
    /// Their order.
    pub order: Order,
}

impl Insert {
    fn rank(&self, number: u64) -> u64 {
        match self.order {
            Order::Random => self.data.shuffled(number),
            Order::OfKeys => number,
        }
    }
}

impl Workload for Insert {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let order = match self.order {
            Order::Random => "random order",
            Order::OfKeys => "the order of keys",
        };
        format!("insert {} values of {} bytes in {order}", self.data.pairs, self.data.value_bytes)
    }

    fn suits(&self, engine: Engine) -> bool {
        engine == engine.family() || engine.is_unlogged()
    }

    fn data(&self) -> Data {
        self.data
    }

    fn is_preloaded(&self) -> bool {
        false
    }

    fn writes(&self) -> bool {
        true
    }

    fn operations(&self) -> u64 {
        self.data.pairs
    }

    fn run(&self, store: &mut dyn Store, until: Instant) -> Result<Done> {
        let ranks = (0..self.data.pairs).map(|number| self.rank(number));
        let operations = put_ranks(store, &self.data, ranks, Some(until))?;
        Ok(Done::wrote(operations, operations * self.data.pair_bytes()))
    }

    fn check(&self, store: &dyn Store, operations: u64, sample: u64) -> Result<()> {
        let mut value = Vec::new();
        for number in (0..operations).step_by((operations / sample).max(1) as usize) {
            let rank = self.rank(number);
            self.data.value(rank, &mut value);
            check_rank(store, &self.data, rank, Some(&value))?;
        }
        check_count(store, &self.data, operations)
    }
}
