//! Costs of operations, as counts: no update queries the tree for an answer that is in memory.

use crate::support::*;
use betrfs::{Error, FileType, InodeId, Objects, OpKind, RenameFlags, SetAttr, Volume, XattrMode};

use crate::dice::Dice;

/// Runs `run`; returns the numbers of queries and of commits by operations of a kind.
fn cost(volume: &Volume, kind: OpKind, run: impl FnOnce()) -> (u64, u64) {
    let before = (queries(volume, kind), volume.counters().of(kind).commits);
    run();
    (queries(volume, kind) - before.0, volume.counters().of(kind).commits - before.1)
}

#[test]
fn operations_in_a_new_directory_take_no_query() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let creates = cost(&volume, OpKind::Create, || {
        for i in 0..500 {
            let file = mkfile(&volume, dir.node, &format!("f{i}"));
            volume.forget(file.node, 1);
        }
    });
    assert_eq!(creates, (0, 500));
    let lookups = cost(&volume, OpKind::Lookup, || {
        for i in 0..500 {
            assert_eq!(volume.lookup(dir.node, format!("g{i}").as_bytes()), Err(Error::NotFound));
        }
    });
    assert_eq!(lookups, (0, 0));
    let file = volume.lookup(dir.node, b"f7").unwrap();
    let writes = cost(&volume, OpKind::Write, || {
        for i in 0..100 {
            volume.write(file.node, i * 1000, &[7; 1000]).unwrap();
        }
        volume.write(file.node, 12_345, b"four").unwrap();
    });
    assert_eq!(writes, (0, 101));
    let sets = cost(&volume, OpKind::SetAttr, || {
        volume.setattr(file.node, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        volume.setattr(file.node, &SetAttr { size: Some(50_001), ..SetAttr::default() }).unwrap();
    });
    assert_eq!(sets, (0, 2));
    let xattrs = cost(&volume, OpKind::Xattr, || {
        volume.set_xattr(file.node, b"user.a", b"small", XattrMode::Create).unwrap();
        volume.set_xattr(file.node, b"user.b", &[1; 5000], XattrMode::Any).unwrap();
        assert_eq!(volume.get_xattr(file.node, b"user.a").unwrap(), b"small");
        assert_eq!(volume.get_xattr(file.node, b"user.c"), Err(Error::NoData));
        volume.remove_xattr(file.node, b"user.b").unwrap();
    });
    assert_eq!(xattrs, (0, 3));
    let unlinks = cost(&volume, OpKind::Unlink, || {
        for i in 0..500 {
            volume.unlink(dir.node, format!("f{i}").as_bytes()).unwrap();
        }
    });
    assert_eq!(unlinks, (0, 500));
    assert_eq!(cost(&volume, OpKind::Rmdir, || _ = volume.rmdir(ROOT, b"d").unwrap()), (0, 1));
    assert_sound(&volume);
}

#[test]
fn a_file_made_with_its_contents_is_one_commit_and_there_after_a_crash() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let contents_of = |i: u8| vec![i; usize::from(i) * 1000];
    let creates = cost(&volume, OpKind::Create, || {
        for i in 0..10 {
            let name = format!("f{i}");
            let file = volume.create_with(dir, name.as_bytes(), &new_file(), &contents_of(i)).unwrap();
            assert_eq!(file.attr.size, u64::from(i) * 1000);
            assert_eq!(read_all(&volume, file.node), contents_of(i));
        }
    });
    assert_eq!(creates, (0, 10));
    assert_eq!(volume.counters().of(OpKind::Write).calls, 0);
    let too_large = vec![1; (1 << 20) + 1];
    let refused = volume.create_with(dir, b"large", &new_file(), &too_large);
    assert_eq!(refused.map(|_| ()), Err(Error::FileTooLarge));
    let refused = volume.create_with(dir, b"dir", &new_dir(), b"contents");
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let refused = volume.create_with(dir, b"f1", &new_file(), b"contents");
    assert_eq!(refused.map(|_| ()), Err(Error::Exists));
    assert_sound(&volume);
    volume.sync().unwrap();
    let volume = disk.open();
    for i in 0..10 {
        assert_eq!(contents(&volume, &format!("/d/f{i}")), contents_of(i));
    }
}

#[test]
fn reads_are_one_query_each_and_put_nothing() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f");
    volume.write(file.node, 0, &[1; 300_000]).unwrap();
    let mut out = Vec::new();
    let reads = cost(&volume, OpKind::Read, || {
        volume.read(file.node, 4096, 4096, &mut out).unwrap();
        volume.read(file.node, 0, 300_000, &mut out).unwrap();
        volume.read(file.node, 300_000, 10, &mut out).unwrap();
    });
    assert_eq!(reads, (2, 0));
}

#[test]
fn after_a_remount_a_few_misses_lead_to_one_scan() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    for i in 0..300 {
        mkfile(&volume, dir.node, &format!("f{i}"));
    }
    volume.close().unwrap();
    let volume = disk.open();
    let dir = volume.resolve(b"/d").unwrap();
    let creates = cost(&volume, OpKind::Create, || {
        for i in 0..300 {
            mkfile(&volume, dir.node, &format!("g{i}"));
        }
    });
    assert_eq!(creates, (3, 301), "two queries and a scan; numbers are reserved once");
    assert_eq!(names(&volume, dir.node).len(), 600);
    assert_eq!(volume.counters().of(OpKind::Readdir).scans, 0, "the directory was known");
}

#[test]
fn a_listing_with_objects_loads_them_in_one_range_query() {
    let (disk, volume) = volume();
    for i in 0..200 {
        mkfile(&volume, ROOT, &format!("f{i}"));
    }
    volume.close().unwrap();
    let volume = disk.open();
    let mut nodes = Vec::new();
    volume
        .readdir(ROOT, 0, Objects::All, &mut |entry| {
            nodes.extend(entry.entry.map(|entry| entry.node));
            true
        })
        .unwrap();
    assert_eq!(nodes.len(), 200);
    assert_eq!(queries(&volume, OpKind::Readdir), 1);
    let unlinks = cost(&volume, OpKind::Unlink, || {
        for i in 0..200 {
            volume.unlink(ROOT, format!("f{i}").as_bytes()).unwrap();
        }
    });
    assert_eq!(unlinks, (0, 200));
}

#[test]
fn renaming_a_small_file_and_linking_again_query_little() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f");
    let empty = cost(&volume, OpKind::Rename, || {
        volume.rename(ROOT, b"f", ROOT, b"g", RenameFlags::default()).unwrap();
    });
    assert_eq!(empty, (0, 1));
    volume.write(file.node, 0, b"bytes").unwrap();
    let small = cost(&volume, OpKind::Rename, || {
        volume.rename(ROOT, b"g", ROOT, b"h", RenameFlags::default()).unwrap();
    });
    assert_eq!(small, (1, 1));
    volume.link(file.node, ROOT, b"one").unwrap();
    let links = cost(&volume, OpKind::Link, || {
        for i in 0..100 {
            volume.link(file.node, ROOT, format!("l{i}").as_bytes()).unwrap();
        }
    });
    assert_eq!(links, (0, 100));
    assert_sound(&volume);
}

/// Removes entries one by one, and each directory when it is empty, as `rm -r` does.
fn remove_one_by_one(volume: &Volume, parent: InodeId, name: &str) {
    let dir = volume.lookup(parent, name.as_bytes()).unwrap();
    if dir.attr.file_type == FileType::Directory {
        names(volume, dir.node).iter().for_each(|name| remove_one_by_one(volume, dir.node, name));
        volume.rmdir(parent, name.as_bytes()).unwrap();
    } else {
        volume.unlink(parent, name.as_bytes()).unwrap();
    }
    volume.forget(dir.node, 1);
}

#[test]
fn removing_a_tree_one_by_one_reads_little_of_it() {
    let disk = Disk::of_tiny_nodes(256 << 20);
    let volume = disk.open();
    let tree = mkdir(&volume, ROOT, "tree").node;
    for i in 0..100 {
        let dir = mkdir(&volume, tree, &format!("d{i}")).node;
        for i in 0..20 {
            let file = mkfile(&volume, dir, &format!("f{i}")).node;
            let mut dice = Dice(i);
            let bytes: Vec<u8> = (0..12_000).map(|_| dice.next() as u8).collect();
            volume.write(file, 0, &bytes).unwrap();
        }
    }
    let file = mkfile(&volume, ROOT, "file").node;
    volume.write(file, 0, b"stays").unwrap();
    volume.close().unwrap();

    let volume = disk.open();
    let before = disk.device.counts();
    remove_one_by_one(&volume, ROOT, "tree");
    volume.close().unwrap();
    let cost = disk.device.counts().since(&before);
    // The names, and one range, which background work may take down before all is removed. Separate deletes
    // of each name and block would take three times as many reads, and 136 writes.
    assert!(cost.reads <= 60 && cost.writes <= 34, "{cost:?}");
    let volume = disk.open();
    assert_eq!(contents(&volume, "/file"), b"stays");
    assert_eq!(names(&volume, ROOT), ["file"]);
    assert_sound(&volume);
}
