//! Access control lists: their storage, their costs, and what else takes them along. What they say and what
//! new objects inherit is the mount's `cases/acls.py`.

use crate::support::*;
use betrfs::{
    Acl, AclKind, Error, FileType, InodeId, NewNode, OpKind, SNAPSHOTS_NAME, SetAttr, SetGroupId, Volume,
    XattrMode,
};

const PLAIN: XattrMode = XattrMode::Any;
/// More than fits into a record.
const LONG: u32 = 500;

/// A list with the mode 0750 and `users` users who may read and search.
pub fn list(users: u32) -> Acl {
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let named = (0..users).flat_map(|user| entry(2, 5, 10_000 + user));
    let mut bytes = vec![2, 0, 0, 0];
    bytes.extend(entry(1, 7, u32::MAX));
    bytes.extend(named);
    bytes.extend([entry(4, 5, u32::MAX), entry(0x10, 5, u32::MAX), entry(0x20, 0, u32::MAX)].concat());
    Acl::parse(&bytes).unwrap()
}

fn set(volume: &Volume, node: InodeId, kind: AclKind, users: u32) {
    volume.set_acl(node, kind, &list(users), PLAIN, SetGroupId::Kept).unwrap();
}

/// The mode that an object has, and that its list says.
fn modes(volume: &Volume, node: InodeId) -> (u16, Option<u16>) {
    let acl = volume.acl(node, AclKind::Access).unwrap();
    (volume.getattr(node).unwrap().perm, acl.map(|acl| acl.perm()))
}

#[test]
fn lists_of_any_length_are_kept_inherited_and_follow_the_mode() {
    let (disk, volume) = volume();
    for users in [1, 20, LONG] {
        let dir = mkdir(&volume, ROOT, &format!("d{users}")).node;
        set(&volume, dir, AclKind::Default, users);
        let file = mkfile(&volume, dir, "f").node;
        let sub = mkdir(&volume, dir, "sub").node;
        let deep = volume.create_with(sub, b"f", &new_file(), b"text").unwrap().node;
        for (node, perm) in [(file, 0o640), (sub, 0o750), (deep, 0o640)] {
            assert_eq!(modes(&volume, node), (perm, Some(perm)), "{users}");
        }
        volume.setattr(deep, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        // Renamed, and with a second name.
        volume.rename(sub, b"f", dir, b"g", betrfs::RenameFlags::default()).unwrap();
        volume.link(deep, dir, b"h").unwrap();
    }
    volume.close().unwrap();

    let volume = disk.open();
    assert_sound(&volume);
    for users in [1, 20, LONG] {
        let at = |path: &str| volume.resolve(format!("/d{users}/{path}").as_bytes()).unwrap().node;
        assert_eq!(modes(&volume, at("f")), (0o640, Some(0o640)));
        assert_eq!(modes(&volume, at("g")), (0o600, Some(0o600)));
        assert_eq!(at("g"), at("h"));
        let default = volume.acl(at("sub"), AclKind::Default).unwrap();
        assert_eq!(default, Some(list(users)));
        let kept = volume.acl(at("f"), AclKind::Access).unwrap().unwrap();
        assert_eq!(kept.encode().len(), list(users).encode().len());
        assert!(kept.grants(10_000, |_| false, (1, 1), 4) && !kept.grants(9_999, |_| false, (1, 1), 4));
    }
}

#[test]
fn a_file_without_a_name_and_one_that_was_unlinked_have_lists() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    set(&volume, dir, AclKind::Default, LONG);
    let file = volume.create_unnamed(dir, &new_file()).unwrap().node;
    volume.open_inode(file).unwrap();
    assert_eq!(modes(&volume, file), (0o640, Some(0o640)));
    volume.setattr(file, &SetAttr { perm: Some(0o660), ..SetAttr::default() }).unwrap();
    volume.link(file, dir, b"f").unwrap();
    assert_eq!(modes(&volume, file), (0o660, Some(0o660)));
    volume.unlink(dir, b"f").unwrap();
    volume.setattr(file, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
    assert_eq!(modes(&volume, file), (0o600, Some(0o600)));
    // Its key is still in use when another file gets its name.
    let other = mkfile(&volume, dir, "f").node;
    assert_eq!(modes(&volume, other), (0o640, Some(0o640)));
    volume.release_node(file);
    assert_sound(&volume);
}

#[test]
fn a_short_list_costs_nothing_and_a_long_one_a_query_for_each_new_object() {
    let (_disk, volume) = volume();
    for (name, users, queries_each) in [("none", None, 0), ("short", Some(20), 0), ("long", Some(LONG), 1)] {
        let dir = mkdir(&volume, ROOT, name).node;
        if let Some(users) = users {
            set(&volume, dir, AclKind::Default, users);
        }
        let (before, commits) =
            (queries(&volume, OpKind::Create), volume.counters().of(OpKind::Create).commits);
        (0..50).for_each(|i| assert_eq!(mkfile(&volume, dir, &format!("f{i}")).attr.size, 0));
        assert_eq!(queries(&volume, OpKind::Create) - before, 50 * queries_each, "{name}");
        assert_eq!(volume.counters().of(OpKind::Create).commits - commits, 50, "{name}");
        let file = volume.lookup(dir, b"f7").unwrap().node;
        let before = queries(&volume, OpKind::SetAttr);
        volume.setattr(file, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        assert_eq!(queries(&volume, OpKind::SetAttr) - before, queries_each, "{name}");
    }
}

#[test]
fn a_copy_has_the_lists_and_a_snapshot_those_of_its_time() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    for kind in [AclKind::Access, AclKind::Default] {
        set(&volume, dir, kind, LONG);
    }
    mkfile(&volume, dir, "f");
    let copy = mkdir(&volume, ROOT, "copy").node;
    volume.clone_onto(dir, copy).unwrap();
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    // Who may list the directory may list its snapshots.
    assert_eq!(modes(&volume, snapshots), (0o750, Some(0o750)));
    let taken = mkdir(&volume, snapshots, "s").node;
    volume.remove_xattr(dir, AclKind::Access.name()).unwrap();
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    assert_eq!(modes(&volume, snapshots), (0o750, None));
    for node in [copy, taken] {
        assert_eq!(modes(&volume, node), (0o750, Some(0o750)));
        assert_eq!(volume.acl(node, AclKind::Default).unwrap(), Some(list(LONG)));
        let file = volume.lookup(node, b"f").unwrap().node;
        assert_eq!(modes(&volume, file), (0o640, Some(0o640)));
    }
    let changed = volume.set_acl(taken, AclKind::Access, &list(1), PLAIN, SetGroupId::Kept);
    assert_eq!(changed, Err(Error::InSnapshot));
    assert_sound(&volume);
}

#[test]
fn what_cannot_have_a_list_has_none() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    let link = volume.symlink(ROOT, b"l", b"f", 1, 1).unwrap().node;
    let give = |node, kind| volume.set_acl(node, kind, &list(1), PLAIN, SetGroupId::Kept);
    assert_eq!(give(link, AclKind::Access), Err(Error::NotSupported));
    assert_eq!(give(link, AclKind::Default), Err(Error::NotSupported));
    assert!(matches!(give(file, AclKind::Default), Err(Error::Invalid(_))));
    for kind in [AclKind::Access, AclKind::Default] {
        assert!(matches!(volume.set_xattr(file, kind.name(), b"no list", PLAIN), Err(Error::Invalid(_))));
        assert_eq!(volume.get_xattr(file, kind.name()), Err(Error::NoData));
        assert_eq!(volume.remove_xattr(file, kind.name()), Ok(()));
    }
    let name = AclKind::Access.name();
    assert_eq!(volume.set_xattr(file, name, &list(1).encode(), XattrMode::Replace), Err(Error::NoData));
    volume.set_xattr(file, name, &list(1).encode(), XattrMode::Create).unwrap();
    assert_eq!(volume.set_xattr(file, name, &list(2).encode(), XattrMode::Create), Err(Error::Exists));
    assert_eq!(volume.list_xattrs(file).unwrap(), [name]);
    assert_eq!(volume.get_xattr(file, name).unwrap(), list(1).encode());
    assert_eq!(modes(&volume, file), (0o750, Some(0o750)));
    // A symbolic link inherits none, and no umask counts for it.
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.set_acl(dir, AclKind::Default, &list(1), PLAIN, SetGroupId::Kept).unwrap();
    let link = volume.symlink(dir, b"l", b"f", 1, 1).unwrap();
    assert_eq!((link.attr.perm, volume.list_xattrs(link.node).unwrap()), (0o777, vec![]));
    let fifo = NewNode { file_type: FileType::Fifo, umask: 0o777, ..new_file() };
    assert_eq!(volume.create(dir, b"p", &fifo).unwrap().attr.perm, 0o640);
    assert_eq!(volume.create(ROOT, b"p", &fifo).unwrap().attr.perm, 0);
}
