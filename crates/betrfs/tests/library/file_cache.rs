//! Contents of small files in memory: they are in use, and every change of a file is seen.

use crate::support::*;
use betrfs::{
    Access, FallocateMode, InodeId, OpKind, RenameFlags, SetAttr, SnapshotsBelow, Volume, XattrMode,
};

const BYTES: usize = 1000;

/// Makes a file of one byte and reads it, so that its content is in memory.
fn kept(volume: &Volume, name: &str, byte: u8) -> InodeId {
    let node = mkfile(volume, ROOT, name).node;
    volume.write(node, 0, &[byte; BYTES]).unwrap();
    assert_eq!(read_all(volume, node), [byte; BYTES]);
    assert_eq!(read_queries(volume, node), 0, "it is not kept");
    node
}

/// Number of queries for a read of a file.
fn read_queries(volume: &Volume, node: InodeId) -> u64 {
    let before = queries(volume, OpKind::Read);
    read_all(volume, node);
    queries(volume, OpKind::Read) - before
}

fn truncate(volume: &Volume, node: InodeId, size: u64) {
    volume.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

#[test]
fn a_small_file_is_read_from_the_tree_once() {
    let (disk, volume) = volume();
    for (name, size, reads) in [("one", 1, [1, 0, 0]), ("block", 4096, [1, 0, 0]), ("more", 4097, [1, 1, 1])]
    {
        let node = mkfile(&volume, ROOT, name).node;
        volume.write(node, 0, &vec![7; size]).unwrap();
        assert_eq!([(); 3].map(|()| read_queries(&volume, node)), reads, "{name}");
    }
    volume.close().unwrap();
    let volume = disk.open();
    let node = volume.resolve(b"/block").unwrap().node;
    let mut out = [0; 100];
    assert_eq!(volume.read_into(node, 4090, &mut out, Access::Counts).unwrap(), 6);
    assert_eq!(volume.read_into(node, 1000, &mut out, Access::Counts).unwrap(), 100);
    assert_eq!(out, [7; 100]);
    assert_eq!(volume.read_into(node, 4096, &mut out, Access::Counts).unwrap(), 0);
    assert_eq!(volume.read_into(node, u64::MAX, &mut out, Access::Counts).unwrap(), 0);
    assert_eq!(queries(&volume, OpKind::Read), 1);
}

#[test]
fn every_change_of_a_file_is_seen_in_its_cached_content() {
    type Change = fn(&Volume, InodeId);
    let changes: [(&str, Change); 16] = [
        ("write", |volume, node| volume.write(node, 10, b"new").map(drop).unwrap()),
        ("write to the end", |volume, node| volume.write(node, 999, b"new").map(drop).unwrap()),
        ("write behind the end", |volume, node| volume.write(node, 2000, b"new").map(drop).unwrap()),
        ("write all", |volume, node| volume.write(node, 0, &[9; BYTES]).map(drop).unwrap()),
        ("write far behind", |volume, node| volume.write(node, 9000, b"new").map(drop).unwrap()),
        ("truncate", |volume, node| truncate(volume, node, 500)),
        ("truncate and extend", |volume, node| {
            truncate(volume, node, 500);
            assert_eq!(read_all(volume, node).len(), 500);
            truncate(volume, node, 1000);
        }),
        ("extend", |volume, node| truncate(volume, node, 1500)),
        ("punch", |volume, node| volume.fallocate(node, FallocateMode::PunchHole, 5, 500).unwrap()),
        ("punch all", |volume, node| volume.fallocate(node, FallocateMode::PunchHole, 0, 1000).unwrap()),
        ("zero", |volume, node| {
            volume.fallocate(node, FallocateMode::Zero { keep_size: false }, 900, 500).unwrap();
        }),
        ("allocate", |volume, node| {
            volume.fallocate(node, FallocateMode::Allocate { keep_size: false }, 900, 500).unwrap();
        }),
        ("copy", |volume, node| {
            let other = kept(volume, "other", 8);
            assert_eq!(volume.copy_range(other, 0, node, 100, 500).unwrap(), 500);
        }),
        ("share", |volume, node| {
            let other = mkfile(volume, ROOT, "other").node;
            volume.write(other, 0, &[8; 2 << 20]).unwrap();
            volume.copy_range(other, 0, node, 0, 2 << 20).unwrap();
        }),
        ("become a copy", |volume, node| {
            truncate(volume, node, 0);
            let other = kept(volume, "other", 8);
            volume.clone_onto(other, node).unwrap();
        }),
        ("have two names and be written", |volume, node| {
            volume.link(node, ROOT, b"other").unwrap();
            assert_eq!(read_all(volume, node), [7; BYTES]);
            let other = volume.lookup(ROOT, b"other").unwrap().node;
            volume.write(other, 5, b"new").unwrap();
        }),
    ];
    for (name, change) in changes {
        let (disk, volume) = volume();
        let node = kept(&volume, "file", 7);
        change(&volume, node);
        let size = volume.getattr(node).unwrap().size;
        let seen = [(); 2].map(|()| read_all(&volume, node));
        assert_eq!(seen[0].len() as u64, size, "{name}");
        assert_ne!(seen[0], [7; BYTES], "{name}: it changed nothing");
        assert_sound(&volume);
        volume.close().unwrap();
        let stored = contents(&disk.open(), "/file");
        assert!(seen.iter().all(|seen| *seen == stored), "{name}");
    }
}

#[test]
fn moving_a_file_keeps_its_cached_content() {
    type Move = fn(&Volume, InodeId);
    let moves: [(&str, Move); 8] = [
        ("rename", |volume, _| volume.rename(ROOT, b"file", ROOT, b"moved", RenameFlags::default()).unwrap()),
        ("rename onto another", |volume, _| {
            kept(volume, "moved", 8);
            volume.rename(ROOT, b"file", ROOT, b"moved", RenameFlags::default()).unwrap();
        }),
        ("exchange", |volume, _| {
            kept(volume, "moved", 8);
            let flags = RenameFlags { exchange: true, ..RenameFlags::default() };
            volume.rename(ROOT, b"file", ROOT, b"moved", flags).unwrap();
            assert_eq!(contents(volume, "/file"), [8; BYTES]);
        }),
        ("link and unlink", |volume, node| {
            volume.link(node, ROOT, b"moved").unwrap();
            volume.unlink(ROOT, b"file").unwrap();
        }),
        ("unlink", |volume, _| volume.unlink(ROOT, b"file").unwrap()),
        ("unlink and make anew", |volume, _| {
            volume.unlink(ROOT, b"file").unwrap();
            kept(volume, "file", 8);
            assert_eq!(contents(volume, "/file"), [8; BYTES]);
        }),
        ("change attributes", |volume, node| {
            volume.setattr(node, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
            volume.set_xattr(node, b"user.a", &[1; 5000], XattrMode::Any).unwrap();
        }),
        ("remove all", |volume, node| {
            let dir = mkdir(volume, ROOT, "dir").node;
            volume.rename(ROOT, b"file", dir, b"file", RenameFlags::default()).unwrap();
            assert_eq!(read_all(volume, node), [7; BYTES]);
            volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
        }),
    ];
    for (name, change) in moves {
        let (_disk, volume) = volume();
        let node = kept(&volume, "file", 7);
        volume.open_inode(node).unwrap();
        change(&volume, node);
        assert_eq!(read_all(&volume, node), [7; BYTES], "{name}");
        volume.write(node, 1, b"new").unwrap();
        assert_eq!(&read_all(&volume, node)[..5], b"\x07new\x07", "{name}");
        volume.release_node(node);
        volume.forget(node, 1);
        assert_sound(&volume);
    }
}

#[test]
fn cached_contents_stay_within_their_budget() {
    const FILES: usize = 50;
    let mut disk = Disk::new();
    disk.options.contents_bytes_max = 10 * 1100;
    let volume = disk.open();
    let nodes: Vec<InodeId> = (0..FILES).map(|i| kept(&volume, &format!("f{i}"), 1 + i as u8)).collect();
    let reads = |from: usize| nodes[from..].iter().map(|node| read_queries(&volume, *node)).sum::<u64>();
    assert_eq!(reads(FILES - 10), 0, "the last ten fit");
    assert_eq!(reads(0), FILES as u64, "those that were kept first are given up first");
    let too_large = mkfile(&volume, ROOT, "large").node;
    volume.write(too_large, 0, &[1; 4096]).unwrap();
    disk.options.contents_bytes_max = 4096;
    volume.close().unwrap();
    let volume = disk.open();
    let node = volume.resolve(b"/large").unwrap().node;
    assert_eq!(
        [(); 2].map(|()| read_queries(&volume, node)),
        [1, 1],
        "nothing is kept that is over the budget"
    );
}
