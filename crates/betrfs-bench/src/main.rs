//! `betrfs-bench`: times workloads on BetrFS and on ext4, XFS and Btrfs, side by side in one run.
//!
//! All of them use the same disk in turn, through the same loop device with direct I/O. The ratio is the
//! first result: the machine and its other work change the times of all.
#![forbid(unsafe_code)]

mod calibrate;
mod cloner;
mod data;
mod durations;
mod latency;
mod measure;
mod microfiles;
mod plot;
mod report;
mod repository;
mod sample;
mod saved;
mod system;
mod testbed;
mod threads;
mod tree;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use bench_harness::disk::{DiskKind, emulated};
use bench_harness::output::{print, tell};
use bench_harness::scale::{Format, Scale};
use bench_harness::teardown::{self, Teardown};
use bench_harness::touch;
use clap::Parser;

use crate::microfiles::LibraryTest;
use crate::report::Report;
use crate::saved::{Run, Saved};
use crate::system::Peer;
use crate::testbed::Parts;
use crate::tree::Tree;
use crate::workloads::{Inputs, Workload};

/// The size of the disk at the tiny scale: the least on which every file system can be made.
const TINY_DISK_BYTES: u64 = 512 << 20;
/// The size of the disk for the benchmarks of the library.
const LIBRARY_DISK_BYTES: u64 = 4 << 30;

/// The mount's allocator, for the engine in this process; engines in C and C++ have glibc's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Times workloads on BetrFS and on the kernel's file systems, side by side
#[derive(Parser)]
#[command(after_help = "\
Needs root (loop devices, mounts, control groups, cold caches), and the programs that make the peers'
file systems (Debian: apt-get install e2fsprogs xfsprogs btrfs-progs).

Examples:
  betrfs-bench list                              the workloads
  betrfs-bench --tree linux-source-6.1.tar.xz    all of them, three rounds, on the disk of this directory
  betrfs-bench --disk hdd --plots plots          all of them on an emulated 7200 rpm disk, with plots
  betrfs-bench find,grep --rounds 5 --format json   two of them
  betrfs-bench --scale quarter                   all of them with a quarter of the data, in less than a quarter of the time
  betrfs-bench --save rounds                     all of them; run again, it resumes where it ended
  betrfs-bench latency --peers ext4              create, read and fsync under load: p50, p99, p99.9, max
  betrfs-bench calibrate                         how the emulated disk compares with real ones
  betrfs-bench --scale tiny                      all of them, small, each result checked
  betrfs-bench plot fast.json hdd.json           all ratios, cost by size, and aging, as three pictures
  betrfs-bench kv                                the engine alone beside other key-value stores: those that
                                                 were built in, with `--features peers` all")]
struct Arguments {
    /// `list`, `all` (workloads on file systems), `kv` (those on key-value stores), `latency`, `calibrate`,
    /// `plot`, or names of workloads, separated by commas, with or without the number at their end
    #[arg(default_value = "all")]
    what: String,
    /// For `plot`: reports, as `--format json` prints them
    reports: Vec<PathBuf>,
    /// The disk to run on
    #[arg(long, value_enum, default_value_t = DiskKind::Fast)]
    disk: DiskKind,
    /// The file systems to compare with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ext4,xfs,btrfs")]
    peers: Vec<Peer>,
    /// How often each workload runs on each file system
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The scale of the workloads
    #[arg(long, value_enum, default_value_t = Scale::Full)]
    scale: Scale,
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// A directory for plots, one for each figure; made if it does not exist
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// The directory of the backing files during the run, on the disk to measure
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A directory to save each round in; an interrupted run resumes there
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// The tree to unpack, a .tar or .tar.xz; without it one is generated
    #[arg(long, value_name = "FILE")]
    tree: Option<PathBuf>,
    /// The binary `betrfs`; by default the one beside this program
    #[arg(long, value_name = "FILE", env = "BETRFS_BIN")]
    betrfs: Option<PathBuf>,
    #[command(flatten)]
    kv: bench_kv::Choice,
    /// Serve an emulated disk: its image, and the directory for it
    #[arg(long, hide = true, num_args = 2)]
    emulate: Vec<PathBuf>,
    /// Touch this number of bytes of memory, and end
    #[arg(long, hide = true)]
    touch: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("betrfs-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let [image, dir] = arguments.emulate.as_slice() {
        return emulated::serve(image, dir);
    }
    if let Some(bytes) = arguments.touch {
        return touch::touch_here(bytes);
    }
    if arguments.what == "plot" {
        return plot::plot_reports(&arguments.reports, arguments.plots.as_deref().unwrap_or(Path::new(".")));
    }
    if let Some(more) = arguments.reports.first() {
        bail!("{} is one argument too many: names of workloads are separated by commas", more.display());
    }
    if arguments.what == "list" {
        return list(arguments);
    }
    if arguments.what == bench_kv::CHILD {
        return bench_kv::run_child();
    }
    if arguments.what == bench_kv::SUITE_CHILD {
        return bench_kv::run_suite_child();
    }
    if arguments.what == microfiles::CHILD {
        return microfiles::run_child();
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root can mount and make caches cold: run it as root");
    }
    teardown::undo_dead_runs()?;
    let scratch = tempfile::Builder::new()
        .prefix("betrfs-bench-")
        .tempdir_in(std::path::absolute(&arguments.dir)?)
        .with_context(|| format!("cannot work in {}", arguments.dir.display()))?;
    let teardown = Teardown::new(scratch.path())?;
    let done = run_in(arguments, scratch.path(), &teardown);
    teardown.end();
    done
}

/// Runs the chosen workloads, with a directory for their files; nothing else is left afterwards.
fn run_in(arguments: &Arguments, scratch: &Path, teardown: &Teardown) -> Result<()> {
    let scale = arguments.scale;
    if bench_kv::is_named(&arguments.what) {
        return bench_kv::run(&bench_kv::Settings {
            what: &arguments.what,
            scale,
            rounds: arguments.rounds,
            format: arguments.format,
            choice: &arguments.kv,
            scratch,
            teardown,
        });
    }
    if arguments.what == latency::NAME {
        let binary = betrfs_binary(arguments)?;
        let parts = Parts { disk: arguments.disk, peers: &arguments.peers, binary, scratch, teardown };
        return latency::run(&parts, scale, arguments.rounds, arguments.format);
    }
    let tree = Tree::new(scratch, arguments.tree.as_deref(), scale)?;
    if arguments.what == "calibrate" {
        let figures = calibrate::calibrate(scratch, &tree, scale, teardown)?;
        return figures.print(arguments.format);
    }
    let binary = betrfs_binary(arguments)?;
    let inputs = Inputs::new(&tree, scratch, &binary);
    let mut chosen = workloads::all(scale, &inputs);
    let asked: Vec<&str> = arguments.what.split(',').collect();
    let is_asked = |name: &str| asked.iter().any(|asked| *asked == "all" || is_chosen(name, asked));
    let names: Vec<&str> = chosen.iter().map(|workload| workload.name()).chain([microfiles::NAME]).collect();
    if let Some(unknown) = asked.iter().find(|asked| !is_any_chosen(&names, asked)) {
        bail!("there is no workload `{unknown}`: `betrfs-bench list` names them");
    }
    let has_library = is_asked(microfiles::NAME);
    chosen.retain(|workload| is_asked(workload.name()));
    let run = Run::of(&binary, arguments.disk, scale, arguments.tree.as_deref(), scratch)?;
    let saved = Saved::open(arguments.save.as_deref(), &run)?;
    let size_bytes = |workload: &dyn Workload| scale.pick(TINY_DISK_BYTES, workload.disk_bytes());
    if let Some(largest) = chosen.iter().max_by_key(|workload| workload.disk_bytes()) {
        testbed::ensure_room(scratch, largest.name(), size_bytes(&**largest))?;
    }
    let parts =
        Parts { disk: arguments.disk, peers: &arguments.peers, binary: binary.clone(), scratch, teardown };
    let (mut testbed, mut figures) = (None, Vec::new());
    for workload in &chosen {
        let made = parts.testbed(testbed.take(), size_bytes(&**workload))?;
        figures.push(measure::measure(&**workload, &made, arguments.rounds, scale, &saved, teardown)?);
        testbed = Some(made);
    }
    let library = if has_library {
        let made = parts.testbed(testbed.take(), scale.pick(TINY_DISK_BYTES, LIBRARY_DISK_BYTES))?;
        vec![library_test(scale).measure(&made.disk, arguments.rounds, &saved, teardown)?]
    } else {
        Vec::new()
    };
    let report = Report { disk: arguments.disk, scale, figures, library };
    if let Some(dir) = &arguments.plots {
        plot::plot_figures(&report, dir)?;
    }
    report.print(arguments.format)
}

/// Prints the workloads with their durations.
fn list(arguments: &Arguments) -> Result<()> {
    let (scale, tree) = (arguments.scale, Tree::none());
    for workload in workloads::all(scale, &Inputs::new(&tree, Path::new(""), Path::new(""))) {
        let memory_mib = scale.memory_bytes(workload.memory_bytes()) >> 20;
        print(format_args!("{:<22}{}, with {memory_mib} MiB of memory", workload.name(), workload.about()))?;
        let minutes = |disk| {
            let seconds = durations::round_seconds(workload.name(), disk)? * arguments.rounds;
            Some(format!("{} min", seconds.div_ceil(60)))
        };
        if scale == Scale::Full {
            let known = |disk| minutes(disk).unwrap_or_else(|| "a time not yet measured".into());
            let (fast, hdd) = (known(DiskKind::Fast), known(DiskKind::Hdd));
            print(format_args!("{:<22}takes about {fast} (fast), {hdd} (hdd)", ""))?;
        }
    }
    print(format_args!("{:<22}{}", microfiles::NAME, library_test(scale).about()))?;
    print(format_args!("{:<22}{}", latency::NAME, latency::about(scale)))?;
    bench_kv::list(scale, &arguments.kv)
}

/// Whether `asked` names a workload, by its whole name or by the name without its number.
fn is_chosen(name: &str, asked: &str) -> bool {
    let rest = name.strip_prefix(asked);
    let number = rest.and_then(|rest| rest.strip_prefix('-'));
    rest == Some("") || number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Whether `asked` names any of the workloads.
fn is_any_chosen(names: &[&str], asked: &str) -> bool {
    asked == "all" || names.iter().any(|name| is_chosen(name, asked))
}

fn library_test(scale: Scale) -> LibraryTest {
    LibraryTest { files: scale.part(5000, 1_000_000), warm_files: scale.pick(1000, 50_000) }
}

fn betrfs_binary(arguments: &Arguments) -> Result<PathBuf> {
    let path = match &arguments.betrfs {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?.with_file_name("betrfs"),
    };
    if !path.is_file() {
        bail!("{} is missing: `cargo build --release -p betrfs-cli` makes it", path.display());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_its_number_stands_for_all_numbers() {
        let chosen = ["rename-dir-1", "rename-dir-10", "random", "random-beyond"];
        let by = |asked| chosen.into_iter().filter(|name| is_chosen(name, asked)).collect::<Vec<_>>();
        assert_eq!(by("rename-dir"), ["rename-dir-1", "rename-dir-10"]);
        assert_eq!(by("rename-dir-1"), ["rename-dir-1"]);
        assert_eq!(by("random"), ["random"]);
        assert!(by("rename").is_empty() && by("").is_empty());
    }
}
