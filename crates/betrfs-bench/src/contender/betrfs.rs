//! BetrFS on a volume file, by the binary `betrfs`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use serde::Deserialize;

use super::{Contender, Usage, preallocate};
use crate::teardown::{Teardown, detach};
use crate::tool;

/// What is read of `betrfs stats --format json`.
#[derive(Deserialize)]
struct Stats {
    pid: i32,
    requests: BTreeMap<String, Requests>,
    engine: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Requests {
    count: u64,
}

/// BetrFS with its defaults.
pub struct Betrfs {
    binary: PathBuf,
    volume: PathBuf,
    dir: PathBuf,
    server: Cell<Option<Pid>>,
    teardown: Teardown,
}

impl Betrfs {
    /// A volume file of a size in a directory.
    pub fn new(scratch: &Path, size_bytes: u64, binary: PathBuf, teardown: &Teardown) -> Result<Betrfs> {
        let (volume, dir) = (scratch.join("volume.betrfs"), scratch.join("betrfs"));
        std::fs::create_dir(&dir)?;
        preallocate(&volume, size_bytes)?;
        Ok(Betrfs { binary, volume, dir, server: Cell::new(None), teardown: teardown.clone() })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(name);
        command
    }

    fn stats(&self) -> Result<Stats> {
        let printed = tool::run(self.command("stats").arg(&self.dir).args(["--format", "json"]))?;
        serde_json::from_str(&printed).context("betrfs stats printed what is not expected")
    }
}

/// The CPU time of a process, its threads included.
fn cpu_seconds(pid: i32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold spaces; user and system time are the 12th and 13th behind it.
    let (_, fields) = stat.rsplit_once(')').context("no name in a process's statistics")?;
    let ticks = fields.split_ascii_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

impl Contender for Betrfs {
    fn name(&self) -> &'static str {
        "BetrFS"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn format(&self) -> Result<()> {
        tool::run(self.command("mkfs").arg(&self.volume).arg("--force")).map(drop)
    }

    fn mount(&self) -> Result<()> {
        self.teardown.will_mount(&self.dir);
        tool::run(self.command("mount").arg(&self.volume).arg(&self.dir))?;
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

    /// The kernel sends what it holds on `syncfs`, but does not tell the server to make it durable;
    /// that it does on `fsync`, and the log, which one `fsync` writes, is one for the volume.
    fn sync(&self) -> Result<()> {
        let root = File::open(&self.dir)?;
        rustix::fs::syncfs(&root)?;
        Ok(root.sync_all()?)
    }

    fn usage(&self) -> Result<Usage> {
        let stats = self.stats()?;
        let count = |name: &str| {
            stats.engine.get(name).copied().with_context(|| format!("betrfs stats has no {name}"))
        };
        Ok(Usage {
            server_cpu_seconds: cpu_seconds(stats.pid)?,
            device_read_bytes: count("device_read_bytes")?,
            device_write_bytes: count("device_write_bytes")?,
            requests: stats.requests.iter().map(|(kind, requests)| (kind.clone(), requests.count)).collect(),
        })
    }
}

impl Drop for Betrfs {
    fn drop(&mut self) {
        if self.unmount().is_ok() {
            return;
        }
        if let Some(server) = self.server.get() {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(server, Signal::KILL);
        }
        detach(&self.dir);
    }
}
