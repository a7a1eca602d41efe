//! Filebench's servers: threads that repeat the operations of a [`Personality`] on a set of files.
//!
//! Numbers alone decide each thread's operations, so that the files at the end are known.

mod log;
mod personality;

pub use personality::{FILE_SERVER, Personality};

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bench_harness::scale::Scale;

use self::log::{Record, Records};
use self::personality::{Op, WEB_PROXY, WEB_SERVER};
use super::Workload;
use crate::data::{Existing, FileSet, Layout, Share, Step};
use crate::threads::in_threads;

/// The directory of the files, and the log beside it, of a personality with a log.
const FILES: &str = "files";
const LOG: &str = "log";

/// The servers with their published sizes and threads.
pub fn servers(scale: Scale) -> [Filebench; 3] {
    let set = |files: u64, fanout: u64, mean_bytes: u64, present_percent: u64| FileSet {
        layout: Layout { files, fanout },
        mean_bytes,
        present_percent,
    };
    [
        Filebench {
            personality: &FILE_SERVER,
            set: set(scale.part(100, 10_000), 20, scale.pick(16 << 10, 128 << 10), 80),
            threads: scale.pick(10, 50),
            loops: scale.part(5, 80),
            write_bytes_max: 16 << 10,
        },
        Filebench {
            personality: &WEB_SERVER,
            set: set(scale.part(100, 1000), 20, 16 << 10, 100),
            threads: scale.pick(10, 100),
            loops: scale.part(5, 100),
            write_bytes_max: 16 << 10,
        },
        Filebench {
            personality: &WEB_PROXY,
            set: set(scale.part(200, 10_000), 1_000_000, 16 << 10, 80),
            threads: scale.pick(10, 100),
            loops: scale.part(5, 100),
            write_bytes_max: 16 << 10,
        },
    ]
}

/// A server's load.
#[derive(Clone, Copy, Debug)]
pub struct Filebench {
    /// The work of each thread.
    pub personality: &'static Personality,
    /// The files.
    pub set: FileSet,
    /// The number of threads.
    pub threads: u64,
    /// The number of loops of each thread.
    pub loops: u64,
    /// The largest append, record or new file of a drawn size.
    pub write_bytes_max: u64,
}

/// An operation with its choices.
#[derive(Clone, Copy, Debug)]
enum Action {
    File(Step),
    Log(Record),
}

/// The choices of one thread.
struct Thread {
    share: Share,
    records: Records,
    drawn_bytes: u64,
}

impl Filebench {
    fn thread(&self, thread: u64) -> Thread {
        let share = match self.personality.changes_files() {
            true => Share::new(&self.set, thread, self.threads),
            false => Share::new(&self.set, 0, 1).with_seed(thread),
        };
        Thread { share, records: Records::new(thread, self.write_bytes_max), drawn_bytes: 0 }
    }

    /// The next loop of a thread.
    fn actions(&self, Thread { share, records, drawn_bytes }: &mut Thread) -> Result<Vec<Action>> {
        let mut actions = Vec::new();
        for op in self.personality.ops {
            let step = match op {
                Op::DrawSize => {
                    *drawn_bytes = share.up_to(self.write_bytes_max);
                    continue;
                }
                Op::Log => {
                    actions.extend(records.next().map(Action::Log));
                    continue;
                }
                Op::Create => share.create(),
                Op::CreateDrawn => share.create_of(*drawn_bytes),
                Op::Append => share.append(*drawn_bytes),
                Op::Read => share.read(),
                Op::Delete => share.delete(),
                Op::Stat => share.stat(),
            };
            actions
                .push(Action::File(step.with_context(|| format!("a thread's share has no file to {op:?}"))?));
        }
        Ok(actions)
    }

    fn files_dir(&self, dir: &Path) -> PathBuf {
        if self.personality.has_log() { dir.join(FILES) } else { dir.to_owned() }
    }

    /// Runs the loops of each thread that are in a range; those before must have been run.
    pub fn load(&self, dir: &Path, from: u64, until: u64) -> Result<()> {
        let files = self.files_dir(dir);
        in_threads(self.threads, |number| {
            let mut thread = self.thread(number);
            let mut log = match self.personality.has_log() {
                true => Some(OpenOptions::new().append(true).open(dir.join(LOG))?),
                false => None,
            };
            for number in 0..until {
                let actions = self.actions(&mut thread)?;
                for action in actions.iter().filter(|_| number >= from) {
                    match (action, &mut log) {
                        (Action::File(step), _) => self.set.apply(&files, step)?,
                        (Action::Log(record), Some(log)) => log.write_all(&record.bytes())?,
                        (Action::Log(_), None) => {}
                    }
                }
            }
            Ok(())
        })
    }

    /// The files after a number of loops of each thread.
    pub fn files_after(&self, loops: u64) -> Result<Vec<Existing>> {
        if !self.personality.changes_files() {
            return Ok(Share::new(&self.set, 0, 1).into_present());
        }
        let mut files = Vec::new();
        for number in 0..self.threads {
            let mut thread = self.thread(number);
            for _ in 0..loops {
                self.actions(&mut thread)?;
            }
            files.extend(thread.share.into_present());
        }
        files.sort_unstable();
        Ok(files)
    }

    /// The records of all threads.
    fn records(&self) -> impl Iterator<Item = Record> {
        let (bytes_max, loops) = (self.write_bytes_max, self.loops as usize);
        (0..self.threads).flat_map(move |thread| Records::new(thread, bytes_max).take(loops))
    }
}

impl Workload for Filebench {
    fn name(&self) -> &'static str {
        self.personality.name
    }

    fn about(&self) -> String {
        format!(
            "{}, of {} files of {} KiB, with {} threads, cold",
            self.personality.about(self.loops * self.threads),
            self.set.layout.files,
            self.set.mean_bytes >> 10,
            self.threads
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        if self.personality.has_log() {
            File::create_new(dir.join(LOG))?;
            std::fs::create_dir(dir.join(FILES))?;
        }
        self.set.make(&self.files_dir(dir))
    }

    fn run(&self, dir: &Path) -> Result<()> {
        self.load(dir, 0, self.loops)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.set.ensure_has(&self.files_dir(dir), self.files_after(self.loops)?)?;
        if self.personality.has_log() {
            log::ensure_has(&std::fs::read(dir.join(LOG))?, self.records())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(personality: &'static Personality, files: u64, present_percent: u64) -> Filebench {
        let layout = Layout { files, fanout: 5 };
        let set = FileSet { layout, mean_bytes: 2000, present_percent };
        Filebench { personality, set, threads: 4, loops: 20, write_bytes_max: 500 }
    }

    #[test]
    fn each_thread_does_what_its_table_says() {
        for (personality, [created, appended, read, deleted, stats, logged]) in [
            (&FILE_SERVER, [20, 20, 20, 20, 20, 0]),
            (&WEB_PROXY, [20, 0, 100, 20, 0, 0]),
            (&WEB_SERVER, [0, 0, 200, 0, 0, 20]),
        ] {
            let server = server(personality, 60, 80);
            let mut thread = server.thread(1);
            let mut counts = [0; 6];
            for _ in 0..server.loops {
                for action in server.actions(&mut thread).unwrap() {
                    counts[match action {
                        Action::File(Step::Create(_)) => 0,
                        Action::File(Step::Append(..)) => 1,
                        Action::File(Step::Read(_)) => 2,
                        Action::File(Step::Delete(_)) => 3,
                        Action::File(Step::Stat(_)) => 4,
                        Action::Log(_) => 5,
                    }] += 1;
                }
            }
            assert_eq!(counts, [created, appended, read, deleted, stats, logged], "{}", personality.name);
        }
    }

    #[test]
    fn a_load_in_parts_is_the_whole_load() {
        for personality in [&FILE_SERVER, &WEB_PROXY] {
            let server = server(personality, 60, 80);
            let dir = tempfile::tempdir().unwrap();
            server.prepare(dir.path()).unwrap();
            assert!(server.check(dir.path()).is_err());
            server.load(dir.path(), 0, 7).unwrap();
            server.load(dir.path(), 7, 20).unwrap();
            server.check(dir.path()).unwrap();
        }
    }

    #[test]
    fn every_record_is_in_the_log_once() {
        let server = server(&WEB_SERVER, 20, 100);
        let dir = tempfile::tempdir().unwrap();
        server.prepare(dir.path()).unwrap();
        assert!(server.check(dir.path()).is_err(), "records are missing");
        server.run(dir.path()).unwrap();
        server.check(dir.path()).unwrap();
        let mut log = std::fs::read(dir.path().join(LOG)).unwrap();
        log[40] ^= 1;
        std::fs::write(dir.path().join(LOG), &log).unwrap();
        assert!(server.check(dir.path()).is_err(), "a record is wrong");
    }
}
