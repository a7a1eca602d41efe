//! Runs rounds of a workload on each system in turn.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bench_harness::disk::Disk;
use bench_harness::memory_limit::MemoryLimit;
use bench_harness::output::tell;
use bench_harness::scale::Scale;
use bench_harness::teardown::Teardown;
use bench_harness::touch;

use crate::report::{Figure, told_seconds};
use crate::sample::{Sample, Samples};
use crate::saved::Saved;
use crate::system::System;
use crate::testbed::Testbed;
use crate::workloads::Workload;

/// Runs a workload on each system in turn, round after round, and checks its results. Saved rounds are taken
/// as they are.
///
/// # Errors
/// A system fails, a check fails, or memory cannot be limited.
pub fn measure(
    workload: &dyn Workload,
    testbed: &Testbed,
    rounds: u32,
    scale: Scale,
    saved: &Saved,
    teardown: &Teardown,
) -> Result<Figure> {
    // The tiny scale only shows that everything works: it needs no limit.
    let may_be_unlimited = scale == Scale::Tiny;
    let limit = MemoryLimit::new(scale.memory_bytes(workload.memory_bytes()), may_be_unlimited, teardown)?;
    let mut all: Vec<Samples> =
        testbed.systems.iter().map(|system| Samples { system: system.name(), rounds: Vec::new() }).collect();
    for round in 0..rounds {
        // The order alternates, because each system finds the disk as the one before left it.
        let mut turns: Vec<_> = all.iter_mut().zip(&testbed.systems).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (samples, system) in turns {
            if let Some(sample) = saved.round(workload.name(), system.name(), round)? {
                samples.rounds.push(sample);
                continue;
            }
            let name = format!("{} on {}", workload.name(), system.name());
            let _watched = teardown.watch(&name, workload.time_max());
            let run = Run {
                workload,
                system: &**system,
                disk: &testbed.disk,
                limit: &limit,
                // The tiny scale is not measured.
                touches_memory: scale != Scale::Tiny,
            };
            let sample = run.round(round == 0).with_context(|| name.clone())?;
            saved.keep(workload.name(), system.name(), round, &sample)?;
            tell(format_args!("{name}, round {}: {} s", round + 1, told_seconds(sample.seconds)));
            samples.rounds.push(sample);
        }
    }
    Ok(Figure::new(workload, limit.memory_bytes(), all))
}

struct Run<'a> {
    workload: &'a dyn Workload,
    system: &'a dyn System,
    disk: &'a Disk,
    limit: &'a MemoryLimit,
    touches_memory: bool,
}

impl Run<'_> {
    /// One round on a new file system.
    fn round(&self, checks: bool) -> Result<Sample> {
        let (workload, system) = (self.workload, self.system);
        let dir = system.dir();
        self.disk.set_fast_forward(true)?;
        self.disk.discard_all()?;
        let forwarded_before = self.disk.fast_forwarded_requests()?;
        system.format()?;
        self.limit.within(|| {
            system.mount()?;
            workload.prepare(dir)
        })?;
        let is_ignored =
            forwarded_before.is_some() && self.disk.fast_forwarded_requests()? == forwarded_before;
        ensure!(!is_ignored, "the emulated disk ignored its fast-forward");
        let (mut younger_seconds, mut younger_grown_bytes) = (Vec::new(), Vec::new());
        for step in 1..=workload.steps() {
            let sample = self.timed()?;
            younger_seconds.push(sample.seconds);
            younger_grown_bytes.extend(sample.grown_bytes);
            self.limit.within(|| workload.age(dir, step))?;
        }
        let sample = self.timed()?;
        if checks {
            system.mount_cold()?;
            workload.check(dir)?;
        }
        system.unmount()?;
        Ok(Sample { younger_seconds, younger_grown_bytes, ..sample })
    }

    /// Runs the workload once, cold, and mounts the file system again.
    fn timed(&self) -> Result<Sample> {
        let mount_cold = || self.limit.within(|| self.system.mount_cold());
        self.disk.set_fast_forward(false)?;
        mount_cold()?;
        // Outside of the limit: the input does not count as the workload's memory.
        self.workload.warm()?;
        if self.touches_memory
            && let Some(bytes) = self.limit.memory_bytes()
        {
            touch::touch(bytes)?;
        }
        // Before the counters are read: this is a request too.
        let used_before = self.system.used_bytes()?;
        let work_before = self.system.work()?;
        let device_before = self.disk.counters()?;
        let forwarded_before = self.disk.fast_forwarded_requests()?;
        let cpu_before = self.limit.cpu_seconds()?;
        let seconds = self.limit.within(|| {
            let start = Instant::now();
            self.workload.run(self.system.dir())?;
            if self.workload.writes() {
                self.system.sync()?;
            }
            Ok(start.elapsed().as_secs_f64())
        })?;
        ensure!(seconds > 0.0, "it took no time");
        ensure!(
            self.disk.fast_forwarded_requests()? == forwarded_before,
            "the emulated disk was in fast-forward while it was measured"
        );
        let cpu_now = self.limit.cpu_seconds()?;
        let cpu_seconds = cpu_now.zip(cpu_before).map(|(now, before)| now - before);
        let device = self.disk.counters()?.since(&device_before);
        let server = self.system.work()?.zip(work_before).map(|(now, before)| now.since(&before));
        let start = Instant::now();
        self.system.unmount()?;
        let unmount_seconds = start.elapsed().as_secs_f64();
        self.disk.set_fast_forward(true)?;
        mount_cold()?;
        let used_now = self.system.used_bytes()?;
        self.workload.check_run(self.system.dir())?;
        let grown_bytes = self.workload.writes().then(|| used_now.wrapping_sub(used_before).cast_signed());
        Ok(Sample { seconds, unmount_seconds, grown_bytes, cpu_seconds, device, server, ..Sample::default() })
    }
}
