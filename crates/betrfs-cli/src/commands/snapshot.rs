//! `betrfs snapshot`: read-only copies of a directory.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use betrfs_fuse::Errno;
use rustix::fs::{AtFlags, Mode};

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::format::print;
use crate::path;

/// Make, list and remove snapshots of a directory on a mount
#[derive(clap::Args)]
#[command(after_help = "\
A snapshot is a read-only copy of a directory, made at once whatever its size; only later changes take \
space. Its path is DIR/.betrfs-snapshots/NAME, which no listing shows; `mkdir` and `rmdir` there do the same, \
without data just written to mappings of files. \
Only root and the user who mounted the volume may make or remove snapshots. A directory with snapshots cannot \
be removed before them, but together with them: see `betrfs rm-tree --snapshots`.

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
    /// List the snapshots of a directory, one name per line
    List {
        /// The directory
        dir: PathBuf,
    },
    /// Remove a snapshot with everything in it
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
            let name = checked(name)?;
            let made = betrfs_fuse::write_back(dir)
                .and_then(|()| betrfs_fuse::open_snapshots(dir))
                .and_then(|snapshots| Ok(rustix::fs::mkdirat(snapshots, name, Mode::from_raw_mode(0o777))?));
            made.map_err(|error| refused(&format!("take the snapshot {} of", name.display()), dir, &error))
        }
        Action::List { dir } => {
            for name in list(dir).map_err(|error| refused("list the snapshots of", dir, &error))? {
                print(name.display())?;
            }
            Ok(())
        }
        Action::Delete { dir, name } => {
            let name = checked(name)?;
            let removed = betrfs_fuse::open_snapshots(dir)
                .and_then(|snapshots| Ok(rustix::fs::unlinkat(snapshots, name, AtFlags::REMOVEDIR)?));
            removed
                .map_err(|error| refused(&format!("delete the snapshot {} of", name.display()), dir, &error))
        }
    }
}

/// Checks a snapshot's name: a path would lead elsewhere.
fn checked(name: &OsStr) -> Result<&OsStr, Failure> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(name)), None) => Ok(name),
        _ => {
            let shown = name.display();
            Err(Failure::new(format!("`{shown}` is not the name of a snapshot: give one without `/`")))
        }
    }
}

fn list(dir: &Path) -> io::Result<Vec<OsString>> {
    let snapshots = betrfs_fuse::open_snapshots(dir)?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(snapshots)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn refused(doing: &str, dir: &Path, error: &io::Error) -> Failure {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
        Some(Errno::NOTDIR) => "it is no directory".to_owned(),
        Some(Errno::EXIST) => "a snapshot with that name exists".to_owned(),
        Some(Errno::LOOP) => path::LOOPS.to_owned(),
        Some(Errno::PERM) => "only root and the user who mounted the volume may".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(format!("cannot {doing} {}: {why}", dir.display()))
}
