//! Aging by a file server's load, with a grep after each part of it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Workload;
use super::filebench::Filebench;
use super::grep::grep_for;
use super::seen::{Seen, content_bytes};

/// A text that no file has: grep reads all of each file, and prints nothing.
const ABSENT: &str = "no line has this";

/// A cold `grep -r` of the files after each part of the load.
pub struct AgeFileServer {
    /// The load.
    pub server: Filebench,
    /// The number of parts, each with a grep after it.
    pub steps: u64,
    /// The bytes that the last grep read.
    pub seen: Seen,
}

fn grep(dir: &Path, seen: &Seen) -> Result<()> {
    let found = grep_for(ABSENT, &["--binary-files=text"], dir, seen)?;
    ensure!(found == 0, "it found what no file has");
    Ok(())
}

impl Workload for AgeFileServer {
    fn name(&self) -> &'static str {
        "age-fileserver"
    }

    fn about(&self) -> String {
        format!(
            "grep -r {} files of {} KiB, cold, {} times, after every {} loops of the file server's load",
            self.server.set.layout.files * self.server.set.present_percent / 100,
            self.server.set.mean_bytes >> 10,
            self.steps,
            self.server.loops * self.server.threads
        )
    }

    fn writes(&self) -> bool {
        false
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn time_max(&self) -> Duration {
        Duration::from_secs(4 * 60 * 60)
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.server.set.make(dir)
    }

    fn age(&self, dir: &Path, step: u64) -> Result<()> {
        let loops = self.server.loops;
        self.server.load(dir, (step - 1) * loops, step * loops)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        grep(dir, &self.seen)
    }

    fn check_run(&self, dir: &Path) -> Result<()> {
        self.seen.ensure_all(content_bytes(dir, "lost+found")?, "bytes")
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.server.set.ensure_has(dir, self.server.files_after(self.steps * self.server.loops)?)
    }
}

/// `grep -r` of the files at the end of aging, written anew in order.
pub struct AgeFileServerFresh {
    /// The aged counterpart.
    pub aged: AgeFileServer,
}

impl Workload for AgeFileServerFresh {
    fn name(&self) -> &'static str {
        "age-fileserver-fresh"
    }

    fn about(&self) -> String {
        "grep -r the files that age-fileserver has in the end, just written, cold".into()
    }

    fn writes(&self) -> bool {
        false
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        let server = &self.aged.server;
        server.set.make_these(dir, server.files_after(self.aged.steps * server.loops)?.into_iter())
    }

    fn run(&self, dir: &Path) -> Result<()> {
        grep(dir, &self.aged.seen)
    }

    fn check_run(&self, dir: &Path) -> Result<()> {
        self.aged.check_run(dir)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.aged.check(dir)
    }
}
