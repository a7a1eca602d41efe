//! filebench's file server: home directories.

use std::path::Path;

use anyhow::{Context, Result};

use super::Workload;
use crate::data::{Existing, FileSet, Share, Step};
use crate::threads::in_threads;

/// Threads that create, append to, read, delete and examine files.
#[derive(Clone, Copy, Debug)]
pub struct FileServer {
    /// The files.
    pub set: FileSet,
    /// How many threads.
    pub threads: u64,
    /// How often each does all of it.
    pub loops: u64,
    /// The most that is appended at once.
    pub append_bytes_max: u64,
}

impl FileServer {
    /// What a thread does in one loop.
    fn steps(&self, share: &mut Share) -> Result<[Step; 5]> {
        let append_bytes = share.up_to(self.append_bytes_max);
        let steps = [share.create(), share.append(append_bytes), share.read(), share.delete(), share.stat()];
        let steps: Option<Vec<Step>> = steps.into_iter().collect();
        let steps = steps.and_then(|steps| steps.try_into().ok());
        steps.context("a thread's share is all there, or nothing of it")
    }

    /// Does those loops of each thread that are in a range; what was before must have been done.
    pub fn load(&self, dir: &Path, from: u64, until: u64) -> Result<()> {
        in_threads(self.threads, |thread| {
            let mut share = Share::new(&self.set, thread, self.threads);
            for number in 0..until {
                let steps = self.steps(&mut share)?;
                if number >= from {
                    steps.iter().try_for_each(|step| self.set.apply(dir, step))?;
                }
            }
            Ok(())
        })
    }

    /// What is there after so many loops of each thread.
    pub fn files_after(&self, loops: u64) -> Result<Vec<Existing>> {
        let mut files = Vec::new();
        for thread in 0..self.threads {
            let mut share = Share::new(&self.set, thread, self.threads);
            for _ in 0..loops {
                self.steps(&mut share)?;
            }
            files.extend(share.into_present());
        }
        files.sort_unstable();
        Ok(files)
    }
}

impl Workload for FileServer {
    fn name(&self) -> &'static str {
        "fileserver"
    }

    fn about(&self) -> String {
        format!(
            "create, append to, read, delete and stat: each {} times, among {} files of {} KiB, with {} threads, cold",
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
        self.load(dir, 0, self.loops)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.set.ensure_has(dir, self.files_after(self.loops)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Layout;

    #[test]
    fn a_load_in_parts_is_the_whole_load() {
        let server = FileServer {
            set: FileSet { layout: Layout { files: 60, fanout: 5 }, mean_bytes: 2000, present_percent: 80 },
            threads: 4,
            loops: 20,
            append_bytes_max: 500,
        };
        let dir = tempfile::tempdir().unwrap();
        server.prepare(dir.path()).unwrap();
        assert!(server.check(dir.path()).is_err());
        server.load(dir.path(), 0, 7).unwrap();
        server.load(dir.path(), 7, 20).unwrap();
        server.check(dir.path()).unwrap();
    }
}
