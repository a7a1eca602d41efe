//! `betrfs metadata-copies`: shows or changes how many copies of interior nodes a volume has.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betree::NodeCopies;
use betrfs_fuse::{Order, Status};
use serde::Serialize;
use signal_hook::consts::SIGINT;

use crate::bar::LateBar;
use crate::commands::{change, mkfs, stats};
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::tags::{self, Tags};

/// Show or change how many copies of interior nodes a volume has, mounted or not
#[derive(clap::Args)]
#[command(after_help = "\
With 2 copies an interior node above the parents of leaves, which leads to hundreds of leaves, is read from its second \
copy where the first is damaged, and written anew; what is written grows by up to 6 in a hundred. Superblock and node \
table always have more than one copy. `mkfs --metadata-copies` makes the same choice for a new volume.

The choice is durable when the command returns, and counts for nodes that are written from then on. With --all those \
that are there already are written anew too, as far as there is room, while others use the volume; Ctrl-C ends that, \
and the next call goes on. Once a volume had 2 copies, earlier versions of this program refuse it.

Only root and the user who mounted the volume may change that of a mounted volume.

Examples:
  betrfs metadata-copies /dev/sdb1            prints the number
  betrfs metadata-copies /photos 2 --all")]
pub struct Arguments {
    /// The volume's file or block device, UUID=... or LABEL=..., or the directory it is mounted on
    volume: PathBuf,
    /// How many copies it is to have: 1 or 2
    #[arg(value_parser = mkfs::parse_copies)]
    copies: Option<NodeCopies>,
    /// Also write the nodes anew that are there already
    #[arg(long, requires = "copies")]
    all: bool,
    /// How to print the number
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Shown {
    /// Null for the mount of a server of an earlier version.
    metadata_copies: Option<u32>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let volume = tags::resolved(&arguments.volume)?;
    let mount = change::mount_of(&volume);
    let Some(copies) = arguments.copies else {
        let metadata_copies = match &mount {
            Some(mount) => {
                Status::ask(mount).map_err(|why| stats::unheard(&mount.path, &why))?.metadata_copies
            }
            None => Some(Tags::read(&volume)?.metadata_copies),
        };
        return match arguments.format {
            Format::Text => print(shown(metadata_copies)),
            Format::Json => print_json(&Shown { metadata_copies }),
        };
    };
    let is_interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&is_interrupted))?;
    let left = match &mount {
        Some(mount) => {
            change::by_server(mount, &Order::MetadataCopies(copies.count()))?;
            let renew = || change::by_server(mount, &Order::RenewMetadata);
            if arguments.all { renew_all(renew, &is_interrupted)? } else { 0 }
        }
        None => change::closed(&volume, |env| {
            env.set_node_copies(copies)?;
            if arguments.all { renew_all(|| env.renew_node_copies(), &is_interrupted) } else { Ok(0) }
        })?,
    };
    if is_interrupted.load(Ordering::Relaxed) {
        let why =
            "interrupted: the choice stays, and nodes that were not reached have as many copies as before";
        return Err(Failure::of(Kind::Interrupted, why));
    }
    match left {
        0 => Ok(()),
        nodes => Err(Failure::new(format!(
            "{nodes} nodes have as many copies as before: there is no room to write them anew (`betrfs df` shows it), or \
             they cannot be read (`betrfs check`)"
        ))),
    }
}

/// The number as text.
pub fn shown(metadata_copies: Option<u32>) -> String {
    metadata_copies.map_or_else(|| "unknown".to_owned(), |copies| copies.to_string())
}

/// Has nodes written anew, some at a time, until none is left, no more can be done, or the user interrupts;
/// returns the number of those that are left.
fn renew_all<E>(mut renew: impl FnMut() -> Result<u64, E>, is_interrupted: &AtomicBool) -> Result<u64, E> {
    let mut bar = LateBar::new("writing nodes [{wide_bar}] {pos}/{len} {per_sec} {eta}");
    let first = renew()?;
    let mut left = first;
    while left > 0 && !is_interrupted.load(Ordering::Relaxed) {
        bar.tell(first.saturating_sub(left), first);
        let now = renew()?;
        if now >= left {
            return Ok(now);
        }
        left = now;
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_until_nothing_is_left_or_nothing_is_won() {
        let calls = |answers: &[u64]| {
            let mut calls = answers.iter();
            let left =
                renew_all(|| calls.next().copied().ok_or("one call too many"), &AtomicBool::new(false));
            (left, calls.len())
        };
        assert_eq!(calls(&[0, 9]), (Ok(0), 1));
        assert_eq!(calls(&[5, 3, 0, 9]), (Ok(0), 1));
        assert_eq!(calls(&[5, 3, 3, 9]), (Ok(3), 1));
        // Others change the volume meanwhile.
        assert_eq!(calls(&[5, 3, 4, 9]), (Ok(4), 1));
        assert_eq!(calls(&[5]), (Err("one call too many"), 0));
        let interrupted = renew_all(|| Ok::<_, ()>(5), &AtomicBool::new(true));
        assert_eq!(interrupted, Ok(5));
    }
}
