//! `betrfs-bench`: times workloads on BetrFS and on ext4, side by side in one run.
//!
//! Both live on files of one size on the same file system: BetrFS on a volume file, ext4 on an image
//! behind a loop device with direct I/O. What is told first of all is the ratio: the machine and
//! what else it does change the times of both.

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "lmdb"), forbid(unsafe_code))]

mod contender;
mod engines;
mod measure;
mod report;
mod teardown;
mod tool;
mod tree;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::contender::{Betrfs, Contender, Ext4};
use crate::teardown::Teardown;
use crate::tree::Tree;

/// That of the mount, so that the engine has it here too; engines in C and C++ have glibc's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Times workloads on BetrFS and on ext4, side by side
#[derive(Parser)]
#[command(after_help = "\
Needs root (loop devices, mounts, cold caches), and mkfs.ext4 (Debian: apt-get install e2fsprogs).

Examples:
  betrfs-bench list                              the workloads
  betrfs-bench --tree linux-source-6.1.tar.xz    all of them, three rounds
  betrfs-bench create --rounds 5 --format json   one of them
  betrfs-bench --scale tiny                      all of them, small, each result checked
  betrfs-bench kv                                the engine alone beside other key-value stores: those that
                                                 were built in, with `--features peers` all")]
struct Arguments {
    /// `list`, `all` (workloads on file systems), `kv` (those on key-value stores), or a workload's name
    #[arg(default_value = "all")]
    what: String,
    /// How often each workload runs on each file system
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How much each workload does
    #[arg(long, value_enum, default_value_t = Scale::Full)]
    scale: Scale,
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Where the backing files live while it runs: a directory on the disk to measure
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The tree to unpack, a .tar or .tar.xz; without it one is generated
    #[arg(long, value_name = "FILE")]
    tree: Option<PathBuf>,
    /// The binary `betrfs`; by default the one beside this program
    #[arg(long, value_name = "FILE", env = "BETRFS_BIN")]
    betrfs: Option<PathBuf>,
    #[command(flatten)]
    kv: engines::Choice,
}

/// How much each workload does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Scale {
    /// A few seconds in all, to see that everything works
    Tiny,
    /// What the figures are for
    Full,
}

impl Scale {
    /// Whichever of two numbers is meant for this scale.
    fn pick<T>(self, tiny: T, full: T) -> T {
        match self {
            Scale::Tiny => tiny,
            Scale::Full => full,
        }
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table, for people
    Text,
    /// One JSON document, for programs
    Json,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("betrfs-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let scale = arguments.scale;
    if arguments.what == "list" {
        for workload in workloads::all(scale, &Tree::none()) {
            println!("{:<22}{}", workload.name(), workload.about());
        }
        engines::list(scale, &arguments.kv);
        return Ok(());
    }
    if arguments.what == engines::CHILD {
        return engines::child::run();
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root can mount and make caches cold: run it as root");
    }
    let scratch = tempfile::Builder::new()
        .prefix("betrfs-bench-")
        .tempdir_in(std::path::absolute(&arguments.dir)?)
        .with_context(|| format!("cannot work in {}", arguments.dir.display()))?;
    let teardown = Teardown::new(scratch.path())?;
    if engines::is_named(&arguments.what) {
        return engines::run(arguments, scratch.path(), &teardown);
    }
    let tree = Tree::new(scratch.path(), arguments.tree.as_deref(), scale)?;
    let mut chosen = workloads::all(scale, &tree);
    if arguments.what != "all" {
        chosen.retain(|workload| workload.name() == arguments.what);
    }
    if chosen.is_empty() {
        bail!("there is no workload `{}`: `betrfs-bench list` names them", arguments.what);
    }
    let size_bytes = scale.pick(512 << 20, 4 << 30);
    let betrfs = Betrfs::new(scratch.path(), size_bytes, betrfs_binary(arguments)?, &teardown)?;
    let ext4 = Ext4::new(scratch.path(), size_bytes, &teardown)?;
    let contenders: [Box<dyn Contender>; 2] = [Box::new(ext4), Box::new(betrfs)];
    let results = chosen
        .iter()
        .map(|workload| measure::measure(&**workload, &contenders, arguments.rounds, &teardown))
        .collect::<Result<Vec<_>>>()?;
    report::print(&results, arguments.format)
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
