//! Rounds that a run has behind it, kept so that one that was interrupted goes on.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Scale;
use crate::store::Disk;

/// Says what the rounds in a directory are of.
const RUN: &str = "run.json";

/// What all rounds of a run have in common.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The disk that they ran on.
    pub disk: Disk,
    /// How much each did.
    pub scale: Scale,
    /// The tree that was unpacked, if one was named: its file's name and size in bytes.
    pub tree: Option<(PathBuf, u64)>,
    /// The device that the backing files are on: what `--disk fast` measures.
    pub device: u64,
    /// How requests reach the server, where that was chosen.
    pub transport: Option<String>,
    /// Tells one build of BetrFS from another.
    pub build: u64,
    /// Tells one build of this program from another: it has the workloads, and the library for `microfiles`.
    pub harness: u64,
}

impl Run {
    /// That of a binary `betrfs`, with backing files in a directory.
    pub fn of(binary: &Path, disk: Disk, scale: Scale, tree: Option<&Path>, dir: &Path) -> Result<Run> {
        let size_bytes = |path: &Path| {
            fs::metadata(path)
                .map(|file| file.len())
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let tree = tree.map(|tree| {
            let name = tree.file_name().map_or_else(|| tree.to_owned(), PathBuf::from);
            Ok::<_, anyhow::Error>((name, size_bytes(tree)?))
        });
        let device = fs::metadata(dir).with_context(|| format!("cannot read {}", dir.display()))?.dev();
        Ok(Run {
            disk,
            scale,
            tree: tree.transpose()?,
            device,
            transport: std::env::var("BETRFS_TRANSPORT").ok(),
            build: build_of(binary)?,
            harness: build_of(&std::env::current_exe()?)?,
        })
    }
}

fn build_of(binary: &Path) -> Result<u64> {
    let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Where rounds are kept: a file for each, of those that are through. Without a directory none are.
pub struct Saved {
    dir: Option<PathBuf>,
}

impl Saved {
    /// Opens a directory for a run, or makes it; one that has rounds of another run is refused.
    pub fn open(dir: Option<&Path>, run: &Run) -> Result<Saved> {
        let saved = Saved { dir: dir.map(Path::to_owned) };
        let before: Option<Run> = saved.read(Path::new(RUN))?;
        match before {
            Some(before) => ensure!(
                before == *run,
                "{} has rounds of another run: {before:?}, not {run:?}",
                dir.unwrap_or(Path::new("")).display()
            ),
            None => saved.write(Path::new(RUN), run)?,
        }
        Ok(saved)
    }

    /// A round of a workload on a contender, if it is through; the first is 0.
    pub fn round<T: DeserializeOwned>(
        &self,
        workload: &str,
        contender: &str,
        round: u32,
    ) -> Result<Option<T>> {
        self.read(&path_of(workload, contender, round))
    }

    /// Keeps one.
    pub fn keep<T: Serialize>(&self, workload: &str, contender: &str, round: u32, what: &T) -> Result<()> {
        self.write(&path_of(workload, contender, round), what)
    }

    fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        let Some(path) = self.dir.as_ref().map(|dir| dir.join(path)) else { return Ok(None) };
        match fs::read(&path) {
            Ok(bytes) => {
                let read = serde_json::from_slice(&bytes);
                Ok(Some(read.with_context(|| format!("cannot make sense of {}", path.display()))?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn write<T: Serialize>(&self, path: &Path, what: &T) -> Result<()> {
        let Some(path) = self.dir.as_ref().map(|dir| dir.join(path)) else { return Ok(()) };
        // Whole or not at all.
        let unfinished = path.with_extension("unfinished");
        let written = || {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            fs::write(&unfinished, serde_json::to_vec_pretty(what)?)?;
            fs::rename(&unfinished, &path)
        };
        written().with_context(|| format!("cannot write {}", path.display()))
    }
}

fn path_of(workload: &str, contender: &str, round: u32) -> PathBuf {
    Path::new(workload).join(format!("{contender}-{}.json", round + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(build: u64) -> Run {
        let (disk, scale) = (Disk::Hdd, Scale::Tiny);
        Run { disk, scale, tree: None, device: 1, transport: None, build, harness: 1 }
    }

    #[test]
    fn another_tree_another_build_and_another_device_are_another_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name)
        };
        let of = |binary: &Path, tree: &Path, dir: &Path| {
            Run::of(binary, Disk::Fast, Scale::Tiny, Some(tree), dir).unwrap()
        };
        let (binary, tree) = (file("betrfs", "1"), file("tree", "t"));
        let first = of(&binary, &tree, dir.path());
        assert_eq!(first, of(&binary, &tree, dir.path()));
        assert_ne!(first, of(&binary, &file("tree", "longer"), dir.path()));
        file("tree", "t");
        assert_ne!(first, of(&file("betrfs", "2"), &tree, dir.path()));
        file("betrfs", "1");
        assert_ne!(first, of(&binary, &tree, Path::new("/proc")));
        assert_eq!(first, of(&binary, &tree, dir.path()));
    }

    #[test]
    fn what_is_kept_is_there_when_the_same_run_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("rounds");
        let saved = Saved::open(Some(&at), &run(1)).unwrap();
        assert_eq!(saved.round::<u64>("find", "ext4", 0).unwrap(), None);
        saved.keep("find", "ext4", 0, &7u64).unwrap();
        let saved = Saved::open(Some(&at), &run(1)).unwrap();
        assert_eq!(saved.round("find", "ext4", 0).unwrap(), Some(7u64));
        assert_eq!(saved.round::<u64>("find", "ext4", 1).unwrap(), None);
        assert_eq!(saved.round::<u64>("find", "xfs", 0).unwrap(), None);
        let error = Saved::open(Some(&at), &run(2)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("has rounds of another run"), "{error}");
    }

    #[test]
    fn without_a_directory_nothing_is_kept() {
        let saved = Saved::open(None, &run(1)).unwrap();
        saved.keep("find", "ext4", 0, &7u64).unwrap();
        assert_eq!(saved.round::<u64>("find", "ext4", 0).unwrap(), None);
    }

    #[test]
    fn a_round_that_was_cut_short_is_an_error_and_not_a_figure() {
        let dir = tempfile::tempdir().unwrap();
        let saved = Saved::open(Some(dir.path()), &run(1)).unwrap();
        saved.keep("find", "ext4", 0, &7u64).unwrap();
        fs::write(dir.path().join("find/ext4-1.json"), "").unwrap();
        assert!(saved.round::<u64>("find", "ext4", 0).is_err());
    }
}
