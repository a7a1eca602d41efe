//! The history of one thread in a directory of its own: a list of system calls, of which a prefix must
//! explain the directory found after a crash.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use betree_sim::Rng;

use crate::programs::noise;

const RECORDS: usize = 64;
const RECORD_BYTES: usize = 512;
const BLOCK_BYTES: u64 = 4096;
/// The largest file. A file's contents are a prefix of the noise of its number.
const FILE_BYTES_MAX: u64 = 200_000;

/// A system call that changes something.
#[derive(Clone, Copy, Debug)]
enum Change {
    Create {
        file: u64,
    },
    Append {
        file: u64,
        bytes: u64,
    },
    Truncate {
        file: u64,
        bytes: u64,
    },
    Rename {
        file: u64,
    },
    Remove {
        file: u64,
    },
    /// Overwrites a record with another version of itself.
    Record {
        index: usize,
        version: u8,
    },
    /// Renames the directory that holds the files.
    RenameBox,
}

/// The contents of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Number of renames of the files' directory, as in its name.
    box_renames: u64,
    /// For each file: its number of renames, as in its name, and its length.
    files: BTreeMap<u64, (u64, u64)>,
    records: Vec<u8>,
}

impl State {
    fn apply(&mut self, change: Change) {
        let length = |file| self.files.get(&file).map_or(0, |(_, length)| *length);
        match change {
            Change::Create { file } => drop(self.files.insert(file, (0, 0))),
            Change::Append { file, bytes } => self.resize(file, length(file) + bytes),
            Change::Truncate { file, bytes } => self.resize(file, bytes),
            Change::Rename { file } => self.files.get_mut(&file).unwrap().0 += 1,
            Change::Remove { file } => drop(self.files.remove(&file)),
            Change::Record { index, version } => self.records[index] = version,
            Change::RenameBox => self.box_renames += 1,
        }
    }

    fn resize(&mut self, file: u64, bytes: u64) {
        self.files.get_mut(&file).unwrap().1 = bytes;
    }

    fn path(&self, dir: &Path, file: u64) -> PathBuf {
        box_path(dir, self.box_renames).join(format!("{file}.{}", self.files[&file].0))
    }

    /// Describes the parts of this state that differ in another.
    fn beyond(&self, other: &State) -> String {
        let files: Vec<_> =
            self.files.iter().filter(|(file, is)| other.files.get(file) != Some(is)).collect();
        let records = self.records.iter().zip(&other.records).enumerate();
        let records: Vec<_> = records.filter(|(_, (is, other))| is != other).collect();
        format!("box {}, files {files:?}, records {records:?}", self.box_renames)
    }

    /// Reads the directory; every byte must be a file's noise or part of a whole record.
    fn read(dir: &Path) -> State {
        let mut state = State { records: fs::read(dir.join("records")).unwrap(), ..State::default() };
        state.records = state.records.chunks(RECORD_BYTES).map(whole_record).collect();
        let boxes: Vec<u64> = numbered(dir, "box").collect();
        assert_eq!(boxes.len(), 1, "{} holds the files in {boxes:?}", dir.display());
        state.box_renames = boxes[0];
        for entry in fs::read_dir(box_path(dir, boxes[0])).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let (file, renames) = name.split_once('.').unwrap();
            let (file, renames) = (file.parse().unwrap(), renames.parse().unwrap());
            let contents = fs::read(entry.path()).unwrap();
            let expected = noise(file, contents.len());
            let wrong = contents.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(wrong, None, "{} of {} bytes is wrong there", entry.path().display(), contents.len());
            let twice = state.files.insert(file, (renames, contents.len() as u64));
            assert_eq!(twice, None, "{} has two names", entry.path().display());
        }
        state
    }
}

fn box_path(dir: &Path, renames: u64) -> PathBuf {
    dir.join(format!("box{renames}"))
}

fn numbered(dir: &Path, prefix: &str) -> impl Iterator<Item = u64> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(move |name| Some(name.strip_prefix(prefix)?.parse().unwrap()))
}

fn record(version: u8) -> Vec<u8> {
    vec![version; RECORD_BYTES]
}

fn whole_record(bytes: &[u8]) -> u8 {
    assert!(bytes == record(bytes[0]), "a record of {} bytes is torn: {bytes:?}", bytes.len());
    bytes[0]
}

/// A thread's changes since the last known state of its directory.
pub struct History {
    dir: PathBuf,
    rng: Rng,
    files: u64,
    base: State,
    /// The base with all changes.
    newest: State,
    changes: Vec<Change>,
    /// Number of changes made before the last successful fsync.
    synced: usize,
}

impl History {
    /// A new directory, synced.
    pub fn new(dir: PathBuf, seed: u64) -> History {
        fs::create_dir(&dir).unwrap();
        fs::create_dir(box_path(&dir, 0)).unwrap();
        fs::write(dir.join("records"), record(0).repeat(RECORDS)).unwrap();
        File::open(dir.join("records")).unwrap().sync_all().unwrap();
        for synced in [&dir, &box_path(&dir, 0), dir.parent().unwrap()] {
            File::open(synced).unwrap().sync_all().unwrap();
        }
        let base = State { records: vec![0; RECORDS], ..State::default() };
        // The noise depends on the file's number, and threads have distinct numbers.
        let files = seed << 32;
        History {
            dir,
            rng: Rng::new(seed),
            files,
            newest: base.clone(),
            base,
            changes: Vec::new(),
            synced: 0,
        }
    }

    /// Makes changes, and syncs now and then, until something fails.
    pub fn until_failure(&mut self) -> io::Error {
        loop {
            let change = self.choose();
            // Noted before it is made: a change that fails may still have been made.
            self.push(change);
            let made = self.make(change).and_then(|()| {
                self.newest.apply(change);
                if self.rng.percent(15) { self.sync(change) } else { Ok(()) }
            });
            if let Err(error) = made {
                return error;
            }
        }
    }

    fn push(&mut self, change: Change) {
        match change {
            // The kernel may send the part of a write in a block that it has not cached as a request of its
            // own.
            Change::Append { file, bytes } => {
                let first = (BLOCK_BYTES - self.newest.files[&file].1 % BLOCK_BYTES).min(bytes);
                self.changes.push(Change::Append { file, bytes: first });
                self.changes.push(Change::Append { file, bytes: bytes - first });
            }
            _ => self.changes.push(change),
        }
    }

    fn choose(&mut self) -> Change {
        let existing: Vec<u64> = self.newest.files.keys().copied().collect();
        if existing.len() < 10 {
            self.files += 1;
            return Change::Create { file: self.files };
        }
        let file = *self.rng.pick(&existing);
        let length = self.newest.files[&file].1;
        match self.rng.below(100) {
            0..20 if existing.len() < 200 => {
                self.files += 1;
                Change::Create { file: self.files }
            }
            0..55 if length < FILE_BYTES_MAX => {
                Change::Append { file, bytes: self.rng.between(1, 30_000) as u64 }
            }
            0..65 => Change::Truncate { file, bytes: self.rng.below(length as usize + 1) as u64 },
            65..75 => Change::Rename { file },
            75..85 => Change::Remove { file },
            85..99 => {
                let index = self.rng.below(RECORDS);
                Change::Record { index, version: self.newest.records[index].wrapping_add(1) }
            }
            _ => Change::RenameBox,
        }
    }

    /// Makes a change by one system call, with the calls that it needs.
    fn make(&self, change: Change) -> io::Result<()> {
        let path = |file| self.newest.path(&self.dir, file);
        let open = |file| OpenOptions::new().write(true).open(path(file));
        match change {
            Change::Create { file } => {
                let new = box_path(&self.dir, self.newest.box_renames).join(format!("{file}.0"));
                File::create_new(new).map(drop)
            }
            Change::Append { file, bytes } => {
                let length = self.newest.files[&file].1;
                let contents = noise(file, (length + bytes) as usize);
                OpenOptions::new().append(true).open(path(file))?.write_all(&contents[length as usize..])
            }
            Change::Truncate { file, bytes } => open(file)?.set_len(bytes),
            Change::Rename { file } => {
                let mut after = self.newest.clone();
                after.apply(change);
                fs::rename(path(file), after.path(&self.dir, file))
            }
            Change::Remove { file } => fs::remove_file(path(file)),
            Change::Record { index, version } => {
                let records = OpenOptions::new().write(true).open(self.dir.join("records"))?;
                records.write_all_at(&record(version), (index * RECORD_BYTES) as u64)
            }
            Change::RenameBox => {
                let renames = self.newest.box_renames;
                fs::rename(box_path(&self.dir, renames), box_path(&self.dir, renames + 1))
            }
        }
    }

    /// Syncs the changed file or directory. All earlier changes of this thread are durable then too, since a
    /// crash keeps a prefix of the history.
    fn sync(&mut self, change: Change) -> io::Result<()> {
        let changed = match change {
            Change::Create { file } | Change::Append { file, .. } | Change::Truncate { file, .. } => {
                self.newest.path(&self.dir, file)
            }
            Change::Rename { .. } | Change::Remove { .. } => box_path(&self.dir, self.newest.box_renames),
            Change::Record { .. } => self.dir.join("records"),
            Change::RenameBox => self.dir.clone(),
        };
        File::open(changed)?.sync_all()?;
        self.synced = self.changes.len();
        Ok(())
    }

    /// Asserts that the directory is the result of a prefix of the changes with at least those before the
    /// last sync, and goes on from there. Returns the number of changes kept, of all changes, and of those
    /// that had to be kept.
    pub fn assert_a_prefix_survived(&mut self) -> (usize, usize, usize) {
        let found = State::read(&self.dir);
        let mut state = self.base.clone();
        self.changes[..self.synced].iter().for_each(|change| state.apply(*change));
        let mut kept = self.synced;
        while state != found {
            let Some(change) = self.changes.get(kept) else {
                let unsynced = &self.changes[self.synced..];
                panic!(
                    "{}: no prefix of the changes after the last sync makes what was found of what was\n\
                    synced. Found, and not after all changes: {}; after all, and not found: {}; changes: {unsynced:?}",
                    self.dir.display(),
                    found.beyond(&self.newest),
                    self.newest.beyond(&found)
                );
            };
            state.apply(*change);
            kept += 1;
        }
        let told = (kept, self.changes.len(), self.synced);
        self.base = found.clone();
        self.newest = found;
        self.changes.clear();
        self.synced = 0;
        told
    }
}
