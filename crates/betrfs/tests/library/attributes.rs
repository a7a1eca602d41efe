//! Owners, permissions, times, extended attributes.

use crate::support::*;
use betrfs::{AccessTimes, Error, FallocateMode, NewNode, SetAttr, TimeSet, XattrMode};

const SET: SetAttr = SetAttr {
    perm: None,
    uid: None,
    gid: None,
    size: None,
    atime_ns: None,
    mtime_ns: None,
    ctime_ns: None,
    kill_set_id: false,
    outside_group: false,
};

#[test]
fn set_id_bits_are_cleared_when_posix_says_so() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    let perm = || volume.getattr(file).unwrap().perm;
    let set = |perm| volume.setattr(file, &SetAttr { perm: Some(perm), ..SET }).unwrap();
    set(0o6755);
    volume.write(file, 0, b"by its owner with privilege").unwrap();
    assert_eq!(perm(), 0o6755);
    // A write by another user.
    volume.setattr(file, &SetAttr { kill_set_id: true, ..SET }).unwrap();
    assert_eq!(perm(), 0o755);
    set(0o6745);
    volume.setattr(file, &SetAttr { size: Some(9), ..SET }).unwrap();
    volume.fallocate(file, FallocateMode::PunchHole, 0, 4).unwrap();
    let other = mkfile(&volume, ROOT, "other").node;
    volume.write(other, 0, b"source").unwrap();
    volume.copy_range(other, 0, file, 0, 6).unwrap();
    assert_eq!(perm(), 0o6745, "by those who may keep them");
    volume.setattr(file, &SetAttr { size: Some(3), kill_set_id: true, ..SET }).unwrap();
    assert_eq!(perm(), 0o2745, "in the group of a file that the group cannot execute");
    volume.setattr(file, &SetAttr { size: Some(3), kill_set_id: true, outside_group: true, ..SET }).unwrap();
    assert_eq!(perm(), 0o745, "outside of that group");
    set(0o2745);
    volume.setattr(file, &SetAttr { gid: Some(5), ..SET }).unwrap();
    assert_eq!(perm(), 0o2745, "chgrp in the group");
    volume.setattr(file, &SetAttr { gid: Some(6), outside_group: true, ..SET }).unwrap();
    assert_eq!(perm(), 0o745, "chgrp outside of the group");
    set(0o6755);
    volume.setattr(file, &SetAttr { uid: Some(5), ..SET }).unwrap();
    assert_eq!(perm(), 0o755);
    volume.setattr(file, &SetAttr { gid: Some(5), perm: Some(0o4700), ..SET }).unwrap();
    assert_eq!(perm(), 0o4700, "asked for together");
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.setattr(dir, &SetAttr { perm: Some(0o2755), ..SET }).unwrap();
    volume.setattr(dir, &SetAttr { gid: Some(77), ..SET }).unwrap();
    assert_eq!(volume.getattr(dir).unwrap().perm, 0o2755);
}

#[test]
fn a_set_group_id_directory_passes_on_its_group() {
    let (_disk, volume) = volume();
    let dir = volume.create(ROOT, b"d", &NewNode { perm: 0o2775, gid: 42, ..new_dir() }).unwrap();
    let file = mkfile(&volume, dir.node, "f").attr;
    let inner = mkdir(&volume, dir.node, "e").attr;
    assert_eq!((file.gid, file.perm), (42, 0o644));
    assert_eq!((inner.gid, inner.perm), (42, 0o2755));
    assert_eq!(mkdir(&volume, ROOT, "plain").attr.gid, 1000);
}

#[test]
fn with_noatime_a_read_leaves_the_time_of_access() {
    let mut disk = Disk::new();
    disk.options.access_times = AccessTimes::Never;
    let volume = disk.open();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, b"x").unwrap();
    let before = volume.getattr(file).unwrap();
    assert!(before.mtime_ns > before.atime_ns);
    volume.read(file, 0, 1, &mut Vec::new()).unwrap();
    assert_eq!(volume.getattr(file).unwrap(), before);
}

#[test]
fn times_are_set_and_survive_and_a_read_puts_nothing() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, b"x").unwrap();
    let before = volume.getattr(file).unwrap();
    let commits = volume.env().stats().commits;
    let mut out = Vec::new();
    volume.read(file, 0, 1, &mut out).unwrap();
    let first = volume.getattr(file).unwrap().atime_ns;
    volume.read(file, 0, 1, &mut out).unwrap();
    assert!(first > before.mtime_ns);
    assert_eq!(volume.getattr(file).unwrap().atime_ns, first, "relatime");
    assert_eq!(volume.env().stats().commits, commits);
    let set =
        SetAttr { atime_ns: Some(TimeSet::At(-3)), mtime_ns: Some(TimeSet::At(1)), ctime_ns: Some(2), ..SET };
    volume.setattr(file, &set).unwrap();
    volume.close().unwrap();
    let attr = disk.open().resolve(b"/f").unwrap().attr;
    assert_eq!((attr.atime_ns, attr.mtime_ns, attr.ctime_ns), (-3, 1, 2));
    assert_eq!(attr.crtime_ns, before.crtime_ns);
}

#[test]
fn limits_and_spaces_of_extended_attributes() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    let long = [b"user.".as_slice(), &[b'n'; 250]].concat();
    volume.set_xattr(file, &long, &[1; 65_536], XattrMode::Create).unwrap();
    assert_eq!(volume.set_xattr(file, &long, b"", XattrMode::Create), Err(Error::Exists));
    assert_eq!(volume.set_xattr(file, b"user.x", b"", XattrMode::Replace), Err(Error::NoData));
    assert_eq!(volume.set_xattr(file, b"user.x", &[0; 65_537], XattrMode::Any), Err(Error::RangeTooSmall));
    let longer = [&long[..], b"n"].concat();
    assert_eq!(volume.set_xattr(file, &longer, b"", XattrMode::Any), Err(Error::RangeTooSmall));
    for name in [&b"system.posix_acl_other"[..], b"other.x"] {
        assert_eq!(volume.set_xattr(file, name, b"", XattrMode::Any), Err(Error::NotSupported));
        assert_eq!(volume.get_xattr(file, name), Err(Error::NotSupported));
    }
    for i in 0..2000 {
        let name = format!("user.{i:0240}");
        if let Err(error) = volume.set_xattr(file, name.as_bytes(), &[2; 300], XattrMode::Any) {
            assert_eq!((error, i > 200), (Error::NoSpace, true));
            break;
        }
        assert!(i < 1999, "no end");
    }
    volume.close().unwrap();
    let volume = disk.open();
    assert_sound(&volume);
    let file = volume.resolve(b"/f").unwrap().node;
    assert_eq!(volume.get_xattr(file, &long).unwrap(), [1; 65_536]);
    volume.unlink(ROOT, b"f").unwrap();
    assert_sound(&volume);
}

#[test]
fn removing_a_large_attribute_of_the_root_leaves_the_tree() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let file = mkfile(&volume, dir.node, "f").node;
    volume.write(file, 0, &[1; 5000]).unwrap();
    volume.set_xattr(ROOT, b"user.x", &[7; 5000], XattrMode::Any).unwrap();
    assert_sound(&volume);
    assert_eq!(volume.get_xattr(ROOT, b"user.x").unwrap(), [7; 5000]);
    volume.remove_xattr(ROOT, b"user.x").unwrap();
    assert_eq!(contents(&volume, "/d/f"), [1; 5000]);
    assert_sound(&volume);
}

#[test]
fn a_program_loses_its_capabilities_when_it_changes() {
    const CAPABILITIES: &[u8] = b"security.capability";
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    let set = |set| volume.setattr(file, &set).map(|_| ()).unwrap();
    let changes: [&dyn Fn(); 4] = [
        &|| volume.write(file, 0, b"other").map(drop).unwrap(),
        &|| set(SetAttr { size: Some(2), ..SET }),
        &|| set(SetAttr { uid: Some(5), ..SET }),
        &|| set(SetAttr { gid: Some(5), ..SET }),
    ];
    for value in [&[1; 20][..], &[1; 5000]] {
        for change in changes {
            volume.set_xattr(file, CAPABILITIES, value, XattrMode::Any).unwrap();
            volume.set_xattr(file, b"user.x", value, XattrMode::Any).unwrap();
            volume.setattr(file, &SetAttr { perm: Some(0o700), ..SET }).unwrap();
            assert_eq!(volume.get_xattr(file, CAPABILITIES).unwrap(), value);
            change();
            assert_eq!(volume.get_xattr(file, CAPABILITIES), Err(Error::NoData));
            assert_eq!(volume.get_xattr(file, b"user.x").unwrap(), value);
            assert_sound(&volume);
        }
    }
}

/// The attributes of an unlinked file are in memory while it is open.
#[test]
fn all_values_of_a_file_together_have_a_limit() {
    const LIMIT: usize = 256 << 10;
    let disk = Disk::of_bytes(128 << 20);
    let volume = disk.open();
    let file = mkfile(&volume, ROOT, "f").node;
    let set = |i: usize, len: usize| {
        volume.set_xattr(file, format!("user.{i}").as_bytes(), &vec![1; len], XattrMode::Any)
    };
    let held = || -> usize {
        let names = volume.list_xattrs(file).unwrap();
        names.iter().map(|name| volume.get_xattr(file, name).unwrap().len()).sum()
    };
    let refused = (0..500).filter(|i| set(*i, 64 << 10) == Err(Error::NoSpace)).count();
    assert_eq!((refused, held()), (496, LIMIT));
    assert_eq!(set(7, 1), Err(Error::NoSpace));
    set(0, 32 << 10).unwrap();
    set(7, 32 << 10).unwrap();
    assert_eq!(set(8, 1), Err(Error::NoSpace));
    volume.open_inode(file).unwrap();
    volume.unlink(ROOT, b"f").unwrap();
    assert_eq!(set(8, 1), Err(Error::NoSpace));
    assert_eq!(held(), LIMIT);
    set(0, 10).unwrap();
    set(8, 1).unwrap();
    volume.release_node(file);
    volume.forget(file, 1);
    assert_sound(&volume);
}
