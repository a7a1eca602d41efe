//! One phase of a workload on one engine, in a process of its own under the memory limit.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench_harness::disk::loop_device;
use bench_harness::scale::Scale;
use serde::{Deserialize, Serialize};

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
    let budget = task.budget();
    let mut store = task.engine.open(&task.dir, budget).context("cannot open the database")?;
    let mut sample = Sample::default();
    match task.phase {
        Phase::Load => workloads::load(&mut *store, &workload.data())?,
        Phase::Check(operations) => workload.check(&*store, operations, CHECK_SAMPLE)?,
        Phase::Run(seconds_max) => {
            workload.warm(&*store)?;
            let (device, cpu_seconds) = (loop_device::counters(&task.device)?, cpu_seconds()?);
            let start = Instant::now();
            let done = workload.run(&mut *store, start + Duration::from_secs(seconds_max))?;
            if workload.writes() {
                store.sync()?;
            }
            sample.seconds = start.elapsed().as_secs_f64();
            let after = loop_device::counters(&task.device)?;
            sample.cpu_seconds = self::cpu_seconds()? - cpu_seconds;
            sample.operations = done.operations;
            sample.user_bytes = done.user_bytes;
            sample.device_read_bytes = after.read_bytes - device.read_bytes;
            sample.device_write_bytes = after.write_bytes - device.write_bytes;
            sample.counters = store.counters();
        }
    }
    let (before, start) = (loop_device::counters(&task.device)?, Instant::now());
    store.close().context("cannot close the database")?;
    sample.close_seconds = start.elapsed().as_secs_f64();
    sample.close_write_bytes = loop_device::counters(&task.device)?.write_bytes - before.write_bytes;
    sample.peak_rss_bytes = peak_rss_bytes()?;
    Ok(sample)
}

impl Task {
    /// A quarter of the memory for caches and buffers, and a volume of thrice the data.
    fn budget(&self) -> Budget {
        Budget { cache_bytes: self.memory_bytes / 4, volume_bytes: self.data_bytes * 3 + (64 << 20) }
    }
}

/// The CPU time of all threads of this process.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in brackets, may have spaces; user and system time are the 12th and 13th fields after it.
    let (_, fields) = stat.rsplit_once(')').context("no name in a process's statistics")?;
    let ticks = fields.split_ascii_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn peak_rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).context("no peak in /proc/self/status")?;
    Ok(kib.parse::<u64>()? << 10)
}
