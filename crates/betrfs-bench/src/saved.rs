//! Finished rounds in files, so that an interrupted run resumes where it ended.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bench_harness::disk::DiskKind;
use bench_harness::scale::Scale;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The file that describes the run of a directory.
const RUN: &str = "run.json";

/// The common settings of all rounds of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The kind of disk.
    pub disk: DiskKind,
    /// The scale of the workloads.
    pub scale: Scale,
    /// The tree to unpack, if one was named: its file's name and size in bytes.
    pub tree: Option<(PathBuf, u64)>,
    /// The device number of the disk with the backing files, which `--disk fast` measures.
    pub device: u64,
    /// The transport of requests to the server, if one was chosen.
    pub transport: Option<String>,
    /// A hash of the binary `betrfs`.
    pub build: u64,
    /// A hash of this program, which has the workloads, and the library for `microfiles`.
    pub harness: u64,
}

impl Run {
    /// The run of a binary `betrfs`, with backing files in a directory.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn of(binary: &Path, disk: DiskKind, scale: Scale, tree: Option<&Path>, dir: &Path) -> Result<Run> {
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

/// A directory with a file for each finished round. Without a directory, nothing is saved.
pub struct Saved {
    dir: Option<PathBuf>,
}

impl Saved {
    /// Opens a directory for a run, or makes it.
    ///
    /// # Errors
    /// It has rounds of another run, or cannot be read or written.
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

    /// A round of a workload on a system, if it is finished; the first is 0.
    ///
    /// # Errors
    /// Its file is not readable.
    pub fn round<T: DeserializeOwned>(&self, workload: &str, system: &str, round: u32) -> Result<Option<T>> {
        self.read(&path_of(workload, system, round))
    }

    /// Saves a round.
    ///
    /// # Errors
    /// Its file cannot be written.
    pub fn keep<T: Serialize>(&self, workload: &str, system: &str, round: u32, what: &T) -> Result<()> {
        self.write(&path_of(workload, system, round), what)
    }

    fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        let Some(path) = self.dir.as_ref().map(|dir| dir.join(path)) else { return Ok(None) };
        match fs::read(&path) {
            Ok(bytes) => {
                let read = serde_json::from_slice(&bytes);
                Ok(Some(read.with_context(|| format!("{} is not readable", path.display()))?))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn write<T: Serialize>(&self, path: &Path, what: &T) -> Result<()> {
        let Some(path) = self.dir.as_ref().map(|dir| dir.join(path)) else { return Ok(()) };
        // The rename makes it appear as a whole.
        let unfinished = path.with_extension("unfinished");
        let written = || {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            fs::write(&unfinished, serde_json::to_vec_pretty(what)?)?;
            fs::rename(&unfinished, &path)
        };
        written().with_context(|| format!("cannot write {}", path.display()))
    }
}

fn path_of(workload: &str, system: &str, round: u32) -> PathBuf {
    Path::new(workload).join(format!("{system}-{}.json", round + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(build: u64) -> Run {
        let (disk, scale) = (DiskKind::Hdd, Scale::Tiny);
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
            Run::of(binary, DiskKind::Fast, Scale::Tiny, Some(tree), dir).unwrap()
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
