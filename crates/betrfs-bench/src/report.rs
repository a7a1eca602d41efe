//! The tables of results: medians, spread and ratios.

use anyhow::Result;
use bench_harness::disk::DiskKind;
use bench_harness::median::median;
use bench_harness::output::print;
use bench_harness::scale::{Format, Scale};
use serde::{Deserialize, Serialize};

use crate::microfiles::LibraryFigure;
use crate::sample::{Sample, Samples};
use crate::system::OURS;
use crate::workloads::Workload;

/// All results of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// The disk that everything ran on.
    pub disk: DiskKind,
    /// The scale of the workloads.
    pub scale: Scale,
    /// One for each workload on file systems.
    pub figures: Vec<Figure>,
    /// The benchmarks of the library, without a mount.
    #[serde(default)]
    pub library: Vec<LibraryFigure>,
}

/// A workload's results.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The workload.
    pub workload: String,
    /// Its work.
    pub about: String,
    /// The memory that client, server and page cache had together, if it was limited.
    pub memory_bytes: Option<u64>,
    /// One for each system.
    pub rows: Vec<Row>,
}

/// The results of a workload on one system.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// The system.
    pub system: String,
    /// Seconds until everything was durable.
    pub median_seconds: f64,
    /// Seconds of the fastest round.
    pub min_seconds: f64,
    /// Seconds of the slowest round.
    pub max_seconds: f64,
    /// Speed relative to the fastest peer, by the medians. A peer is compared with all peers, itself
    /// included.
    pub times_best_peer: Option<f64>,
    /// Each round.
    #[serde(default)]
    pub rounds: Vec<Sample>,
}

impl Figure {
    /// The row of a system.
    pub fn row(&self, system: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.system == system)
    }

    /// Sums up a workload's rounds.
    pub fn new(workload: &dyn Workload, memory_bytes: Option<u64>, samples: Vec<Samples>) -> Figure {
        let peers = samples.iter().filter(|samples| samples.system != OURS);
        let best =
            peers.map(|peer| median(peer.rounds.iter().map(|round| round.seconds))).min_by(f64::total_cmp);
        let rows = samples.into_iter().map(|samples| Row::new(samples, best)).collect();
        Figure { workload: workload.name().to_owned(), about: workload.about(), memory_bytes, rows }
    }
}

impl Row {
    fn new(samples: Samples, best_peer_seconds: Option<f64>) -> Row {
        let Samples { system, rounds } = samples;
        let median_seconds = median(rounds.iter().map(|round| round.seconds));
        let seconds = || rounds.iter().map(|round| round.seconds);
        Row {
            system: system.to_owned(),
            median_seconds,
            min_seconds: seconds().fold(f64::INFINITY, f64::min),
            max_seconds: seconds().fold(0.0, f64::max),
            times_best_peer: best_peer_seconds.map(|best| best / median_seconds),
            rounds,
        }
    }

    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.rounds.iter().map(of))
    }
}

/// Seconds for people: short times with more digits.
pub fn told_seconds(seconds: f64) -> String {
    let digits = if seconds < 0.1 { 4 } else { 2 };
    format!("{seconds:.digits$}")
}

fn mib_of(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Report {
    /// Prints it.
    pub fn print(&self, format: Format) -> Result<()> {
        match format {
            Format::Json => print(serde_json::to_string_pretty(self)?),
            Format::Text => {
                print(
                    "Medians. Seconds are until everything is durable; unmounting comes after that. `best` is the \
                     speed relative\nto the fastest of the kernel's file systems. CPU seconds are those of client \
                     and server, without the kernel's\nthreads. The other columns count work within the seconds; \
                     `used` is the growth of the used space in MiB,\nseen at the next mount.",
                )?;
                self.figures.iter().try_for_each(print_figure)?;
                self.library.iter().try_for_each(LibraryFigure::print)
            }
        }
    }
}

fn print_figure(figure: &Figure) -> Result<()> {
    let memory = figure
        .memory_bytes
        .map_or("memory not limited".into(), |bytes| format!("{} MiB of memory", bytes >> 20));
    print(format_args!("\n{}: {} ({memory})", figure.workload, figure.about))?;
    print(format_args!(
        "  {:<8}{:>9}{:>19}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}",
        "",
        "seconds",
        "least–most",
        "best",
        "CPU s",
        "reads",
        "MiB",
        "writes",
        "MiB",
        "seeks",
        "unmount",
        "requests",
        "queries",
        "used"
    ))?;
    for row in &figure.rows {
        let mib = |bytes: fn(&Sample) -> u64| row.median(|round| bytes(round) as f64) / f64::from(1 << 20);
        let known = |of: &dyn Fn(&Sample) -> Option<f64>, digits: usize| {
            let is_known = row.rounds.iter().all(|round| of(round).is_some());
            let median = row.median(|round| of(round).unwrap_or_default());
            if is_known { format!("{median:.digits$}") } else { "-".into() }
        };
        let count = |of: fn(&Sample) -> Option<u64>| known(&|round| of(round).map(|count| count as f64), 0);
        print(format_args!(
            "  {:<8}{:>9}{:>19}{:>9}{:>9}{:>9}{:>9.1}{:>9}{:>9.1}{:>9}{:>9}{:>10}{:>9}{:>9}",
            row.system,
            told_seconds(row.median_seconds),
            format!("{}–{}", told_seconds(row.min_seconds), told_seconds(row.max_seconds)),
            row.times_best_peer.map_or_else(|| "-".into(), |times| format!("{times:.2} ×")),
            known(&|round| round.cpu_seconds, 2),
            count(|round| Some(round.device.reads)),
            mib(|round| round.device.read_bytes),
            count(|round| Some(round.device.writes)),
            mib(|round| round.device.write_bytes),
            count(|round| round.device.seeks),
            told_seconds(row.median(|round| round.unmount_seconds)),
            count(|round| round.server.as_ref().map(|work| work.requests.values().sum())),
            count(|round| round.server.as_ref().map(|work| work.tree_queries)),
            known(&|round| round.grown_bytes.map(mib_of), 1),
        ))?;
    }
    for row in &figure.rows {
        let Some(last) = row.rounds.last() else { continue };
        if !last.younger_seconds.is_empty() {
            // A workload that only reads has no growth.
            let grown = |time| last.younger_grown_bytes.get(time).copied().map(mib_of);
            let grown = |time| grown(time).map_or_else(String::new, |mib| format!(" ({mib:.1} MiB)"));
            let younger = last.younger_seconds.iter().enumerate();
            let younger: Vec<String> = younger
                .map(|(time, seconds)| format!("{} s{}", told_seconds(*seconds), grown(time)))
                .collect();
            print(format_args!("  {} while it was younger: {}", row.system, younger.join(", ")))?;
        }
        let Some(work) = &last.server else { continue };
        let mut kinds: Vec<_> = work.requests.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        print(format_args!("  requests to {}: {}", row.system, kinds.join(", ")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seconds: &[f64]) -> Vec<Sample> {
        seconds.iter().map(|seconds| Sample { seconds: *seconds, ..Sample::default() }).collect()
    }

    #[test]
    fn whoever_takes_half_the_time_of_the_best_peer_is_twice_as_fast() {
        let row = Row::new(Samples { system: OURS, rounds: rounds(&[6.0, 7.0, 5.0]) }, Some(12.0));
        assert_eq!(row.times_best_peer, Some(2.0));
        assert_eq!((row.min_seconds, row.median_seconds, row.max_seconds), (5.0, 6.0, 7.0));
    }
}
