//! No operation keeps others waiting while it waits for the device, nor for more than some names at a time.

use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::support::*;
use betree::Geometry;
use betree_platform::{Device, DeviceError};
use betree_sim::MemDevice;
use betrfs::{
    Acl, AclKind, FormatOptions, InodeId, Objects, OpKind, OpenOptions, RenameFlags, SNAPSHOTS_NAME,
    SeekWhat, SetAttr, SetGroupId, SnapshotsBelow, Volume, XattrMode,
};

/// Time after which something counts as waiting for ever.
const STALL: Duration = Duration::from_secs(20);

pub type Act = Arc<dyn Fn() + Send + Sync>;

/// A disk in memory that does something before each read, while its caller waits.
pub struct OnRead {
    inner: MemDevice,
    act: Mutex<Option<Act>>,
}

impl OnRead {
    pub fn new(inner: MemDevice) -> Arc<OnRead> {
        Arc::new(OnRead { inner, act: Mutex::default() })
    }

    /// From now on it does this before each read.
    pub fn set(&self, act: Option<Act>) {
        *self.lock() = act;
    }

    fn act(&self) {
        // Taken out meanwhile: what it does may read.
        let act = self.lock().take();
        if let Some(act) = act {
            act();
            self.lock().get_or_insert(act);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Act>> {
        self.act.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for OnRead {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.act();
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, buf)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn seeks(&self) -> bool {
        self.inner.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

/// A volume with some directories, of which nothing is in memory when it is opened.
struct Scene {
    device: Arc<OnRead>,
    options: OpenOptions,
}

impl Scene {
    fn new() -> Scene {
        let geometry = Geometry {
            node_bytes: 16 << 10,
            basement_bytes: 4 << 10,
            fanout_max: 4,
            log_bytes: 8 << 20,
            dicts: 4,
        };
        let device = OnRead::new(MemDevice::new(64 << 20));
        let platform = TestPlatform::new();
        let options = FormatOptions { geometry: Some(geometry), ..FormatOptions::default() };
        Volume::format(device.clone(), &options, &*platform).unwrap();
        let options = OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::new(platform) };
        let scene = Scene { device, options };
        let volume = scene.open();
        let mine = mkdir(&volume, ROOT, "mine").node;
        mkdir(&volume, mine, "a");
        for dir in ["names", "other", "copied", "removed"] {
            let dir = mkdir(&volume, ROOT, dir).node;
            for number in 0..500 {
                let file = mkfile(&volume, dir, &format!("f{number}")).node;
                volume.write(file, 0, &[number as u8; 3000]).unwrap();
                volume.set_xattr(file, b"user.large", &[7; 3000], XattrMode::Any).unwrap();
                if number == 301 {
                    let acl = large_acl();
                    volume.set_acl(file, AclKind::Access, &acl, XattrMode::Any, SetGroupId::Kept).unwrap();
                }
            }
            let sparse = mkfile(&volume, dir, "sparse").node;
            volume.write(sparse, 1 << 20, &[9; 4096]).unwrap();
            volume.setattr(sparse, &SetAttr { size: Some(2 << 20), ..SetAttr::default() }).unwrap();
            let large = mkfile(&volume, dir, "large").node;
            volume.write(large, 0, &[5; 200_000]).unwrap();
            volume.link(large, dir, b"linked").unwrap();
        }
        volume.close().unwrap();
        scene
    }

    fn open(&self) -> Volume {
        Volume::open(self.device.clone(), self.options.clone()).unwrap()
    }

    /// Runs an operation on the volume, fresh from the disk. At each of its reads another thread renames a
    /// directory elsewhere, and makes a file and removes it, all in memory: it must not have to wait for the
    /// reader. Returns the number of reads.
    fn run(&self, name: &'static str, op: impl FnOnce(&Volume)) -> usize {
        let volume = Arc::new(self.open());
        let mine = volume.resolve(b"/mine").unwrap().node;
        let change = {
            let volume = volume.clone();
            move || {
                volume.rename(mine, b"a", mine, b"b", RenameFlags::default()).unwrap();
                volume.rename(mine, b"b", mine, b"a", RenameFlags::default()).unwrap();
                let file = mkfile(&volume, mine, "new").node;
                volume.unlink(mine, b"new").unwrap();
                volume.forget(file, 1);
            }
        };
        // What it needs is in memory from now on.
        change();
        let reads = Arc::new(AtomicUsize::new(0));
        let act: Act = {
            let (reads, change) = (reads.clone(), Arc::new(change));
            Arc::new(move || {
                reads.fetch_add(1, SeqCst);
                let (done, is_done) = mpsc::channel();
                let change = change.clone();
                thread::spawn(move || {
                    change();
                    done.send(()).ok();
                });
                if is_done.recv_timeout(STALL) == Err(RecvTimeoutError::Timeout) {
                    // A panic here would not end what waits.
                    let trace = Backtrace::force_capture();
                    eprintln!("{name}: others wait while it reads from the device, here:\n{trace}");
                    std::process::abort();
                }
            })
        };
        self.device.set(Some(act));
        op(&volume);
        self.device.set(None);
        assert_sound(&volume);
        let reads = reads.load(SeqCst);
        volume.env().abandon();
        reads
    }
}

/// An access control list that does not fit into a record.
fn large_acl() -> Acl {
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let mut bytes = Vec::from([2, 0, 0, 0]);
    bytes.extend(entry(1, 7, u32::MAX));
    (1..400).for_each(|user| bytes.extend(entry(2, 5, user)));
    [(4, 0), (0x10, 5), (0x20, 0)].iter().for_each(|(tag, perm)| bytes.extend(entry(*tag, *perm, u32::MAX)));
    Acl::parse(&bytes).unwrap()
}

fn dir(volume: &Volume, name: &str) -> InodeId {
    volume.lookup(ROOT, name.as_bytes()).unwrap().node
}

/// An operation with its name.
type Operation = (&'static str, fn(&Volume));

/// Each operation that may have to read.
fn operations() -> Vec<Operation> {
    vec![
        ("look-up", |volume| {
            let names = dir(volume, "names");
            volume.lookup(names, b"f77").unwrap();
            volume.lookup(names, b"linked").unwrap();
            for absent in [&b"x1"[..], b"x2", b"x3", b"x4"] {
                assert!(volume.lookup(names, absent).is_err());
            }
        }),
        ("path", |volume| {
            volume.resolve(b"/other/f400").unwrap();
        }),
        ("read of a small file", |volume| {
            let file = volume.resolve(b"/names/f9").unwrap().node;
            assert_eq!(read_all(volume, file), [9; 3000]);
        }),
        ("read of a large file", |volume| {
            let file = volume.resolve(b"/names/large").unwrap().node;
            assert_eq!(read_all(volume, file), vec![5; 200_000]);
        }),
        ("listing of names", |volume| assert_eq!(names(volume, dir(volume, "names")).len(), 503)),
        ("listing of objects", |volume| {
            let (names, mut count) = (dir(volume, "names"), 0);
            let mut each = |_: &betrfs::DirEntry<'_>| {
                count += 1;
                true
            };
            volume.readdir(names, 0, Objects::All, &mut each).unwrap();
            assert_eq!(count, 503);
        }),
        ("seek", |volume| {
            let file = volume.resolve(b"/names/sparse").unwrap().node;
            assert_eq!(volume.seek(file, 0, SeekWhat::Data).unwrap(), 1 << 20);
            assert_eq!(volume.seek(file, 1 << 20, SeekWhat::Hole).unwrap(), (1 << 20) + 4096);
        }),
        ("access control list", |volume| {
            let file = volume.resolve(b"/names/f301").unwrap().node;
            assert!(volume.acl(file, AclKind::Access).unwrap().is_some());
        }),
        ("attribute", |volume| {
            let file = volume.resolve(b"/names/f300").unwrap().node;
            assert_eq!(volume.get_xattr(file, b"user.large").unwrap(), [7; 3000]);
        }),
        ("creation", |volume| {
            mkfile(volume, dir(volume, "names"), "new");
            assert!(volume.create(dir(volume, "names"), b"f4", &new_file()).is_err());
        }),
        ("unlink", |volume| {
            let names = dir(volume, "names");
            volume.unlink(names, b"f250").unwrap();
            volume.unlink(names, b"linked").unwrap();
        }),
        ("rename", |volume| {
            let (names, other) = (dir(volume, "names"), dir(volume, "other"));
            volume.rename(names, b"f111", other, b"f222", RenameFlags::default()).unwrap();
            volume.rename(names, b"large", other, b"moved", RenameFlags::default()).unwrap();
        }),
        ("link", |volume| {
            let file = volume.resolve(b"/names/f44").unwrap().node;
            volume.link(file, dir(volume, "other"), b"hard").unwrap();
        }),
        ("clone", |volume| {
            volume.clone_inode(dir(volume, "copied"), ROOT, b"copy").unwrap();
        }),
        ("snapshot", |volume| {
            let copied = dir(volume, "copied");
            let snapshots = volume.lookup(copied, SNAPSHOTS_NAME).unwrap().node;
            volume.create(snapshots, b"monday", &new_dir()).unwrap();
            assert_eq!(volume.snapshots_below(ROOT).unwrap().count, 1);
            volume.rmdir(snapshots, b"monday").unwrap();
        }),
        ("removal of a tree", |volume| {
            volume.remove_below(dir(volume, "removed"), SnapshotsBelow::Hold).unwrap();
        }),
    ]
}

#[test]
fn nobody_waits_for_an_operation_that_waits_for_the_device() {
    let scene = Scene::new();
    let mut idle = Vec::new();
    for (name, op) in operations() {
        if scene.run(name, op) == 0 {
            idle.push(name);
        }
    }
    assert_eq!(idle, Vec::<&str>::new(), "they read nothing, so that nothing was tried");
}

/// A directory of any size keeps others waiting for some names at a time. `names/directory.rs` tests how its
/// names are numbered and leave memory.
#[test]
fn a_large_directory_is_read_and_listed_in_pieces() {
    const NAMES: usize = 20_000;
    let disk = Disk::of_bytes(256 << 20);
    let volume = disk.open();
    let large = mkdir(&volume, ROOT, "large").node;
    for number in 0..NAMES {
        let file = mkfile(&volume, large, &format!("f{number}")).node;
        volume.forget(file, 1);
    }
    volume.close().unwrap();

    let volume = disk.open();
    let large = volume.resolve(b"/large").unwrap().node;
    let mut seen = Vec::new();
    let mut each = |entry: &betrfs::DirEntry<'_>| {
        seen.push(entry.name.to_vec());
        true
    };
    volume.readdir(large, 0, Objects::None, &mut each).unwrap();
    let mut expected: Vec<_> = (0..NAMES).map(|number| format!("f{number}").into_bytes()).collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    // A range query for each piece.
    assert_eq!(volume.counters().of(OpKind::Readdir).scans, NAMES.div_ceil(4096) as u64);
}
