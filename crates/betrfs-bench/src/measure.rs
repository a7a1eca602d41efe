//! Rounds of a workload on each contender in turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::confine::Confinement;
use crate::contender::{Contender, Work};
use crate::store::{Counters, Store};
use crate::teardown::Teardown;
use crate::workloads::Workload;

/// After this long a round of a workload on one contender is taken to hang.
const TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// One round of a workload on one contender.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// From the first call until everything is durable.
    pub seconds: f64,
    /// How long unmounting took after that: what was put off until then.
    pub unmount_seconds: f64,
    /// CPU time of the client and the server in that time; none of the kernel's own threads.
    pub cpu_seconds: f64,
    /// What the disk was asked in that time, unmounting excepted.
    pub device: Counters,
    /// What the server did in that time, if there is one.
    pub server: Option<Work>,
}

/// All rounds of a workload on one contender.
#[derive(Debug, Serialize)]
pub struct Samples {
    /// The contender.
    pub contender: &'static str,
    /// Its rounds, in order.
    pub rounds: Vec<Sample>,
}

/// Runs a workload on each contender in turn, round after round, and checks what it did.
pub fn measure(
    workload: &dyn Workload,
    contenders: &[Box<dyn Contender>],
    store: &Store,
    rounds: u32,
    teardown: &Teardown,
) -> Result<Vec<Samples>> {
    let confinement = Confinement::new(workload.memory_bytes(), teardown)?;
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
            let _watched = teardown.watch(&name, TIME_MAX);
            let run = Run { workload, contender: &**contender, store, confinement: &confinement };
            let sample = run.round(round == 0).with_context(|| name.clone())?;
            eprintln!("{name}, round {}: {:.2} s", round + 1, sample.seconds);
            samples.rounds.push(sample);
        }
    }
    Ok(all)
}

struct Run<'a> {
    workload: &'a dyn Workload,
    contender: &'a dyn Contender,
    store: &'a Store,
    confinement: &'a Confinement,
}

impl Run<'_> {
    /// One round on a new file system.
    fn round(&self, checks: bool) -> Result<Sample> {
        let (workload, contender) = (self.workload, self.contender);
        let dir = contender.dir();
        self.store.forget()?;
        contender.format()?;
        self.confinement.within(|| {
            contender.mount()?;
            workload.prepare(dir)?;
            contender.mount_cold()
        })?;
        // The workload's input is not held against its memory.
        workload.warm()?;
        let sample = self.timed()?;
        let start = Instant::now();
        contender.unmount()?;
        let unmount_seconds = start.elapsed().as_secs_f64();
        if checks {
            contender.mount_cold()?;
            workload.check(dir)?;
            contender.unmount()?;
        }
        Ok(Sample { unmount_seconds, ..sample })
    }

    fn timed(&self) -> Result<Sample> {
        let work_before = self.contender.work()?;
        let device_before = self.store.counters()?;
        let cpu_before = self.confinement.cpu_seconds()?;
        let seconds = self.confinement.within(|| {
            let start = Instant::now();
            self.workload.run(self.contender.dir())?;
            if self.workload.writes() {
                self.contender.sync()?;
            }
            Ok(start.elapsed().as_secs_f64())
        })?;
        ensure!(seconds > 0.0, "it took no time");
        let cpu_seconds = self.confinement.cpu_seconds()? - cpu_before;
        let device = self.store.counters()?.since(&device_before);
        let server = self.contender.work()?.zip(work_before).map(|(now, before)| now.since(&before));
        Ok(Sample { seconds, unmount_seconds: 0.0, cpu_seconds, device, server })
    }
}
