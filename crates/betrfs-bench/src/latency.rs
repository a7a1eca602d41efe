//! `latency`: how long single calls take while the file system has much other work.
//!
//! Three clients each call at fixed times: one makes small files, one reads files that are not in memory, one
//! appends and calls fsync. A latency is the time from the moment at which the call was due to its return: so
//! a call that stalls also counts for those that wait behind it (no coordinated omission). Meanwhile threads
//! overwrite blocks of a large file, make and remove trees of small files, and write and remove large files.

mod calls;
mod load;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_harness::memory_limit::MemoryLimit;
use bench_harness::output::{print, tell};
use bench_harness::scale::{Format, Scale};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::system::System;
use crate::testbed::{Parts, ensure_room};
use calls::Call;

/// The name of the benchmark.
pub const NAME: &str = "latency";
/// The size of the disk.
const DISK_BYTES: u64 = 8 << 30;
const DISK_BYTES_TINY: u64 = 512 << 20;
/// The memory of all processes together.
const MEMORY_BYTES: u64 = 1 << 30;
/// The longest latency that is told from a longer one, in nanoseconds.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// The extent of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// How long calls are made.
    pub time: Duration,
    /// The time between two calls of a client; that between two fsyncs is longer ([`Call::every`]).
    pub every: Duration,
    /// The number of files to read.
    pub files: u64,
    /// The size of the file whose blocks are overwritten.
    pub large_mib: u64,
}

impl Extent {
    /// The extent at a scale.
    fn of(scale: Scale) -> Extent {
        Extent {
            time: Duration::from_secs(scale.part(2, 120)),
            every: Duration::from_millis(5),
            files: scale.part(200, 40_000),
            large_mib: scale.part(16, 2048),
        }
    }
}

/// The latencies of one kind of call on one system.
#[derive(Serialize)]
struct Figure {
    system: &'static str,
    call: &'static str,
    calls: u64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

impl Figure {
    fn of(system: &'static str, call: Call, latencies: &Histogram<u64>) -> Figure {
        let ms = |ns: u64| ns as f64 / 1e6;
        Figure {
            system,
            call: call.name(),
            calls: latencies.len(),
            p50_ms: ms(latencies.value_at_quantile(0.5)),
            p99_ms: ms(latencies.value_at_quantile(0.99)),
            p999_ms: ms(latencies.value_at_quantile(0.999)),
            max_ms: ms(latencies.max()),
        }
    }
}

/// The latencies of each kind of call, in the order of [`Call::ALL`].
type Latencies = Vec<Histogram<u64>>;

/// What the benchmark does.
pub fn about(scale: Scale) -> String {
    let Extent { time, every, .. } = Extent::of(scale);
    format!(
        "latencies of create and read every {} ms, and fsync every {} ms, for {} s, beside much other work",
        Call::Read.every(every).as_millis(),
        Call::Fsync.every(every).as_millis(),
        time.as_secs()
    )
}

/// Measures all systems, round after round, and prints the latencies.
///
/// # Errors
/// A system fails, a check fails, or memory cannot be limited.
pub fn run(parts: &Parts<'_>, scale: Scale, rounds: u32, format: Format) -> Result<()> {
    let size_bytes = scale.pick(DISK_BYTES_TINY, DISK_BYTES);
    ensure_room(parts.scratch, NAME, size_bytes)?;
    let testbed = parts.testbed(None, size_bytes)?;
    let extent = Extent::of(scale);
    let limit = MemoryLimit::new(scale.memory_bytes(MEMORY_BYTES), scale == Scale::Tiny, parts.teardown)?;
    let mut all: Vec<Latencies> = Vec::new();
    for round in 0..rounds {
        for (number, system) in testbed.systems.iter().enumerate() {
            let name = format!("{NAME} on {}", system.name());
            let _watched = parts.teardown.watch(&name, extent.time * 10 + Duration::from_secs(600));
            testbed.disk.set_fast_forward(true)?;
            testbed.disk.discard_all()?;
            system.format()?;
            limit.within(|| {
                system.mount()?;
                load::prepare(system.dir(), &extent)?;
                system.mount_cold()
            })?;
            testbed.disk.set_fast_forward(false)?;
            let latencies = limit.within(|| measure(system.dir(), &extent)).with_context(|| name.clone())?;
            limit.within(|| system.mount_cold())?;
            calls::check(system.dir(), &extent, &latencies).with_context(|| name.clone())?;
            system.unmount()?;
            tell(format_args!("{name}, round {}", round + 1));
            match all.get_mut(number) {
                None => all.push(latencies),
                Some(sum) => {
                    for (sum, latencies) in sum.iter_mut().zip(latencies) {
                        sum.add(latencies)?;
                    }
                }
            }
        }
    }
    let systems = testbed.systems.iter().zip(&all);
    let figures: Vec<Figure> = Call::ALL
        .iter()
        .enumerate()
        .flat_map(|(kind, call)| {
            let of = move |system: &dyn System, all: &Latencies| {
                all.get(kind).map(|latencies| Figure::of(system.name(), *call, latencies))
            };
            systems.clone().filter_map(move |(system, all)| of(&**system, all))
        })
        .collect();
    tell_all(&figures, format)
}

fn tell_all(figures: &[Figure], format: Format) -> Result<()> {
    match format {
        Format::Json => print(serde_json::to_string_pretty(figures)?),
        Format::Text => {
            print(format_args!(
                "{:<8}{:<10}{:>9}{:>12}{:>12}{:>12}{:>12}",
                "call", "system", "calls", "p50, ms", "p99, ms", "p99.9, ms", "max, ms"
            ))?;
            figures.iter().try_for_each(|f| {
                print(format_args!(
                    "{:<8}{:<10}{:>9}{:>12.3}{:>12.3}{:>12.3}{:>12.3}",
                    f.call, f.system, f.calls, f.p50_ms, f.p99_ms, f.p999_ms, f.max_ms
                ))
            })
        }
    }
}

/// Makes all calls while the load runs.
fn measure(dir: &Path, extent: &Extent) -> Result<Latencies> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let load: Vec<_> = load::ALL
            .iter()
            .map(|work| scope.spawn(move || work(dir, extent, &|| is_over.load(Relaxed))))
            .collect();
        let clients: Vec<_> =
            Call::ALL.iter().map(|call| scope.spawn(move || paced(*call, dir, extent))).collect();
        let latencies = clients.into_iter().map(joined).collect();
        is_over.store(true, Relaxed);
        for work in load {
            let pieces = joined(work)?;
            ensure!(pieces > 0, "a part of the load did nothing");
        }
        latencies
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes one kind of call at fixed times.
fn paced(call: Call, dir: &Path, extent: &Extent) -> Result<Histogram<u64>> {
    let mut latencies = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)?;
    let mut client = calls::Client::new(call, dir, extent)?;
    let start = Instant::now();
    for number in 0.. {
        let due = call.every(extent.every) * number;
        if due >= extent.time {
            break;
        }
        client.prepare()?;
        thread::sleep(due.saturating_sub(start.elapsed()));
        client.call()?;
        let latency = start.elapsed().saturating_sub(due);
        latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Extent {
        Extent { time: Duration::from_millis(300), every: Duration::from_millis(5), files: 20, large_mib: 1 }
    }

    #[test]
    fn all_calls_are_made_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        load::prepare(dir.path(), &tiny()).unwrap();
        let latencies = measure(dir.path(), &tiny()).unwrap();
        assert!(latencies.iter().map(Histogram::len).eq([60, 60, 6]));
        calls::check(dir.path(), &tiny(), &latencies).unwrap();
        std::fs::write(calls::made(dir.path(), 7), "other").unwrap();
        assert!(calls::check(dir.path(), &tiny(), &latencies).is_err());
    }

    /// A call that takes long counts for those that were due meanwhile.
    #[test]
    fn a_latency_begins_when_the_call_was_due() {
        let dir = tempfile::tempdir().unwrap();
        load::prepare(dir.path(), &tiny()).unwrap();
        let late = Extent { time: Duration::from_nanos(200), every: Duration::from_nanos(1), ..tiny() };
        let begun = Instant::now();
        let latencies = paced(Call::Create, dir.path(), &late).unwrap();
        let all_ns = begun.elapsed().as_nanos() as f64;
        assert_eq!(latencies.len(), 200);
        // Calls made one after the other take no longer than all of it, counted from their beginnings.
        assert!(latencies.mean() * 200.0 > all_ns, "{} {all_ns}", latencies.mean());
    }
}
