//! The results of runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The costs of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// From the first operation until everything is durable.
    pub seconds: f64,
    /// Operations done in that time.
    pub operations: u64,
    /// Bytes that the user wrote: keys, values and deltas.
    pub user_bytes: u64,
    /// Bytes read from the device in that time.
    pub device_read_bytes: u64,
    /// Bytes written to the device in that time.
    pub device_write_bytes: u64,
    /// The time of closing after that: deferred work. `None` where the database stays open.
    pub close_seconds: Option<f64>,
    /// Bytes written to the device by closing.
    pub close_write_bytes: Option<u64>,
    /// CPU time of all threads until everything was durable.
    pub cpu_seconds: f64,
    /// The peak of resident memory, mapped files included.
    pub peak_rss_bytes: u64,
    /// The engine's own counters.
    pub counters: BTreeMap<String, u64>,
}

/// All rounds of a workload on one engine.
#[derive(Debug, Serialize)]
pub struct Samples {
    /// The engine.
    pub engine: String,
    /// Its rounds, in order.
    pub rounds: Vec<Sample>,
    /// Why there are no more rounds, if one failed.
    pub failure: Option<String>,
}

/// A workload's results.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The workload.
    pub workload: String,
    /// What it does.
    pub about: String,
    /// The number of operations of a run that is not cut short; `None` where its time is given.
    pub operations: Option<u64>,
    /// The memory that a store had with its page cache, if it was limited.
    pub memory_bytes: Option<u64>,
    /// One for each engine.
    pub engines: Vec<Samples>,
}
