//! What a run must not leave behind: servers, mounts, loop devices, files.
//!
//! Each contender undoes its own when it is dropped. Here is what remains to be done when that will
//! not happen: a workload that hangs, or a signal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::confine::Undo;

/// What there is to undo now.
#[derive(Default)]
struct Held {
    servers: Vec<Pid>,
    mounts: Vec<PathBuf>,
    loop_devices: Vec<PathBuf>,
    confinement: Option<Undo>,
    scratch: PathBuf,
}

/// What there is to undo, known to all who may have to.
#[derive(Clone)]
pub struct Teardown(Arc<Mutex<Held>>);

/// A workload under a time limit; the limit ends when this is dropped.
pub struct Watched {
    _alive: Sender<()>,
}

impl Teardown {
    /// Nothing to undo yet but a directory; from now on a signal undoes what there is.
    pub fn new(scratch: &Path) -> Result<Teardown> {
        let held = Held { scratch: scratch.to_owned(), ..Held::default() };
        let teardown = Teardown(Arc::new(Mutex::new(held)));
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let on_signal = teardown.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                on_signal.undo_and_exit(&format!("ended by signal {signal}"));
            }
        })?;
        Ok(teardown)
    }

    fn held<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
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
            undo.undo();
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
        eprintln!("betrfs-bench: {why}");
        self.held(|held| {
            for server in &held.servers {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(*server, Signal::KILL);
            }
            for mount in &held.mounts {
                detach(mount);
            }
            if let Some(confinement) = &held.confinement {
                confinement.undo();
            }
            for device in &held.loop_devices {
                // The kernel frees it as soon as nothing uses it.
                let _ = Command::new("losetup").arg("-d").arg(device).status();
            }
            let _ = std::fs::remove_dir_all(&held.scratch);
        });
        std::process::exit(1)
    }
}

/// Takes a mount out of sight, whoever uses it.
pub fn detach(dir: &Path) {
    // Where nothing is mounted there is nothing to do.
    let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
}
