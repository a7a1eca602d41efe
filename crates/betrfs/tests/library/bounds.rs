//! Numbers of objects that operations look at while they hold the namespace alone: none of others' objects in
//! memory.

use crate::support::*;
use betrfs::{Error, InodeId, OpKind, RenameFlags, SNAPSHOTS_NAME, SnapshotsBelow, Volume};

const EXCHANGE: RenameFlags = RenameFlags { exchange: true, no_replace: false, whiteout: false };

/// An operation, its kind, and its run in a directory of its own.
type Case = (&'static str, OpKind, fn(&Volume, InodeId));

fn at(volume: &Volume, dir: InodeId, name: &str) -> InodeId {
    let node = volume.lookup(dir, name.as_bytes()).unwrap().node;
    volume.forget(node, 1);
    node
}

fn snapshots(volume: &Volume, dir: InodeId) -> InodeId {
    volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node
}

/// Every operation that holds the namespace alone, in an order in which all succeed.
const CASES: [Case; 12] = [
    ("rename of a file", OpKind::Rename, |volume, dir| {
        volume.rename(dir, b"file", dir, b"renamed", RenameFlags::default()).unwrap();
    }),
    ("rename of a directory", OpKind::Rename, |volume, dir| {
        volume.rename(dir, b"tree", at(volume, dir, "empty"), b"tree", RenameFlags::default()).unwrap();
        volume.rename(at(volume, dir, "empty"), b"tree", dir, b"tree", RenameFlags::default()).unwrap();
    }),
    ("exchange", OpKind::Rename, |volume, dir| {
        volume.rename(dir, b"tree", dir, b"renamed", EXCHANGE).unwrap();
        volume.rename(dir, b"renamed", dir, b"tree", EXCHANGE).unwrap();
    }),
    ("rename below itself", OpKind::Rename, |volume, dir| {
        let tree = at(volume, dir, "tree");
        let refused = volume.rename(dir, b"tree", tree, b"x", RenameFlags::default());
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }),
    ("link", OpKind::Link, |volume, dir| {
        volume.link(at(volume, dir, "renamed"), dir, b"link").unwrap();
        volume.link(at(volume, dir, "renamed"), dir, b"another").unwrap();
    }),
    ("clone", OpKind::Clone, |volume, dir| {
        volume.clone_inode(at(volume, dir, "tree"), dir, b"copy").unwrap();
    }),
    ("clone onto", OpKind::Clone, |volume, dir| {
        volume.clone_onto(at(volume, dir, "tree"), at(volume, dir, "empty")).unwrap();
    }),
    ("shared blocks", OpKind::Clone, |volume, dir| {
        let (from, to) = (at(volume, dir, "large"), at(volume, dir, "renamed"));
        volume.copy_range(from, 0, to, 0, 2 << 20).unwrap();
    }),
    ("making a snapshot", OpKind::Clone, |volume, dir| {
        mkdir(volume, snapshots(volume, at(volume, dir, "tree")), "s");
    }),
    ("removing a snapshot", OpKind::RemoveTree, |volume, dir| {
        volume.rmdir(snapshots(volume, at(volume, dir, "tree")), b"s").unwrap();
    }),
    ("removing a tree", OpKind::RemoveTree, |volume, dir| {
        volume.remove_below(at(volume, dir, "copy"), SnapshotsBelow::Hold).unwrap();
    }),
    ("removing a tree with snapshots", OpKind::RemoveTree, |volume, dir| {
        mkdir(volume, snapshots(volume, at(volume, dir, "tree")), "s");
        volume.remove_below(at(volume, dir, "tree"), SnapshotsBelow::Go).unwrap();
    }),
];

/// Makes the entries that the cases need in a directory.
fn prepare(volume: &Volume, dir: InodeId) {
    let tree = mkdir(volume, dir, "tree").node;
    mkfile(volume, mkdir(volume, tree, "inner").node, "file");
    mkdir(volume, dir, "empty");
    mkfile(volume, dir, "file");
    let large = mkfile(volume, dir, "large").node;
    (0..2).for_each(|i| _ = volume.write(large, i << 20, &[7; 1 << 20]).unwrap());
}

/// The number of objects that each case looks at in a directory.
fn visited(volume: &Volume, dir: InodeId) -> Vec<(&'static str, u64)> {
    prepare(volume, dir);
    let mut all = Vec::new();
    for (name, kind, run) in CASES {
        let before = volume.counters().of(kind).visited;
        run(volume, dir);
        all.push((name, volume.counters().of(kind).visited - before));
    }
    all
}

/// Makes a chain of `depth` directories in memory; returns the last one.
fn deep(volume: &Volume, parent: InodeId, depth: usize) -> InodeId {
    (0..depth).fold(parent, |dir, _| mkdir(volume, dir, "d").node)
}

#[test]
fn exclusive_operations_look_at_no_object_of_others() {
    let (_disk, volume) = volume();
    let alone = visited(&volume, mkdir(&volume, ROOT, "mine").node);
    assert!(alone.iter().all(|(_, count)| *count <= 12), "{alone:?}");

    let (_disk, volume) = crate::support::volume();
    let theirs = mkdir(&volume, ROOT, "theirs").node;
    let end = deep(&volume, theirs, 2000);
    for i in 0..500 {
        let dir = mkdir(&volume, end, &format!("d{i}")).node;
        let file = mkfile(&volume, dir, "f").node;
        volume.write(file, 0, b"bytes").unwrap();
        volume.open_inode(file).unwrap();
        if i % 2 == 0 {
            volume.unlink(dir, b"f").unwrap();
        } else if i % 3 == 0 {
            volume.link(file, dir, b"g").unwrap();
        }
        mkdir(&volume, snapshots(&volume, mkdir(&volume, theirs, &format!("s{i}")).node), "s");
    }
    assert_eq!(visited(&volume, mkdir(&volume, ROOT, "mine").node), alone);
    assert_sound(&volume);
}

#[test]
fn long_paths_are_found_before_others_have_to_wait() {
    let (_disk, volume) = volume();
    let shallow = visited(&volume, mkdir(&volume, ROOT, "mine").node);
    let end = deep(&volume, ROOT, 2000);
    assert_eq!(visited(&volume, end), shallow);
    assert_sound(&volume);
}

#[test]
fn inodes_removed_with_a_tree_are_marked_while_others_go_on() {
    let (_disk, volume) = volume();
    let tree = mkdir(&volume, ROOT, "tree").node;
    let mut nodes = Vec::new();
    for i in 0..40 {
        let dir = mkdir(&volume, tree, &format!("d{i}")).node;
        nodes.push(dir);
        for i in 0..40 {
            let file = mkfile(&volume, dir, &format!("f{i}")).node;
            // The notes of these files lead nowhere.
            volume.open_inode(file).unwrap();
            volume.release_node(file);
            nodes.push(file);
        }
    }
    let open = nodes[100];
    volume.write(open, 0, b"still").unwrap();
    volume.open_inode(open).unwrap();
    let before = volume.counters().of(OpKind::RemoveTree).visited;
    let mut changed = volume.remove_below(tree, SnapshotsBelow::Hold).unwrap().changed;
    let visited = volume.counters().of(OpKind::RemoveTree).visited - before;
    assert!(visited <= 8, "{visited}");
    changed.sort();
    nodes.sort();
    assert_eq!(changed, nodes);
    for node in &nodes {
        assert_eq!(volume.getattr(*node).unwrap().nlink, 0);
        assert_eq!(volume.open_inode(*node).is_ok(), *node == open);
        assert!(volume.lookup(*node, b"f1").is_err());
        assert!(volume.create(*node, b"new", &new_file()).is_err());
    }
    assert_eq!(read_all(&volume, open), b"still");
    assert_eq!(names(&volume, tree), Vec::<String>::new());
    // Objects made there now are new.
    mkfile(&volume, mkdir(&volume, tree, "d1").node, "f1");
    assert_eq!(volume.resolve(b"/tree/d1/f1").unwrap().attr.size, 0);
    nodes.iter().for_each(|node| volume.forget(*node, 1));
    assert_sound(&volume);
}

#[test]
fn open_files_are_found_wherever_they_were_moved() {
    let (_disk, volume) = volume();
    let (one, other) = (mkdir(&volume, ROOT, "one").node, mkdir(&volume, ROOT, "other").node);
    let inner = mkdir(&volume, mkdir(&volume, one, "a").node, "b").node;
    let file = mkfile(&volume, inner, "f").node;
    volume.open_inode(file).unwrap();
    volume.open_inode(file).unwrap();
    let linked = mkfile(&volume, inner, "l").node;
    volume.link(linked, other, b"m").unwrap();
    volume.open_inode(linked).unwrap();
    let within = |dir| volume.open_files_in(dir).unwrap();
    assert_eq!((within(one), within(other)), (vec![file, linked], vec![linked]));
    volume.rename(one, b"a", other, b"c", RenameFlags::default()).unwrap();
    assert_eq!((within(one), within(other)), (vec![], vec![file, linked]));
    volume.rename(inner, b"f", one, b"f", RenameFlags::default()).unwrap();
    volume.release_node(file);
    assert_eq!((within(one), within(other), within(file)), (vec![file], vec![linked], vec![file]));
    volume.rename(ROOT, b"one", ROOT, b"other", EXCHANGE).unwrap();
    assert_eq!((within(one), within(other)), (vec![file], vec![linked]));
    volume.release_node(file);
    assert_eq!((within(one), within(file)), (vec![], vec![]));
    volume.open_inode(file).unwrap();
    volume.unlink(one, b"f").unwrap();
    assert_eq!(within(one), vec![]);
    assert!(within(ROOT) == [linked]);
    volume.release_node(file);
    assert_sound(&volume);
}
