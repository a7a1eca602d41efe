//! `betrfs df`: the room on a mounted volume.

use std::path::PathBuf;

use betrfs_fuse::Status;
use serde::Serialize;

use crate::commands::stats;
use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::size;

/// Show the room on a mounted volume: used, log, reserve, available
#[derive(clap::Args)]
#[command(after_help = "\
`used` is stored data, compressed, with its trees, and what changes in memory will need, at its full size. `reserve` is \
kept for deletes and checkpoints; `available` is what a writer can get on the volume as large as it is: one made with \
`--grow-to` grows up to that size, which df(1) counts as its own. `betrfs usage` tells of one directory. Only root \
and the user who mounted the volume may ask; df(1) is for all.

Example:
  betrfs df /mnt")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Df {
    total_bytes: u64,
    used_bytes: u64,
    reserve_bytes: u64,
    available_bytes: u64,
    log_bytes: u64,
    volume_bytes: u64,
    /// Null for a volume that does not grow by itself.
    grow_to_bytes: Option<u64>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let dir = &arguments.dir;
    let mount = stats::mount_at(dir)?;
    stats::approach(dir)?;
    // It has pending deletes carried out, so that their space counts as free, as for df(1).
    if let Err(errno) = rustix::fs::statvfs(dir) {
        tracing::debug!("{} may count what was deleted: {errno}", dir.display());
    }
    let status = Status::ask(&mount).map_err(|why| stats::unheard(dir, &why))?;
    let room = status.room;
    let df = Df {
        total_bytes: room.total_bytes,
        used_bytes: room.used_bytes(),
        reserve_bytes: room.unused_bytes.saturating_sub(room.available_bytes),
        available_bytes: room.available_bytes,
        log_bytes: room.log_bytes,
        volume_bytes: room.volume_bytes,
        grow_to_bytes: room.grow_to_bytes,
    };
    match arguments.format {
        Format::Text => {
            let of_volume = [("volume", Some(df.volume_bytes)), ("  grows to", df.grow_to_bytes)];
            let of_volume = of_volume.into_iter().filter_map(|(what, bytes)| Some((what, bytes?)));
            let of_room = [
                ("data", df.total_bytes),
                ("  used", df.used_bytes),
                ("  reserve", df.reserve_bytes),
                ("  available", df.available_bytes),
                ("log", df.log_bytes),
            ];
            of_volume
                .chain(of_room)
                .try_for_each(|(what, bytes)| print(format_args!("{what:<12}{:>12}", size::show(bytes))))
        }
        Format::Json => print_json(&df),
    }
}
