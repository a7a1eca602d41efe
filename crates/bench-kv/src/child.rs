//! One phase of a workload on one engine, in a process of its own under the memory limit.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench_harness::disk::loop_device;
use bench_harness::scale::Scale;
use serde::{Deserialize, Serialize};

use crate::meter::{Meter, peak_rss_bytes};
use crate::sample::Sample;
use crate::stores::{Budget, Engine};
use crate::workloads;

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Puts all pairs into an empty store.
    Load,
    /// Runs the workload, for at most this number of seconds.
    Run(u64),
    /// Checks the contents after this number of operations.
    Check(u64),
}

/// A phase with its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The engine.
    pub engine: Engine,
    /// The workload's name.
    pub workload: String,
    /// How much the workload does.
    pub scale: Scale,
    /// The memory limit.
    pub memory_bytes: u64,
    /// The size of all pairs.
    pub data_bytes: u64,
    /// The phase.
    pub phase: Phase,
    /// The directory of the database.
    pub dir: PathBuf,
    /// The block device beneath it.
    pub device: PathBuf,
}

/// The approximate number of pairs that a check compares.
const CHECK_SAMPLE: u64 = 20_000;

/// Runs a phase.
pub fn run(task: Task) -> Result<Sample> {
    let workload = workloads::all(task.scale, task.data_bytes)
        .into_iter()
        .find(|workload| workload.name() == task.workload)
        .with_context(|| format!("there is no workload `{}`", task.workload))?;
    let budget = Budget::of(task.memory_bytes, task.data_bytes);
    let mut store = task.engine.open(&task.dir, budget).context("cannot open the database")?;
    let mut sample = Sample::default();
    let counters = || loop_device::counters(&task.device);
    match task.phase {
        Phase::Load => workloads::load(&mut *store, &workload.data())?,
        Phase::Check(operations) => workload.check(&*store, operations, CHECK_SAMPLE)?,
        Phase::Run(seconds_max) => {
            workload.warm(&*store)?;
            sample = Meter::new(&counters).sample(|| {
                let done = workload.run(&mut *store, Instant::now() + Duration::from_secs(seconds_max))?;
                if workload.writes() {
                    store.sync()?;
                }
                Ok(done)
            })?;
            sample.counters = store.counters();
        }
    }
    let (before, start) = (counters()?, Instant::now());
    store.close().context("cannot close the database")?;
    sample.close_seconds = Some(start.elapsed().as_secs_f64());
    sample.close_write_bytes = Some(counters()?.write_bytes - before.write_bytes);
    sample.peak_rss_bytes = peak_rss_bytes()?;
    Ok(sample)
}
