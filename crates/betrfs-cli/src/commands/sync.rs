//! `betrfs sync`: makes writes to a mount durable.

use std::path::{Path, PathBuf};

use betrfs_fuse::Errno;

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::path;

/// Make all writes to a volume durable, where sync(1) does not reach it
#[derive(clap::Args)]
#[command(after_help = "\
The kernel passes sync(1) and syncfs(2) on to a server from Linux 6.18 on, and only if root mounted with loop \
devices at hand (findmnt shows the type fuseblk.betrfs). This command always works, for root and the user who mounted.

Example:
  betrfs sync /mnt")]
pub struct Arguments {
    /// The directory on which the volume is mounted, or one below: data written to mappings of files in it
    /// becomes durable too
    dir: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    run_at(&arguments.dir)
}

/// Makes everything that was written to a mount durable, and what was written to mappings below a directory.
pub fn run_at(dir: &Path) -> Outcome {
    stats::approach(dir)?;
    let shown = dir.display();
    betrfs_fuse::sync(dir).map_err(|error| {
        let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
            Some(Errno::LOOP) => path::LOOPS.to_owned(),
            Some(Errno::PERM) => "only root and the user who mounted the volume may".to_owned(),
            _ => error.to_string(),
        };
        Failure::new(format!("cannot make {shown} durable: {why}"))
    })
}
