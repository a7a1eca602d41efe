//! filebench's web proxy: a cache in one directory.

use std::path::Path;

use anyhow::{Context, Result};

use super::Workload;
use crate::data::{FileSet, Share, Step};
use crate::threads::in_threads;

/// How often a thread reads for each file that it replaces.
const READS: usize = 5;

/// Threads that replace files and read others.
pub struct WebProxy {
    /// The files.
    pub set: FileSet,
    /// How many threads.
    pub threads: u64,
    /// How many files each replaces.
    pub loops: u64,
    /// The largest new file.
    pub write_bytes_max: u64,
}

impl WebProxy {
    /// What a thread does in one loop.
    fn steps(&self, share: &mut Share) -> Result<Vec<Step>> {
        let delete = share.delete();
        let write_bytes = share.up_to(self.write_bytes_max);
        let steps = [delete, share.create_of(write_bytes)].into_iter();
        let steps: Option<Vec<Step>> = steps.chain((0..READS).map(|_| share.read())).collect();
        steps.context("a thread's share is empty")
    }
}

impl Workload for WebProxy {
    fn name(&self) -> &'static str {
        "webproxy"
    }

    fn about(&self) -> String {
        format!(
            "delete, create and {READS} times read: each {} times, among {} files of {} KiB in one directory, with {} threads, cold",
            self.loops * self.threads,
            self.set.layout.files,
            self.set.mean_bytes >> 10,
            self.threads
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.set.make(dir)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        in_threads(self.threads, |thread| {
            let mut share = Share::new(&self.set, thread, self.threads);
            for _ in 0..self.loops {
                self.steps(&mut share)?.iter().try_for_each(|step| self.set.apply(dir, step))?;
            }
            Ok(())
        })
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let mut files = Vec::new();
        for thread in 0..self.threads {
            let mut share = Share::new(&self.set, thread, self.threads);
            for _ in 0..self.loops {
                self.steps(&mut share)?;
            }
            files.extend(share.into_present());
        }
        self.set.ensure_has(dir, files)
    }
}
