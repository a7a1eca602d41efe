//! Listings of directories.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::*;
use betrfs::{Error, InodeId, Objects, OpKind, RenameFlags, Volume};

/// Takes up to `most` entries behind a cookie; returns the last cookie and the names.
fn page(volume: &Volume, dir: InodeId, cookie: u64, most: usize) -> (u64, Vec<String>) {
    let (mut last, mut names) = (cookie, Vec::new());
    volume
        .readdir(dir, cookie, Objects::None, &mut |entry| {
            if names.len() == most {
                return false;
            }
            last = entry.cookie;
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        })
        .unwrap();
    (last, names)
}

#[test]
fn two_readers_see_every_name_once_while_others_are_deleted() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    for i in 0..3000 {
        let file = mkfile(&volume, dir, &format!("f{i:05}"));
        volume.forget(file.node, 1);
    }
    volume.close().unwrap();
    let volume = disk.open();
    let dir = volume.resolve(b"/d").unwrap().node;
    let (mut one, mut other) = ((0, Vec::new()), (0, Vec::new()));
    let mut deleted = 0;
    loop {
        for (reader, most) in [(&mut one, 70), (&mut other, 31)] {
            let (cookie, names) = page(&volume, dir, reader.0, most);
            reader.0 = cookie;
            reader.1.extend(names);
        }
        if deleted < 1000 {
            // One that both readers have seen, and one that neither has.
            let name = format!("f{deleted:05}");
            deleted += 1;
            if one.1.contains(&name) && other.1.contains(&name) {
                volume.unlink(dir, name.as_bytes()).unwrap();
            }
        }
        if page(&volume, dir, other.0, 1).1.is_empty() {
            break;
        }
    }
    for reader in [one, other] {
        let seen = reader.1;
        assert!(seen.is_sorted(), "the order is that of the keys");
        assert_eq!(seen.len(), 3000, "none is missing and none comes twice");
        assert!(seen.windows(2).all(|two| two[0] != two[1]));
    }
    assert_sound(&volume);
}

#[test]
fn names_stay_during_a_listing_and_are_not_lost_by_eviction() {
    let mut disk = Disk::new();
    (disk.options.names_max, disk.options.inodes_max) = (10, 10);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    for i in 0..100 {
        let file = mkfile(&volume, dir, &format!("f{i:02}"));
        volume.forget(file.node, 1);
    }
    // Each operation evicts names over the budget, but not during a listing.
    let (cookie, first) = page(&volume, dir, 0, 50);
    assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
    let (end, rest) = page(&volume, dir, cookie, 1000);
    assert_eq!((first.len(), rest.len()), (50, 50), "cookies lead on exactly");
    // Another listing has ended; the one still under way keeps the names.
    let (cookie, _) = page(&volume, dir, 0, 50);
    assert_eq!(page(&volume, dir, end, 1000), (end, Vec::new()));
    assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
    assert_eq!(page(&volume, dir, cookie, 1000).1.len(), 50);
    // After the last listing they are evicted. An old cookie leads to all of them again.
    assert_eq!(page(&volume, dir, end, 1000), (end, Vec::new()));
    assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
    assert_eq!(page(&volume, dir, cookie, 1000).1.len(), 100);
    // A creation finds an evicted name.
    assert_eq!(volume.create(dir, b"f07", &new_file()), Err(Error::Exists));
    assert_sound(&volume);
}

/// A listing that pauses for long counts as given up, and does not keep names. One that has left memory
/// meanwhile and has come back is in the rest.
#[test]
fn a_name_that_was_dropped_in_a_long_pause_is_listed_behind_it() {
    let platform = TestPlatform::new();
    let mut disk = Disk::new();
    disk.options.platform = platform.clone();
    (disk.options.names_max, disk.options.inodes_max) = (2, 1);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    // It is held, and keeps its name.
    mkfile(&volume, dir, "a");
    volume.forget(mkfile(&volume, dir, "b").node, 1);
    let (cookie, first) = page(&volume, dir, 0, 1);
    assert_eq!(first, ["a"]);
    platform.pass(Duration::from_secs(700));
    drop_idle(&volume, ROOT, "other");
    volume.forget(volume.lookup(dir, b"b").unwrap().node, 1);
    assert_eq!(page(&volume, dir, cookie, 10).1, ["b"]);
}

#[test]
fn an_entry_that_a_listing_does_not_take_is_not_held() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f");
    volume.forget(file.node, 1);
    let mut seen = None;
    volume
        .readdir(ROOT, 0, Objects::All, &mut |entry| {
            seen = entry.entry;
            false
        })
        .unwrap();
    assert_eq!(seen.unwrap().node, file.node);
    volume.unlink(ROOT, b"f").unwrap();
    assert_eq!(volume.getattr(file.node), Err(Error::Stale), "nobody held it");
}

#[test]
fn renaming_each_listed_entry_comes_to_an_end() {
    let (_disk, volume) = volume();
    for i in 0..10 {
        mkfile(&volume, ROOT, &format!("f{i}"));
    }
    let (mut cookie, mut renamed) = (0, 0);
    loop {
        let (next, names) = page(&volume, ROOT, cookie, 1);
        let [name] = names.as_slice() else { break };
        let new = format!("{name}.bak");
        volume.rename(ROOT, name.as_bytes(), ROOT, new.as_bytes(), RenameFlags::default()).unwrap();
        cookie = next;
        renamed += 1;
        assert!(renamed <= 10, "{name}");
    }
    assert_eq!(page(&volume, ROOT, 0, 100).1.len(), 10);
}

/// Makes and releases so many files that idle inodes are evicted.
fn drop_idle(volume: &Volume, dir: InodeId, prefix: &str) {
    for i in 0..20 {
        let file = mkfile(volume, dir, &format!("{prefix}{i}"));
        volume.forget(file.node, 1);
    }
}

/// A listing reads many records at once. If an inode is changed and evicted before the listing reaches it,
/// its record is read again.
#[test]
fn a_listing_never_loads_a_stale_record() {
    let mut disk = Disk::new();
    disk.options.inodes_max = 4;
    let volume = disk.open();
    let [dir, other] = ["d", "o"].map(|name| mkdir(&volume, ROOT, name).node);
    for name in ["a", "x"] {
        let file = mkfile(&volume, dir, name);
        volume.write(file.node, 0, &[1; 10]).unwrap();
        volume.forget(file.node, 1);
    }
    let inner = mkdir(&volume, dir, "y").node;
    volume.forget(inner, 1);
    drop_idle(&volume, other, "before");
    let [file, inner] = ["x", "y"].map(|name| volume.lookup(dir, name.as_bytes()).unwrap().node);

    let ((at_first, is_at_first), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    let seen = thread::scope(|scope| {
        let volume = &volume;
        // Dropped where this fails, so that the listing does not wait for it.
        let go_on = go_on;
        let listing = scope.spawn(move || {
            let mut seen = Vec::new();
            let each = &mut |entry: &betrfs::DirEntry<'_>| {
                seen.push(entry.entry.unwrap());
                if entry.name == b"a" {
                    at_first.send(()).unwrap();
                    may_go_on.recv().unwrap();
                }
                true
            };
            volume.readdir(dir, 0, Objects::All, each).unwrap();
            seen
        });
        is_at_first.recv().unwrap();
        volume.write(file, 10, &[2; 5000]).unwrap();
        volume.forget(file, 1);
        let new = mkfile(volume, inner, "new").node;
        volume.forget(new, 1);
        volume.forget(inner, 1);
        drop_idle(volume, other, "after");
        for node in [file, new, inner] {
            assert_eq!(volume.getattr(node), Err(Error::Stale), "it was dropped");
        }
        go_on.send(()).unwrap();
        listing.join().unwrap()
    });
    let [_, file, inner] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(file.attr.size, 5010);
    volume.write(file.node, 0, b"z").unwrap();
    let expected = [&b"z"[..], &[1; 9], &[2; 5000]].concat();
    assert!(contents(&volume, "/d/x") == expected);
    volume.lookup(inner.node, b"new").unwrap();
    assert_eq!(volume.rmdir(dir, b"y"), Err(Error::NotEmpty));
    assert_sound(&volume);
}

#[test]
fn a_listing_under_way_finds_a_name_taken_by_another_file() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    (0..6).for_each(|i| _ = mkfile(&volume, dir, &format!("f{i}")));
    mkfile(&volume, ROOT, "new");
    let (cookie, first) = page(&volume, dir, 0, 2);
    assert_eq!(first, ["f0", "f1"]);
    let (plain, exchange) =
        (RenameFlags::default(), RenameFlags { exchange: true, ..RenameFlags::default() });
    let whiteout = RenameFlags { whiteout: true, ..plain };
    volume.rename(ROOT, b"new", dir, b"f4", plain).unwrap();
    volume.rename(dir, b"f0", dir, b"f3", exchange).unwrap();
    volume.rename(dir, b"f1", dir, b"f2", plain).unwrap();
    volume.rename(dir, b"f5", ROOT, b"moved", whiteout).unwrap();
    assert_eq!(page(&volume, dir, cookie, 100).1, ["f2", "f3", "f4", "f5"]);
    assert_eq!(page(&volume, dir, 0, 100).1, ["f0", "f2", "f3", "f4", "f5"]);
    assert_sound(&volume);
}

#[test]
fn names_kept_for_a_listing_are_evicted_when_it_is_given_up() {
    let platform = TestPlatform::new();
    let mut disk = Disk::new();
    disk.options.platform = platform.clone();
    (disk.options.names_max, disk.options.inodes_max) = (10, 10);
    let volume = disk.open();
    let [dir, other] = ["d", "o"].map(|name| mkdir(&volume, ROOT, name).node);
    for i in 0..100 {
        let file = mkfile(&volume, dir, &format!("f{i:02}"));
        volume.forget(file.node, 1);
    }
    // While all names are known, a lookup of an absent one takes no query.
    let cost_of_miss = || {
        let before = queries(&volume, OpKind::Lookup);
        assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
        queries(&volume, OpKind::Lookup) - before
    };
    let (cookie, names) = page(&volume, dir, 0, 50);
    assert_eq!(names.len(), 50);
    platform.pass(Duration::from_secs(5 * 60));
    drop_idle(&volume, other, "one");
    assert_eq!(cost_of_miss(), 0);
    platform.pass(Duration::from_secs(6 * 60));
    drop_idle(&volume, other, "two");
    assert_eq!(cost_of_miss(), 1);
    // A caller that still continues the listing misses no name.
    let mut names = page(&volume, dir, cookie, 1000).1;
    names.sort();
    assert_eq!((names.len(), names[50].as_str()), (100, "f50"));
    assert_sound(&volume);
}
