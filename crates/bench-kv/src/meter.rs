//! Measures work, by the time and by what it makes the device and the processors do.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bench_harness::disk::Counters;
use serde::{Deserialize, Serialize};

use crate::sample::Sample;
use crate::workloads::Done;

/// One measurement of a suite.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The name in tables.
    pub name: String,
    /// What was done, in one line.
    pub about: String,
    /// The costs.
    pub sample: Sample,
}

/// Measures work on one database.
pub struct Meter<'m> {
    /// The counters of the device below it.
    counters: &'m dyn Fn() -> Result<Counters>,
    /// What was measured, in order.
    pub figures: Vec<Figure>,
}

impl<'m> Meter<'m> {
    /// Measures with the counters of a device.
    pub fn new(counters: &'m dyn Fn() -> Result<Counters>) -> Meter<'m> {
        Meter { counters, figures: Vec::new() }
    }

    /// Measures work and keeps the figure.
    ///
    /// # Errors
    /// Those of the work; it did nothing; there are no counters.
    pub fn measure(
        &mut self,
        name: String,
        about: String,
        work: impl FnOnce() -> Result<Done>,
    ) -> Result<()> {
        let sample = self.sample(work).with_context(|| name.clone())?;
        ensure!(sample.operations > 0 && sample.seconds > 0.0, "{name}: nothing was done");
        self.figures.push(Figure { name, about, sample });
        Ok(())
    }

    /// The costs of work.
    ///
    /// # Errors
    /// Those of the work; there are no counters.
    pub fn sample(&self, work: impl FnOnce() -> Result<Done>) -> Result<Sample> {
        let (before, cpu_seconds) = ((self.counters)()?, self::cpu_seconds()?);
        let start = Instant::now();
        let done = work()?;
        let seconds = start.elapsed().as_secs_f64();
        let after = (self.counters)()?;
        Ok(Sample {
            seconds,
            operations: done.operations,
            user_bytes: done.user_bytes,
            device_read_bytes: after.read_bytes - before.read_bytes,
            device_write_bytes: after.write_bytes - before.write_bytes,
            cpu_seconds: self::cpu_seconds()? - cpu_seconds,
            peak_rss_bytes: peak_rss_bytes()?,
            counters: done.counters,
            ..Sample::default()
        })
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

/// The peak of this process's resident memory.
pub fn peak_rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).context("no peak in /proc/self/status")?;
    Ok(kib.parse::<u64>()? << 10)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_figure_has_what_the_device_did_meanwhile() {
        let written = Cell::new(1000);
        let counters = || Ok(Counters { write_bytes: written.get(), read_bytes: 5, ..Counters::default() });
        let mut meter = Meter::new(&counters);
        let work = || {
            written.set(1600);
            Ok(Done { operations: 3, user_bytes: 300, ..Done::default() })
        };
        meter.measure("name".into(), "about".into(), work).unwrap();
        let Figure { sample, .. } = &meter.figures[0];
        assert_eq!((sample.operations, sample.user_bytes), (3, 300));
        assert_eq!((sample.device_write_bytes, sample.device_read_bytes), (600, 0));
        assert!(sample.seconds > 0.0 && sample.close_write_bytes.is_none() && sample.peak_rss_bytes > 0);
    }

    #[test]
    fn work_that_does_nothing_is_no_figure() {
        let counters = || Ok(Counters::default());
        let mut meter = Meter::new(&counters);
        let error = meter.measure("idle".into(), String::new(), || Ok(Done::default())).unwrap_err();
        assert!(error.to_string().contains("idle") && meter.figures.is_empty());
    }
}
