//! The way up from a directory, and what the caller holds.

use crate::support::*;
use betrfs::{Error, InodeId, RenameFlags, SNAPSHOTS_NAME, SnapshotsBelow};

#[test]
fn a_directory_knows_the_way_up() {
    let (_disk, volume) = volume();
    let outer = mkdir(&volume, ROOT, "outer").node;
    let inner = mkdir(&volume, outer, "inner").node;
    let file = mkfile(&volume, inner, "file").node;
    let above = |node| volume.parent(node).map(|entry| entry.node);
    assert_eq!((above(inner), above(outer), above(ROOT)), (Ok(outer), Ok(ROOT), Ok(ROOT)));
    assert_eq!(volume.path(ROOT).unwrap(), b"/");
    assert_eq!(volume.path(inner).unwrap(), b"/outer/inner");
    volume.rename(outer, b"inner", ROOT, b"moved", RenameFlags::default()).unwrap();
    assert_eq!((above(inner), volume.path(inner)), (Ok(ROOT), Ok(b"/moved".to_vec())));
    assert_eq!((above(file), volume.path(file)), (Err(Error::NotADirectory), Err(Error::NotADirectory)));
    assert_eq!(above(InodeId(u64::MAX)), Err(Error::Stale));

    let snapshots = volume.lookup(outer, SNAPSHOTS_NAME).unwrap().node;
    let snapshot = volume.create(snapshots, b"one", &new_dir()).unwrap().node;
    assert_eq!((above(snapshot), above(snapshots)), (Ok(snapshots), Ok(outer)));
    assert_eq!(volume.path(snapshot).unwrap(), b"/outer/.betrfs-snapshots/one");

    let below = mkdir(&volume, inner, "below").node;
    volume.remove_below(inner, SnapshotsBelow::Hold).unwrap();
    assert_eq!((above(below), volume.path(below)), (Err(Error::NotFound), Err(Error::NotFound)));
    volume.rmdir(ROOT, b"moved").unwrap();
    assert_eq!((above(inner), volume.path(inner)), (Err(Error::NotFound), Err(Error::NotFound)));
}

#[test]
fn what_was_given_back_is_not_held() {
    let (_disk, volume) = volume();
    assert_eq!(volume.inodes_held(), 0);
    let file = mkfile(&volume, ROOT, "file").node;
    volume.open_inode(file).unwrap();
    assert_eq!(volume.inodes_held(), 1);
    volume.forget(file, 1);
    assert_eq!(volume.inodes_held(), 1, "it is open");
    volume.release_node(file);
    assert_eq!(volume.inodes_held(), 0);
    let root = volume.parent(ROOT).unwrap();
    assert_eq!(volume.inodes_held(), 1);
    volume.forget(root.node, 1);
    assert_eq!(volume.inodes_held(), 0);
}
