//! One phase of a workload on one engine, in a process of its own under the memory limit.
//!
//! This program runs itself for it: what to do comes as JSON on standard input, and what came of it
//! goes as JSON to standard output.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::stores::{Budget, Engine};
use super::workloads;
use crate::Scale;
use crate::store::loop_device;

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// All pairs are put into an empty store.
    Load,
    /// The workload is run, for so many seconds at most.
    Run(u64),
    /// What is there after so many operations is checked.
    Check(u64),
}

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// On which engine.
    pub engine: Engine,
    /// The workload's name.
    pub workload: String,
    /// At which scale.
    pub scale: Scale,
    /// Under which limit.
    pub memory_bytes: u64,
    /// How many bytes of pairs there are.
    pub data_bytes: u64,
    /// What of it.
    pub phase: Phase,
    /// Where the database is.
    pub dir: PathBuf,
    /// The block device beneath.
    pub device: PathBuf,
}

/// What one run has taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// From the first operation until everything is durable.
    pub seconds: f64,
    /// Operations done in that time.
    pub operations: u64,
    /// What a user would say was written, in bytes.
    pub user_bytes: u64,
    /// Bytes read from the device in that time.
    pub device_read_bytes: u64,
    /// Bytes written to the device in that time.
    pub device_write_bytes: u64,
    /// How long closing took after that: part of what was put off until then.
    pub close_seconds: f64,
    /// Bytes written to the device by closing.
    pub close_write_bytes: u64,
    /// CPU time of the process until everything was durable, all threads.
    pub cpu_seconds: f64,
    /// The most memory that the process had, mapped files included.
    pub peak_rss_bytes: u64,
    /// What the engine has counted.
    pub counters: BTreeMap<String, u64>,
}

/// Pairs that are looked at when results are checked.
const CHECK_SAMPLE: u64 = 20_000;

/// Does what standard input says.
pub fn run() -> Result<()> {
    let task: Task = serde_json::from_reader(io::stdin()).context("what to do is not readable")?;
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
    serde_json::to_writer(io::stdout(), &sample)?;
    Ok(())
}

impl Task {
    /// A quarter of the memory for what an engine keeps, and room on the volume for thrice the data.
    fn budget(&self) -> Budget {
        Budget { cache_bytes: self.memory_bytes / 4, volume_bytes: self.data_bytes * 3 + (64 << 20) }
    }
}

/// The CPU time of this process, all its threads.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in brackets, may hold spaces; user and system time are the 12th and 13th behind it.
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
