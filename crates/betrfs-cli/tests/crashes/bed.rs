//! A volume on a recorded disk, mounted by the real server, and the states that a program has seen on it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree_sim::SimDisk;
use betree_std::StdPlatform;
use betrfs::{FormatOptions, Volume};
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

use crate::disk_log::{DiskLog, Note};
use crate::judge::{Plan, Seen, judge};
use crate::mounted::{betrfs, ok, run};
use crate::recorded_disk::{Manner, RecordedDisk};
use crate::tree::Tree;

/// A mounted volume on a recorded disk.
pub struct Bed {
    /// The mount.
    pub dir: PathBuf,
    /// The disk.
    pub disk: RecordedDisk,
    states: Vec<Tree>,
    folder: TempDir,
}

impl Bed {
    /// An empty volume of 512 MiB.
    pub fn new() -> Bed {
        Bed::of_bytes(512 << 20)
    }

    /// An empty volume of a size.
    pub fn of_bytes(bytes: u64) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let (held, dir) = (folder.path().join("held"), folder.path().join("mnt"));
        fs::create_dir(&held).unwrap();
        fs::create_dir(&dir).unwrap();
        let empty = Arc::new(SimDisk::new(bytes));
        Volume::format(empty.clone(), &FormatOptions::default(), &StdPlatform::new()).unwrap();
        let disk = RecordedDisk::serve(empty.crash(0), &held);
        let mut bed = Bed { dir, disk, states: Vec::new(), folder };
        bed.mount();
        bed.known();
        bed
    }

    /// Mounts the volume.
    pub fn mount(&self) {
        let log = self.folder.path().join("log");
        let mut mount = betrfs();
        mount.arg("mount").arg(self.disk.file()).arg(&self.dir).args(["--cache-size", "64M", "--log"]);
        ok(&mount.arg(log).output().unwrap());
    }

    /// The server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A path on the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The state that was seen last.
    pub fn latest(&self) -> &Tree {
        self.states.last().unwrap()
    }

    /// Does something that ends in a state without states between.
    pub fn does(&mut self, work: impl FnOnce(&Path)) {
        self.does_in_steps(Vec::new(), work);
    }

    /// Does something that goes through these states.
    pub fn does_in_steps(&mut self, between: Vec<Tree>, work: impl FnOnce(&Path)) {
        self.states.extend(between);
        self.disk.note(Note::Begins(self.states.len()));
        work(&self.dir);
        self.states.push(Tree::of_mount(&self.dir));
    }

    /// Does something whose end says that it is durable, with all before it.
    pub fn syncs(&mut self, work: impl FnOnce(&Path)) {
        self.does(work);
        self.is_durable();
    }

    /// Notes that the program was told that all is durable.
    pub fn is_durable(&self) {
        self.disk.note(Note::IsDurable(self.states.len() - 1));
    }

    /// Does something whose states between are not known, and makes the last one durable.
    pub fn sets_up(&mut self, work: impl FnOnce(&Path)) {
        self.disk.note(Note::Unknown);
        work(&self.dir);
        rustix::fs::syncfs(File::open(&self.dir).unwrap()).unwrap();
        self.known();
    }

    /// The mount is in a known state, which is durable.
    fn known(&mut self) {
        self.states.push(Tree::of_mount(&self.dir));
        let state = self.states.len() - 1;
        self.disk.note(Note::IsDurable(state));
        self.disk.note(Note::Begins(state));
    }

    /// Unmounts it, upon which all is durable; returns the recording and the states.
    pub fn end(mut self) -> (DiskLog, Vec<Tree>) {
        ok(&run(["umount".as_ref(), self.dir.as_os_str()]));
        self.is_durable();
        (self.disk.take_log(), std::mem::take(&mut self.states))
    }

    /// Unmounts it, and cuts the power at each call that it recorded: every time one of the states must be
    /// there that are possible at that moment.
    pub fn survives(self, plan: Plan) -> Seen {
        let (log, states) = self.end();
        judge(&log, &states, plan).unwrap_or_else(|what| panic!("{what}"))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
        // The kernel may ask the server for the root, which waits for a disk that does not answer.
        self.disk.set_manner(Manner::Honest);
        // Fails if nothing is mounted, which is no error. Before the disk goes.
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}
