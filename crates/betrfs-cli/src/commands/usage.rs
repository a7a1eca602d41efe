//! `betrfs usage`: the space taken by files and directories.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::path;
use crate::plain_text::on_one_line;
use crate::size;

/// Show the space files or directories take, and the space their removal would free
#[derive(clap::Args)]
#[command(after_help = "\
`stored` is the size of everything below it on the volume: compressed, and shared data counted once. `shared` \
is the part that clones or snapshots have too; `freed` is the space that its removal would free. Each path is as of \
one moment. Data that is in memory or only in the log counts as it is there, not compressed. Only root and the user who mounted the volume may ask.

Examples:
  betrfs usage /mnt/tree
  betrfs usage -d 1 /mnt              a line for each directory in it, and one for all
  betrfs usage -s /mnt/a /mnt/b       a line for each")]
pub struct Arguments {
    /// The files or directories
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// A line for each path
    #[arg(short, long, conflicts_with = "depth")]
    summarize: bool,
    /// A line for each path, and for each directory up to N levels below it
    #[arg(short, long, value_name = "N")]
    depth: Option<u32>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The space that a file or a directory takes with all below it.
#[derive(Serialize)]
pub struct Usage {
    /// What is stored: compressed, and shared data counted once.
    pub stored_bytes: u64,
    /// The part of it that others share.
    pub shared_bytes: u64,
    /// What its removal would free.
    pub freed_bytes: u64,
}

#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    path: Name,
    #[serde(flatten)]
    usage: Usage,
}

#[derive(Serialize)]
struct Lines {
    paths: Vec<Line>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { paths, summarize, depth, format } = arguments;
    if let ([path], false, None) = (paths.as_slice(), summarize, depth) {
        return print_one(&usage_of(path)?, *format);
    }
    let mut lines = Vec::new();
    for path in paths {
        below(path, depth.unwrap_or(0), &mut lines)?;
    }
    if *format == Format::Json {
        return print_json(&Lines { paths: lines });
    }
    print(format_args!("{:>12} {:>12} {:>12}  path", "stored", "shared", "freed"))?;
    lines.iter().try_for_each(|Line { path, usage }| {
        let [stored, shared, freed] =
            [usage.stored_bytes, usage.shared_bytes, usage.freed_bytes].map(size::show);
        print(format_args!("{stored:>12} {shared:>12} {freed:>12}  {}", on_one_line(&path.to_string())))
    })
}

/// Adds the lines of the directories in a directory, up to `levels` below, and its own behind them, as du(1).
fn below(path: &Path, levels: u32, lines: &mut Vec<Line>) -> Outcome {
    let usage = usage_of(path)?;
    if levels > 0 && path.is_dir() {
        let failed = |error: std::io::Error| Failure::new(format!("cannot list {}: {error}", path.display()));
        let mut dirs = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                dirs.push(entry.path());
            }
        }
        dirs.sort();
        dirs.iter().try_for_each(|dir| below(dir, levels - 1, lines))?;
    }
    lines.push(Line { path: Name::new("path", path), usage });
    Ok(())
}

fn print_one(usage: &Usage, format: Format) -> Outcome {
    match format {
        Format::Text => {
            print(format_args!("stored {:>12}", size::show(usage.stored_bytes)))?;
            print(format_args!("shared {:>12}", size::show(usage.shared_bytes)))?;
            print(format_args!("freed  {:>12}", size::show(usage.freed_bytes)))
        }
        Format::Json => print_json(usage),
    }
}

/// Asks the mount for the usage of a path.
pub fn usage_of(path: &Path) -> Result<Usage, Failure> {
    stats::approach(path)?;
    let (stored_bytes, freed_bytes) = betrfs_fuse::usage(path).map_err(|error| {
        let why = match error.raw_os_error().map(betrfs_fuse::Errno::from_raw_os_error) {
            Some(betrfs_fuse::Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
            Some(betrfs_fuse::Errno::NODEV) => "it is neither a file nor a directory".to_owned(),
            Some(betrfs_fuse::Errno::LOOP) => path::LOOPS.to_owned(),
            Some(betrfs_fuse::Errno::PERM) => "only root and the user who mounted the volume may".to_owned(),
            _ => error.to_string(),
        };
        Failure::new(format!("cannot determine the usage of {}: {why}", path.display()))
    })?;
    Ok(Usage { stored_bytes, shared_bytes: stored_bytes.saturating_sub(freed_bytes), freed_bytes })
}
