//! The results of rounds.

use bench_harness::disk::Counters;
use serde::{Deserialize, Serialize};

use crate::system::Work;

/// One round of a workload on one system.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds from the first call until everything is durable.
    pub seconds: f64,
    /// The same for each earlier run, when the file system was younger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub younger_seconds: Vec<f64>,
    /// Growth of the used space, seen at the next mount (before that, some space is still to be freed or
    /// counted). `None` for a workload that does not write.
    pub grown_bytes: Option<i64>,
    /// The same for each earlier run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub younger_grown_bytes: Vec<i64>,
    /// The time of unmounting after that: deferred work.
    #[serde(default)]
    pub unmount_seconds: f64,
    /// CPU time of client and server, without the kernel's threads, if it was counted.
    pub cpu_seconds: Option<f64>,
    /// Requests to the disk, without those of unmounting.
    #[serde(default)]
    pub device: Counters,
    /// Work of the server, if there is one.
    pub server: Option<Work>,
}

/// All rounds of a workload on one system.
#[derive(Debug, Serialize)]
pub struct Samples {
    /// The system.
    pub system: &'static str,
    /// Its rounds, in order.
    pub rounds: Vec<Sample>,
}
