//! Rounds of a workload on each contender in turn.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::contender::{Contender, Usage};
use crate::teardown::Teardown;
use crate::workloads::Workload;

/// One round of a workload on one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// From the first call until everything is durable.
    pub seconds: f64,
    /// The same for each time before, while the file system was younger.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub younger_seconds: Vec<f64>,
    /// How long unmounting took after that: what was put off until then.
    pub unmount_seconds: f64,
    /// What the file system did in that time, unmounting excepted.
    pub usage: Usage,
}

/// All rounds of a workload on one contender.
#[derive(Debug, Serialize)]
pub struct Samples {
    /// The contender.
    pub contender: &'static str,
    /// Its rounds, in order.
    pub rounds: Vec<Sample>,
}

/// A workload's results.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The workload.
    pub workload: &'static str,
    /// What each contender took.
    pub contenders: Vec<Samples>,
}

/// Runs a workload on each contender in turn, round after round, and checks what it did.
pub fn measure(
    workload: &dyn Workload,
    contenders: &[Box<dyn Contender>],
    rounds: u32,
    teardown: &Teardown,
) -> Result<Results> {
    let mut all: Vec<Samples> = contenders
        .iter()
        .map(|contender| Samples { contender: contender.name(), rounds: Vec::new() })
        .collect();
    for round in 0..rounds {
        // Whoever comes second finds the disk as the first left it: they take turns.
        let mut turns: Vec<_> = all.iter_mut().zip(contenders).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (samples, contender) in turns {
            let name = format!("{} on {}", workload.name(), contender.name());
            let _watched = teardown.watch(&name, workload.time_max());
            let sample = run(workload, &**contender, round == 0).with_context(|| name.clone())?;
            eprintln!("{name}, round {}: {:.2} s", round + 1, sample.seconds);
            samples.rounds.push(sample);
        }
    }
    Ok(Results { workload: workload.name(), contenders: all })
}

fn run(workload: &dyn Workload, contender: &dyn Contender, is_first: bool) -> Result<Sample> {
    let dir = contender.dir();
    // What only reads leaves the file system as it was.
    if is_first || workload.writes() {
        contender.format()?;
        contender.mount()?;
        workload.prepare(dir)?;
    }
    let mut younger_seconds = Vec::new();
    for step in 1..=workload.steps() {
        let (seconds, _) = timed(workload, contender)?;
        younger_seconds.push(seconds);
        workload.age(dir, step)?;
    }
    let (seconds, usage) = timed(workload, contender)?;
    let start = Instant::now();
    contender.unmount()?;
    let unmount_seconds = start.elapsed().as_secs_f64();
    if is_first {
        contender.mount_cold()?;
        workload.check(dir)?;
        contender.unmount()?;
    }
    ensure!(seconds > 0.0, "it took no time");
    Ok(Sample { seconds, younger_seconds, unmount_seconds, usage })
}

/// Does it once, cold.
fn timed(workload: &dyn Workload, contender: &dyn Contender) -> Result<(f64, Usage)> {
    contender.mount_cold()?;
    workload.warm()?;
    let before = contender.usage()?;
    let start = Instant::now();
    workload.run(contender.dir())?;
    if workload.writes() {
        contender.sync()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok((seconds, contender.usage()?.since(&before)))
}
