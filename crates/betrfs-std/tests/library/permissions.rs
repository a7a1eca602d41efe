//! Permissions of users other than the one who opened the volume.

use betrfs::{FlagSetter, InodeFlags};
use betrfs_std::{Caller, Dir, Fs, OpenOptions, XattrMode};

use crate::support::*;

const ADA: u32 = 1001;
const BOB: u32 = 1002;
const EACCES: i32 = 13;
const EPERM: i32 = 1;

fn user(fs: &Fs, uid: u32) -> Dir {
    fs.acting_as(Caller { uid, gid: uid, groups: vec![50], umask: 0o027 })
}

/// A volume with a directory for all, as /tmp, and one of each user.
fn shared() -> (Scratch, Dir, Dir) {
    let scratch = Scratch::new();
    let root = user(&scratch.fs, 0);
    root.set_permissions("/", 0o755).unwrap();
    for (dir, mode, owner) in
        [("tmp", 0o1777, 0), ("all", 0o777, 0), ("ada", 0o700, ADA), ("bob", 0o755, BOB)]
    {
        root.create_dir(dir).unwrap();
        root.set_permissions(dir, mode).unwrap();
        root.chown(dir, Some(owner), Some(owner)).unwrap();
    }
    let (ada, bob) = (user(&scratch.fs, ADA), user(&scratch.fs, BOB));
    (scratch, ada, bob)
}

#[test]
fn what_is_made_is_the_callers_less_the_umask() {
    let (_scratch, ada, _) = shared();
    ada.write("ada/file", "text").unwrap();
    ada.create_dir("ada/dir").unwrap();
    ada.symlink("file", "ada/link").unwrap();
    for (path, mode) in [("ada/file", 0o640), ("ada/dir", 0o750)] {
        let found = ada.metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode()), (ADA, ADA, mode), "{path}");
    }
    assert_eq!(ada.symlink_metadata("ada/link").unwrap().uid(), ADA);
    ada.set_permissions("ada/dir", 0o2770).unwrap();
    assert_eq!(errno(ada.chown("ada/dir", None, Some(50))), 0);
    ada.set_permissions("ada/dir", 0o2770).unwrap();
    ada.write("ada/dir/file", "").unwrap();
    assert_eq!(ada.metadata("ada/dir/file").unwrap().gid(), 50, "of a directory that says so");
}

#[test]
fn a_directory_that_is_closed_to_a_user_hides_all_below() {
    let (_scratch, ada, bob) = shared();
    ada.write("ada/file", "text").unwrap();
    ada.set_permissions("ada/file", 0o666).unwrap();
    for refused in [
        errno(bob.read("ada/file")),
        errno(bob.metadata("ada/file")),
        errno(bob.metadata("ada/missing")),
        errno(bob.write("ada/new", "x")),
        errno(bob.read_dir("ada")),
        errno(bob.rename("ada/file", "bob/file")),
        errno(bob.hard_link("ada/file", "bob/file")),
        errno(bob.walk("ada").collect::<betrfs_std::Result<Vec<_>>>()),
    ] {
        assert_eq!(refused, EACCES);
    }
    // Who holds the directory is asked when he uses it.
    let held = bob.open_dir("ada").unwrap();
    assert_eq!(errno(held.read("file")), EACCES);
    ada.set_permissions("ada", 0o711).unwrap();
    assert_eq!(held.read("file").unwrap(), b"text");
    assert_eq!(errno(held.read_dir(".")), EACCES);
    // A file that is open stays open.
    let file = held.open_file("file").unwrap();
    ada.set_permissions("ada", 0o700).unwrap();
    assert_eq!(file.read_at(&mut [0; 4], 0).unwrap(), 4);
}

#[test]
fn bits_of_the_file_decide_how_it_is_opened() {
    let (_scratch, ada, bob) = shared();
    bob.write("bob/file", "text").unwrap();
    bob.set_permissions("bob/file", 0o644).unwrap();
    assert_eq!(ada.read("bob/file").unwrap(), b"text");
    assert_eq!((errno(ada.write("bob/file", "x")), errno(ada.append("bob/file", "x"))), (EACCES, EACCES));
    assert_eq!((errno(ada.write("bob/new", "x")), errno(ada.create_dir("bob/new"))), (EACCES, EACCES));
    assert_eq!(errno(ada.create_dir("bob/file")), 17, "what exists comes first");
    bob.set_permissions("bob/file", 0o200).unwrap();
    assert_eq!((errno(bob.read("bob/file")), errno(bob.write("bob/file", "x"))), (EACCES, 0));
    assert_eq!(
        (errno(ada.set_permissions("bob/file", 0o777)), errno(ada.set_times("bob/file", None, None))),
        (EPERM, EPERM)
    );
    assert_eq!(
        (errno(bob.chown("bob/file", Some(ADA), None)), errno(bob.chown("bob/file", None, Some(50)))),
        (EPERM, 0)
    );
}

#[test]
fn in_a_sticky_directory_each_removes_his_own() {
    let (_scratch, ada, bob) = shared();
    ada.write("tmp/ada", "x").unwrap();
    bob.write("tmp/bob", "x").unwrap();
    for refused in [
        errno(bob.remove_file("tmp/ada")),
        errno(bob.rename("tmp/ada", "tmp/new")),
        errno(bob.rename("tmp/bob", "tmp/ada")),
        errno(bob.rename_exchange("tmp/bob", "tmp/ada")),
    ] {
        assert_eq!(refused, EPERM);
    }
    assert_eq!((errno(ada.remove_file("tmp/ada")), errno(bob.rename("tmp/bob", "tmp/ada"))), (0, 0));
    ada.write("all/ada", "x").unwrap();
    assert_eq!(errno(bob.remove_file("all/ada")), 0, "elsewhere the directory's bits count alone");
}

#[test]
fn set_id_bits_fall_when_others_write() {
    let (scratch, ada, bob) = shared();
    ada.write("all/program", "x").unwrap();
    for (what, change) in [
        ("write", (|bob| bob.write("all/program", "y").unwrap()) as fn(&Dir)),
        ("append", |bob| bob.append("all/program", "y").unwrap()),
        ("a handle", |bob| {
            let file = betrfs_std::OpenOptions::new().write(true).open(bob, "all/program").unwrap();
            file.write_at(b"y", 0).unwrap();
        }),
        ("a cut", |bob| {
            let file = betrfs_std::OpenOptions::new().write(true).open(bob, "all/program").unwrap();
            file.set_len(0).unwrap();
        }),
    ] {
        ada.set_permissions("all/program", 0o4777).unwrap();
        change(&bob);
        assert_eq!(ada.metadata("all/program").unwrap().mode(), 0o777, "{what}");
    }
    ada.set_permissions("all/program", 0o4777).unwrap();
    user(&scratch.fs, 0).write("all/program", "z").unwrap();
    assert_eq!(ada.metadata("all/program").unwrap().mode(), 0o4777, "root keeps them");
}

#[test]
fn whole_trees_are_for_root_and_who_opened_the_volume() {
    let (scratch, ada, _) = shared();
    ada.create_dir("ada/tree").unwrap();
    for refused in [
        errno(ada.clone_tree("ada/tree", "ada/copy")),
        errno(ada.rm_tree("ada/tree")),
        errno(ada.snapshot("ada/tree", "one")),
        errno(ada.snapshots("ada/tree")),
        errno(ada.remove_snapshot("ada/tree", "one")),
        errno(ada.usage("ada/tree")),
    ] {
        assert_eq!(refused, EPERM);
    }
    scratch.fs.clone_tree("ada/tree", "ada/copy").unwrap();
    assert_eq!(ada.metadata("ada/copy").unwrap().uid(), ADA, "a copy keeps its owner");
}

#[test]
fn attributes_of_root_are_not_shown() {
    let (scratch, ada, bob) = shared();
    ada.write("all/file", "x").unwrap();
    ada.set_xattr("all/file", "user.a", "1", XattrMode::Any).unwrap();
    user(&scratch.fs, 0).set_xattr("all/file", "trusted.b", "2", XattrMode::Any).unwrap();
    assert_eq!(ada.list_xattrs("all/file").unwrap(), ["user.a"]);
    assert_eq!(
        (errno(ada.get_xattr("all/file", "trusted.b")), errno(bob.get_xattr("all/file", "user.a"))),
        (61, EACCES)
    );
    assert_eq!(errno(bob.set_xattr("all/file", "user.a", "2", XattrMode::Any)), EACCES);
}

/// Sets the flags of the entry at a path; nothing else holds it afterwards.
fn set_flags(fs: &Fs, path: &str, flags: InodeFlags) {
    let node = fs.volume().resolve(path.as_bytes()).unwrap().node;
    fs.volume().set_inode_flags(node, flags, FlagSetter::ROOT).unwrap();
    fs.volume().forget(node, 1);
}

#[test]
fn inode_flags_bind_everyone() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.create_dir_all("dir/tree").unwrap();
    fs.write("dir/tree/file", "first").unwrap();
    set_flags(&fs, "/dir/tree/file", InodeFlags::APPEND);
    fs.append("dir/tree/file", ", second").unwrap();
    assert_eq!(errno(OpenOptions::new().write(true).open(&fs, "dir/tree/file")), EPERM);
    set_flags(&fs, "/dir/tree/file", InodeFlags::IMMUTABLE);
    assert_eq!(errno(fs.append("dir/tree/file", "x")), EPERM);
    assert_eq!(errno(fs.remove_file("dir/tree/file")), EPERM);
    assert_eq!(fs.read("dir/tree/file").unwrap(), b"first, second");
    // A tree that could not be removed from its parent is not emptied.
    for flags in [InodeFlags::APPEND, InodeFlags::IMMUTABLE] {
        set_flags(&fs, "/dir", flags);
        assert_eq!(errno(fs.rm_tree("dir/tree")), EPERM);
        assert_eq!(fs.read("dir/tree/file").unwrap(), b"first, second");
    }
    set_flags(&fs, "/dir", InodeFlags::NONE);
    fs.rm_tree("dir/tree").unwrap();
    assert_sound(&fs);
}

/// A list in the form of the extended attribute, from a tag, permissions and an id for each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, perm, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [vec![2, 0, 0, 0], entries.iter().flat_map(entry).collect()].concat()
}

#[test]
fn access_control_lists_let_others_in_and_are_inherited() {
    const NONE: u32 = u32::MAX;
    let (scratch, ada, bob) = shared();
    ada.write("ada/file", "text").unwrap();
    let for_bob = list(&[(1, 7, NONE), (2, 5, BOB), (4, 0, NONE), (0x10, 5, NONE), (0x20, 0, NONE)]);
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    assert_eq!(errno(bob.set_xattr("ada", access, &for_bob, XattrMode::Any)), EPERM);
    ada.set_xattr("ada", access, &for_bob, XattrMode::Any).unwrap();
    ada.set_xattr("ada", default, &for_bob, XattrMode::Any).unwrap();
    assert_eq!(ada.metadata("ada").unwrap().mode(), 0o750);
    assert_eq!(bob.get_xattr("ada", access).unwrap(), for_bob);
    // He may search and list, but not change; the file was made before the default list.
    assert_eq!((errno(bob.read_dir("ada")), errno(bob.write("ada/new", ""))), (0, EACCES));
    assert_eq!((errno(bob.read("ada/file")), errno(bob.remove_file("ada/file"))), (EACCES, EACCES));
    // No umask counts now.
    ada.write("ada/new", "text").unwrap();
    ada.create_dir("ada/dir").unwrap();
    assert_eq!(ada.metadata("ada/new").unwrap().mode(), 0o640);
    assert_eq!((errno(bob.read("ada/new")), errno(bob.write("ada/new", "x"))), (0, EACCES));
    assert_eq!(errno(bob.read_dir("ada/dir")), 0);
    // A change of the mode is one of the mask; the owning group is not Bob's.
    ada.set_permissions("ada/new", 0o660).unwrap();
    assert_eq!(errno(bob.read("ada/new")), 0);
    ada.set_permissions("ada/new", 0o620).unwrap();
    assert_eq!(errno(bob.read("ada/new")), EACCES);
    ada.remove_xattr("ada", access).unwrap();
    assert_eq!(errno(bob.metadata("ada/new")), EACCES);
    // The set-group-id bit of a group that is not hers falls.
    let root = user(&scratch.fs, 0);
    root.chown("ada/dir", Some(ADA), Some(7)).unwrap();
    root.set_permissions("ada/dir", 0o2750).unwrap();
    ada.set_xattr("ada/dir", access, &for_bob, XattrMode::Any).unwrap();
    assert_eq!(ada.metadata("ada/dir").unwrap().mode(), 0o750);
}
