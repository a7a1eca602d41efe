//! Suites: several measurements on one database, one after the other in one process.
//!
//! Each thread of a measurement has a handle of its own. No commit waits for the disk: a thread beside them
//! makes everything durable every second, by the engine's own means, and the end of that is part of the time.
//! What was written is read back when the database was closed and opened again.

mod basic;
mod clone_dict;
mod ingest;
mod transactions;
mod views;
mod ycsb;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bench_harness::scale::Scale;

use crate::meter::Meter;
use crate::stores::{Budget, Engine, Store, Transactional};

/// Several measurements on one database.
pub trait Suite {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// What it does, in one line.
    fn about(&self) -> String;

    /// Whether an engine is compared in it.
    fn suits(&self, engine: Engine) -> bool;

    /// The memory limit in bytes.
    fn memory_bytes(&self) -> u64;

    /// The size of its data in bytes.
    fn data_bytes(&self) -> u64;

    /// Whether its database is loaded once, and each round begins with a copy, cold.
    fn is_preloaded(&self) -> bool {
        false
    }

    /// Loads the database of [`is_preloaded`](Suite::is_preloaded).
    fn load(&self, _place: &Place<'_>) -> Result<()> {
        Ok(())
    }

    /// Measures, checks what was written, and closes the database.
    fn run(&self, place: &Place<'_>, meter: &mut Meter<'_>) -> Result<()>;
}

/// Opens a database, or makes one.
type Open<'p, S> = &'p dyn Fn() -> Result<Box<S>>;

/// Where a suite runs.
pub struct Place<'p> {
    /// Opens the engine's database there, and opens it for transactions.
    pub open: Open<'p, dyn Store>,
    pub open_transactional: Open<'p, dyn Transactional>,
    /// The directory of the database.
    pub dir: &'p Path,
    /// Its resources.
    pub budget: Budget,
    /// How long one measurement takes.
    pub step: Duration,
}

/// The memory limit of suites whose data fits into memory, in bytes. A quarter of it is for caches.
const IN_MEMORY_BYTES: u64 = 2 << 30;

/// All suites; `memory_bytes` and `data_bytes` are those of the one whose data is larger than its memory.
pub fn all(scale: Scale, memory_bytes: u64, data_bytes: u64) -> Vec<Box<dyn Suite>> {
    let in_memory_bytes = scale.pick(memory_bytes, IN_MEMORY_BYTES);
    vec![
        Box::new(ycsb::Ycsb::in_memory(scale, in_memory_bytes)),
        Box::new(ycsb::Ycsb::larger(memory_bytes, data_bytes)),
        Box::new(basic::InOrder::new(scale, in_memory_bytes)),
        Box::new(basic::AtRandom::new(scale, in_memory_bytes)),
        Box::new(transactions::Transactions::new(scale, in_memory_bytes)),
        Box::new(views::Views::new(scale, in_memory_bytes)),
        Box::new(clone_dict::CloneDict::new(scale, in_memory_bytes)),
        Box::new(ingest::Ingest::new(scale, in_memory_bytes)),
    ]
}

/// A measurement's name: that of its suite, its own, and the number of threads if there are several.
fn name_of(parts: &[&str], threads: u64) -> String {
    let name = parts.join("-");
    if threads == 1 { name } else { format!("{name}-{threads}") }
}

/// A number of threads in words.
fn threads(count: u64) -> String {
    if count == 1 { "one thread".into() } else { format!("{count} threads") }
}

#[cfg(test)]
mod tests;
