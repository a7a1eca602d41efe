//! Snapshots: what they hold, that they cannot be changed, and where they go with their directory.

use crate::support::*;
use betrfs::{Error, FallocateMode, NodeId, RenameFlags, SNAPSHOTS_NAME, SetAttr, Volume, XattrMode};

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };

fn snapshots(volume: &Volume, dir: NodeId) -> NodeId {
    volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node
}

fn snapshot(volume: &Volume, dir: NodeId, name: &str) -> NodeId {
    mkdir(volume, snapshots(volume, dir), name).node
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let inner = mkdir(&volume, dir, "e").node;
    let file = mkfile(&volume, inner, "f").node;
    volume.write(file, 0, &[1; 100_000], false).unwrap();
    volume.set_xattr(dir, b"user.x", &[2; 5000], XattrMode::Any).unwrap();
    volume.link(file, dir, b"name").unwrap();
    assert_eq!(names(&volume, snapshots(&volume, dir)), Vec::<String>::new());
    for round in 0..20u8 {
        let taken = snapshot(&volume, dir, &format!("s{round:02}"));
        assert_eq!(names(&volume, taken), ["e", "name"]);
        volume.write(file, 50_000, &[round; 10], false).unwrap();
    }
    assert_eq!(names(&volume, dir), ["e", "name"]);
    volume.unlink(inner, b"f").unwrap();
    volume.close().unwrap();

    let volume = disk.open();
    assert_sound(&volume);
    let dir = volume.resolve(b"/d").unwrap().node;
    let listed = names(&volume, snapshots(&volume, dir));
    assert_eq!(listed, (0..20).map(|round| format!("s{round:02}")).collect::<Vec<_>>());
    for round in 1..20u8 {
        let path = format!("/d/.snapshots/s{round:02}/e/f");
        let mut expected = vec![1; 100_000];
        expected[50_000..50_010].fill(round - 1);
        assert!(contents(&volume, &path) == expected, "{path}");
        let name = volume.resolve(format!("/d/.snapshots/s{round:02}/name").as_bytes()).unwrap();
        assert_eq!(name.node, volume.resolve(path.as_bytes()).unwrap().node);
        assert_eq!(name.attr.nlink, 2);
    }
    let taken = volume.resolve(b"/d/.snapshots/s03").unwrap();
    assert_eq!(volume.get_xattr(taken.node, b"user.x").unwrap(), [2; 5000]);
    assert_eq!(volume.resolve(b"/d/name").unwrap().attr.nlink, 1);
}

#[test]
fn everything_in_a_snapshot_is_refused_every_change() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let outside = mkdir(&volume, ROOT, "o").node;
    for name in ["f", "g"] {
        let file = mkfile(&volume, dir, name).node;
        volume.write(file, 0, b"bytes", false).unwrap();
    }
    volume.link(volume.resolve(b"/d/g").unwrap().node, dir, b"h").unwrap();
    let taken = snapshot(&volume, dir, "s");
    let node = |name: &str| volume.resolve(format!("/d/.snapshots/s/{name}").as_bytes()).unwrap().node;
    let refused = Err(Error::InSnapshot);
    for file in [node("f"), node("g")] {
        assert_eq!(volume.write(file, 0, b"x", false).map(drop), refused);
        assert_eq!(
            volume.setattr(file, &SetAttr { size: Some(0), ..SetAttr::default() }).map(|_| ()),
            refused
        );
        assert_eq!(
            volume.setattr(file, &SetAttr { perm: Some(0), ..SetAttr::default() }).map(|_| ()),
            refused
        );
        assert_eq!(volume.set_xattr(file, b"user.x", b"y", XattrMode::Any), refused);
        assert_eq!(volume.fallocate(file, FallocateMode::PunchHole, 0, 5), refused);
        assert_eq!(volume.link(file, outside, b"l").map(|_| ()), refused);
        assert!(volume.is_read_only(file).unwrap());
    }
    for place in [taken, snapshots(&volume, dir)] {
        assert_eq!(volume.create(place, b"new", &new_file()).map(|_| ()), refused);
        assert_eq!(volume.create_unnamed(place, &new_file()).map(|_| ()), refused);
        assert_eq!(volume.symlink(place, b"new", b"x", 1, 2).map(|_| ()), refused);
        assert_eq!(volume.unlink(place, b"f"), refused);
        assert_eq!(volume.clone_node(outside, place, b"c").map(|_| ()), refused);
        assert_eq!(volume.rename(place, b"f", outside, b"f", PLAIN), refused);
        assert_eq!(volume.rename(outside, b"f", place, b"f", PLAIN), refused);
        assert_eq!(volume.remove_below(place).map(|_| ()), refused);
        assert_eq!(volume.setattr(place, &SetAttr::default()).map(|_| ()), refused);
        assert_eq!(volume.lookup(place, SNAPSHOTS_NAME).map(|_| ()), Err(Error::NotFound));
    }
    assert_eq!(volume.create(taken, b"new", &new_dir()).map(|_| ()), refused);
    assert_eq!(volume.rmdir(taken, b"f").map(|_| ()), refused);
    // The name itself is nobody else's.
    assert_eq!(volume.create(dir, SNAPSHOTS_NAME, &new_dir()).map(|_| ()), Err(Error::Busy));
    assert_eq!(volume.rmdir(dir, SNAPSHOTS_NAME), Err(Error::Busy));
    assert_eq!(volume.rename(ROOT, b"o", dir, SNAPSHOTS_NAME, PLAIN), Err(Error::Busy));
    // A copy of it can be changed.
    let copy = volume.clone_node(taken, ROOT, b"copy").unwrap().node;
    for name in [&b"f"[..], b"g"] {
        volume.write(volume.lookup(copy, name).unwrap().node, 0, b"B", false).unwrap();
    }
    assert_eq!(contents(&volume, "/copy/h"), b"Bytes");
    assert_eq!(contents(&volume, "/d/.snapshots/s/h"), b"bytes");
    assert_sound(&volume);
}

#[test]
fn snapshots_go_with_their_directory_and_hold_it() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let inner = mkdir(&volume, dir, "e").node;
    let outside = mkdir(&volume, ROOT, "o").node;
    let file = mkfile(&volume, inner, "f").node;
    volume.write(file, 0, &[7; 100_000], false).unwrap();
    volume.link(file, dir, b"name").unwrap();
    snapshot(&volume, dir, "s");
    let in_inner = snapshot(&volume, inner, "t");
    let open = volume.lookup(in_inner, b"f").unwrap().node;
    volume.open_node(open).unwrap();
    let ino = volume.getattr(open).unwrap().ino;
    volume.rename(ROOT, b"d", outside, b"moved", PLAIN).unwrap();
    assert_sound(&volume);
    assert!(read_all(&volume, open) == [7; 100_000]);
    assert_eq!(volume.getattr(open).unwrap().ino, ino);
    volume.release_node(open);
    volume.close().unwrap();

    let volume = disk.open();
    for path in ["/o/moved/.snapshots/s/e/f", "/o/moved/.snapshots/s/name", "/o/moved/e/.snapshots/t/f"] {
        assert!(contents(&volume, path) == [7; 100_000], "{path}");
    }
    assert_eq!(volume.resolve(b"/o/moved/e/.snapshots/t/f").unwrap().attr.ino, ino);
    assert_eq!(volume.resolve(b"/d/.snapshots").map(|_| ()), Err(Error::NotFound));
    // What has snapshots is not empty; a copy of it has none.
    let moved = volume.resolve(b"/o/moved").unwrap().node;
    let inner = volume.resolve(b"/o/moved/e").unwrap().node;
    let copy = volume.clone_node(moved, ROOT, b"copy").unwrap().node;
    assert_eq!(
        names(&volume, snapshots(&volume, volume.resolve(b"/copy/e").unwrap().node)),
        Vec::<String>::new()
    );
    volume.unlink(inner, b"f").unwrap();
    assert_eq!(volume.rmdir(moved, b"e"), Err(Error::NotEmpty));
    volume.rmdir(snapshots(&volume, inner), b"t").unwrap();
    assert_sound(&volume);
    volume.rmdir(moved, b"e").unwrap();
    volume.unlink(volume.resolve(b"/copy/e").unwrap().node, b"f").unwrap();
    volume.rmdir(copy, b"e").unwrap();
    // The whole tree goes with the snapshots that are in it.
    assert!(contents(&volume, "/o/moved/.snapshots/s/e/f") == [7; 100_000]);
    let o = volume.resolve(b"/o").unwrap().node;
    assert_eq!(volume.remove_below(moved), Err(Error::NotEmpty));
    volume.remove_below(o).unwrap();
    volume.remove_below(copy).unwrap();
    assert_sound(&volume);
    assert_eq!(names(&volume, o), Vec::<String>::new());
    let mut data = volume.env().cursor(betree::DictId(1), betree::Cut::LOW, betree::Cut::HIGH);
    assert!(data.next().unwrap().is_none(), "something is left of them");
}

#[test]
fn the_root_has_snapshots_too() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, b"first", false).unwrap();
    let first = snapshot(&volume, ROOT, "1");
    volume.write(file, 0, b"other", false).unwrap();
    snapshot(&volume, ROOT, "2");
    assert_eq!(names(&volume, first), ["f"]);
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(contents(&volume, "/.snapshots/1/f"), b"first");
    assert_eq!(contents(&volume, "/.snapshots/2/f"), b"other");
    volume.rmdir(snapshots(&volume, ROOT), b"1").unwrap();
    assert_eq!(names(&volume, snapshots(&volume, ROOT)), ["2"]);
    assert_eq!(volume.rmdir(snapshots(&volume, ROOT), b"1"), Err(Error::NotFound));
    assert_sound(&volume);
}
