//! Renames: of directories with their contents, exchanges, refusals.

use crate::support::*;
use betrfs::{Error, FileType, RenameFlags, XattrMode};

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };

#[test]
fn a_directory_moves_with_all_it_has() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let inner = mkdir(&volume, dir.node, "e");
    let file = mkfile(&volume, inner.node, "f");
    let outside = mkdir(&volume, ROOT, "o");
    volume.write(file.node, 0, &[1; 10_000]).unwrap();
    volume.set_xattr(dir.node, b"user.x", &[2; 5000], XattrMode::Any).unwrap();
    volume.set_xattr(file.node, b"user.y", &[3; 5000], XattrMode::Any).unwrap();
    let linked = mkfile(&volume, inner.node, "l");
    volume.link(linked.node, outside.node, b"name").unwrap();
    let inos: Vec<u64> = [dir.node, inner.node, file.node, linked.node]
        .iter()
        .map(|node| volume.getattr(*node).unwrap().ino)
        .collect();
    volume.open_inode(file.node).unwrap();
    volume.rename(ROOT, b"d", outside.node, b"moved", PLAIN).unwrap();
    volume.write(file.node, 10_000, &[4; 10]).unwrap();
    assert_eq!(volume.lookup(ROOT, b"d"), Err(Error::NotFound));
    assert_sound(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    let paths = ["/o/moved", "/o/moved/e", "/o/moved/e/f", "/o/moved/e/l"];
    for (path, ino) in paths.iter().zip(inos) {
        assert_eq!(volume.resolve(path.as_bytes()).unwrap().attr.ino, ino, "{path}");
    }
    let mut expected = vec![1; 10_000];
    expected.extend([4; 10]);
    assert_eq!(contents(&volume, "/o/moved/e/f"), expected);
    let moved = volume.resolve(b"/o/moved").unwrap();
    assert_eq!(volume.get_xattr(moved.node, b"user.x").unwrap(), [2; 5000]);
    let one = volume.resolve(b"/o/moved/e/l").unwrap();
    let other = volume.resolve(b"/o/name").unwrap();
    assert_eq!(one.node, other.node);
    assert_sound(&volume);
}

#[test]
fn exchange_swaps_entries_of_any_two_types() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "file");
    volume.write(file.node, 0, &[1; 9000]).unwrap();
    let dirs: Vec<_> = ["a", "b"]
        .iter()
        .map(|name| {
            let dir = mkdir(&volume, ROOT, name);
            let inner = mkfile(&volume, dir.node, &format!("in-{name}"));
            volume.write(inner.node, 0, name.as_bytes()).unwrap();
            volume.link(inner.node, dir.node, b"link").unwrap();
            volume.set_xattr(dir.node, b"user.x", name.repeat(3000).as_bytes(), XattrMode::Any).unwrap();
            dir
        })
        .collect();
    volume.rename(ROOT, b"a", ROOT, b"b", EXCHANGE).unwrap();
    assert_sound(&volume);
    assert_eq!(contents(&volume, "/a/in-b"), b"b");
    assert_eq!(contents(&volume, "/b/link"), b"a");
    assert_eq!(volume.get_xattr(dirs[0].node, b"user.x").unwrap(), "a".repeat(3000).as_bytes());
    volume.rename(ROOT, b"a", ROOT, b"file", EXCHANGE).unwrap();
    assert_sound(&volume);
    assert_eq!(contents(&volume, "/file/in-b"), b"b");
    assert_eq!(contents(&volume, "/a"), [1; 9000]);
    volume.rename(ROOT, b"file", dirs[0].node, b"link", EXCHANGE).unwrap();
    assert_sound(&volume);
    assert_eq!(contents(&volume, "/b/link/in-b"), b"b");
    assert_eq!(contents(&volume, "/file"), b"a");
    let up = volume.rename(ROOT, b"b", dirs[0].node, b"link", EXCHANGE);
    assert!(matches!(up, Err(Error::Invalid(_))), "{up:?}");
    let down = volume.rename(dirs[0].node, b"link", ROOT, b"b", EXCHANGE);
    assert!(matches!(down, Err(Error::Invalid(_))), "{down:?}");
}

#[test]
fn the_rules_of_rename() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let full = mkdir(&volume, ROOT, "full");
    let file = mkfile(&volume, ROOT, "f");
    mkfile(&volume, full.node, "x");
    let rename = |from: &[u8], to: &[u8], flags| volume.rename(ROOT, from, ROOT, to, flags);
    assert_eq!(rename(b"none", b"g", PLAIN), Err(Error::NotFound));
    assert_eq!(rename(b"d", b"f", PLAIN), Err(Error::NotADirectory));
    assert_eq!(rename(b"f", b"d", PLAIN), Err(Error::IsADirectory));
    assert_eq!(rename(b"d", b"full", PLAIN), Err(Error::NotEmpty));
    assert_eq!(rename(b"f", b"d", RenameFlags { no_replace: true, ..PLAIN }), Err(Error::Exists));
    assert_eq!(rename(b"f", b"none", EXCHANGE), Err(Error::NotFound));
    assert!(matches!(volume.rename(ROOT, b"d", dir.node, b"e", PLAIN), Err(Error::Invalid(_))));
    assert_eq!(volume.rename(full.node, b"x", ROOT, b"full", PLAIN), Err(Error::IsADirectory));
    assert!(matches!(rename(b"f", b"g", RenameFlags { whiteout: true, ..EXCHANGE }), Err(Error::Invalid(_))));
    assert_eq!(rename(b"f", &[b'x'; 256], PLAIN), Err(Error::NameTooLong));
    assert_eq!(rename(b"f", b"f", PLAIN), Ok(()));
    // Two names of one file: nothing happens.
    volume.link(file.node, ROOT, b"g").unwrap();
    assert_eq!(rename(b"f", b"g", PLAIN), Ok(()));
    assert_eq!(names(&volume, ROOT), ["d", "f", "full", "g"]);
    assert_eq!(rename(b"full", b"d", PLAIN), Ok(()));
    assert_eq!(volume.getattr(ROOT).unwrap().nlink, 3);
    assert_eq!(rename(b"d", b"e", RenameFlags { whiteout: true, ..PLAIN }), Ok(()));
    let whiteout = volume.lookup(ROOT, b"d").unwrap().attr;
    assert_eq!((whiteout.file_type, whiteout.rdev), (FileType::CharDevice, 0));
    assert_sound(&volume);
}

#[test]
fn a_file_of_any_size_is_renamed_and_linked_and_is_whole_after_it() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let file = mkfile(&volume, dir.node, "big");
    let data: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 4096) as u8 ^ i as u8).collect();
    volume.write(file.node, 0, &data).unwrap();
    volume.set_xattr(file.node, b"user.large", &[7; 9000], XattrMode::Any).unwrap();
    let ino = volume.getattr(file.node).unwrap().ino;
    volume.rename(dir.node, b"big", ROOT, b"moved", PLAIN).unwrap();
    // The open file is the same one.
    volume.write(file.node, 10, b"after").unwrap();
    let mut data = data;
    data[10..15].copy_from_slice(b"after");
    assert!(contents(&volume, "/moved") == data);
    assert_sound(&volume);
    volume.rename(ROOT, b"moved", dir.node, b"again", PLAIN).unwrap();
    let linked = mkfile(&volume, ROOT, "other");
    volume.write(linked.node, 0, &data).unwrap();
    volume.link(linked.node, dir.node, b"second").unwrap();
    volume.close().unwrap();

    let volume = disk.open();
    assert_eq!(names(&volume, ROOT), ["d", "other"]);
    for path in ["/d/again", "/other", "/d/second"] {
        assert!(contents(&volume, path) == data, "{path}");
    }
    let again = volume.resolve(b"/d/again").unwrap();
    assert_eq!((again.attr.ino, again.attr.nlink), (ino, 1));
    assert_eq!(volume.get_xattr(again.node, b"user.large").unwrap(), [7; 9000]);
    assert_eq!(volume.resolve(b"/other").unwrap().attr.nlink, 2);
    assert_sound(&volume);
}

#[test]
fn a_directory_of_any_size_is_renamed() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let file = mkfile(&volume, dir.node, "big");
    let data = vec![5; 3 << 20];
    volume.write(file.node, 0, &data).unwrap();
    volume.rename(ROOT, b"d", ROOT, b"e", PLAIN).unwrap();
    assert_eq!(names(&volume, ROOT), ["e"]);
    assert!(contents(&volume, "/e/big") == data);
    // Unlinking it works, open or not.
    volume.open_inode(file.node).unwrap();
    volume.unlink(dir.node, b"big").unwrap();
    assert!(read_all(&volume, file.node) == data);
    volume.release_node(file.node);
    volume.forget(file.node, 1);
    assert_sound(&volume);
}

#[test]
fn a_deep_tree_ends_at_the_key_limit_and_can_still_be_deleted() {
    let disk = Disk::of_bytes(1 << 30);
    let volume = disk.open();
    let name = [b'n'; 255];
    let mut path = vec![ROOT];
    let error = loop {
        match volume.create(path[path.len() - 1], &name, &new_dir()) {
            Ok(entry) => path.push(entry.node),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::NameTooLong);
    assert!(path.len() > 200);
    // A top directory cannot be moved if keys below it would get too long.
    let other = mkdir(&volume, ROOT, "other");
    let deep = volume.create(other.node, &[b'm'; 255], &new_dir()).unwrap();
    assert_eq!(volume.rename(ROOT, &name, deep.node, &name, PLAIN), Err(Error::NameTooLong));
    volume.rename(ROOT, &name, ROOT, b"short", PLAIN).unwrap();
    assert_sound(&volume);
    volume.rename(ROOT, b"short", ROOT, &name, PLAIN).unwrap();
    while path.len() > 1 {
        path.pop();
        volume.rmdir(path[path.len() - 1], &name).unwrap();
    }
    assert_sound(&volume);
}
