//! Paths, names and values that nobody should give: each is an error, with its number.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betrfs_std::{Errno, Fs, OpenOptions, XattrMode};

use crate::support::*;

/// Every operation that takes a path, as the number of its error.
fn all(fs: &Fs, path: &Path) -> Vec<(&'static str, i32)> {
    vec![
        ("read", errno(fs.read(path))),
        ("write", errno(fs.write(path, "x"))),
        ("append", errno(fs.append(path, "x"))),
        ("open_file", errno(fs.open_file(path))),
        ("create_new", errno(OpenOptions::new().write(true).create_new(true).open(fs, path))),
        ("create_dir", errno(fs.create_dir(path))),
        ("open_dir", errno(fs.open_dir(path))),
        ("read_dir", errno(fs.read_dir(path))),
        ("walk", errno(fs.walk(path).collect::<betrfs_std::Result<Vec<_>>>())),
        ("metadata", errno(fs.metadata(path))),
        ("symlink_metadata", errno(fs.symlink_metadata(path))),
        ("remove_file", errno(fs.remove_file(path))),
        ("remove_dir", errno(fs.remove_dir(path))),
        ("rm_tree", errno(fs.rm_tree(path))),
        ("rename from", errno(fs.rename(path, "to"))),
        ("rename to", errno(fs.rename("file", path))),
        ("exchange", errno(fs.rename_exchange("file", path))),
        ("no_replace", errno(fs.rename_no_replace("file", path))),
        ("copy from", errno(fs.copy(path, "to"))),
        ("copy to", errno(fs.copy("file", path))),
        ("hard_link from", errno(fs.hard_link(path, "to"))),
        ("hard_link to", errno(fs.hard_link("file", path))),
        ("symlink", errno(fs.symlink("file", path))),
        ("read_link", errno(fs.read_link(path))),
        ("canonicalize", errno(fs.canonicalize(path))),
        ("set_permissions", errno(fs.set_permissions(path, 0o644))),
        ("chown", errno(fs.chown(path, Some(0), None))),
        ("set_times", errno(fs.set_times(path, None, None))),
        ("get_xattr", errno(fs.get_xattr(path, "user.a"))),
        ("set_xattr", errno(fs.set_xattr(path, "user.a", "1", XattrMode::Any))),
        ("list_xattrs", errno(fs.list_xattrs(path))),
        ("clone from", errno(fs.clone_tree(path, "to"))),
        ("clone to", errno(fs.clone_tree("file", path))),
        ("snapshot", errno(fs.snapshot(path, "one"))),
        ("snapshots", errno(fs.snapshots(path))),
        ("usage", errno(fs.usage(path))),
    ]
}

#[test]
fn no_path_is_one_panic_or_one_success() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("file", "text").unwrap();
    fs.symlink("loop", "loop").unwrap();
    let deep = "a/".repeat(3000);
    let long_name = format!("x/{}", "n".repeat(256));
    for (path, expected) in [
        (&b""[..], Errno::NOENT),
        (b"a\0b", Errno::INVAL),
        (b"missing/file", Errno::NOENT),
        (b"file/below", Errno::NOTDIR),
        (b"loop/below", Errno::LOOP),
        (&[b'n'; 256], Errno::NAMETOOLONG),
        (deep.as_bytes(), Errno::NAMETOOLONG),
        (long_name.as_bytes(), Errno::NOENT),
        (b"\xff\xfe/\xfd", Errno::NOENT),
    ] {
        for (operation, number) in all(&fs, Path::new(OsStr::from_bytes(path))) {
            let shown = path.escape_ascii().to_string();
            assert_eq!(number, expected.raw_os_error(), "{operation} of {shown:.40}");
        }
    }
    assert_eq!(errno(fs.create_dir_all("")), 0, "as by std");
    assert_eq!(fs.read("file").unwrap(), b"text");
    assert_eq!(fs.volume().inodes_held(), 1);
    assert_sound(&fs);
}

#[test]
fn the_root_is_neither_made_nor_removed() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.create_dir("dir").unwrap();
    let numbers = |path: &str| {
        (
            errno(fs.create_dir(path)),
            errno(fs.remove_dir(path)),
            errno(fs.rm_tree(path)),
            errno(fs.remove_file(path)),
            errno(fs.rename(path, "to")),
            errno(fs.rename("dir", path)),
        )
    };
    assert_eq!(numbers("/"), (17, 16, 16, 21, 16, 16));
    assert_eq!(numbers("dir/."), (17, 22, 22, 21, 16, 16));
    assert_eq!(numbers("dir/.."), (17, 39, 39, 21, 16, 16));
    assert_eq!(fs.canonicalize("../../dir/../..").unwrap(), Path::new("/"), "above the root is the root");
}

#[test]
fn the_entry_for_snapshots_is_nobodys_to_make() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("file", "text").unwrap();
    for number in [
        errno(fs.write(".betrfs-snapshots", "x")),
        errno(fs.rename("file", ".betrfs-snapshots")),
        errno(fs.remove_file(".betrfs-snapshots")),
        errno(fs.symlink("file", ".betrfs-snapshots")),
    ] {
        assert!(number != 0);
    }
    fs.snapshot("/", "one").unwrap();
    for refused in [
        errno(fs.write(".betrfs-snapshots/one/file", "x")),
        errno(fs.write(".betrfs-snapshots/one/new", "x")),
        errno(fs.remove_file(".betrfs-snapshots/one/file")),
        errno(fs.set_permissions(".betrfs-snapshots/one/file", 0o600)),
    ] {
        assert_eq!(refused, Errno::ROFS.raw_os_error());
    }
    for name in ["", ".", "..", "a/b", "a\0b", &"n".repeat(256)] {
        assert!(errno(fs.snapshot("/", name)) != 0, "{name:?}");
        assert!(errno(fs.remove_snapshot("/", name)) != 0, "{name:?}");
    }
    assert_eq!((errno(fs.snapshot("/", "one")), errno(fs.snapshot("file", "one"))), (17, 20));
}

#[test]
fn extended_attributes_have_limits() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("file", "text").unwrap();
    let set = |name: &str, len: usize| errno(fs.set_xattr("file", name, vec![7; len], XattrMode::Any));
    assert_eq!((set("user.a", 65_536), set("user.a", 65_537)), (0, Errno::RANGE.raw_os_error()));
    assert_eq!(fs.get_xattr("file", "user.a").unwrap(), vec![7; 65_536]);
    assert_eq!((set("other.a", 1), set("user.", 1), set("", 1)), (95, 22, 95));
    assert_eq!(set(&format!("user.{}", "n".repeat(256)), 1), Errno::RANGE.raw_os_error());
    assert_eq!(errno(fs.set_xattr("file", "user.a", "", XattrMode::Create)), 17);
    assert_eq!(errno(fs.set_xattr("file", "user.b", "", XattrMode::Replace)), 61);
    assert_eq!(fs.list_xattrs("file").unwrap(), ["user.a"]);
    fs.remove_xattr("file", "user.a").unwrap();
    assert_eq!(errno(fs.get_xattr("file", "user.a")), 61);
}
