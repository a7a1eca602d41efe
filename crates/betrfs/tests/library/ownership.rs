//! Trees that belong to a user as a whole, and what comes into them meanwhile.

use crate::support::*;
use betrfs::{
    Error, FileType, FlagSetter, InodeFlags, InodeId, NewNode, OpKind, RenameFlags, SNAPSHOTS_NAME, SetAttr,
    User, Volume, XattrMode,
};

const ADA: u32 = 1000;
const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };

fn ada() -> User {
    User { uid: ADA, groups: vec![ADA, 7] }
}

fn make(volume: &Volume, dir: InodeId, name: &str, new: NewNode) -> InodeId {
    volume.create(dir, name.as_bytes(), &new).unwrap().node
}

fn file_of(uid: u32) -> NewNode {
    NewNode { uid, gid: uid, ..new_file() }
}

fn dir_of(uid: u32) -> NewNode {
    NewNode { uid, gid: uid, ..new_dir() }
}

/// A tree of ada's with a file in a directory, an empty directory of hers beside it, and one of root's.
struct Trees {
    tree: InodeId,
    inner: InodeId,
    file: InodeId,
    target: InodeId,
    outside: InodeId,
}

fn trees(volume: &Volume) -> Trees {
    let tree = make(volume, ROOT, "tree", dir_of(ADA));
    let inner = make(volume, tree, "inner", dir_of(ADA));
    let file = make(volume, inner, "file", file_of(ADA));
    let target = make(volume, ROOT, "target", dir_of(ADA));
    Trees { tree, inner, file, target, outside: make(volume, ROOT, "outside", dir_of(0)) }
}

type Change = fn(&Volume, &Trees);

fn set(volume: &Volume, node: InodeId, set: SetAttr) {
    volume.setattr(node, &set).unwrap();
}

/// What brings something foreign into the tree; some only may.
const CHANGES: [(&str, Change); 14] = [
    ("a file of root", |v, t| {
        make(v, t.inner, "x", file_of(0));
    }),
    ("a directory of root", |v, t| {
        make(v, t.inner, "x", dir_of(0));
    }),
    ("a symbolic link of root", |v, t| {
        v.symlink(t.inner, b"x", b"to", 0, 0).unwrap();
    }),
    ("a device", |v, t| {
        make(v, t.inner, "x", NewNode { file_type: FileType::CharDevice, rdev: 5, ..file_of(ADA) });
    }),
    ("a program that runs as another group", |v, t| {
        make(v, t.inner, "x", NewNode { perm: 0o2755, gid: 8, ..file_of(ADA) });
    }),
    ("chown", |v, t| set(v, t.file, SetAttr { uid: Some(0), ..SetAttr::default() })),
    ("chmod g+s", |v, t| {
        set(v, t.file, SetAttr { gid: Some(8), ..SetAttr::default() });
        set(v, t.file, SetAttr { perm: Some(0o2755), ..SetAttr::default() });
    }),
    ("trusted.", |v, t| v.set_xattr(t.file, b"trusted.x", b"1", XattrMode::Any).unwrap()),
    ("security.", |v, t| v.set_xattr(t.inner, b"security.x", b"1", XattrMode::Any).unwrap()),
    ("immutable", |v, t| v.set_inode_flags(t.inner, InodeFlags::IMMUTABLE, FlagSetter::ROOT).unwrap()),
    ("append-only", |v, t| v.set_inode_flags(t.file, InodeFlags::APPEND, FlagSetter::ROOT).unwrap()),
    ("a directory that comes with a file of root's", |v, t| {
        let bag = make(v, t.outside, "bag", dir_of(ADA));
        make(v, bag, "x", file_of(0));
        v.rename(t.outside, b"bag", t.inner, b"bag", PLAIN).unwrap();
    }),
    ("a link to a file of root's", |v, t| {
        let theirs = make(v, t.outside, "theirs", file_of(0));
        v.link(theirs, t.inner, b"x").unwrap();
    }),
    ("a copy of what is root's", |v, t| {
        let bag = make(v, t.outside, "bag", dir_of(ADA));
        make(v, bag, "x", file_of(0));
        v.clone_inode(bag, t.inner, b"copy").unwrap();
    }),
];

#[test]
fn what_its_owner_could_not_make_keeps_a_tree_from_being_treated_as_one() {
    for (what, change) in CHANGES {
        let (_disk, volume) = volume();
        let trees = trees(&volume);
        assert_eq!(volume.foreign_in(trees.tree, &ada()).unwrap(), None, "{what}");
        change(&volume, &trees);
        assert_eq!(volume.owned_by(trees.tree, &ada()), Err(Error::NotPermitted), "{what}");
        let path = volume.foreign_in(trees.tree, &ada()).unwrap().unwrap();
        assert!(path.starts_with(b"inner"), "{what}: {}", path.escape_ascii());
        assert!(volume.foreign_in(trees.inner, &ada()).unwrap().is_some(), "{what}");
    }
}

#[test]
fn what_comes_while_a_tree_is_looked_through_is_noticed() {
    for (what, change) in CHANGES {
        let (_disk, volume) = volume();
        let trees = trees(&volume);
        let owned = volume.owned_by(trees.tree, &ada()).unwrap();
        change(&volume, &trees);
        let snapshots = volume.lookup(trees.tree, SNAPSHOTS_NAME).unwrap().node;
        assert_eq!(volume.clone_onto_as(&owned, trees.target), Err(Error::Busy), "{what}");
        assert_eq!(volume.snapshot_as(&owned, snapshots, b"s").map(drop), Err(Error::Busy), "{what}");
        assert_eq!(volume.remove_below_as(&owned).map(drop), Err(Error::Busy), "{what}");
        assert_eq!(names(&volume, trees.target), [""; 0]);
        assert!(names(&volume, trees.tree).contains(&"inner".to_owned()), "{what}");
    }
}

#[test]
fn what_an_owner_does_and_what_others_do_elsewhere_hinders_nobody() {
    let (_disk, volume) = volume();
    let trees = trees(&volume);
    let owned = volume.owned_by(trees.tree, &ada()).unwrap();
    make(&volume, trees.inner, "own", NewNode { perm: 0o4755, ..file_of(ADA) });
    volume.rename(trees.inner, b"own", trees.tree, b"moved", PLAIN).unwrap();
    set(&volume, trees.inner, SetAttr { perm: Some(0o700), ..SetAttr::default() });
    for number in 0..200 {
        let theirs = make(&volume, trees.outside, &format!("f{number}"), file_of(5));
        set(&volume, theirs, SetAttr { uid: Some(6), ..SetAttr::default() });
        volume.unlink(trees.outside, format!("f{number}").as_bytes()).unwrap();
    }
    let before = volume.counters().of(OpKind::Clone).visited;
    // More notes than are kept.
    assert_eq!(volume.clone_onto_as(&owned, trees.target), Err(Error::Busy));
    let owned = volume.owned_by(trees.tree, &ada()).unwrap();
    make(&volume, trees.outside, "f", file_of(5));
    volume.clone_onto_as(&owned, trees.target).unwrap();
    assert_eq!(names(&volume, trees.target), ["inner", "moved"]);
    assert!(volume.counters().of(OpKind::Clone).visited - before <= 10);
    assert_sound(&volume);
}

#[test]
fn a_user_fills_empties_and_removes_only_the_users_own() {
    let (disk, volume) = volume();
    let trees = trees(&volume);
    let theirs = make(&volume, ROOT, "theirs", dir_of(0));
    let owned = volume.owned_by(trees.tree, &ada()).unwrap();
    assert_eq!(volume.clone_onto_as(&owned, theirs), Err(Error::NotPermitted));
    // A program of one of her groups is hers.
    make(&volume, trees.inner, "x", NewNode { perm: 0o2755, gid: 7, ..file_of(ADA) });
    let owned = volume.owned_by(trees.tree, &ada()).unwrap();
    let snapshots = volume.lookup(trees.tree, SNAPSHOTS_NAME).unwrap().node;
    assert_eq!(volume.snapshot_as(&owned, theirs, b"own").map(drop), Err(Error::NotPermitted));
    volume.snapshot_as(&owned, snapshots, b"own").unwrap();
    mkdir(&volume, snapshots, "roots");
    // A copy of her snapshot is not marked as hers to remove.
    let own = volume.lookup(snapshots, b"own").unwrap().node;
    volume.clone_inode(own, ROOT, b"copy").unwrap();
    let copy = volume.resolve(b"/copy").unwrap().node;
    mkdir(&volume, volume.lookup(copy, SNAPSHOTS_NAME).unwrap().node, "roots");
    volume.close().unwrap();

    let volume = disk.open();
    let snapshots = volume.resolve(b"/tree/.betrfs-snapshots").unwrap().node;
    let of_copy = volume.resolve(b"/copy/.betrfs-snapshots").unwrap().node;
    let remove =
        |uid, snapshots, name: &str| volume.remove_snapshot_as(uid, snapshots, name.as_bytes()).map(drop);
    assert_eq!(remove(ADA, snapshots, "roots"), Err(Error::NotPermitted));
    assert_eq!(remove(ADA, of_copy, "roots"), Err(Error::NotPermitted));
    assert_eq!(remove(5, snapshots, "own"), Err(Error::NotPermitted));
    assert_eq!(remove(ADA, snapshots, "none"), Err(Error::NotFound));
    remove(ADA, snapshots, "own").unwrap();
    let tree = volume.resolve(b"/tree").unwrap().node;
    let owned = volume.owned_by(tree, &ada()).unwrap();
    assert_eq!(volume.remove_below_as(&owned).map(drop), Err(Error::HeldBySnapshots));
    volume.rmdir(snapshots, b"roots").unwrap();
    volume.remove_below_as(&owned).unwrap();
    assert_eq!(names(&volume, tree), [""; 0]);
    assert_sound(&volume);
}
