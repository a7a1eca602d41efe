//! `betrfs usage`: the space taken by a file or a directory.

use std::path::PathBuf;

use serde::Serialize;

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::path;
use crate::size;

/// Show the space a file or a directory takes, and the space its removal would free
#[derive(clap::Args)]
#[command(after_help = "\
`stored` is the size of everything below it on the volume: compressed, and shared data counted once. `shared` \
is the part that clones or snapshots have too; `freed` is the space that its removal would free. All are as of \
one moment. Data that is in memory or only in the log counts as it is there, not compressed. Only root and the user who mounted the volume may ask.

Example:
  betrfs usage /mnt/tree")]
pub struct Arguments {
    /// The file or directory
    path: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Usage {
    stored_bytes: u64,
    shared_bytes: u64,
    freed_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    stats::approach(&arguments.path)?;
    let shown = arguments.path.display();
    let (stored_bytes, freed_bytes) = betrfs_fuse::usage(&arguments.path).map_err(|error| {
        let why = match error.raw_os_error().map(betrfs_fuse::Errno::from_raw_os_error) {
            Some(betrfs_fuse::Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
            Some(betrfs_fuse::Errno::NODEV) => "it is neither a file nor a directory".to_owned(),
            Some(betrfs_fuse::Errno::LOOP) => path::LOOPS.to_owned(),
            Some(betrfs_fuse::Errno::PERM) => "only root and the user who mounted the volume may".to_owned(),
            _ => error.to_string(),
        };
        Failure::new(format!("cannot determine the usage of {shown}: {why}"))
    })?;
    let usage = Usage { stored_bytes, shared_bytes: stored_bytes.saturating_sub(freed_bytes), freed_bytes };
    match arguments.format {
        Format::Text => {
            print(format_args!("stored {:>12}", size::show(usage.stored_bytes)))?;
            print(format_args!("shared {:>12}", size::show(usage.shared_bytes)))?;
            print(format_args!("freed  {:>12}", size::show(usage.freed_bytes)))
        }
        Format::Json => print_json(&usage),
    }
}
