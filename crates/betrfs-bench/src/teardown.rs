//! What a run must not leave behind: servers, mounts, loop devices, files.
//!
//! Each contender undoes its own when it is dropped. Here is what remains to be done when that will
//! not happen: a workload that hangs, or a signal. Of a run that is killed at once a record stays behind,
//! and the next run undoes what stands there: a dead server's mount would be in the way of whoever looks
//! through the mounts, and a limit on dirty pages would stay.

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

use crate::confine::{Undo, wait_until_alone};
use crate::output::tell;

/// Where each run has a record of what there is to undo, locked while the run lives. What is recorded
/// lasts until the machine is started anew, as do files here.
const RECORDS: &str = "/run/betrfs-bench";

/// What there is to undo now.
#[derive(Default, Serialize, Deserialize)]
struct Held {
    /// Of use to this process alone: of a run before, another program may have the number by now.
    #[serde(skip)]
    servers: Vec<Pid>,
    mounts: Vec<PathBuf>,
    loop_devices: Vec<PathBuf>,
    confinement: Option<Undo>,
    scratch: PathBuf,
}

/// What there is to undo, and the record of it.
struct Recorded {
    held: Held,
    record: NamedTempFile,
}

/// What there is to undo, known to all who may have to.
#[derive(Clone)]
pub struct Teardown(Arc<Mutex<Recorded>>);

/// A workload under a time limit; the limit ends when this is dropped.
pub struct Watched {
    _alive: Sender<()>,
}

impl Teardown {
    /// Nothing to undo yet but a directory; from now on a signal undoes what there is.
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

    /// Nothing to undo yet but a directory, and a record that says so.
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

    /// Ends the record: all has been undone.
    pub fn end(&self) {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Who finds it finds nothing to undo in it.
        let _ = std::fs::remove_file(recorded.record.path());
    }

    /// Changes what there is to undo, and the record of it.
    fn held<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut recorded.held);
        if let Err(error) = recorded.write() {
            tell(format_args!("betrfs-bench: what there is to undo cannot be recorded: {error:#}"));
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
    pub fn confined(&self, undo: Undo) {
        self.held(|held| held.confinement = Some(undo));
    }

    /// Ends the limit on memory.
    pub fn unconfine(&self) {
        if let Some(undo) = self.held(|held| held.confinement.take()) {
            undo.leave();
            undo.put_back();
        }
    }

    /// Ends everything if what is returned still lives after the limit.
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

    /// Undoes what there is as far as that goes, and ends the process.
    fn undo_and_exit(&self, why: &str) -> ! {
        tell(format_args!("betrfs-bench: {why}"));
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for server in &recorded.held.servers {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(*server, Signal::KILL);
        }
        if let Some(confinement) = &recorded.held.confinement {
            confinement.leave();
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
    /// Undoes all of it as far as that goes, but for this process's servers and groups.
    fn undo(&self) {
        for mount in &self.mounts {
            detach(mount);
        }
        if let Some(confinement) = &self.confinement {
            confinement.put_back();
        }
        for device in &self.loop_devices {
            // The kernel frees it as soon as nothing uses it.
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Undoes what runs left that were killed at once.
///
/// # Errors
/// Where a record cannot be read or locked.
pub fn undo_dead_runs() -> Result<()> {
    let records = match std::fs::read_dir(RECORDS) {
        Ok(records) => records,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {RECORDS}")),
    };
    for record in records {
        let path = record?.path();
        // A run that ends takes it away.
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
        // Who measures now would have its limit on dirty pages taken away.
        let _alone = wait_until_alone()?;
        let held: Held = serde_json::from_reader(&record).with_context(|| {
            format!("{} of a run that was killed is not whole: remove it", path.display())
        })?;
        tell(format_args!("betrfs-bench: undoing what a run left in {}", held.scratch.display()));
        held.undo();
        let _ = std::fs::remove_file(&path);
    }
    Ok(())
}

/// Takes a mount out of sight, whoever uses it.
pub fn detach(dir: &Path) {
    // Where nothing is mounted there is nothing to do.
    let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}
