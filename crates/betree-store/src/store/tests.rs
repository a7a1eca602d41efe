//! A disk that is full, fails or loses its power under a store.

mod crashes;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU64};

use betree_platform::DeviceOp;

use super::*;
use crate::Dict;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// A file whose writes from an offset on fail with an error number, unless that is 0.
struct Failing {
    file: Arc<FileDevice>,
    errno: AtomicI32,
    from: AtomicU64,
}

impl Device for Failing {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::result::Result<(), DeviceError> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> std::result::Result<(), DeviceError> {
        match self.errno.load(Relaxed) {
            errno if errno == 0 || offset < self.from.load(Relaxed) => self.file.write_at(offset, buf),
            errno => Err(DeviceError { op: DeviceOp::Write, offset, len: buf.len() as u64, errno }),
        }
    }

    fn sync(&self) -> std::result::Result<(), DeviceError> {
        self.file.sync()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn is_open_ended(&self) -> bool {
        self.file.is_open_ended()
    }

    fn contents_len(&self) -> u64 {
        self.file.contents_len()
    }

    fn open_end(&self, len: u64) {
        self.file.open_end(len);
    }

    fn seeks(&self) -> bool {
        self.file.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> std::result::Result<(), DeviceError> {
        self.file.discard(offset, len)
    }
}

/// Where the log begins: behind the slots of superblocks.
const LOG_OFFSET_BYTES: u64 = 4 * 4096;

fn options() -> StoreOptions {
    Store::options().cache_bytes(1 << 20).durability(Durability::Manual)
}

/// A store in a file, made before, whose writes can be made to fail.
fn failing(path: &Path) -> (Arc<Failing>, Store) {
    options().open(path).unwrap().close().unwrap();
    let file = Arc::new(FileDevice::open(path).unwrap());
    let device = Arc::new(Failing { file: file.clone(), errno: AtomicI32::new(0), from: AtomicU64::new(0) });
    let merges = Arc::new(options().registered().unwrap());
    let store = Store::open_over(path, &options(), &merges, file, device.clone()).unwrap();
    (device, store)
}

#[test]
fn a_full_disk_is_told_and_the_store_goes_on_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (device, store) = failing(&path);
    let dict = store.dict("d").unwrap();
    dict.put("before", "v").unwrap();
    store.sync().unwrap();
    device.errno.store(ENOSPC, Relaxed);
    dict.put("while full", "v").unwrap();
    for refused in [store.sync(), store.close()] {
        assert!(matches!(&refused, Err(Error::NoSpace { path: told, .. }) if *told == path), "{refused:?}");
    }
    assert!(dict.contains("while full").unwrap(), "it is kept");
    device.errno.store(0, Relaxed);
    store.close().unwrap();
    let dict = options().open(&path).unwrap().open_dict("d").unwrap();
    assert!(dict.contains("before").unwrap() && dict.contains("while full").unwrap());
}

/// Puts values of numbered keys, from `first` on, until none is taken any more; returns the first key that is
/// refused. A flush under way may still give room to one after another was refused.
fn fill(dict: &Dict, first: u32) -> u32 {
    let (mut key, mut refused) = (first, 0);
    while refused < 100 {
        match dict.put(key.to_be_bytes(), [7; 5000]) {
            Ok(()) => (key, refused) = (key + 1, 0),
            Err(Error::NoSpace { .. }) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    key
}

#[test]
fn puts_to_a_full_disk_end_with_an_error_and_go_on_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (device, store) = failing(&folder.path().join("store"));
    let dict = store.dict("d").unwrap();
    device.errno.store(ENOSPC, Relaxed);
    let taken = fill(&dict, 0);
    assert_eq!(dict.iter().count() as u32, taken, "what was accepted is there");
    device.errno.store(0, Relaxed);
    store.sync().unwrap();
    dict.put(taken.to_be_bytes(), [7; 5000]).unwrap();
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(dict.iter().count() as u32, taken + 1);
}

/// Also where the memory for changes is used up, so that others wait for a disk that takes nothing.
#[test]
fn deletes_on_a_full_disk_are_kept_as_far_as_memory_allows() {
    let folder = tempfile::tempdir().unwrap();
    let (device, store) = failing(&folder.path().join("store"));
    let dict = store.dict("d").unwrap();
    device.errno.store(ENOSPC, Relaxed);
    let taken = fill(&dict, 0);
    (1..taken).for_each(|key| dict.delete(key.to_be_bytes()).unwrap());
    assert_eq!(dict.iter().count(), 1);
    let more = fill(&dict, taken) - taken;
    (0..2000_u32).for_each(|key| dict.delete([&[b'k'; 3000][..], &key.to_be_bytes()].concat()).unwrap());
    device.errno.store(0, Relaxed);
    store.sync().unwrap();
    dict.put("later", [7; 5000]).unwrap();
    assert_eq!(dict.iter().count() as u32, 2 + more);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn after_a_failed_write_the_store_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let (device, store) = failing(&folder.path().join("store"));
    let dict = store.dict("d").unwrap();
    dict.put("k", "v").unwrap();
    device.errno.store(EIO, Relaxed);
    assert!(store.sync().is_err());
    device.errno.store(0, Relaxed);
    let refused = dict.put("l", "v");
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    assert!(dict.contains("k").unwrap());
}

/// The handles of the store are still there: a program that reports the failure often has them.
#[test]
fn a_close_that_fails_releases_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (device, store) = failing(&path);
    let dict = store.dict("d").unwrap();
    dict.put("k", "v").unwrap();
    store.sync().unwrap();
    dict.put("lost", "v").unwrap();
    device.errno.store(EIO, Relaxed);
    let refused = store.close();
    assert!(matches!(refused, Err(Error::Engine { .. })), "{refused:?}");
    assert!(store.is_closed());
    assert!(matches!(dict.get("k"), Err(Error::Closed { .. })));
    store.close().unwrap();
    let again = options().open(&path).unwrap();
    assert_eq!(again.open_dict("d").unwrap().iter().map(Result::unwrap).count(), 1);
    // Those that are left write nothing to the file, which is another's now.
    device.errno.store(0, Relaxed);
    drop((store, dict));
    assert_eq!(again.check().unwrap(), []);
}

/// A disk that has room for the log, and not for a checkpoint, does not keep a store from closing.
#[test]
fn what_the_log_has_room_for_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (device, store) = failing(&path);
    store.dict("d").unwrap().put("k", "v").unwrap();
    // The superblocks and the log.
    device.from.store(store.shared.env.geometry().log_bytes + LOG_OFFSET_BYTES, Relaxed);
    device.errno.store(ENOSPC, Relaxed);
    assert!(matches!(store.shared.env.checkpoint(), Err(betree::Error::DeviceFull(_))));
    store.close().unwrap();
    assert!(options().open(&path).unwrap().open_dict("d").unwrap().contains("k").unwrap());
}

/// A program that gives up a store on a full disk can open it again.
#[test]
fn a_store_on_a_full_disk_can_be_abandoned_after_its_close_failed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (device, store) = failing(&path);
    store.dict("d").unwrap().put("k", "v").unwrap();
    device.errno.store(ENOSPC, Relaxed);
    assert!(matches!(store.close(), Err(Error::NoSpace { .. })));
    assert!(!store.is_closed());
    assert!(matches!(options().open(&path), Err(Error::InUse { .. })));
    store.abandon();
    assert!(options().open(&path).unwrap().dicts().len() <= 1);
}

#[test]
fn a_disk_that_is_full_at_opening_leaves_the_store_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (_, store) = failing(&path);
    store.dict("d").unwrap().put("k", "v").unwrap();
    store.sync().unwrap();
    store.abandon();
    let file = Arc::new(FileDevice::open(&path).unwrap());
    let device =
        Arc::new(Failing { file: file.clone(), errno: AtomicI32::new(ENOSPC), from: AtomicU64::new(0) });
    let merges = Arc::new(options().registered().unwrap());
    let opened = Store::open_over(&path, &options(), &merges, file.clone(), device);
    assert!(matches!(opened, Err(Error::NoSpace { .. })), "{opened:?}");
    file.release();
    assert!(options().open(&path).unwrap().open_dict("d").unwrap().contains("k").unwrap());
}
