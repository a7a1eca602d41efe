//! Filebench's file sets: many files of sizes about a mean, some of which exist from the beginning. Threads
//! create, append to, read and delete them at random.
//!
//! Each thread has a share of the files for itself: the files at the end depend on numbers alone, not on the
//! speed of threads.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use seeded::{GOLDEN_RATIO, bytes};

use super::layout::Layout;
use super::random::{Rng, gamma_size};
use super::same::walk;

/// The most bytes of one read or write call.
const CALL_BYTES: usize = 1 << 20;
const SEED: u64 = 0x6669_6C65;

/// A set of files.
#[derive(Clone, Copy, Debug)]
pub struct FileSet {
    /// The names, and the most entries of a directory.
    pub layout: Layout,
    /// The mean size.
    pub mean_bytes: u64,
    /// Per cent of the files that exist from the beginning.
    pub present_percent: u64,
}

/// An existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Existing {
    /// Its number, which determines the path.
    pub number: u64,
    /// The seed of its content.
    pub seed: u64,
    /// Its size.
    pub len: u64,
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a file with its content.
    Create(Existing),
    /// Opens a file and appends a number of bytes.
    Append(Existing, u64),
    /// Reads a whole file.
    Read(Existing),
    /// Deletes a file.
    Delete(Existing),
    /// Asks for a file's attributes.
    Stat(Existing),
}

impl FileSet {
    fn initial(&self, number: u64) -> Existing {
        let mut rng = Rng::of_stream(SEED, number);
        Existing { number, seed: rng.next_u64(), len: gamma_size(&mut rng, self.mean_bytes) }
    }

    /// Whether a file exists from the beginning. The multiples of the golden ratio are spread evenly, and so
    /// is each share of them.
    fn is_present(&self, number: u64) -> bool {
        let spread = u128::from(number.wrapping_mul(GOLDEN_RATIO));
        ((spread * 100) >> 64) < u128::from(self.present_percent)
    }

    /// Makes all directories, and the files that exist from the beginning.
    pub fn make(&self, root: &Path) -> Result<()> {
        self.make_these(root, (0..self.layout.files).filter(|n| self.is_present(*n)).map(|n| self.initial(n)))
    }

    /// Makes all directories, and these files.
    pub fn make_these(&self, root: &Path, files: impl Iterator<Item = Existing>) -> Result<()> {
        self.layout.make_dirs(root)?;
        for file in files {
            self.apply(root, &Step::Create(file))?;
        }
        Ok(())
    }

    /// Does a step.
    pub fn apply(&self, root: &Path, step: &Step) -> Result<()> {
        let (Step::Create(existing)
        | Step::Append(existing, _)
        | Step::Read(existing)
        | Step::Delete(existing)
        | Step::Stat(existing)) = *step;
        let path = root.join(self.layout.file(existing.number));
        let done = match *step {
            Step::Create(file) => File::create_new(&path)
                .map_err(Into::into)
                .and_then(|to| write(to, bytes(file.seed, 0, file.len as usize))),
            Step::Append(file, len) => OpenOptions::new()
                .append(true)
                .open(&path)
                .map_err(Into::into)
                .and_then(|to| write(to, bytes(file.seed, file.len, len as usize))),
            Step::Read(file) => read(&path).and_then(|content| has_size(file.len, content.len() as u64)),
            Step::Delete(_) => fs::remove_file(&path).map_err(Into::into),
            Step::Stat(file) => fs::metadata(&path)
                .map_err(Into::into)
                .and_then(|metadata| has_size(file.len, metadata.len())),
        };
        done.with_context(|| format!("{step:?} of {}", path.display()))
    }

    /// Fails unless exactly these files exist, each with its content.
    pub fn ensure_has(&self, root: &Path, mut files: Vec<Existing>) -> Result<()> {
        files.sort_unstable();
        for file in &files {
            let path = root.join(self.layout.file(file.number));
            let content = read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(content == bytes(file.seed, 0, file.len as usize), "{} is wrong", path.display());
        }
        let mut found = 0;
        for name in walk(root, "")? {
            found += usize::from(root.join(name).is_file());
        }
        ensure!(found == files.len(), "there are {found} files instead of {}", files.len());
        Ok(())
    }
}

fn write(mut to: File, content: Vec<u8>) -> Result<()> {
    content.chunks(CALL_BYTES).try_for_each(|piece| to.write_all(piece)).map_err(Into::into)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut content = Vec::new();
    let mut piece = vec![0; CALL_BYTES];
    loop {
        let len = file.read(&mut piece)?;
        if len == 0 {
            return Ok(content);
        }
        content.extend_from_slice(&piece[..len]);
    }
}

fn has_size(expected: u64, found: u64) -> Result<()> {
    ensure!(expected == found, "it has {found} bytes instead of {expected}");
    Ok(())
}

/// The share of one thread, after the steps drawn so far.
#[derive(Clone, Debug)]
pub struct Share {
    rng: Rng,
    mean_bytes: u64,
    present: Vec<Existing>,
    absent: Vec<u64>,
}

impl Share {
    /// The share of one of a number of threads.
    pub fn new(set: &FileSet, thread: u64, threads: u64) -> Share {
        let numbers = || (thread..set.layout.files).step_by(threads as usize);
        Share {
            rng: Rng::of_stream(SEED + 1, thread),
            mean_bytes: set.mean_bytes,
            present: numbers().filter(|n| set.is_present(*n)).map(|n| set.initial(n)).collect(),
            absent: numbers().filter(|n| !set.is_present(*n)).collect(),
        }
    }

    /// The same files with other choices, for a thread that only reads.
    pub fn with_seed(self, seed: u64) -> Share {
        Share { rng: Rng::of_stream(SEED + 2, seed), ..self }
    }

    /// The existing files.
    pub fn into_present(self) -> Vec<Existing> {
        self.present
    }

    /// A number up to a bound, and at least 1.
    pub fn up_to(&mut self, bound: u64) -> u64 {
        1 + self.rng.below_u64(bound)
    }

    /// Creates a file of a size about the mean; `None` if all exist.
    pub fn create(&mut self) -> Option<Step> {
        let len = gamma_size(&mut self.rng, self.mean_bytes);
        self.create_of(len)
    }

    /// Creates a file of a size; `None` if all exist.
    pub fn create_of(&mut self, len: u64) -> Option<Step> {
        if self.absent.is_empty() {
            return None;
        }
        let number = self.absent.swap_remove(self.rng.below(self.absent.len()));
        let file = Existing { number, seed: self.rng.next_u64(), len };
        self.present.push(file);
        Some(Step::Create(file))
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.present.is_empty()).then(|| self.rng.below(self.present.len()))
    }

    /// Appends to a file; `None` if there is none.
    pub fn append(&mut self, len: u64) -> Option<Step> {
        let at = self.pick()?;
        let file = self.present.get_mut(at)?;
        let step = Step::Append(*file, len);
        file.len += len;
        Some(step)
    }

    /// Reads a file; `None` if there is none.
    pub fn read(&mut self) -> Option<Step> {
        let at = self.pick()?;
        self.present.get(at).map(|file| Step::Read(*file))
    }

    /// Asks for a file's attributes; `None` if there is none.
    pub fn stat(&mut self) -> Option<Step> {
        let at = self.pick()?;
        self.present.get(at).map(|file| Step::Stat(*file))
    }

    /// Deletes a file; `None` if there is none.
    pub fn delete(&mut self) -> Option<Step> {
        let at = self.pick()?;
        let file = self.present.swap_remove(at);
        self.absent.push(file.number);
        Some(Step::Delete(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: FileSet =
        FileSet { layout: Layout { files: 40, fanout: 5 }, mean_bytes: 3000, present_percent: 80 };

    #[test]
    fn shares_are_the_whole_set_and_nothing_twice() {
        let mut present = Vec::new();
        for thread in 0..3 {
            present.extend(Share::new(&SET, thread, 3).into_present());
        }
        present.sort_unstable();
        let mut whole = Share::new(&SET, 0, 1).into_present();
        whole.sort_unstable();
        assert_eq!(present, whole);
        assert!((30..35).contains(&whole.len()), "{}", whole.len());
    }

    #[test]
    fn every_share_has_files_and_names_that_are_free() {
        for (files, threads) in [(100, 10), (10_000, 50), (10_000, 100), (200, 10), (100, 4)] {
            let set = FileSet { layout: Layout { files, fanout: 20 }, ..SET };
            for thread in 0..threads {
                let share = Share::new(&set, thread, threads);
                let (present, all) = (share.present.len(), share.present.len() + share.absent.len());
                assert!(present * 10 >= all * 6 && present * 10 <= all * 9, "{present} of {all}");
            }
        }
    }

    #[test]
    fn what_is_done_is_what_is_there_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        SET.make(dir.path()).unwrap();
        let mut share = Share::new(&SET, 0, 1);
        let mut steps = Vec::new();
        for _ in 0..50 {
            let append = share.up_to(100);
            let loops = [share.create(), share.append(append), share.read(), share.delete(), share.stat()];
            steps.extend(loops.into_iter().map(|step| step.expect("there are files, and names free")));
        }
        for step in &steps {
            SET.apply(dir.path(), step).unwrap();
        }
        let expected = share.into_present();
        SET.ensure_has(dir.path(), expected.clone()).unwrap();

        let spoilt = dir.path().join(SET.layout.file(expected[0].number));
        let content = fs::read(&spoilt).unwrap();
        fs::write(&spoilt, &content[1..]).unwrap();
        assert!(SET.ensure_has(dir.path(), expected.clone()).is_err());
        fs::write(&spoilt, &content).unwrap();
        fs::write(dir.path().join("new"), "").unwrap();
        assert!(SET.ensure_has(dir.path(), expected).is_err());
    }
}
