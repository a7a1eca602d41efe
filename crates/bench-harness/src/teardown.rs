//! Cleaning up: a run must leave no servers, mounts, loop devices or files behind.
//!
//! Each owner cleans up when it is dropped. This module cleans up when no owner is dropped: after a signal,
//! or when a workload hangs. A killed run leaves a record, by which the next run cleans up: a dead server's
//! mount would hang programs that walk the mounts, and the limit on dirty memory would stay.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::NamedTempFile;

use crate::cgroup::Restore;
use crate::machine;
use crate::output::tell;

/// The directory of records, one for each run, locked while the run lives. A reboot removes the records and
/// the recorded things alike.
const RECORDS: &str = "/run/betrfs-bench";

/// The things to clean up.
#[derive(Default, Serialize, Deserialize)]
struct Held {
    /// Not in the record: after the run, another process may have the number.
    #[serde(skip)]
    servers: Vec<Pid>,
    mounts: Vec<PathBuf>,
    loop_devices: Vec<PathBuf>,
    memory_limit: Option<Restore>,
    scratch: PathBuf,
}

/// The things to clean up, and their record.
struct Recorded {
    held: Held,
    record: NamedTempFile,
}

/// The things to clean up, shared by their owners.
#[derive(Clone)]
pub struct Teardown(Arc<Mutex<Recorded>>);

/// A time limit; it ends when this is dropped.
pub struct Watched {
    _alive: Sender<()>,
}

impl Teardown {
    /// For a directory of files. From now on a signal cleans up.
    ///
    /// # Errors
    /// The record cannot be written, or signals cannot be caught.
    pub fn new(scratch: &Path) -> Result<Teardown> {
        let teardown = Teardown::recorded(scratch)?;
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let on_signal = teardown.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                on_signal.undo_and_exit(&format!("ended by signal {signal}"));
            }
        })?;
        Ok(teardown)
    }

    /// With a new record; signals are not handled.
    fn recorded(scratch: &Path) -> Result<Teardown> {
        std::fs::create_dir_all(RECORDS).with_context(|| format!("cannot make {RECORDS}"))?;
        let mut named = tempfile::Builder::new();
        let record = named.prefix("run-").suffix(".json").tempfile_in(RECORDS);
        let record = record.with_context(|| format!("cannot write in {RECORDS}"))?;
        record.as_file().try_lock().context("cannot lock a record")?;
        let held = Held { scratch: scratch.to_owned(), ..Held::default() };
        let mut recorded = Recorded { held, record };
        recorded.write()?;
        Ok(Teardown(Arc::new(Mutex::new(recorded))))
    }

    /// Removes the record: all is cleaned up.
    pub fn end(&self) {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If it stays, the next run finds nothing to do in it.
        let _ = std::fs::remove_file(recorded.record.path());
    }

    /// Changes the things to clean up, and the record.
    fn held<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut recorded.held);
        if let Err(error) = recorded.write() {
            tell(format_args!("betrfs-bench: what there is to clean up cannot be recorded: {error:#}"));
        }
        changed
    }

    /// A mount is about to be made.
    pub fn will_mount(&self, dir: &Path) {
        self.held(|held| held.mounts.push(dir.to_owned()));
    }

    /// A mount is gone.
    pub fn unmounted(&self, dir: &Path) {
        self.held(|held| held.mounts.retain(|mount| mount != dir));
    }

    /// A server runs.
    pub fn started(&self, server: Pid) {
        self.held(|held| held.servers.push(server));
    }

    /// A server has ended.
    pub fn ended(&self, server: Pid) {
        self.held(|held| held.servers.retain(|pid| *pid != server));
    }

    /// A loop device is set up.
    pub fn attached(&self, device: &Path) {
        self.held(|held| held.loop_devices.push(device.to_owned()));
    }

    /// A loop device is free again.
    pub fn detached(&self, device: &Path) {
        self.held(|held| held.loop_devices.retain(|attached| attached != device));
    }

    /// Memory is limited.
    pub fn memory_limited(&self, restore: Restore) {
        self.held(|held| held.memory_limit = Some(restore));
    }

    /// Ends the limit on memory.
    pub fn end_memory_limit(&self) {
        if let Some(restore) = self.held(|held| held.memory_limit.take()) {
            restore.leave();
            restore.restore();
        }
    }

    /// Cleans up and exits if the result still lives after `limit`.
    pub fn watch(&self, name: &str, limit: Duration) -> Watched {
        let (alive, ended) = mpsc::channel();
        let (teardown, name) = (self.clone(), name.to_owned());
        thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                teardown.undo_and_exit(&format!("{name} took more than {limit:?}"));
            }
        });
        Watched { _alive: alive }
    }

    /// Cleans up as far as possible, and ends the process.
    fn undo_and_exit(&self, why: &str) -> ! {
        tell(format_args!("betrfs-bench: {why}"));
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for server in &recorded.held.servers {
            // The server may have ended by itself.
            let _ = rustix::process::kill_process(*server, Signal::KILL);
        }
        if let Some(restore) = &recorded.held.memory_limit {
            restore.leave();
        }
        recorded.held.undo();
        drop(recorded);
        self.end();
        std::process::exit(1)
    }
}

impl Recorded {
    fn write(&mut self) -> Result<()> {
        let told = serde_json::to_vec(&self.held)?;
        let mut record = self.record.as_file();
        record.set_len(0)?;
        record.rewind()?;
        Ok(record.write_all(&told)?)
    }
}

impl Held {
    /// Cleans up as far as possible, except for the servers and this process's place in groups.
    fn undo(&self) {
        for mount in &self.mounts {
            detach(mount);
        }
        if let Some(restore) = &self.memory_limit {
            restore.restore();
        }
        for device in &self.loop_devices {
            // The kernel frees it as soon as nothing uses it.
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Cleans up after runs that were killed.
///
/// # Errors
/// A record cannot be read or locked.
pub fn undo_dead_runs() -> Result<()> {
    let records = match std::fs::read_dir(RECORDS) {
        Ok(records) => records,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {RECORDS}")),
    };
    for record in records {
        let path = record?.path();
        // A run that ends removes it.
        let Ok(record) = File::open(&path) else { continue };
        match record.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => bail!("cannot lock {}: {error}", path.display()),
        }
        if record.metadata()?.len() == 0 {
            // Just being made, and not yet locked.
            continue;
        }
        // A run that measures now would lose its limit on dirty memory.
        let _machine = machine::lock()?;
        let held: Held = serde_json::from_reader(&record).with_context(|| {
            format!("{} of a run that was killed is not whole: remove it", path.display())
        })?;
        tell(format_args!("betrfs-bench: undoing what a run left in {}", held.scratch.display()));
        held.undo();
        let _ = std::fs::remove_file(&path);
    }
    Ok(())
}

/// Unmounts a directory at once, even if it is in use.
pub fn detach(dir: &Path) {
    // Fails if nothing is mounted, which is no error.
    let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}
