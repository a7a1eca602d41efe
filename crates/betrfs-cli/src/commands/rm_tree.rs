//! `betrfs rm-tree`: removes a directory with all that is below it at once.

use std::path::PathBuf;

use crate::failure::{Failure, Outcome};

/// Remove a directory on a mount with all that is below it, whatever it holds, at once
#[derive(clap::Args)]
#[command(after_help = "\
What is below the directory is removed in one operation, and after a crash it is there or not; then
the empty directory is removed. Open files live on until they are closed. Permissions inside are not
looked at, so only root and whoever mounted the volume may do it.

Example:
  betrfs rm-tree /mnt/copy")]
pub struct Arguments {
    /// The directory
    dir: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let shown = arguments.dir.display();
    betrfs_fuse::remove_tree(&arguments.dir).map_err(|error| {
        let why = match error.raw_os_error().map(betrfs_fuse::Errno::from_raw_os_error) {
            Some(betrfs_fuse::Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
            Some(betrfs_fuse::Errno::BUSY) => "something is mounted on it or below it".to_owned(),
            Some(betrfs_fuse::Errno::INVAL) => "name it, not as `.` or `..`".to_owned(),
            Some(betrfs_fuse::Errno::NOTEMPTY) => {
                format!("it has snapshots: `betrfs snapshot list {shown}` names them")
            }
            Some(betrfs_fuse::Errno::PERM) => {
                "only root and whoever mounted the volume may, in a sticky directory only as its owner"
                    .to_owned()
            }
            _ => error.to_string(),
        };
        Failure::new(format!("cannot remove {shown}: {why}"))
    })
}
