//! `betrfs stats`: the counters of a live mount.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use betrfs_fuse::Status;
use betrfs_fuse::mount_point::FS_TYPES;

use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::size;

/// Show what a live mount has done: kernel requests, tree queries, device I/O
#[derive(clap::Args)]
#[command(after_help = "\
Requests are counted by the kernel's names for them, operations by the library's: `queries` and
`scans` are what they asked of the tree (what memory answers costs none), `commits` the changes.

Example:
  betrfs stats /mnt --format json")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let status = ask(&arguments.dir)?;
    match arguments.format {
        Format::Text => print(told(&status)?.trim_end()),
        Format::Json => print_json(&status),
    }
}

/// The status of the mount at a directory.
pub fn ask(dir: &Path) -> Result<Status, Failure> {
    let shown = dir.display();
    match Status::ask(dir) {
        Ok(Some(status)) => Ok(status),
        Ok(None) => Err(Failure::new(format!(
            "no BetrFS volume is mounted on {shown}: `findmnt -t {}` lists those that are",
            FS_TYPES.join(",")
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Err(Failure::new(format!(
            "the server of {shown} is dead: mount the volume again, or free the directory with `betrfs umount {shown}`"
        ))),
        Err(error) => Err(Failure::new(format!("cannot ask {shown}: {error}"))),
    }
}

fn told(status: &Status) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let identity = &status.identity;
    writeln!(out, "volume       {}", identity.volume.display())?;
    writeln!(out, "mounted on   {}", identity.mount_point.display())?;
    writeln!(out, "server       process {}, up {} s", identity.pid, status.uptime_seconds)?;
    writeln!(out, "requests by  {}", status.transport)?;
    writeln!(out, "\n{:<18}{:>12}{:>10}", "kernel requests", "count", "errors")?;
    for (name, requests) in &status.requests {
        writeln!(out, "  {name:<16}{:>12}{:>10}", requests.count, requests.errors)?;
    }
    writeln!(out, "\n{:<18}{:>12}{:>10}{:>10}{:>10}", "operations", "calls", "queries", "scans", "commits")?;
    for (name, cost) in &status.operations {
        writeln!(
            out,
            "  {name:<16}{:>12}{:>10}{:>10}{:>10}",
            cost.calls, cost.queries, cost.scans, cost.commits
        )?;
    }
    writeln!(out, "\nengine")?;
    for (name, count) in &status.engine {
        let note =
            if name.ends_with("_bytes") { format!("  ({})", size::show(*count)) } else { String::new() };
        writeln!(out, "  {name:<22}{count:>16}{note}")?;
    }
    Ok(out)
}
