//! Clones of a directory of large files, and a small write to each file of each clone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Workload;
use crate::cloner::Cloner;
use crate::data::{Rng, bytes, walk};

const SOURCE: &str = "source";
const WRITE_BYTES: u64 = 16;
const SEED: u64 = 0x636c_6f6e;

/// The directory, and its clones.
#[derive(Clone)]
pub struct CloneSet {
    /// The number of directories, and of files in each.
    pub fanout: u64,
    /// The size of each file.
    pub file_bytes: u64,
    /// The number of clones.
    pub clones: u64,
    /// The means.
    pub cloner: Cloner,
}

impl CloneSet {
    fn files(&self) -> impl Iterator<Item = (u64, PathBuf)> + use<> {
        let fanout = self.fanout;
        (0..fanout * fanout)
            .map(move |number| (number, PathBuf::from(format!("d{}/f{}", number / fanout, number % fanout))))
    }

    fn make(&self, dir: &Path) -> Result<()> {
        self.cloner.make_source(dir, SOURCE)?;
        let source = dir.join(SOURCE);
        (0..self.fanout).try_for_each(|number| fs::create_dir(source.join(format!("d{number}"))))?;
        for (number, name) in self.files() {
            fs::write(source.join(name), bytes(number, 0, self.file_bytes as usize))?;
        }
        Ok(())
    }

    /// Makes the next clone. Counting the existing clones is timed, and takes next to no time.
    fn clone_source(&self, dir: &Path) -> Result<()> {
        let clone = clone_path(dir, clones(dir)? + 1);
        self.cloner.clone_dir(&dir.join(SOURCE), &clone)
    }

    /// The place and the bytes of the write to a file of a clone.
    fn edit(&self, clone: u64, number: u64) -> (u64, Vec<u8>) {
        let mut rng = Rng::of_stream(SEED + clone, number);
        (rng.below_u64(self.file_bytes - WRITE_BYTES + 1), bytes(rng.next_u64(), 0, WRITE_BYTES as usize))
    }

    /// Writes to each file of the newest clone.
    fn write(&self, dir: &Path) -> Result<()> {
        let clone = clones(dir)?;
        for (number, name) in self.files() {
            let (at, bytes) = self.edit(clone, number);
            OpenOptions::new()
                .write(true)
                .open(clone_path(dir, clone).join(name))?
                .write_all_at(&bytes, at)?;
        }
        Ok(())
    }

    /// Fails unless the source is unchanged, and the clones too except for the writes to the first `written`.
    fn check(&self, dir: &Path, written: u64) -> Result<()> {
        let clones = clones(dir)?;
        ensure!(clones == self.clones, "there are {clones} clones");
        self.check_files(&dir.join(SOURCE), None)?;
        (1..=clones).try_for_each(|clone| {
            self.check_files(&clone_path(dir, clone), (clone <= written).then_some(clone))
        })
    }

    fn check_files(&self, root: &Path, written: Option<u64>) -> Result<()> {
        for (number, name) in self.files() {
            let path = root.join(name);
            let mut expected = bytes(number, 0, self.file_bytes as usize);
            if let Some(clone) = written {
                let (at, edit) = self.edit(clone, number);
                expected.splice(at as usize..at as usize + edit.len(), edit);
            }
            let found = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(found == expected, "{} is wrong", path.display());
        }
        let (found, expected) = (walk(root, "")?.len() as u64, self.fanout * (self.fanout + 1));
        ensure!(found == expected, "{} has {found} names instead of {expected}", root.display());
        Ok(())
    }
}

fn clone_path(dir: &Path, clone: u64) -> PathBuf {
    dir.join(format!("clone{clone}"))
}

/// The number of clones that exist.
fn clones(dir: &Path) -> Result<u64> {
    let mut clones = 0;
    while clone_path(dir, clones + 1).try_exists()? {
        clones += 1;
    }
    Ok(clones)
}

/// Cloning, each time after a write to the clone before.
pub struct CloneDir(pub CloneSet);

impl Workload for CloneDir {
    fn name(&self) -> &'static str {
        "clone-dir"
    }

    fn about(&self) -> String {
        let CloneSet { fanout, file_bytes, clones, .. } = self.0;
        let (files, kib) = (fanout * fanout, file_bytes >> 10);
        format!(
            "clone a directory with {files} files of {kib} KiB, cold, {clones} times, each clone written to"
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn steps(&self) -> u64 {
        self.0.clones - 1
    }

    fn age(&self, dir: &Path, _step: u64) -> Result<()> {
        self.0.write(dir)
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.0.make(dir)
    }

    fn warm(&self) -> Result<()> {
        self.0.cloner.warm()
    }

    fn run(&self, dir: &Path) -> Result<()> {
        self.0.clone_source(dir)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.0.check(dir, self.0.clones - 1)
    }
}

/// Writing to each clone.
pub struct CloneWrite(pub CloneSet);

impl Workload for CloneWrite {
    fn name(&self) -> &'static str {
        "clone-write"
    }

    fn about(&self) -> String {
        let CloneSet { fanout, file_bytes, clones, .. } = self.0;
        let (files, kib) = (fanout * fanout, file_bytes >> 10);
        format!(
            "write {WRITE_BYTES} bytes in each of {files} files of {kib} KiB of a new clone, cold, {clones} times"
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn steps(&self) -> u64 {
        self.0.clones - 1
    }

    fn age(&self, dir: &Path, _step: u64) -> Result<()> {
        self.0.clone_source(dir)
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.0.make(dir)?;
        self.0.clone_source(dir)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        self.0.write(dir)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.0.check(dir, self.0.clones)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cloned_and_written_is_what_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let cloner = Cloner { betrfs: PathBuf::new(), has_snapshots: false };
        let set = CloneSet { fanout: 2, file_bytes: 40_000, clones: 2, cloner };
        let (cloning, writing) = (CloneDir(set.clone()), CloneWrite(set.clone()));
        cloning.prepare(dir.path()).unwrap();
        cloning.run(dir.path()).unwrap();
        assert!(cloning.check(dir.path()).unwrap_err().to_string().contains("1 clones"));
        cloning.age(dir.path(), 1).unwrap();
        cloning.run(dir.path()).unwrap();
        cloning.check(dir.path()).unwrap();
        assert!(writing.check(dir.path()).unwrap_err().to_string().contains("clone2/d0/f0 is wrong"));
        writing.run(dir.path()).unwrap();
        writing.check(dir.path()).unwrap();
        fs::copy(clone_path(dir.path(), 1).join("d1/f1"), dir.path().join("source/d1/f1")).unwrap();
        assert!(writing.check(dir.path()).unwrap_err().to_string().contains("source/d1/f1 is wrong"));
    }
}
