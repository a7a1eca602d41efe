//! `betrfs set`: changes properties of a directory.

use std::path::PathBuf;

use betrfs::SetProperties;
use betrfs_fuse::Errno;

use crate::commands::properties::{Change, change};
use crate::commands::stats;
use crate::failure::{Failure, Kind, Outcome};
use crate::path;

/// Set properties of a directory on a mount, which everything below it inherits
#[derive(clap::Args)]
#[command(after_help = "\
A property counts for the directory and everything below it, except where a directory below has a value of its own. \
It counts for what is read and written from then on. NAME=inherit removes the directory's own value. Several \
properties change together or not at all.

Properties:
  compression  none, lz4 (the default), zstd or zstd:LEVEL with a level of 1 (fast) to 19 (small): how the data of files \
is compressed that is written from then on. Data lies in pieces of about 64 KiB, each of which is compressed as most of \
its bytes ask
  noatime  on or off (the default): whether reading leaves times of access as they are. The mount option noatime \
counts for all directories, whatever they say

What a directory inherits belongs to its place: moved elsewhere, it inherits what is set there. A clone keeps the \
values that its source has, own or inherited. A snapshot has those of its directory. A file with several names \
(hard links) keeps the values that it had when it got the second.

Only the directory's owner and root may set properties; everyone who may read the directory may see them \
(`betrfs get`).

Values other than lz4 are noted in the volume: earlier versions of this program refuse it then.

Examples:
  betrfs set /mnt/archive compression=zstd:9
  betrfs set /mnt/build noatime=on compression=none
  betrfs set /mnt/build noatime=inherit")]
pub struct Arguments {
    /// The directory
    dir: PathBuf,
    /// The properties with their new values
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = change)]
    changes: Vec<Change>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { dir, changes } = arguments;
    let mut set = SetProperties::default();
    for (at, change) in changes.iter().enumerate() {
        if changes.iter().take(at).any(|earlier| earlier.name == change.name) {
            let why = format!("the property {} is given twice", change.name.word());
            return Err(Failure::of(Kind::Usage, why));
        }
        change.add_to(&mut set);
    }
    stats::approach(dir)?;
    betrfs_fuse::set_properties(dir, &set).map_err(|error| {
        let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
            Some(Errno::NOTDIR) => "it is no directory".to_owned(),
            Some(Errno::LOOP) => path::LOOPS.to_owned(),
            Some(Errno::PERM) => "only its owner and root may, and not if it is immutable or append-only \
                                  (`lsattr -d` shows flags)"
                .to_owned(),
            Some(Errno::ROFS) => "the mount is read-only, or it is in a snapshot".to_owned(),
            _ => error.to_string(),
        };
        Failure::new(format!("cannot set properties of {}: {why}", dir.display()))
    })
}
