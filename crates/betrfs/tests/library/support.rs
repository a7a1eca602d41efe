//! A volume in memory, for the tests of the library.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use betree::{Env, Geometry};
use betree_platform::Platform;
use betree_sim::MemDevice;
use betrfs::{
    Entry, FileType, FormatOptions, InodeId, NewNode, Objects, OpKind, OpenOptions, Report, Volume,
};

use crate::dice::Dice;

pub const ROOT: InodeId = InodeId::ROOT;

/// A clock that steps by a microsecond, and a counter for dice.
pub struct TestPlatform {
    now: AtomicI64,
    dice: AtomicU64,
}

impl TestPlatform {
    pub fn new() -> Arc<TestPlatform> {
        Arc::new(TestPlatform { now: AtomicI64::new(1_000_000_000), dice: AtomicU64::new(1) })
    }

    /// Lets some time pass.
    pub fn pass(&self, time: Duration) {
        self.now.fetch_add(time.as_nanos() as i64, Relaxed);
    }
}

impl Platform for TestPlatform {
    fn now_ns(&self) -> i64 {
        self.now.fetch_add(1000, Relaxed)
    }

    fn random_u64(&self) -> u64 {
        Dice(self.dice.fetch_add(seeded::GOLDEN_RATIO, Relaxed)).next()
    }
}

/// A disk with a volume that can be opened again and again.
pub struct Disk {
    pub device: Arc<MemDevice>,
    pub options: OpenOptions,
    /// The volume that was opened last.
    last: Mutex<Weak<Env>>,
}

impl Disk {
    pub fn new() -> Disk {
        Disk::of_bytes(48 << 20)
    }

    pub fn of_bytes(bytes: usize) -> Disk {
        Disk::with(bytes, &FormatOptions::default())
    }

    /// A disk with nodes so small that few changes need every operation of a tree.
    pub fn of_tiny_nodes(bytes: usize) -> Disk {
        let geometry = Geometry {
            node_bytes: 16 << 10,
            basement_bytes: 4 << 10,
            fanout_max: 4,
            log_bytes: 8 << 20,
            dicts: 4,
        };
        Disk::with(bytes, &FormatOptions { geometry: Some(geometry), ..FormatOptions::default() })
    }

    fn with(bytes: usize, options: &FormatOptions) -> Disk {
        let device = Arc::new(MemDevice::new(bytes as u64));
        let platform = TestPlatform::new();
        Volume::format(device.clone(), options, &*platform).unwrap();
        Disk::holding(device, OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::new(platform) })
    }

    /// A disk on a device that already has a volume.
    pub fn holding(device: Arc<MemDevice>, options: OpenOptions) -> Disk {
        Disk { device, options, last: Mutex::new(Weak::new()) }
    }

    /// Opens the volume. An earlier one that was neither closed nor dropped counts as crashed.
    pub fn open(&self) -> Volume {
        let mut last = self.last.lock().unwrap();
        if let Some(env) = last.upgrade() {
            env.abandon();
        }
        let volume = Volume::open(self.device.clone(), self.options.clone()).unwrap();
        *last = Arc::downgrade(volume.env());
        volume
    }
}

pub fn volume() -> (Disk, Volume) {
    let disk = Disk::new();
    let volume = disk.open();
    (disk, volume)
}

pub fn new_file() -> NewNode {
    NewNode { file_type: FileType::Regular, perm: 0o644, uid: 1000, gid: 1000, rdev: 0, umask: 0 }
}

pub fn new_dir() -> NewNode {
    NewNode { file_type: FileType::Directory, perm: 0o755, ..new_file() }
}

pub fn mkfile(volume: &Volume, parent: InodeId, name: &str) -> Entry {
    volume.create(parent, name.as_bytes(), &new_file()).unwrap()
}

pub fn mkdir(volume: &Volume, parent: InodeId, name: &str) -> Entry {
    volume.create(parent, name.as_bytes(), &new_dir()).unwrap()
}

pub fn read_all(volume: &Volume, node: InodeId) -> Vec<u8> {
    let size = volume.getattr(node).unwrap().size;
    let mut out = Vec::new();
    volume.read(node, 0, size as usize + 10, &mut out).unwrap();
    out
}

/// The contents of the file at a path.
pub fn contents(volume: &Volume, path: &str) -> Vec<u8> {
    let entry = volume.resolve(path.as_bytes()).unwrap();
    let bytes = read_all(volume, entry.node);
    volume.forget(entry.node, 1);
    bytes
}

/// The names in a directory, in the order of the listing.
pub fn names(volume: &Volume, dir: InodeId) -> Vec<String> {
    let mut all = Vec::new();
    volume
        .readdir(dir, 0, Objects::None, &mut |entry| {
            all.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .unwrap();
    all
}

/// Fails if a check finds problems.
pub fn assert_sound(volume: &Volume) {
    assert_eq!(volume.check(&mut |_, _| ()).unwrap(), Report::default());
}

/// Number of queries of the tree by operations of a kind.
pub fn queries(volume: &Volume, kind: OpKind) -> u64 {
    let count = volume.counters().of(kind);
    count.queries + count.scans
}

/// Tells other threads to end, also by a panic: their scope waits for them.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
