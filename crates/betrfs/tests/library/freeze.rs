//! A volume that stands still for a copy of its device.

use std::sync::Arc;

use betrfs::{AccessTimes, InodeId, Objects, OpenMode, OpenOptions, Volume};

use crate::support::*;

/// Freezes the volume; returns its device as it stands then, and what `while_frozen` returns. Nothing is
/// written meanwhile.
fn frozen<T>(disk: &Disk, volume: &Volume, while_frozen: impl FnOnce() -> T) -> (Disk, T) {
    volume.prepare_freeze().unwrap();
    let done = volume.freeze(|| {
        let before = disk.device.counts();
        let copy = Arc::new(disk.device.copy());
        let done = while_frozen();
        let since = disk.device.counts().since(&before);
        assert_eq!((since.writes, since.discards, since.syncs), (0, 0, 0));
        (Disk::holding(copy, disk.options.clone()), done)
    });
    done.unwrap().unwrap()
}

/// What a copy holds is the volume that was closed: nothing is replayed, and a check finds nothing.
#[track_caller]
fn opened(copy: &Disk) -> Volume {
    let options = OpenOptions { mode: OpenMode::ReadOnly, ..copy.options.clone() };
    let volume = Volume::open(copy.device.clone(), options).unwrap();
    assert_eq!(volume.env().replayed_batches(), 0);
    assert_sound(&volume);
    volume
}

#[test]
fn a_copy_has_all_that_was_done_before_times_of_access_too() {
    let mut disk = Disk::new();
    disk.options.access_times = AccessTimes::Always;
    let volume = disk.open();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, &[7; 100_000]).unwrap();
    read_all(&volume, file);
    let attr = volume.getattr(file).unwrap();
    assert!(attr.atime_ns > attr.mtime_ns);
    let (copy, read) = frozen(&disk, &volume, || {
        assert_eq!(names(&volume, ROOT), ["f"]);
        volume.statfs().unwrap();
        let read = contents(&volume, "/f");
        // The access that was just made stays in memory.
        volume.fsync(file).unwrap();
        volume.sync().unwrap();
        read
    });
    assert_eq!(read, [7; 100_000]);
    let copied = opened(&copy);
    // A read of what was opened for reading moves no time.
    assert_eq!(contents(&copied, "/f"), [7; 100_000]);
    assert_eq!(copied.resolve(b"/f").unwrap().attr, attr);
    // The volume goes on.
    volume.write(file, 0, b"later").unwrap();
    volume.fsync(file).unwrap();
    volume.env().abandon();
    assert_eq!(&contents(&disk.open(), "/f")[..5], b"later");
}

#[test]
fn an_unlinked_file_that_is_let_go_of_meanwhile_is_deleted_afterwards() {
    let (disk, volume) = volume();
    let [closed, held]: [InodeId; 2] = ["closed", "held"].map(|name| {
        let file = mkfile(&volume, ROOT, name).node;
        volume.open_inode(file).unwrap();
        volume.write(file, 0, &[1; 50_000]).unwrap();
        volume.unlink(ROOT, name.as_bytes()).unwrap();
        file
    });
    let (copy, ()) = frozen(&disk, &volume, || {
        volume.release_node(closed);
        volume.forget(closed, 1);
        volume.release_node(held);
    });
    // Both are gone from memory, but for the one that is still looked up.
    assert!(volume.getattr(closed).is_err());
    volume.forget(held, 1);
    assert!(volume.getattr(held).is_err());
    assert_sound(&volume);
    let stored = |volume: &Volume| {
        let mut data = volume.env().cursor(betree::DictId(1), betree::Cut::LOW, betree::Cut::HIGH);
        data.next().unwrap().is_some()
    };
    assert!(!stored(&volume));
    // A copy has them, as a crash leaves them, and its next use deletes them.
    assert!(stored(&opened(&copy)));
    let used = copy.open();
    assert!(!stored(&used));
    assert_sound(&used);
}

/// Their times of access would be put before they leave.
#[test]
fn inodes_that_leave_memory_meanwhile_change_nothing() {
    let mut disk = Disk::new();
    disk.options.inodes_max = 4;
    let volume = disk.open();
    for number in 0..60 {
        let file = mkfile(&volume, ROOT, &format!("f{number}")).node;
        volume.write(file, 0, b"text").unwrap();
        volume.forget(file, 1);
    }
    let read_each = || {
        for number in 0..60 {
            assert_eq!(contents(&volume, &format!("/f{number}")), b"text");
        }
        volume.readdir(ROOT, 0, Objects::None, &mut |_| true).unwrap();
    };
    let changes = volume.env().changes_made_max();
    frozen(&disk, &volume, read_each);
    let put_meanwhile = volume.env().changes_made_max() - changes;
    assert!(put_meanwhile <= 1, "{put_meanwhile}: at most the root's time, before it began");
    read_each();
    assert!(volume.env().changes_made_max() > changes + 30, "later they leave with their times");
    volume.close().unwrap();
}

#[test]
fn a_second_freeze_is_refused_and_changes_nothing_of_the_first() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.open_inode(file).unwrap();
    volume.write(file, 0, b"text").unwrap();
    volume.unlink(ROOT, b"f").unwrap();
    frozen(&disk, &volume, || {
        assert_eq!(volume.freeze(|| ()).unwrap(), None);
        // Still put off.
        volume.release_node(file);
    });
    volume.forget(file, 1);
    assert!(volume.getattr(file).is_err());
    assert_sound(&volume);
}
