//! Listings of directories.

use crate::support::*;
use betrfs::{Error, NodeId, Objects, RenameFlags, Volume};

/// Takes up to `most` entries behind a cookie; gives the last cookie and the names.
fn page(volume: &Volume, dir: NodeId, cookie: u64, most: usize) -> (u64, Vec<String>) {
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
            // One that both have seen, and one that neither has.
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
        let mut seen = reader.1;
        assert!(seen.is_sorted(), "the order is that of the keys");
        seen.dedup();
        assert_eq!(seen.len(), 3000);
    }
    assert_sound(&volume);
}

#[test]
fn names_stay_while_they_are_listed_and_are_not_lost_when_they_are_given_up() {
    let mut disk = Disk::new();
    (disk.options.names_max, disk.options.inodes_max) = (10, 10);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    for i in 0..100 {
        let file = mkfile(&volume, dir, &format!("f{i:02}"));
        volume.forget(file.node, 1);
    }
    // Each operation gives up names where they are too many; but not while somebody lists them.
    let (cookie, first) = page(&volume, dir, 0, 50);
    assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
    let (end, rest) = page(&volume, dir, cookie, 1000);
    assert_eq!((first.len(), rest.len()), (50, 50), "cookies lead on exactly");
    // Another has come to the end: he who is not there yet keeps the names.
    let (cookie, _) = page(&volume, dir, 0, 50);
    assert_eq!(page(&volume, dir, end, 1000), (end, Vec::new()));
    assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
    assert_eq!(page(&volume, dir, cookie, 1000).1.len(), 50);
    // Once nobody lists them they go. An old cookie leads to all of them again.
    assert_eq!(page(&volume, dir, end, 1000), (end, Vec::new()));
    assert_eq!(volume.lookup(dir, b"none"), Err(Error::NotFound));
    assert_eq!(page(&volume, dir, cookie, 1000).1.len(), 100);
    // A name that was given up still exists for a creation.
    assert_eq!(volume.create(dir, b"f07", &new_file()), Err(Error::Exists));
    assert_sound(&volume);
}

#[test]
fn an_entry_that_is_not_taken_is_not_held() {
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
fn renaming_each_entry_that_is_read_comes_to_an_end() {
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
