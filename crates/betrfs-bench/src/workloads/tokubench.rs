//! TokuBench: very many small files, spread over a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{DISK_BYTES_LARGE, Workload};
use crate::data::{Layout, Rng, bytes};
use crate::threads::in_threads;

const FILE_BYTES: usize = 200;
const FANOUT: u64 = 128;
const SEED: u64 = 0x746f_6b75;

/// About the number of files whose contents a check compares; it compares the names of all.
const CONTENTS_CHECKED: u64 = 50_000;

/// The files of TokuBench. Each thread has a share of the directories, in random order, and makes one file
/// with a random name in each of them, again and again.
#[derive(Clone, Copy, Debug)]
pub struct Microfiles {
    /// The number of files.
    pub files: u64,
    /// The number of threads.
    pub threads: u64,
}

impl Microfiles {
    /// The tree of directories.
    pub fn layout(&self) -> Layout {
        Layout { files: self.files, fanout: FANOUT }
    }

    /// The directories in random order.
    fn shuffled(&self) -> Vec<u64> {
        let mut leaves: Vec<u64> = (0..self.layout().leaves()).collect();
        let mut rng = Rng::of_stream(SEED, 0);
        for at in (1..leaves.len()).rev() {
            leaves.swap(at, rng.below(at + 1));
        }
        leaves
    }

    /// The files of a thread: the number of the directory, and the seed of name and content.
    pub fn of_thread(&self, thread: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let part = |all: u64| (all * thread / self.threads, all * (thread + 1) / self.threads);
        let (from, until) = part(self.layout().leaves());
        // With more threads than directories, some threads share one.
        let leaves = self.shuffled()[from as usize..until.max(from + 1) as usize].to_vec();
        let (first, end) = part(self.files);
        let mut rng = Rng::of_stream(SEED, thread + 1);
        leaves.into_iter().cycle().take((end - first) as usize).map(move |leaf| (leaf, rng.next_u64()))
    }

    /// A file's name.
    pub fn name(seed: u64) -> String {
        format!("{seed:016x}")
    }

    /// A file's content.
    pub fn content(seed: u64) -> Vec<u8> {
        bytes(seed, 0, FILE_BYTES)
    }
}

/// Creates the files on a mount.
pub struct TokuBench {
    /// Its name.
    pub name: &'static str,
    /// The files.
    pub microfiles: Microfiles,
    /// The memory limit.
    pub memory_bytes: u64,
}

impl Workload for TokuBench {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let Microfiles { files, threads } = self.microfiles;
        format!("create {files} files of {FILE_BYTES} bytes, {FANOUT} a directory, with {threads} threads")
    }

    fn writes(&self) -> bool {
        true
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn disk_bytes(&self) -> u64 {
        // ext4 has an inode for every 16 KiB, and a million files need one each.
        DISK_BYTES_LARGE
    }

    fn time_max(&self) -> Duration {
        // A million files at a few hundred a second, as measured on a seeking disk.
        Duration::from_secs(4 * 60 * 60)
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.microfiles.layout().make_dirs(dir)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        let layout = self.microfiles.layout();
        in_threads(self.microfiles.threads, |thread| {
            for (leaf, seed) in self.microfiles.of_thread(thread) {
                let path = dir.join(layout.leaf(leaf)).join(Microfiles::name(seed));
                // For writing only, as in TokuBench itself.
                let mut open = File::options();
                open.write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)
                    .and_then(|mut file| file.write_all(&Microfiles::content(seed)))
                    .with_context(|| format!("cannot make {}", path.display()))?;
            }
            Ok(())
        })
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let layout = self.microfiles.layout();
        let mut expected: BTreeMap<PathBuf, BTreeSet<u64>> = BTreeMap::new();
        for (leaf, seed) in (0..self.microfiles.threads).flat_map(|thread| self.microfiles.of_thread(thread))
        {
            expected.entry(dir.join(layout.leaf(leaf))).or_default().insert(seed);
        }
        // On a seeking disk, a million random reads take longer than the rest of the round.
        let one_in = (self.microfiles.files / CONTENTS_CHECKED).max(1) as usize;
        let mut number = 0;
        for (leaf, seeds) in expected {
            let names: BTreeSet<String> = fs::read_dir(&leaf)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<Result<_>>()?;
            ensure!(
                names == seeds.iter().map(|seed| Microfiles::name(*seed)).collect(),
                "{} has other names",
                leaf.display()
            );
            for seed in &seeds {
                number += 1;
                if number % one_in == 0 {
                    let path = leaf.join(Microfiles::name(*seed));
                    let found = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                    ensure!(found == Microfiles::content(*seed), "{} is wrong", path.display());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_make_all_files_and_no_directory_overflows() {
        for (files, threads) in [(1000, 1), (1000, 4), (100, 4), (20_000, 4), (3, 3)] {
            let microfiles = Microfiles { files, threads };
            let mut by_leaf: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            for thread in 0..threads {
                let made = microfiles.of_thread(thread);
                assert!(made.eq(microfiles.of_thread(thread)));
                for (leaf, seed) in microfiles.of_thread(thread) {
                    assert!(by_leaf.entry(leaf).or_default().insert(seed), "a name twice");
                }
            }
            assert_eq!(by_leaf.values().map(BTreeSet::len).sum::<usize>() as u64, files);
            assert!(by_leaf.keys().all(|leaf| *leaf < microfiles.layout().leaves()));
        }
    }
}
