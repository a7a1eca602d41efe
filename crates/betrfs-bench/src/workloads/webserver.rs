//! filebench's web server: files that are read, and one log.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Workload;
use crate::data::{FileSet, Rng, Share, bytes};
use crate::threads::in_threads;

/// How often a thread reads for each record of the log.
const READS: u64 = 10;
const FILES: &str = "files";
const LOG: &str = "log";
const SEED: u64 = 0x7765_6273;
/// A record of the log begins with what names its content, and its size.
const HEADER_BYTES: usize = 16;

/// Threads that read files and append to a log.
pub struct WebServer {
    /// The files.
    pub set: FileSet,
    /// How many threads.
    pub threads: u64,
    /// How many records each appends to the log.
    pub loops: u64,
    /// The largest record.
    pub append_bytes_max: u64,
}

fn record(seed: u64, len: u64) -> Vec<u8> {
    let mut record = Vec::with_capacity(len as usize);
    record.extend_from_slice(&seed.to_le_bytes());
    record.extend_from_slice(&len.to_le_bytes());
    record.extend_from_slice(&bytes(seed, 0, len as usize - HEADER_BYTES));
    record
}

impl WebServer {
    /// The log records of a thread: what names each, and its size.
    fn records(&self, thread: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut rng = Rng::of_stream(SEED, thread);
        let most = self.append_bytes_max - HEADER_BYTES as u64;
        (0..self.loops).map(move |_| (rng.next_u64(), HEADER_BYTES as u64 + 1 + rng.below_u64(most)))
    }
}

impl Workload for WebServer {
    fn name(&self) -> &'static str {
        "webserver"
    }

    fn about(&self) -> String {
        format!(
            "append to a log {} times and read {} times, among {} files of {} KiB, with {} threads, cold",
            self.loops * self.threads,
            self.loops * self.threads * READS,
            self.set.layout.files,
            self.set.mean_bytes >> 10,
            self.threads
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        File::create_new(dir.join(LOG))?;
        std::fs::create_dir(dir.join(FILES))?;
        self.set.make(&dir.join(FILES))
    }

    fn run(&self, dir: &Path) -> Result<()> {
        let files = dir.join(FILES);
        in_threads(self.threads, |thread| {
            // All threads read all files.
            let mut share = Share::new(&self.set, 0, 1).with_seed(thread);
            let mut log = OpenOptions::new().append(true).open(dir.join(LOG))?;
            for (seed, len) in self.records(thread) {
                for _ in 0..READS {
                    self.set.apply(&files, &share.read().context("there are no files")?)?;
                }
                log.write_all(&record(seed, len))?;
            }
            Ok(())
        })
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.set.ensure_has(&dir.join(FILES), Share::new(&self.set, 0, 1).into_present())?;
        let mut due: BTreeMap<u64, u64> = (0..self.threads).flat_map(|thread| self.records(thread)).collect();
        let log = std::fs::read(dir.join(LOG))?;
        let mut rest = log.as_slice();
        while let Some((header, _)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let number = u128::from_le_bytes(*header);
            let (seed, len) = (number as u64, (number >> 64) as u64);
            let at = log.len() - rest.len();
            ensure!(due.remove(&seed) == Some(len), "at {at} of the log is no record that is due");
            let (found, behind) = rest.split_at_checked(len as usize).context("the log ends in a record")?;
            ensure!(found == record(seed, len), "the record at {at} of the log is wrong");
            rest = behind;
        }
        ensure!(rest.is_empty() && due.is_empty(), "{} records of the log are missing", due.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Layout;

    #[test]
    fn every_record_is_in_the_log_once() {
        let server = WebServer {
            set: FileSet { layout: Layout { files: 20, fanout: 5 }, mean_bytes: 500, present_percent: 100 },
            threads: 3,
            loops: 10,
            append_bytes_max: 300,
        };
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
