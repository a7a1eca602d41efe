//! `betrfs snapshot`: read-only copies of a directory.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use betrfs::SNAPSHOTS_NAME;
use betrfs_fuse::Errno;

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::format::print;

/// What statfs(2) tells of a mount by FUSE.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Make, list and remove snapshots of a directory on a mount
#[derive(clap::Args)]
#[command(after_help = "\
A snapshot is a read-only copy of a directory as it stands, made at once whatever it holds, and taking
space only for what changes afterwards. It is found as DIR/.betrfs-snapshots/NAME, which is never
listed; `mkdir` and `rmdir` there do the same, but for what processes have just written to mappings.
Only root and whoever mounted the volume may. A directory with snapshots cannot be removed before
them, but with them: see `betrfs rm-tree --snapshots`.

Examples:
  betrfs snapshot create /mnt/tree monday
  betrfs snapshot list /mnt/tree
  betrfs snapshot delete /mnt/tree monday")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Make a snapshot of a directory
    Create {
        /// The directory
        dir: PathBuf,
        /// The snapshot's name
        name: OsString,
    },
    /// List the snapshots of a directory, one name a line
    List {
        /// The directory
        dir: PathBuf,
    },
    /// Remove a snapshot with all it holds
    Delete {
        /// The directory
        dir: PathBuf,
        /// The snapshot's name
        name: OsString,
    },
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let (Action::Create { dir, .. } | Action::List { dir } | Action::Delete { dir, .. }) = &arguments.action;
    stats::approach(dir)?;
    match &arguments.action {
        Action::Create { dir, name } => {
            let taken = path_of(dir, name)?;
            let made = betrfs_fuse::write_back(dir).and_then(|()| fs::create_dir(taken));
            made.map_err(|error| refused(&format!("take the snapshot {} of", name.display()), dir, &error))
        }
        Action::List { dir } => {
            for name in list(dir).map_err(|error| refused("list the snapshots of", dir, &error))? {
                print(name.display())?;
            }
            Ok(())
        }
        Action::Delete { dir, name } => {
            let taken = path_of(dir, name)?;
            let removed = is_ours(dir).and_then(|()| fs::remove_dir(taken));
            removed
                .map_err(|error| refused(&format!("delete the snapshot {} of", name.display()), dir, &error))
        }
    }
}

/// The entry of a directory under which its snapshots are found.
fn snapshots_of(dir: &Path) -> PathBuf {
    dir.join(OsStr::from_bytes(SNAPSHOTS_NAME))
}

/// Where a directory's snapshot of that name is found. A path would lead elsewhere.
fn path_of(dir: &Path, name: &OsStr) -> Result<PathBuf, Failure> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(name)), None) => Ok(snapshots_of(dir).join(name)),
        _ => {
            let shown = name.display();
            Err(Failure::new(format!("`{shown}` is not the name of a snapshot: give one without `/`")))
        }
    }
}

/// Another file system may have an entry of this name that is another thing.
fn is_ours(dir: &Path) -> io::Result<()> {
    let is_fuse = rustix::fs::statfs(dir)?.f_type == FUSE_MAGIC;
    match dir.metadata()?.is_dir() {
        true if is_fuse => Ok(()),
        true => Err(Errno::NOTTY.into()),
        false => Err(Errno::NOTDIR.into()),
    }
}

fn list(dir: &Path) -> io::Result<Vec<OsString>> {
    is_ours(dir)?;
    let entries = fs::read_dir(snapshots_of(dir))?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn refused(doing: &str, dir: &Path, error: &io::Error) -> Failure {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
        Some(Errno::NOTDIR) => "it is no directory".to_owned(),
        Some(Errno::EXIST) => "there is one of that name".to_owned(),
        Some(Errno::PERM) => "only root and whoever mounted the volume may".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(format!("cannot {doing} {}: {why}", dir.display()))
}
