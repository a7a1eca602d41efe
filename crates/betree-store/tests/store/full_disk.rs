//! A store on a real disk that fills up: a tmpfs, which takes the right to mount.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree::{Batch, DictId, Env, Geometry, Options, Replace};
use betree_std::FileDevice;
use betree_store::{Dict, Error, Store};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::options;

const VALUE_BYTES: usize = 20_000;

/// A tmpfs, unmounted when it is dropped.
struct Disk(PathBuf);

impl Disk {
    fn of_size(dir: &Path, size: &str) -> Disk {
        std::fs::create_dir(dir).unwrap();
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        rustix::mount::mount("tmpfs", dir, c"tmpfs", MountFlags::empty(), Some(data.as_c_str()))
            .unwrap_or_else(|error| panic!("a mount, which takes root: {error}"));
        Disk(dir.to_owned())
    }

    fn grow_to(&self, size: &str) {
        rustix::mount::mount_remount(&self.0, MountFlags::empty(), format!("size={size}")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn value(round: u64, key: u32) -> Vec<u8> {
    seeded::bytes(round << 32 | u64::from(key), 0, VALUE_BYTES)
}

fn put(dict: &Dict, round: u64, key: u32) -> betree_store::Result<()> {
    dict.put(key.to_be_bytes(), value(round, key))
}

fn assert_holds(dict: &Dict, round: u64, keys: u32) {
    let mut pairs = dict.iter().map(Result::unwrap);
    for key in 0..keys {
        let (found, held) = pairs.next().unwrap();
        assert!(found == key.to_be_bytes() && held == value(round, key), "{key}");
    }
    assert!(pairs.next().is_none());
}

#[test]
fn a_full_disk_refuses_puts_loses_nothing_and_takes_them_once_it_has_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::of_size(&folder.path().join("disk"), "32M");
    let path = disk.0.join("store");
    let store = options().open(&path).unwrap();
    let dict = store.dict("d").unwrap();
    let (taken, error) = (0..10_000).find_map(|key| Some((key, put(&dict, 1, key).err()?))).unwrap();
    assert!(matches!(&error, Error::NoSpace { path: told, .. } if *told == path), "{error}");
    assert!(taken > 500, "{taken} pairs fit");
    assert_holds(&dict, 1, taken);
    // Another store finds no room either, and leaves nothing.
    let other = options().open(disk.0.join("other")).and_then(|store| store.close());
    assert!(matches!(other, Err(Error::NoSpace { .. })), "{other:?}");
    assert_eq!(std::fs::read_dir(&disk.0).unwrap().count(), 1);

    disk.grow_to("64M");
    (taken..taken + 100).for_each(|key| put(&dict, 1, key).unwrap());
    store.close().unwrap();
    drop((dict, store));
    let store = options().open(&path).unwrap();
    assert_eq!(store.check().unwrap(), []);
    assert_holds(&store.open_dict("d").unwrap(), 1, taken + 100);
    store.close().unwrap();
}

/// A delete is a message too: on a disk without a free block it is kept, and becomes durable once there is
/// room for the log. Then it gives the room of what it removes back.
#[test]
fn a_full_disk_keeps_deletes_which_give_their_room_back_once_they_are_durable() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::of_size(&folder.path().join("disk"), "32M");
    let store = options().open(disk.0.join("store")).unwrap();
    let dict = store.dict("d").unwrap();
    let taken = (0..10_000).find(|key| put(&dict, 1, *key).is_err()).unwrap();
    dict.delete_range::<[u8; 4]>(..).unwrap();
    assert!(dict.is_empty().unwrap(), "it is seen");
    disk.grow_to("48M");
    store.sync().unwrap();
    let again = (0..10_000).find(|key| put(&dict, 2, *key).is_err()).unwrap();
    assert!(again > taken, "{again} pairs fit, {taken} before: more than in the half that was added");
    assert_holds(&dict, 2, again);
    disk.grow_to("96M");
    store.close().unwrap();
}

/// Takes every free byte of a disk.
fn fill(disk: &Disk) {
    use std::io::Write;
    let mut ballast = std::fs::File::create(disk.0.join("ballast")).unwrap();
    let (large, small) = (vec![1; 1 << 20], vec![1; 4096]);
    while ballast.write_all(&large).is_ok() {}
    while ballast.write_all(&small).is_ok() {}
    assert_eq!(free_bytes(disk), 0);
}

fn free_bytes(disk: &Disk) -> u64 {
    let found = rustix::fs::statvfs(&disk.0).unwrap();
    found.f_bavail * found.f_frsize
}

/// What was accepted can be written, and deletes give room back, although nothing else can.
#[test]
fn a_disk_without_a_free_byte_is_left_by_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::of_size(&folder.path().join("disk"), "48M");
    let path = disk.0.join("store");
    let store = options().open(&path).unwrap();
    let dict = store.dict("d").unwrap();
    (0..600).for_each(|key| put(&dict, 1, key).unwrap());
    store.sync().unwrap();
    (600..700).for_each(|key| put(&dict, 1, key).unwrap());
    fill(&disk);
    store.sync().unwrap();
    let taken = (700..10_000).find(|key| put(&dict, 1, *key).is_err()).unwrap();
    dict.delete(0u32.to_be_bytes()).unwrap();
    dict.delete_range(1u32.to_be_bytes()..500u32.to_be_bytes()).unwrap();
    store.sync().unwrap();
    store.close().unwrap();
    drop((dict, store));
    let store = options().open(&path).unwrap();
    let dict = store.open_dict("d").unwrap();
    assert!(
        (500..taken)
            .all(|key| dict.get(key.to_be_bytes()).unwrap().is_some_and(|held| held == value(1, key)))
    );
    assert!(dict.get(100u32.to_be_bytes()).unwrap().is_none());
    assert!(free_bytes(&disk) > 4 << 20, "{} bytes came back", free_bytes(&disk));
    (0..100).for_each(|key| put(&dict, 2, key).unwrap());
    assert_eq!(store.check().unwrap(), []);
    store.close().unwrap();
}

/// Without threads, one of which may carry the deletes out first.
#[test]
fn a_close_on_a_full_disk_gives_the_room_of_deletes_back() {
    const D: DictId = DictId(0);
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::of_size(&folder.path().join("disk"), "48M");
    let device = Arc::new(FileDevice::create(&disk.0.join("volume"), 256 << 20).unwrap());
    let geometry =
        Geometry { node_bytes: 64 << 10, basement_bytes: 4096, fanout_max: 16, log_bytes: 4 << 20, dicts: 1 };
    Env::format(device.clone(), &geometry, [7; 16]).unwrap();
    let mut options = Options::new(1 << 20, Arc::new(Replace));
    options.discard = true;
    let env = Env::open(device, options).unwrap();
    let put = |key: u32| -> betree::Result<()> {
        let mut batch = Batch::new();
        batch.put(D, &key.to_be_bytes(), &value(1, key));
        env.throttle(batch.bytes())?;
        env.commit(&batch)?;
        while env.run_due_work()? {}
        Ok(())
    };
    (0..600).for_each(|key| put(key).unwrap());
    fill(&disk);
    (600..10_000).find(|key| put(*key).is_err()).unwrap();
    let mut batch = Batch::new();
    (0..500u32).for_each(|key| batch.delete(D, &key.to_be_bytes()));
    env.commit(&batch).unwrap();
    env.close().unwrap();
    assert!(free_bytes(&disk) > 4 << 20, "{} bytes came back", free_bytes(&disk));
}

fn read(view: &betree_store::View, round: u64, keys: u32) -> betree_store::Result<()> {
    let dict = view.dict("d")?;
    for key in 0..keys {
        assert!(dict.get(key.to_be_bytes())?.is_some_and(|held| held == value(round, key)), "{key}");
    }
    Ok(())
}

/// Overwriting fits where nobody holds what was there: so it is the view that ends.
#[test]
fn a_view_ends_where_its_store_needs_the_room_and_no_put_is_refused() {
    const KEYS: u32 = 300;
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::of_size(&folder.path().join("disk"), "48M");
    let store: Store = options().open(disk.0.join("store")).unwrap();
    let dict = store.dict("d").unwrap();
    (0..KEYS).for_each(|key| put(&dict, 0, key).unwrap());
    let first = store.view();
    read(&first, 0, KEYS).unwrap();
    let mut views = Vec::new();
    let ended = (1..12).find(|round| {
        (0..KEYS).for_each(|key| put(&dict, *round, key).unwrap_or_else(|e| panic!("{round}, {key}: {e}")));
        views.push((store.view(), *round));
        matches!(read(&first, 0, KEYS), Err(Error::ViewEnded { .. }))
    });
    let ended = ended.unwrap_or_else(|| panic!("the view never ended"));
    assert!(ended > 1, "there was room for one round");
    assert!(matches!(first.dict("d"), Err(Error::ViewEnded { .. })));
    let (last, round) = views.last().unwrap();
    read(last, *round, KEYS).unwrap();
    drop((first, views));
    store.sync().unwrap();
    assert_holds(&dict, ended, KEYS);
    assert_eq!(store.check().unwrap(), []);
    store.close().unwrap();
}
