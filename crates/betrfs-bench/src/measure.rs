//! Rounds of a workload on each contender in turn.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Scale;
use crate::backing;
use crate::confine::Confinement;
use crate::contender::{Contender, Work};
use crate::output::tell;
use crate::report::{Figure, told_seconds};
use crate::saved::Saved;
use crate::store::{Counters, Store};
use crate::teardown::Teardown;
use crate::testbed::Testbed;
use crate::workloads::Workload;

/// One round of a workload on one contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// From the first call until everything is durable.
    pub seconds: f64,
    /// The same for each time before, while the file system was younger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub younger_seconds: Vec<f64>,
    /// By how much more of the file system's space was in use when it was mounted again, if it writes:
    /// until then some is freed, or counted, later.
    pub grown_bytes: Option<i64>,
    /// The same for each time before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub younger_grown_bytes: Vec<i64>,
    /// How long unmounting took after that: what was put off until then.
    pub unmount_seconds: f64,
    /// CPU time of the client and the server in that time, if it was counted; none of the kernel's
    /// own threads.
    pub cpu_seconds: Option<f64>,
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

/// Runs a workload on each contender in turn, round after round, and checks what it did; rounds that have been
/// saved are taken as they are.
pub fn measure(
    workload: &dyn Workload,
    testbed: &Testbed,
    rounds: u32,
    scale: Scale,
    saved: &Saved,
    teardown: &Teardown,
) -> Result<Figure> {
    // What is small needs no limit: it is there to see that everything works.
    let may_be_unlimited = scale == Scale::Tiny;
    let confinement =
        Confinement::new(scale.memory_bytes(workload.memory_bytes()), may_be_unlimited, teardown)?;
    let mut all: Vec<Samples> = testbed
        .contenders
        .iter()
        .map(|contender| Samples { contender: contender.name(), rounds: Vec::new() })
        .collect();
    for round in 0..rounds {
        // Whoever comes second finds the disk as the first left it: they take turns.
        let mut turns: Vec<_> = all.iter_mut().zip(&testbed.contenders).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (samples, contender) in turns {
            if let Some(sample) = saved.round(workload.name(), contender.name(), round)? {
                samples.rounds.push(sample);
                continue;
            }
            let name = format!("{} on {}", workload.name(), contender.name());
            let _watched = teardown.watch(&name, workload.time_max());
            let run = Run {
                workload,
                contender: &**contender,
                store: &testbed.store,
                confinement: &confinement,
                // What is small is not measured.
                touches_memory: scale != Scale::Tiny,
            };
            let sample = run.round(round == 0).with_context(|| name.clone())?;
            saved.keep(workload.name(), contender.name(), round, &sample)?;
            tell(format_args!("{name}, round {}: {} s", round + 1, told_seconds(sample.seconds)));
            samples.rounds.push(sample);
        }
    }
    Ok(Figure::new(workload, confinement.memory_bytes(), all))
}

struct Run<'a> {
    workload: &'a dyn Workload,
    contender: &'a dyn Contender,
    store: &'a Store,
    confinement: &'a Confinement,
    touches_memory: bool,
}

impl Run<'_> {
    /// One round on a new file system.
    fn round(&self, checks: bool) -> Result<Sample> {
        let (workload, contender) = (self.workload, self.contender);
        let dir = contender.dir();
        self.store.set_in_haste(true)?;
        self.store.forget()?;
        let hasty_before = self.store.hasty_requests()?;
        contender.format()?;
        self.confinement.within(|| {
            contender.mount()?;
            workload.prepare(dir)
        })?;
        let is_ignored = hasty_before.is_some() && self.store.hasty_requests()? == hasty_before;
        ensure!(!is_ignored, "the emulated disk made no haste when it was told to");
        let (mut younger_seconds, mut younger_grown_bytes) = (Vec::new(), Vec::new());
        for step in 1..=workload.steps() {
            let sample = self.timed()?;
            younger_seconds.push(sample.seconds);
            younger_grown_bytes.extend(sample.grown_bytes);
            self.confinement.within(|| workload.age(dir, step))?;
        }
        let sample = self.timed()?;
        if checks {
            contender.mount_cold()?;
            workload.check(dir)?;
        }
        contender.unmount()?;
        Ok(Sample { younger_seconds, younger_grown_bytes, ..sample })
    }

    /// Does it once, cold, and mounts it again.
    fn timed(&self) -> Result<Sample> {
        let mount_cold = || self.confinement.within(|| self.contender.mount_cold());
        self.store.set_in_haste(false)?;
        mount_cold()?;
        // The workload's input is not held against its memory.
        self.workload.warm()?;
        if self.touches_memory
            && let Some(bytes) = self.confinement.memory_bytes()
        {
            backing::touch(bytes)?;
        }
        // Before the counters are read: to ask is a request too.
        let used_before = self.contender.used_bytes()?;
        let work_before = self.contender.work()?;
        let device_before = self.store.counters()?;
        let hasty_before = self.store.hasty_requests()?;
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
        ensure!(
            self.store.hasty_requests()? == hasty_before,
            "the emulated disk made haste while it was measured"
        );
        let cpu_now = self.confinement.cpu_seconds()?;
        let cpu_seconds = cpu_now.zip(cpu_before).map(|(now, before)| now - before);
        let device = self.store.counters()?.since(&device_before);
        let server = self.contender.work()?.zip(work_before).map(|(now, before)| now.since(&before));
        let start = Instant::now();
        self.contender.unmount()?;
        let unmount_seconds = start.elapsed().as_secs_f64();
        self.store.set_in_haste(true)?;
        mount_cold()?;
        let used_now = self.contender.used_bytes()?;
        self.workload.check_run(self.contender.dir())?;
        let grown_bytes = self.workload.writes().then(|| used_now.wrapping_sub(used_before).cast_signed());
        Ok(Sample { seconds, unmount_seconds, grown_bytes, cpu_seconds, device, server, ..Sample::default() })
    }
}
