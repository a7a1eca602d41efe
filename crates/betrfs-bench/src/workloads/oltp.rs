//! Filebench's database: many readers, some writers of pages, one writer of the log; each write is durable
//! when it returns.
//!
//! The published profile also has loops that only use CPU time, and asynchronous writes. Here each writer
//! writes one page after the other.

mod pace;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;

use self::pace::Pace;
use super::Workload;
use crate::data::{Rng, bytes};
use crate::threads::in_threads;

const PAGE_BYTES: u64 = 2 << 10;
const LOG_WRITE_BYTES: u64 = 256 << 10;
/// The number of pages that a writer writes before it waits for readers.
const BATCH_PAGES: u64 = 100;
/// The number of reads before each batch of each writer.
const READS_PER_BATCH: u64 = 1000;
/// The number of reads before each write of the log.
const READS_PER_LOG_WRITE: u64 = 3200;
const SEED: u64 = 0x6f6c_7470;
const LOG: &str = "log";

/// A database's load.
pub struct Oltp {
    /// The number of data files.
    pub files: u64,
    /// The size of each file, and of the log.
    pub file_bytes: u64,
    /// The number of reading threads.
    pub readers: u64,
    /// The number of threads that write pages.
    pub writers: u64,
    /// The number of batches of each writer.
    pub batches: u64,
}

/// The seed of a page or a log write.
fn seed_of(writer: u64, number: u64) -> u64 {
    (writer + 1) << 32 | number
}

impl Oltp {
    fn reads(&self) -> u64 {
        self.batches * READS_PER_BATCH
    }

    fn log_writes(&self) -> u64 {
        self.reads().div_ceil(READS_PER_LOG_WRITE)
    }

    /// The number of the log's writer: that after the page writers.
    fn log_writer(&self) -> u64 {
        self.writers
    }

    fn file(&self, dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("data{number:03}"))
    }

    /// The files and pages that a writer writes. Each writer has pages of its own: the contents at the end do
    /// not depend on speed.
    fn pages(&self, writer: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut rng = Rng::of_stream(SEED, writer);
        let own = self.file_bytes / PAGE_BYTES / self.writers;
        let (files, writers) = (self.files, self.writers);
        (0..self.batches * BATCH_PAGES)
            .map(move |_| (rng.below_u64(files), rng.below_u64(own) * writers + writer))
    }

    /// The places of the log writes.
    fn log_places(&self) -> impl Iterator<Item = u64> {
        let mut rng = Rng::of_stream(SEED, self.log_writer());
        let places = self.file_bytes / LOG_WRITE_BYTES;
        (0..self.log_writes()).map(move |_| rng.below_u64(places) * LOG_WRITE_BYTES)
    }

    fn read(&self, dir: &Path, reader: u64, pace: &Pace) -> Result<()> {
        let files = (0..self.files).map(|number| File::open(self.file(dir, number)));
        let files = files.collect::<Result<Vec<File>, _>>()?;
        let mut rng = Rng::of_stream(SEED + 1, reader);
        let mut page = vec![0; PAGE_BYTES as usize];
        let part = |thread: u64| self.reads() * thread / self.readers;
        for _ in part(reader)..part(reader + 1) {
            let file = files.get(rng.below(files.len())).context("there are no files")?;
            file.read_exact_at(&mut page, rng.below_u64(self.file_bytes / PAGE_BYTES) * PAGE_BYTES)?;
            pace.has_read()?;
        }
        Ok(())
    }

    fn write_pages(&self, dir: &Path, writer: u64, pace: &Pace) -> Result<()> {
        let files = (0..self.files).map(|number| open_durable(&self.file(dir, number)));
        let files = files.collect::<Result<Vec<File>>>()?;
        for (number, (file, page)) in (0..).zip(self.pages(writer)) {
            let content = bytes(seed_of(writer, number), 0, PAGE_BYTES as usize);
            let file = files.get(file as usize).context("there is no such file")?;
            file.write_all_at(&content, page * PAGE_BYTES)?;
            if (number + 1) % BATCH_PAGES == 0 {
                let batches = (number + 1) / BATCH_PAGES;
                pace.has_written(writer as usize, batches);
                pace.wait_for_reads(batches * READS_PER_BATCH)?;
            }
        }
        Ok(())
    }

    fn write_log(&self, dir: &Path, pace: &Pace) -> Result<()> {
        let log = open_durable(&dir.join(LOG))?;
        for (number, at) in (0..).zip(self.log_places()) {
            let content = bytes(seed_of(self.log_writer(), number), 0, LOG_WRITE_BYTES as usize);
            log.write_all_at(&content, at)?;
            pace.wait_for_reads(((number + 1) * READS_PER_LOG_WRITE).min(self.reads()))?;
        }
        Ok(())
    }

    /// The contents of a file at the end: its first contents with all writes.
    fn expected(&self, file_seed: u64, writes: &BTreeMap<u64, u64>, write_bytes: u64) -> Vec<u8> {
        let mut expected = bytes(file_seed, 0, self.file_bytes as usize);
        for (at, seed) in writes {
            let content = bytes(*seed, 0, write_bytes as usize);
            expected[*at as usize..(at + write_bytes) as usize].copy_from_slice(&content);
        }
        expected
    }
}

/// Opens a file so that a write is durable when it returns.
fn open_durable(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::DSYNC.bits().cast_signed());
    options.open(path).with_context(|| format!("cannot open {}", path.display()))
}

impl Workload for Oltp {
    fn name(&self) -> &'static str {
        "oltp"
    }

    fn about(&self) -> String {
        format!(
            "read {} pages of 2 KiB with {} threads and write {} durably with {}, in {} files of {} MiB, cold",
            self.reads(),
            self.readers,
            self.batches * BATCH_PAGES * self.writers,
            self.writers,
            self.files,
            self.file_bytes >> 20
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        for number in 0..self.files {
            std::fs::write(self.file(dir, number), bytes(number, 0, self.file_bytes as usize))?;
        }
        Ok(std::fs::write(dir.join(LOG), bytes(self.files, 0, self.file_bytes as usize))?)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        let pace = Pace::new(self.writers as usize, READS_PER_BATCH, self.reads());
        in_threads(self.readers + self.writers + 1, |thread| {
            let done = match thread {
                _ if thread < self.writers => self.write_pages(dir, thread, &pace),
                _ if thread == self.log_writer() => self.write_log(dir, &pace),
                _ => self.read(dir, thread - self.writers - 1, &pace),
            };
            // Otherwise the others would wait for this thread for ever.
            done.inspect_err(|_| pace.fail())
        })
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let mut writes = vec![BTreeMap::new(); self.files as usize];
        for writer in 0..self.writers {
            for (number, (file, page)) in (0..).zip(self.pages(writer)) {
                writes[file as usize].insert(page * PAGE_BYTES, seed_of(writer, number));
            }
        }
        for (number, writes) in (0..).zip(&writes) {
            let path = self.file(dir, number);
            let expected = self.expected(number, writes, PAGE_BYTES);
            ensure!(std::fs::read(&path)? == expected, "{} is wrong", path.display());
        }
        let log = (0..).zip(self.log_places()).map(|(n, at)| (at, seed_of(self.log_writer(), n))).collect();
        let expected = self.expected(self.files, &log, LOG_WRITE_BYTES);
        ensure!(std::fs::read(dir.join(LOG))? == expected, "the log is wrong");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLTP: Oltp = Oltp { files: 2, file_bytes: 1 << 20, readers: 7, writers: 3, batches: 4 };

    #[test]
    fn writers_have_pages_of_their_own() {
        for writer in 0..3 {
            let pages: Vec<_> = OLTP.pages(writer).collect();
            assert_eq!(pages.len(), 400);
            assert!(pages.iter().all(|(file, page)| *file < 2 && page % 3 == writer && *page < 512));
        }
    }

    #[test]
    fn what_is_written_is_what_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        OLTP.prepare(dir.path()).unwrap();
        assert!(OLTP.check(dir.path()).is_err());
        OLTP.run(dir.path()).unwrap();
        OLTP.check(dir.path()).unwrap();
    }

    #[test]
    fn a_failure_ends_all_threads() {
        let dir = tempfile::tempdir().unwrap();
        OLTP.prepare(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(LOG)).unwrap();
        let error = OLTP.run(dir.path()).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}
