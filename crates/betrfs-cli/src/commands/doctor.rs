//! `betrfs doctor`: what a bug report should say of the machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::commands::list::{self, Listed};
use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::helper::HELPERS;
use crate::memory;
use crate::size;

/// Whether FUSE answers requests by io_uring: `Y` or `N`.
const FUSE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Show what a bug report should say of this machine: versions, kernel, FUSE, memory, mounts
#[derive(clap::Args)]
#[command(after_help = "\
It changes nothing and needs no rights. Paths of mounts are shown: read it before you send it.

Example:
  betrfs doctor")]
pub struct Arguments {
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    format_version: u32,
    kernel: String,
    machine: String,
    cpus: usize,
    memory_bytes: u64,
    default_cache_bytes: u64,
    dev_fuse: bool,
    /// `null` where the kernel has no such switch: then requests come by /dev/fuse.
    fuse_io_uring: Option<bool>,
    loop_devices: bool,
    /// What `fusermount3 --version` says: users other than root need it.
    fusermount3: Option<String>,
    /// What `blkid -V` says: `mkfs` asks it what is on a device.
    blkid: Option<String>,
    /// The links in /sbin that are there.
    links: Vec<&'static str>,
    mounts: Vec<Listed>,
}

fn first_line(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let told = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&told).lines().next().map(str::to_owned)
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let system = rustix::system::uname();
    let is_there = |path: &str| Path::new(path).exists();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        format_version: betree::FORMAT_VERSION,
        kernel: system.release().to_string_lossy().into_owned(),
        machine: system.machine().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        memory_bytes: memory::available_bytes(),
        default_cache_bytes: memory::default_cache_bytes(),
        dev_fuse: is_there("/dev/fuse"),
        fuse_io_uring: fs::read_to_string(FUSE_URING).ok().map(|told| told.trim() == "Y"),
        loop_devices: is_there("/dev/loop-control"),
        fusermount3: first_line("fusermount3", "--version"),
        blkid: first_line("blkid", "-V"),
        links: HELPERS.into_iter().filter(|name| Path::new("/sbin").join(name).exists()).collect(),
        mounts: list::mounts()?,
    };
    match arguments.format {
        Format::Json => print_json(&report),
        Format::Text => lines(&report).iter().try_for_each(print),
    }
}

fn lines(report: &Report) -> Vec<String> {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "not found".to_owned());
    let uring =
        report.fuse_io_uring.map_or("the kernel has none", |is| if is { "yes" } else { "switched off" });
    let links = if report.links.is_empty() { "none".to_owned() } else { report.links.join(" ") };
    let mut lines = vec![
        format!("betrfs        {}, format {}", report.version, report.format_version),
        format!("kernel        {} on {}", report.kernel, report.machine),
        format!("processors    {}", report.cpus),
        format!("memory        {}", size::show(report.memory_bytes)),
        format!("cache         {} by default", size::show(report.default_cache_bytes)),
        format!("/dev/fuse     {}", yes(report.dev_fuse)),
        format!("io_uring      {uring}"),
        format!("loop devices  {}", yes(report.loop_devices)),
        format!("fusermount3   {}", known(&report.fusermount3)),
        format!("blkid         {}", known(&report.blkid)),
        format!("links         {links}"),
        format!("mounts        {}", report.mounts.len()),
    ];
    if !report.mounts.is_empty() {
        lines.extend(list::lines(&report.mounts));
        lines.extend(list::copies_of(&report.mounts).map(|copies| format!("copies on     {copies}")));
        lines.extend(list::errors_of(&report.mounts).map(|errors| format!("errors on     {errors}")));
    }
    lines
}
