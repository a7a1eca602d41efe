//! `betrfs trim`: discards the free space of a mounted volume.

use std::path::PathBuf;

use betrfs_fuse::Order;
use serde::Serialize;

use crate::bar::LateBar;
use crate::commands::{change, stats};
use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::size;

/// Discard the free space of a mounted volume: its file shrinks, an SSD hears what it need not keep
#[derive(clap::Args)]
#[command(after_help = "\
A checkpoint comes first, so that all space is free that can be. Free space is punched out of the volume's file, or told \
to the block device, which may ignore it. The mount option `discard` does the same after each checkpoint for what has \
become free. Only root and the user who mounted the volume may.

Example:
  betrfs trim /mnt")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Trimmed {
    trimmed_bytes: u64,
}

/// The template of the bar of the free space.
const BAR: &str = "discarding [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let mount = stats::mount_at(&arguments.dir)?;
    let mut bar = LateBar::new(BAR);
    let trimmed = change::by_server_telling(&mount, &Order::Trim, &mut |done, all| bar.tell(done, all));
    drop(bar);
    let trimmed_bytes = trimmed?;
    match arguments.format {
        Format::Text => {
            let told = size::show(trimmed_bytes);
            print(format_args!("{}: {told} ({trimmed_bytes} bytes) trimmed", arguments.dir.display()))
        }
        Format::Json => print_json(&Trimmed { trimmed_bytes }),
    }
}
