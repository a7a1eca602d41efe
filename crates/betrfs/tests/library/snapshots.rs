//! Snapshots: their contents, their protection from changes, and their moves with the directory.

use crate::support::*;
use betrfs::{
    Error, FallocateMode, Held, InodeId, RenameFlags, SNAPSHOTS_NAME, SetAttr, SnapshotsBelow, Volume,
    Writing, XattrMode,
};

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };

fn snapshots(volume: &Volume, dir: InodeId) -> InodeId {
    volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node
}

fn snapshot(volume: &Volume, dir: InodeId, name: &str) -> InodeId {
    mkdir(volume, snapshots(volume, dir), name).node
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let inner = mkdir(&volume, dir, "e").node;
    let file = mkfile(&volume, inner, "f").node;
    volume.write(file, 0, &[1; 100_000]).unwrap();
    volume.set_xattr(dir, b"user.x", &[2; 5000], XattrMode::Any).unwrap();
    volume.link(file, dir, b"name").unwrap();
    assert_eq!(names(&volume, snapshots(&volume, dir)), Vec::<String>::new());
    for round in 0..20u8 {
        let taken = snapshot(&volume, dir, &format!("s{round:02}"));
        assert_eq!(names(&volume, taken), ["e", "name"]);
        volume.write(file, 50_000, &[round; 10]).unwrap();
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
        let path = format!("/d/.betrfs-snapshots/s{round:02}/e/f");
        let mut expected = vec![1; 100_000];
        expected[50_000..50_010].fill(round - 1);
        assert!(contents(&volume, &path) == expected, "{path}");
        let name = volume.resolve(format!("/d/.betrfs-snapshots/s{round:02}/name").as_bytes()).unwrap();
        assert_eq!(name.node, volume.resolve(path.as_bytes()).unwrap().node);
        assert_eq!(name.attr.nlink, 2);
    }
    let taken = volume.resolve(b"/d/.betrfs-snapshots/s03").unwrap();
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
        volume.write(file, 0, b"bytes").unwrap();
    }
    volume.link(volume.resolve(b"/d/g").unwrap().node, dir, b"h").unwrap();
    let taken = snapshot(&volume, dir, "s");
    let node = |name: &str| volume.resolve(format!("/d/.betrfs-snapshots/s/{name}").as_bytes()).unwrap().node;
    let refused = Err(Error::InSnapshot);
    for file in [node("f"), node("g")] {
        assert_eq!(volume.write(file, 0, b"x").map(drop), refused);
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
        assert_eq!(volume.check_writable(file, Writing::AtEnd), Err(Error::InSnapshot));
    }
    for place in [taken, snapshots(&volume, dir)] {
        assert_eq!(volume.create(place, b"new", &new_file()).map(|_| ()), refused);
        assert_eq!(volume.create_unnamed(place, &new_file()).map(|_| ()), refused);
        assert_eq!(volume.symlink(place, b"new", b"x", 1, 2).map(|_| ()), refused);
        assert_eq!(volume.unlink(place, b"f"), refused);
        assert_eq!(volume.clone_inode(outside, place, b"c").map(|_| ()), refused);
        assert_eq!(volume.rename(place, b"f", outside, b"f", PLAIN), refused);
        assert_eq!(volume.rename(outside, b"f", place, b"f", PLAIN), refused);
        assert_eq!(volume.remove_below(place, SnapshotsBelow::Go).map(|_| ()), refused);
        assert_eq!(volume.setattr(place, &SetAttr::default()).map(|_| ()), refused);
        assert_eq!(volume.lookup(place, SNAPSHOTS_NAME).map(|_| ()), Err(Error::NotFound));
    }
    assert_eq!(volume.create(taken, b"new", &new_dir()).map(|_| ()), refused);
    assert_eq!(volume.rmdir(taken, b"f").map(|_| ()), refused);
    // No other entry can have the name.
    assert_eq!(volume.create(dir, SNAPSHOTS_NAME, &new_dir()).map(|_| ()), Err(Error::Busy));
    assert_eq!(volume.rmdir(dir, SNAPSHOTS_NAME), Err(Error::Busy));
    assert_eq!(volume.rename(ROOT, b"o", dir, SNAPSHOTS_NAME, PLAIN), Err(Error::Busy));
    // A copy of it can be changed.
    let copy = volume.clone_inode(taken, ROOT, b"copy").unwrap().node;
    for name in [&b"f"[..], b"g"] {
        volume.write(volume.lookup(copy, name).unwrap().node, 0, b"B").unwrap();
    }
    assert_eq!(contents(&volume, "/copy/h"), b"Bytes");
    assert_eq!(contents(&volume, "/d/.betrfs-snapshots/s/h"), b"bytes");
    assert_sound(&volume);
}

#[test]
fn snapshots_go_with_their_directory_and_hold_it() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let inner = mkdir(&volume, dir, "e").node;
    let outside = mkdir(&volume, ROOT, "o").node;
    let file = mkfile(&volume, inner, "f").node;
    volume.write(file, 0, &[7; 100_000]).unwrap();
    volume.link(file, dir, b"name").unwrap();
    snapshot(&volume, dir, "s");
    let in_inner = snapshot(&volume, inner, "t");
    let open = volume.lookup(in_inner, b"f").unwrap().node;
    volume.open_inode(open).unwrap();
    let ino = volume.getattr(open).unwrap().ino;
    volume.rename(ROOT, b"d", outside, b"moved", PLAIN).unwrap();
    assert_sound(&volume);
    assert!(read_all(&volume, open) == [7; 100_000]);
    assert_eq!(volume.getattr(open).unwrap().ino, ino);
    volume.release_node(open);
    volume.close().unwrap();

    let volume = disk.open();
    for path in [
        "/o/moved/.betrfs-snapshots/s/e/f",
        "/o/moved/.betrfs-snapshots/s/name",
        "/o/moved/e/.betrfs-snapshots/t/f",
    ] {
        assert!(contents(&volume, path) == [7; 100_000], "{path}");
    }
    assert_eq!(volume.resolve(b"/o/moved/e/.betrfs-snapshots/t/f").unwrap().attr.ino, ino);
    assert_eq!(volume.resolve(b"/d/.betrfs-snapshots").map(|_| ()), Err(Error::NotFound));
    // A directory with snapshots is not removed; a copy of it has none.
    let moved = volume.resolve(b"/o/moved").unwrap().node;
    let inner = volume.resolve(b"/o/moved/e").unwrap().node;
    let copy = volume.clone_inode(moved, ROOT, b"copy").unwrap().node;
    assert_eq!(
        names(&volume, snapshots(&volume, volume.resolve(b"/copy/e").unwrap().node)),
        Vec::<String>::new()
    );
    volume.unlink(inner, b"f").unwrap();
    assert_eq!(volume.rmdir(moved, b"e"), Err(Error::HeldBySnapshots));
    volume.rmdir(snapshots(&volume, inner), b"t").unwrap();
    assert_sound(&volume);
    volume.rmdir(moved, b"e").unwrap();
    volume.unlink(volume.resolve(b"/copy/e").unwrap().node, b"f").unwrap();
    volume.rmdir(copy, b"e").unwrap();
    // The whole tree moves with the snapshots in it.
    assert!(contents(&volume, "/o/moved/.betrfs-snapshots/s/e/f") == [7; 100_000]);
    let o = volume.resolve(b"/o").unwrap().node;
    for dir in [moved, o] {
        assert_eq!(volume.remove_below(dir, SnapshotsBelow::Hold), Err(Error::HeldBySnapshots));
    }
    volume.remove_below(o, SnapshotsBelow::Go).unwrap();
    volume.remove_below(copy, SnapshotsBelow::Hold).unwrap();
    assert_sound(&volume);
    assert_eq!(names(&volume, o), Vec::<String>::new());
    let mut data = volume.env().cursor(betree::DictId(1), betree::Cut::LOW, betree::Cut::HIGH);
    assert!(data.next().unwrap().is_none(), "something is left of them");
}

#[test]
fn the_root_has_snapshots_too() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, b"first").unwrap();
    let first = snapshot(&volume, ROOT, "1");
    volume.write(file, 0, b"other").unwrap();
    snapshot(&volume, ROOT, "2");
    assert_eq!(names(&volume, first), ["f"]);
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(contents(&volume, "/.betrfs-snapshots/1/f"), b"first");
    assert_eq!(contents(&volume, "/.betrfs-snapshots/2/f"), b"other");
    volume.rmdir(snapshots(&volume, ROOT), b"1").unwrap();
    assert_eq!(names(&volume, snapshots(&volume, ROOT)), ["2"]);
    assert_eq!(volume.rmdir(snapshots(&volume, ROOT), b"1"), Err(Error::NotFound));
    assert_sound(&volume);
}

#[test]
fn the_name_dot_snapshots_is_an_ordinary_name() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, ".snapshots").node;
    let inner = mkdir(&volume, dir, "1").node;
    mkfile(&volume, inner, "info.xml");
    snapshot(&volume, dir, "s");
    volume.rename(ROOT, b".snapshots", inner, b".snapshots", PLAIN).unwrap_err();
    volume.rename(dir, b"1", ROOT, b"moved", PLAIN).unwrap();
    assert_eq!(names(&volume, ROOT), [".snapshots", "moved"]);
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(names(&volume, ROOT), [".snapshots", "moved"]);
    let taken = volume.resolve(b"/.snapshots/.betrfs-snapshots/s").unwrap().node;
    assert_eq!(names(&volume, taken), ["1"]);
    assert_sound(&volume);
}

#[test]
fn snapshots_that_hold_a_directory_are_reported_and_removed_with_it() {
    let (disk, volume) = volume();
    let top = mkdir(&volume, ROOT, "top").node;
    let dir = mkdir(&volume, top, "d").node;
    let inner = mkdir(&volume, dir, "e").node;
    // Its neighbours in the order of keys have no snapshots.
    for beside in ["d!", "d.", "d0", "c", "e"] {
        let beside = mkdir(&volume, top, beside).node;
        snapshot(&volume, beside, "beside");
    }
    let file = mkfile(&volume, inner, "f").node;
    volume.write(file, 0, &[7; 100_000]).unwrap();
    assert_eq!(volume.snapshots_below(dir).unwrap(), Held::default());
    snapshot(&volume, inner, "t");
    let in_snapshot = volume.resolve(b"/top/d/e/.betrfs-snapshots/t/f").unwrap().node;
    volume.open_inode(in_snapshot).unwrap();
    snapshot(&volume, dir, "r");
    let taken = snapshot(&volume, dir, "s");
    let paths = [".betrfs-snapshots/r", ".betrfs-snapshots/s", "e/.betrfs-snapshots/t"];
    let told = volume.snapshots_below(dir).unwrap();
    assert_eq!((told.count, told.paths), (3, paths.map(|path| path.as_bytes().to_vec()).to_vec()));
    assert_eq!(volume.snapshots_below(top).unwrap().count, 8);
    assert_eq!(volume.snapshots_below(taken).unwrap().count, 0);
    assert_eq!(volume.remove_below(dir, SnapshotsBelow::Hold), Err(Error::HeldBySnapshots));
    assert_eq!(volume.getattr(inner).unwrap().nlink, 2);

    let own = snapshots(&volume, dir);
    let changed = volume.remove_below(dir, SnapshotsBelow::Go).unwrap().changed;
    assert!([inner, file, in_snapshot, taken].iter().all(|node| changed.contains(node)), "{changed:?}");
    assert_eq!(volume.getattr(taken).unwrap().nlink, 0);
    assert_eq!(names(&volume, own), Vec::<String>::new());
    assert_eq!(names(&volume, snapshots(&volume, dir)), Vec::<String>::new());
    assert!(read_all(&volume, in_snapshot) == [7; 100_000]);
    // It is as any other empty directory.
    assert_eq!(names(&volume, snapshot(&volume, dir, "s")), Vec::<String>::new());
    volume.rmdir(own, b"s").unwrap();
    assert_sound(&volume);
    volume.rmdir(top, b"d").unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    let top = volume.resolve(b"/top").unwrap().node;
    assert_eq!(volume.snapshots_below(top).unwrap().count, 5);
    volume.remove_below(ROOT, SnapshotsBelow::Go).unwrap();
    assert_sound(&volume);
    let mut data = volume.env().cursor(betree::DictId(1), betree::Cut::LOW, betree::Cut::HIGH);
    assert!(data.next().unwrap().is_none(), "something is left of them");
}

#[test]
fn a_directory_with_snapshots_is_not_replaced() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let other = mkdir(&volume, ROOT, "other").node;
    snapshot(&volume, dir, "s");
    let held = Err(Error::HeldBySnapshots);
    assert_eq!(volume.rename(ROOT, b"other", ROOT, b"d", PLAIN), held);
    assert_eq!(volume.rmdir(ROOT, b"d").map(drop), held);
    assert_eq!(volume.clone_onto(other, dir), held);
    let told = Error::HeldBySnapshots.to_string();
    assert!(told.contains("snapshot delete") && told.contains("rm-tree --snapshots"), "{told}");
}
