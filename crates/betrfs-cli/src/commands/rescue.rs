//! `betrfs rescue`: copies out all that can be read of a volume, whatever is broken.

mod copy;
mod later;
mod list;
mod target;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use betree::FindingCode;
use betree_std::Zstd;
use betrfs::Volume;
use betrfs::rescue::Rescue;

use crate::commands::check::failed;
use crate::failure::{Failure, Kind, Outcome, warn};
use crate::format::print;
use crate::replay;
use copy::Copy;
use list::List;
use target::Target;

/// The budget of the node cache: the volume is read from its first key to its last.
const CACHE_BYTES: usize = 64 << 20;
/// How many damaged structures are told on standard error.
const DAMAGE_MAX: u32 = 100;

/// Copy all that can be read of a volume to a directory, however damaged it is
#[derive(clap::Args)]
#[command(after_help = "\
The volume must not be mounted, and is not changed. Without its newest superblock an older one is taken; lost \
places of nodes are looked for on the whole device; of a damaged log, what stands before the damage is replayed, \
in memory. Names, files, links, symbolic links, devices, permissions, times, extended attributes and snapshots \
are copied; owners too if root does it, flags of chattr(1) are not.

Nothing is invented. What is missing is listed, one line for each part: the path, the part, and the reason, with \
tabs between them. The parts are `all` of an object, its `record` (attributes), `bytes FROM-TO` of a file (a hole \
is there instead), `attribute NAME`, and `names`, for all from one path to another. A line that begins with `-` \
names a structure of which only an older state may be left. A file whose record is lost \
is copied by its data. Files with several names of which none is left are in `.betrfs-lost`, by number.

Exit codes:
  0  all of it was copied
  1  it failed
  4  something is missing; all else was copied

Examples:
  betrfs rescue data.betrfs /mnt/disk/rescued
  betrfs rescue /dev/sdb1 rescued --list missing.txt")]
pub struct Arguments {
    /// The volume's file or block device
    volume: PathBuf,
    /// The directory to copy to: an empty one, or one that is made
    directory: PathBuf,
    /// Write the list of what is missing to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
}

/// Whether what stands in for a damaged structure may be older than what is lost, so that changes are missing
/// without a trace.
fn may_hide_names(code: FindingCode) -> bool {
    matches!(
        code,
        FindingCode::OldCheckpoint | FindingCode::NodesByHeader | FindingCode::BadLog | FindingCode::BadNode
    )
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let shown = arguments.volume.display().to_string();
    let device = betrfs_fuse::open_device_for_reading(&arguments.volume)?;
    let list: Box<dyn Write> = match &arguments.list {
        Some(path) => {
            let file = File::create(path)
                .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut list = List::new(list);
    let mut damage = 0u32;
    let mut unlisted = None;
    let mut tell = |found: betree::Finding| {
        damage = damage.saturating_add(1);
        if damage <= DAMAGE_MAX {
            warn(&format!("{shown}: {found}"));
        }
        if may_hide_names(found.code) {
            unlisted = unlisted.take().or(list.add_structure(&found.place.to_string(), &found.what).err());
        }
    };
    let mut options = Volume::engine_options(CACHE_BYTES);
    options.zstd = Some(Arc::new(Zstd::default()));
    options.replay_progress = replay::on_terminal();
    let rescue =
        Rescue::open(Arc::new(device), options, &mut tell).map_err(|error| failed(&shown, &error))?;
    if let Some(error) = unlisted {
        return Err(Failure::new(format!("cannot write the list: {error}")));
    }
    if damage > DAMAGE_MAX {
        warn(&format!("{shown}: and {} damaged structures more", damage - DAMAGE_MAX));
    }
    let target = Target::open(&arguments.directory)?;
    let mut copy = Copy::new(target, list)?;
    let copied = rescue.copy(&mut copy).map_err(|error| failed(&shown, &error))?;
    let into = arguments.directory.display();
    let counts = copy.finish(copied.is_continue(), &into)?;
    if counts.owners_left > 0 {
        warn("the owners were not kept: only root can set them");
    }
    if counts.flags_left > 0 {
        warn(&format!("the flags (chattr) of {} objects were not set", counts.flags_left));
    }
    let done = format!("{} objects of {shown} were copied to {into}", counts.objects);
    if counts.missing > 0 {
        let missing = counts.missing;
        return Err(Failure::of(Kind::Missing, format!("{done}; {missing} parts are missing, as listed")));
    }
    if arguments.list.is_some() { print(format_args!("{done}; nothing is missing")) } else { Ok(()) }
}
