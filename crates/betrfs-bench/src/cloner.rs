//! Clones of directories, by the best method of each file system.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use bench_harness::tool;

// The types of `statfs`.
const BTRFS: i64 = 0x9123_683E;
const FUSE: i64 = 0x6573_5546;
const XFS: i64 = 0x5846_5342;

/// Clones directories within a file system.
#[derive(Clone)]
pub struct Cloner {
    /// The binary `betrfs`.
    pub betrfs: PathBuf,
    /// Whether Btrfs makes snapshots of subvolumes, instead of reflinks of files.
    pub has_snapshots: bool,
}

/// How a directory is cloned.
enum Method {
    /// `betrfs clone`.
    Betrfs,
    /// A reflink of each file.
    Reflinks,
    /// A snapshot of a subvolume.
    Snapshot,
    /// A copy, if there is no other method.
    Copy,
}

impl Cloner {
    /// The method of the file system at a path.
    fn method(&self, at: &Path) -> Result<Method> {
        let kind = rustix::fs::statfs(at).with_context(|| format!("cannot ask {}", at.display()))?.f_type;
        Ok(match kind as i64 {
            FUSE => Method::Betrfs,
            BTRFS if self.has_snapshots => Method::Snapshot,
            BTRFS | XFS => Method::Reflinks,
            _ => Method::Copy,
        })
    }

    /// Brings the programs that clone, and their libraries, into memory: the first clone would read them from
    /// a disk that is not measured.
    pub fn warm(&self) -> Result<()> {
        let programs: [&Path; 3] = [&self.betrfs, Path::new("cp"), Path::new("btrfs")];
        programs
            .into_iter()
            .try_for_each(|program| tool::run(Command::new(program).arg("--version")).map(drop))
    }

    /// Makes a directory that can be cloned.
    pub fn make_source(&self, parent: &Path, name: &str) -> Result<()> {
        let path = parent.join(name);
        match self.method(parent)? {
            Method::Snapshot => {
                tool::run(Command::new("btrfs").args(["subvolume", "create"]).arg(path)).map(drop)
            }
            _ => Ok(std::fs::create_dir(path)?),
        }
    }

    /// Clones a directory with all its contents; the clone must not exist yet.
    pub fn clone_dir(&self, source: &Path, clone: &Path) -> Result<()> {
        let (program, arguments): (&Path, &[&str]) = match self.method(source)? {
            Method::Betrfs => (&self.betrfs, &["clone"]),
            Method::Reflinks => (Path::new("cp"), &["-a", "--reflink=always"]),
            Method::Snapshot => (Path::new("btrfs"), &["subvolume", "snapshot"]),
            Method::Copy => (Path::new("cp"), &["-a", "--reflink=never"]),
        };
        tool::run(Command::new(program).args(arguments).arg(source).arg(clone))
            .map(drop)
            .with_context(|| format!("{} cannot be cloned", source.display()))
    }
}
