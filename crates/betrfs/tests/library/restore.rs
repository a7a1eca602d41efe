//! Directories brought back to a snapshot.

use crate::support::*;
use betrfs::{Error, InodeId, OpKind, SNAPSHOTS_NAME, SetAttr, Volume, XattrMode};

fn snapshot(volume: &Volume, dir: InodeId, name: &str) -> InodeId {
    mkdir(volume, volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node, name).node
}

fn number(volume: &Volume, path: &str) -> u64 {
    volume.resolve(path.as_bytes()).unwrap().attr.ino
}

#[test]
fn contents_and_attributes_come_back_and_the_present_state_is_a_snapshot() {
    for at in ["", "/d"] {
        let (disk, volume) = volume();
        let outside = mkdir(&volume, ROOT, "outside").node;
        let dir = if at.is_empty() { ROOT } else { mkdir(&volume, ROOT, "d").node };
        let inner = mkdir(&volume, dir, "inner").node;
        let large = mkfile(&volume, inner, "large").node;
        volume.write(large, 0, &[1; 300_000]).unwrap();
        let linked = mkfile(&volume, dir, "linked").node;
        volume.write(linked, 0, b"old").unwrap();
        volume.link(linked, inner, b"name").unwrap();
        volume.set_xattr(dir, b"user.x", &[2; 5000], XattrMode::Any).unwrap();
        volume.setattr(dir, &SetAttr { perm: Some(0o750), ..SetAttr::default() }).unwrap();
        snapshot(&volume, dir, "older");
        snapshot(&volume, dir, "old");

        volume.setattr(dir, &SetAttr { perm: Some(0o700), ..SetAttr::default() }).unwrap();
        volume.set_xattr(dir, b"user.x", &[3; 4000], XattrMode::Any).unwrap();
        volume.write(large, 100_000, &[9; 10]).unwrap();
        volume.write(linked, 0, b"new").unwrap();
        volume.link(linked, outside, b"kept").unwrap();
        volume.unlink(dir, b"linked").unwrap();
        let fresh = mkfile(&volume, inner, "fresh").node;
        volume.write(fresh, 0, b"fresh").unwrap();
        volume.open_inode(fresh).unwrap();
        let before = volume.getattr(dir).unwrap();
        let inner_before = number(&volume, &format!("{at}/inner"));

        let restored = volume.restore_snapshot(dir, b"old", b"kept").unwrap();
        assert_eq!(volume.path(restored.snapshots).unwrap(), format!("{at}/.betrfs-snapshots").as_bytes());
        assert!(restored.names.iter().any(|name| **name == *b"inner"), "{restored:?}");
        assert!(restored.changed.contains(&inner) && restored.changed.contains(&fresh), "{restored:?}");
        let after = volume.getattr(dir).unwrap();
        assert_eq!((after.ino, after.crtime_ns, after.perm), (before.ino, before.crtime_ns, 0o750));
        assert_ne!(number(&volume, &format!("{at}/inner")), inner_before);
        assert_eq!(volume.lookup(inner, b"large"), Err(Error::NotFound), "what was there is removed");
        // An open file lives on, without a name.
        assert_eq!(read_all(&volume, fresh), b"fresh");
        assert_eq!(volume.getattr(fresh).unwrap().nlink, 0);
        // It can be changed, and its links are one file.
        let file = volume.resolve(format!("{at}/linked").as_bytes()).unwrap().node;
        volume.write(file, 3, b"er").unwrap();
        volume.close().unwrap();

        let volume = disk.open();
        assert_sound(&volume);
        let dir = volume.resolve(format!("{at}/").as_bytes()).unwrap().node;
        let top = if at.is_empty() { vec!["inner", "linked", "outside"] } else { vec!["inner", "linked"] };
        assert_eq!(names(&volume, dir), top);
        let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
        assert_eq!(names(&volume, snapshots), ["kept", "old", "older"]);
        assert_eq!(volume.get_xattr(dir, b"user.x").unwrap(), [2; 5000]);
        assert!(contents(&volume, &format!("{at}/inner/large")) == vec![1; 300_000]);
        assert_eq!(contents(&volume, &format!("{at}/inner/name")), b"older");
        assert_eq!(volume.resolve(format!("{at}/linked").as_bytes()).unwrap().attr.nlink, 2);
        let kept = |path: &str| format!("{at}/.betrfs-snapshots/kept/{path}");
        let node = |path: &str| volume.resolve(kept(path).as_bytes()).unwrap();
        assert_eq!(volume.get_xattr(node("").node, b"user.x").unwrap(), [3; 4000]);
        assert_eq!(names(&volume, node("inner").node), ["fresh", "large", "name"]);
        assert_eq!(contents(&volume, &kept("inner/name")), b"new");
        assert_eq!(contents(&volume, &kept("inner/fresh")), b"fresh");
        assert_eq!(contents(&volume, &kept("inner/large"))[100_000..100_010], [9; 10]);
        assert_eq!(volume.write(node("inner/name").node, 0, b"x"), Err(Error::InSnapshot));
        let old = format!("{at}/.betrfs-snapshots/old/inner/name");
        assert_eq!(contents(&volume, &old), b"old");
        // The way back.
        volume.restore_snapshot(dir, b"kept", b"again").unwrap();
        assert_eq!(contents(&volume, &format!("{at}/inner/fresh")), b"fresh");
        if !at.is_empty() {
            assert_eq!(contents(&volume, "/outside/kept"), b"new");
            assert_eq!(volume.resolve(b"/outside/kept").unwrap().attr.nlink, 1);
        }
        assert_sound(&volume);
    }
}

/// Open files below the directory lose their names; those in its snapshots do not.
#[test]
fn an_open_file_in_a_snapshot_keeps_its_contents() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    volume.write(file, 0, &[1; 100_000]).unwrap();
    snapshot(&volume, dir, "s");
    let old = volume.resolve(b"/d/.betrfs-snapshots/s/f").unwrap().node;
    volume.open_inode(old).unwrap();
    volume.restore_snapshot(dir, b"s", b"k").unwrap();
    assert_eq!(volume.getattr(old).unwrap().nlink, 1);
    assert!(read_all(&volume, old) == [1; 100_000]);
    volume.release_node(old);
    volume.close().unwrap();
    let volume = disk.open();
    for path in ["/d/f", "/d/.betrfs-snapshots/s/f", "/d/.betrfs-snapshots/k/f"] {
        assert!(contents(&volume, path) == [1; 100_000], "{path}");
    }
    assert_sound(&volume);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let inner = mkdir(&volume, dir, "inner").node;
    let file = mkfile(&volume, ROOT, "file").node;
    let taken = snapshot(&volume, dir, "s");
    mkfile(&volume, dir, "new");
    let refusals = |dir: InodeId, name: &str, keep_as: &str| {
        let may = volume.may_restore_snapshot(dir, name.as_bytes(), keep_as.as_bytes());
        let done = volume.restore_snapshot(dir, name.as_bytes(), keep_as.as_bytes()).map(drop);
        assert_eq!(may, done, "{name} {keep_as}");
        done.unwrap_err()
    };
    assert_eq!(refusals(dir, "none", "k"), Error::NotFound);
    assert_eq!(refusals(dir, "s", "s"), Error::Exists);
    assert_eq!(refusals(file, "s", "k"), Error::NotADirectory);
    assert_eq!(refusals(taken, "s", "k"), Error::InSnapshot);
    assert!(matches!(refusals(dir, "s", "a/b"), Error::Invalid(_)));
    assert_eq!(refusals(dir, "s", &"n".repeat(256)), Error::NameTooLong);
    snapshot(&volume, inner, "below");
    assert_eq!(refusals(dir, "s", "k"), Error::HeldBySnapshots);
    volume.rmdir(volume.lookup(inner, SNAPSHOTS_NAME).unwrap().node, b"below").unwrap();
    let removed = mkdir(&volume, ROOT, "removed").node;
    volume.rmdir(ROOT, b"removed").unwrap();
    assert_eq!(refusals(removed, "s", "k"), Error::NotFound);
    assert_eq!(names(&volume, dir), ["inner", "new"]);
    assert_eq!(names(&volume, volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node), ["s"]);
    volume.restore_snapshot(dir, b"s", b"k").unwrap();
    assert_eq!(names(&volume, dir), ["inner"]);
}

#[test]
fn a_restore_costs_the_same_whatever_the_directory_holds() {
    let costs = |files: usize| {
        let (_disk, volume) = volume();
        let dir = mkdir(&volume, ROOT, "d").node;
        for number in 0..files {
            mkfile(&volume, dir, &format!("f{number}"));
        }
        snapshot(&volume, dir, "s");
        mkfile(&volume, dir, "new");
        let before = volume.counters().of(OpKind::Clone);
        volume.restore_snapshot(dir, b"s", b"k").unwrap();
        let after = volume.counters().of(OpKind::Clone);
        let scans = after.scans - before.scans;
        (
            after.queries - before.queries,
            scans,
            after.commits - before.commits,
            after.visited - before.visited,
        )
    };
    let (queries, scans, commits, _) = costs(10);
    assert_eq!(commits, 1);
    assert!(queries <= 2 && scans <= 12, "{queries} {scans}");
    assert_eq!(costs(1000), costs(10));
}
