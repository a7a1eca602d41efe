//! Times of access: which accesses count, and that none takes a commit of its own.

use std::time::Duration;

use betrfs::{Access, AccessTimes, Attr, InodeId, Objects, SeekWhat, Volume};

use crate::support::*;

fn attr(volume: &Volume, path: &str) -> Attr {
    let entry = volume.resolve(path.as_bytes()).unwrap();
    volume.forget(entry.node, 1);
    entry.attr
}

fn node(volume: &Volume, path: &str) -> InodeId {
    volume.resolve(path.as_bytes()).unwrap().node
}

fn read(volume: &Volume, node: InodeId) {
    volume.read(node, 0, 10, &mut Vec::new()).unwrap();
}

fn list(volume: &Volume, dir: InodeId) {
    volume.readdir(dir, 0, Objects::None, &mut |_| true).unwrap();
}

/// `/d` with a small file, a large one, a symbolic link, and a file with two names.
fn make_tree(volume: &Volume) {
    let dir = mkdir(volume, ROOT, "d").node;
    for (name, len) in [("small", 10), ("large", 20_000), ("linked", 10)] {
        let file = mkfile(volume, dir, name).node;
        volume.write(file, 0, &vec![1; len]).unwrap();
    }
    volume.link(node(volume, "/d/linked"), dir, b"linked too").unwrap();
    volume.symlink(dir, b"symlink", b"small", 0, 0).unwrap();
}

const PATHS: [&str; 5] = ["/d", "/d/small", "/d/large", "/d/linked", "/d/symlink"];

/// Accesses every object of `make_tree` below a directory.
fn access_all(volume: &Volume, dir: &str) {
    list(volume, node(volume, dir));
    for name in ["small", "large", "linked"] {
        read(volume, node(volume, &format!("{dir}/{name}")));
    }
    volume.readlink(node(volume, &format!("{dir}/symlink"))).unwrap();
}

#[test]
fn a_close_keeps_times_of_access_and_no_access_commits() {
    let (disk, volume) = volume();
    make_tree(&volume);
    let before = PATHS.map(|path| attr(&volume, path));
    let commits = volume.env().stats().commits;
    access_all(&volume, "/d");
    assert_eq!(volume.env().stats().commits, commits);
    let shown = PATHS.map(|path| attr(&volume, path));
    for (before, shown) in before.iter().zip(&shown) {
        assert!(shown.atime_ns > before.atime_ns.max(shown.ctime_ns), "{before:?} {shown:?}");
        assert_eq!(*shown, Attr { atime_ns: shown.atime_ns, ..*before }, "nothing else moves");
    }
    access_all(&volume, "/d");
    assert_eq!(PATHS.map(|path| attr(&volume, path)), shown, "one after a change is enough");
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(PATHS.map(|path| attr(&volume, path)), shown);
    access_all(&volume, "/d");
    assert_eq!(PATHS.map(|path| attr(&volume, path)), shown);
    assert_sound(&volume);
}

#[test]
fn a_day_later_an_access_counts_although_nothing_changed() {
    let platform = TestPlatform::new();
    let mut disk = Disk::new();
    disk.options.platform = platform.clone();
    let volume = disk.open();
    make_tree(&volume);
    access_all(&volume, "/d");
    let first = PATHS.map(|path| attr(&volume, path).atime_ns);
    platform.pass(Duration::from_secs(24 * 3600));
    access_all(&volume, "/d");
    let second = PATHS.map(|path| attr(&volume, path).atime_ns);
    assert!(first.iter().zip(&second).all(|(first, second)| second - first >= 24 * 3600 * 1_000_000_000));
}

/// The volume after `work` and a crash, opened again: only synced changes are there.
fn crash_after(work: impl FnOnce(&Volume)) -> Volume {
    let (disk, volume) = volume();
    make_tree(&volume);
    work(&volume);
    drop(volume);
    disk.open()
}

#[test]
fn a_sync_keeps_the_times_of_all_and_an_fsync_that_of_its_file() {
    let mut shown = PATHS.map(|_| None);
    let volume = crash_after(|volume| {
        access_all(volume, "/d");
        shown = PATHS.map(|path| Some(attr(volume, path)));
        volume.sync().unwrap();
    });
    assert_eq!(PATHS.map(|path| Some(attr(&volume, path))), shown);

    for path in PATHS {
        let mut shown = None;
        let volume = crash_after(|volume| {
            volume.sync().unwrap();
            access_all(volume, "/d");
            shown = Some(attr(volume, path));
            let commits = volume.env().stats().commits;
            volume.fsync(node(volume, path)).unwrap();
            volume.fsync(node(volume, path)).unwrap();
            assert_eq!(volume.env().stats().commits, commits + 1);
        });
        assert_eq!(Some(attr(&volume, path)), shown);
    }
}

#[test]
fn an_evicted_inode_keeps_its_time_at_the_cost_of_a_commit() {
    const FILES: usize = 200;
    let mut disk = Disk::new();
    disk.options.inodes_max = 20;
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    for i in 0..FILES {
        let file = mkfile(&volume, dir, &format!("{i}")).node;
        volume.write(file, 0, b"x").unwrap();
        volume.forget(file, 1);
    }
    let commits = volume.env().stats().commits;
    let shown: Vec<Attr> = (0..FILES)
        .map(|i| {
            let file = node(&volume, &format!("/d/{i}"));
            read(&volume, file);
            let attr = volume.getattr(file).unwrap();
            volume.forget(file, 1);
            attr
        })
        .collect();
    let put = volume.env().stats().commits - commits;
    assert!((1..=FILES as u64).contains(&put), "{put} commits for {FILES} files");
    let now = |volume: &Volume| (0..FILES).map(|i| attr(volume, &format!("/d/{i}"))).collect::<Vec<_>>();
    assert_eq!(now(&volume), shown);
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(now(&volume), shown);
    let commits = volume.env().stats().commits;
    assert_eq!(now(&volume), shown);
    assert_eq!(volume.env().stats().commits, commits, "what has no new time leaves without a commit");
    assert_sound(&volume);
}

#[test]
fn an_access_changes_nothing_in_a_snapshot() {
    let (disk, volume) = volume();
    make_tree(&volume);
    let large = node(&volume, "/d/large");
    volume.fallocate(large, betrfs::FallocateMode::PunchHole, 0, 4096).unwrap();
    volume.set_xattr(large, b"user.a", b"value", betrfs::XattrMode::Any).unwrap();
    let snapshots = volume.lookup(node(&volume, "/d"), betrfs::SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    let s = format!("/d/{}/s", String::from_utf8_lossy(betrfs::SNAPSHOTS_NAME));
    let paths = PATHS.map(|path| path.replacen("/d", &s, 1));
    let now = |volume: &Volume| paths.clone().map(|path| attr(volume, &path));
    let before = now(&volume);
    let commits = volume.env().stats().commits;
    for _ in 0..2 {
        access_all(&volume, &s);
        for path in &paths {
            let node = node(&volume, path);
            volume.open_inode(node).unwrap();
            assert!(!volume.note_access(node).unwrap());
            volume.getattr(node).unwrap();
            volume.list_xattrs(node).unwrap();
            let _ = volume.get_xattr(node, b"user.a");
            let _ = volume.seek(node, 0, SeekWhat::Data);
            volume.fsync(node).unwrap();
            volume.usage(node).unwrap();
            volume.release_node(node);
        }
        let copied = mkfile(&volume, ROOT, "copy").node;
        volume.copy_range(node(&volume, &paths[2]), 0, copied, 0, 20_000).unwrap();
        volume.unlink(ROOT, b"copy").unwrap();
    }
    assert_eq!(now(&volume), before);
    volume.sync().unwrap();
    // The copies take one creation, one or two writes and one removal each.
    assert!(volume.env().stats().commits - commits <= 10);
    volume.close().unwrap();
    assert_eq!(now(&disk.open()), before);
}

#[test]
fn an_unnoticed_read_leaves_no_trace() {
    let mut disk = Disk::new();
    let all = |disk: &Disk| {
        let volume = disk.open();
        let before = PATHS.map(|path| attr(&volume, path).atime_ns);
        access_all(&volume, "/d");
        let after = PATHS.map(|path| attr(&volume, path).atime_ns);
        volume.close().unwrap();
        let moved = before.iter().zip(&after).map(|(before, after)| before != after);
        moved.collect::<Vec<_>>()
    };
    {
        let volume = disk.open();
        make_tree(&volume);
        let small = node(&volume, "/d/small");
        let before = volume.getattr(small).unwrap();
        volume.read_into(small, 0, &mut [0; 10], Access::Unnoticed).unwrap();
        volume.read_into(small, 0, &mut [0; 10], Access::Unnoticed).unwrap();
        assert_eq!(volume.getattr(small).unwrap(), before);
        volume.close().unwrap();
    }
    disk.options.access_times = AccessTimes::Never;
    assert_eq!(all(&disk), [false; 5]);
    disk.options.access_times = AccessTimes::Relative;
    disk.options.listings_count = false;
    assert_eq!(all(&disk), [false, true, true, true, true]);
    disk.options.access_times = AccessTimes::Always;
    assert_eq!(all(&disk), [false, true, true, true, true]);
    disk.options.listings_count = true;
    assert_eq!(all(&disk), [true; 5]);
    assert_eq!(all(&disk), [true; 5]);
}

/// An access from before does not overwrite a time that was set.
#[test]
fn a_time_that_is_set_after_an_access_stays() {
    let (disk, volume) = volume();
    make_tree(&volume);
    access_all(&volume, "/d");
    for path in PATHS {
        let set = betrfs::SetAttr { atime_ns: Some(betrfs::TimeSet::At(-7)), ..Default::default() };
        volume.setattr(node(&volume, path), &set).unwrap();
    }
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(PATHS.map(|path| attr(&volume, path).atime_ns), [-7; 5]);
}

/// Inodes removed meanwhile block nothing.
#[test]
fn inodes_accessed_and_then_removed_are_skipped() {
    let (disk, volume) = volume();
    make_tree(&volume);
    let dir = mkdir(&volume, ROOT, "other").node;
    let file = mkfile(&volume, dir, "f").node;
    let open = mkfile(&volume, dir, "open").node;
    volume.write(open, 0, b"x").unwrap();
    volume.open_inode(open).unwrap();
    list(&volume, dir);
    read(&volume, file);
    read(&volume, open);
    access_all(&volume, "/d");
    volume.remove_below(dir, betrfs::SnapshotsBelow::Hold).unwrap();
    volume.rmdir(ROOT, b"other").unwrap();
    let shown = PATHS.map(|path| attr(&volume, path));
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(PATHS.map(|path| attr(&volume, path)), shown);
    assert_sound(&volume);
}
