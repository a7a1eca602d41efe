//! `betrfs rm-tree`: removes a directory with everything below it at once.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betrfs::{Held, SnapshotsBelow};
use betrfs_fuse::{Errno, RemoveTreeError};

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::path::CHANGED;
use crate::plain_text::on_one_line;
use crate::{ownership, path};

/// Remove a directory on a mount with everything below it at once, whatever its size
#[derive(clap::Args)]
#[command(after_help = "\
Everything below the directory is removed in one operation: after a crash all of it is there or nothing. Then \
the empty directory is removed. Open files live on until they are closed. Permissions and flags \
(chattr) inside are not checked, so only root and the user who mounted the volume may do it; on a mount with the \
option user_clone_allowed also a user whose the directory is as a whole (see `betrfs clone --help`), without \
--snapshots.

If snapshots of the directory or of directories below it exist, nothing is removed without --snapshots.

Examples:
  betrfs rm-tree /mnt/copy
  betrfs rm-tree --snapshots /mnt/old")]
pub struct Arguments {
    /// Remove the snapshots of the directory and of directories below it as well
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
            RemoveTreeError::Os(error) => why(error, &arguments.dir),
            RemoveTreeError::Held(held) => why_held(&arguments.dir, held),
            RemoveTreeError::MountedBelow => error.to_string(),
        };
        Failure::new(format!("cannot remove {shown}: {why}"))
    })
}

fn why(error: &io::Error, dir: &Path) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
        Some(Errno::INVAL) => "give its name, not as `.` or `..`".to_owned(),
        Some(Errno::NOTDIR) => "it is no directory; a symbolic link is not followed".to_owned(),
        Some(Errno::LOOP) => path::LOOPS.to_owned(),
        Some(Errno::AGAIN) => CHANGED.to_owned(),
        Some(Errno::NOTEMPTY) => "everything in it was removed, but something else has been created there \
            meanwhile; run the command again to remove that too"
            .to_owned(),
        Some(Errno::PERM) => ownership::why_refused(dir).unwrap_or_else(|| {
            "only root and the user who mounted the volume may, in a sticky directory only as its owner, and \
             not if it or its parent is immutable or append-only (`lsattr -d` shows flags)"
                .to_owned()
        }),
        _ => error.to_string(),
    }
}

/// A sentence that names the snapshots that hold a directory, and the way out.
fn why_held(dir: &Path, held: &Held) -> String {
    let count = match held.count {
        1 => "a snapshot holds".to_owned(),
        Held::COUNT_MAX.. => format!("{} snapshots or more hold", Held::COUNT_MAX),
        count => format!("{count} snapshots hold"),
    };
    let mut text = format!("{count} it; `betrfs rm-tree --snapshots` removes them too:");
    for path in &held.paths {
        let held = dir.join(OsStr::from_bytes(path)).display().to_string();
        let _ = write!(text, "\n  {}", on_one_line(&held));
    }
    if held.count > held.paths.len() {
        text.push_str("\n  ...");
    }
    text
}
