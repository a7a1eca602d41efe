//! `betrfs rm-tree`: removes a directory with all that is below it at once.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betrfs::{Held, SnapshotsBelow};
use betrfs_fuse::{Errno, RemoveTreeError};

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::path;

/// Remove a directory on a mount with all that is below it, whatever it holds, at once
#[derive(clap::Args)]
#[command(after_help = "\
What is below the directory is removed in one operation, and after a crash it is there or not; then \
the empty directory is removed. Open files live on until they are closed. Permissions inside are not \
looked at, so only root and whoever mounted the volume may do it.

Where it has snapshots, or a directory below it has, nothing is removed, unless they are to go along.

Examples:
  betrfs rm-tree /mnt/copy
  betrfs rm-tree --snapshots /mnt/old")]
pub struct Arguments {
    /// Remove the snapshots of the directory, and of all below it, with it
    #[arg(long)]
    snapshots: bool,
    /// The directory
    dir: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    stats::approach(&arguments.dir)?;
    let shown = arguments.dir.display();
    let snapshots = if arguments.snapshots { SnapshotsBelow::Go } else { SnapshotsBelow::Hold };
    betrfs_fuse::remove_tree(&arguments.dir, snapshots).map_err(|error| {
        let why = match &error {
            RemoveTreeError::Os(error) => why(error),
            RemoveTreeError::Held(held) => why_held(&arguments.dir, held),
            RemoveTreeError::MountedBelow => error.to_string(),
        };
        Failure::new(format!("cannot remove {shown}: {why}"))
    })
}

fn why(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
        Some(Errno::INVAL) => "name it, not as `.` or `..`".to_owned(),
        Some(Errno::NOTDIR) => "it is no directory; a symbolic link is not followed".to_owned(),
        Some(Errno::LOOP) => path::LOOPS.to_owned(),
        Some(Errno::PERM) => {
            "only root and whoever mounted the volume may, in a sticky directory only as its owner".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Names the snapshots that hold a directory, and how to do without them.
fn why_held(dir: &Path, held: &Held) -> String {
    let count = match held.count {
        1 => "a snapshot holds".to_owned(),
        Held::COUNT_MAX.. => format!("{} snapshots or more hold", Held::COUNT_MAX),
        count => format!("{count} snapshots hold"),
    };
    let mut text = format!("{count} it; `betrfs rm-tree --snapshots` takes them along:");
    for path in &held.paths {
        let _ = write!(text, "\n  {}", dir.join(OsStr::from_bytes(path)).display());
    }
    if held.count > held.paths.len() {
        text.push_str("\n  ...");
    }
    text
}
