//! Cloning a directory as its file system does it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::tool;

// What `statfs` says that a file system is.
const BTRFS: i64 = 0x9123_683E;
const FUSE: i64 = 0x6573_5546;
const XFS: i64 = 0x5846_5342;

/// Clones directories within a file system.
#[derive(Clone)]
pub struct Cloner {
    /// The binary `betrfs`.
    pub betrfs: PathBuf,
    /// Whether Btrfs does it by snapshots of subvolumes, instead of file by file.
    pub has_snapshots: bool,
}

/// How a directory is cloned.
enum Way {
    /// `betrfs clone`.
    Betrfs,
    /// Each file by a reference to what the other has.
    Reflinks,
    /// A snapshot of a subvolume.
    Snapshot,
    /// A copy: there is nothing else.
    Copy,
}

impl Cloner {
    /// How it is done where a path is.
    fn way(&self, at: &Path) -> Result<Way> {
        let kind = rustix::fs::statfs(at).with_context(|| format!("cannot ask {}", at.display()))?.f_type;
        Ok(match kind as i64 {
            FUSE => Way::Betrfs,
            BTRFS if self.has_snapshots => Way::Snapshot,
            BTRFS | XFS => Way::Reflinks,
            _ => Way::Copy,
        })
    }

    /// Brings the programs that clone into memory, with what they link to: the first clone would wait for
    /// the disk that they are on, which is not the one that is measured.
    pub fn warm(&self) -> Result<()> {
        let programs: [&Path; 3] = [&self.betrfs, Path::new("cp"), Path::new("btrfs")];
        programs
            .into_iter()
            .try_for_each(|program| tool::run(Command::new(program).arg("--version")).map(drop))
    }

    /// Makes a directory, in one that is there, that can be cloned.
    pub fn make_source(&self, parent: &Path, name: &str) -> Result<()> {
        let path = parent.join(name);
        match self.way(parent)? {
            Way::Snapshot => {
                tool::run(Command::new("btrfs").args(["subvolume", "create"]).arg(path)).map(drop)
            }
            _ => Ok(std::fs::create_dir(path)?),
        }
    }

    /// Clones a directory with all that is in it; the clone must not be there yet.
    pub fn clone_dir(&self, source: &Path, clone: &Path) -> Result<()> {
        let (program, arguments): (&Path, &[&str]) = match self.way(source)? {
            Way::Betrfs => (&self.betrfs, &["clone"]),
            Way::Reflinks => (Path::new("cp"), &["-a", "--reflink=always"]),
            Way::Snapshot => (Path::new("btrfs"), &["subvolume", "snapshot"]),
            Way::Copy => (Path::new("cp"), &["-a", "--reflink=never"]),
        };
        tool::run(Command::new(program).args(arguments).arg(source).arg(clone))
            .map(drop)
            .with_context(|| format!("{} cannot be cloned", source.display()))
    }
}
