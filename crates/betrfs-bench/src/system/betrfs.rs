//! BetrFS, by the binary `betrfs`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result};
use bench_harness::disk::Disk;
use bench_harness::teardown::{Teardown, detach};
use bench_harness::tool;
use rustix::process::{Pid, Signal};
use serde::Deserialize;

use super::{OURS, System, Work};

/// The parts of `betrfs stats --format json` in use here.
#[derive(Deserialize)]
struct Stats {
    pid: i32,
    requests: BTreeMap<String, Requests>,
    operations: BTreeMap<String, Cost>,
}

#[derive(Deserialize)]
struct Requests {
    count: u64,
}

#[derive(Deserialize)]
struct Cost {
    queries: u64,
    scans: u64,
}

/// BetrFS with its defaults.
pub struct Betrfs {
    binary: PathBuf,
    disk: Rc<Disk>,
    dir: PathBuf,
    server: Cell<Option<Pid>>,
    teardown: Teardown,
}

impl Betrfs {
    /// BetrFS on a disk, to be mounted below a directory.
    pub fn new(scratch: &Path, disk: &Rc<Disk>, binary: PathBuf, teardown: &Teardown) -> Result<Betrfs> {
        let dir = scratch.join("betrfs");
        std::fs::create_dir(&dir)?;
        let disk = Rc::clone(disk);
        Ok(Betrfs { binary, disk, dir, server: Cell::new(None), teardown: teardown.clone() })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(name);
        command
    }

    fn stats(&self) -> Result<Stats> {
        let printed = tool::run(self.command("stats").arg(&self.dir).args(["--format", "json"]))?;
        serde_json::from_str(&printed).context("the output of betrfs stats is not readable")
    }
}

impl System for Betrfs {
    fn name(&self) -> &'static str {
        OURS
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn format(&self) -> Result<()> {
        tool::run(self.command("mkfs").arg(self.disk.device()).arg("--force")).map(drop)
    }

    fn mount(&self) -> Result<()> {
        self.teardown.will_mount(&self.dir);
        tool::run(self.command("mount").arg(self.disk.device()).arg(&self.dir))?;
        let server = Pid::from_raw(self.stats()?.pid).context("the server has no process number")?;
        self.server.set(Some(server));
        self.teardown.started(server);
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        if let Some(server) = self.server.get() {
            tool::run(self.command("umount").arg(&self.dir))?;
            self.server.set(None);
            self.teardown.ended(server);
        }
        self.teardown.unmounted(&self.dir);
        Ok(())
    }

    /// On `syncfs` the kernel sends its dirty data, but does not ask the server for durability. An `fsync`
    /// does, and makes all of the volume's log durable.
    fn sync(&self) -> Result<()> {
        let root = File::open(&self.dir)?;
        rustix::fs::syncfs(&root)?;
        Ok(root.sync_all()?)
    }

    fn work(&self) -> Result<Option<Work>> {
        let stats = self.stats()?;
        Ok(Some(Work {
            requests: stats.requests.iter().map(|(kind, requests)| (kind.clone(), requests.count)).collect(),
            tree_queries: stats.operations.values().map(|cost| cost.queries + cost.scans).sum(),
        }))
    }
}

impl Drop for Betrfs {
    fn drop(&mut self) {
        if self.unmount().is_ok() {
            return;
        }
        if let Some(server) = self.server.get() {
            // The server may have ended by itself.
            let _ = rustix::process::kill_process(server, Signal::KILL);
        }
        detach(&self.dir);
    }
}
