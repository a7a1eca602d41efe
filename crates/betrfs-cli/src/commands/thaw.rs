//! `betrfs thaw`: ends a freeze.

use std::path::PathBuf;

use crate::commands::{freeze, stats};
use crate::failure::Outcome;

/// Let the changes of a frozen volume go on
#[derive(clap::Args)]
#[command(after_help = "\
Returns when the volume is in use again; the changes that waited are then carried out. Fails if it is not frozen. \
Only root and the user who mounted the volume may.

Example:
  betrfs thaw /mnt")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let mount = stats::mount_at(&arguments.dir)?;
    freeze::thaw(&arguments.dir, &mount, None)
}
