//! Files with several names.

use crate::support::*;
use betrfs::{Error, FileType, NewNode, Objects, RenameFlags, SetAttr};

#[test]
fn all_names_are_one_file_before_and_after_a_remount() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let file = mkfile(&volume, ROOT, "a");
    volume.write(file.node, 0, &[1; 5000]).unwrap();
    let other = volume.link(file.node, dir.node, b"b").unwrap();
    assert_eq!((other.node, other.attr.nlink, other.attr.ino), (file.node, 2, file.attr.ino));
    assert_eq!(volume.link(file.node, dir.node, b"b"), Err(Error::Exists));
    assert_eq!(volume.link(dir.node, ROOT, b"c"), Err(Error::IsADirectory));
    volume.close().unwrap();
    let volume = disk.open();
    let (one, other) = (volume.resolve(b"/a").unwrap(), volume.resolve(b"/d/b").unwrap());
    assert_eq!((one.node, one.attr.ino), (other.node, file.attr.ino));
    volume.write(one.node, 0, b"x").unwrap();
    let mut listed = Vec::new();
    volume.readdir(other.node, 0, Objects::None, &mut |_| true).expect_err("it is no directory");
    volume
        .readdir(ROOT, 0, Objects::All, &mut |entry| {
            listed.push((entry.name.to_vec(), entry.ino, entry.entry.map(|entry| entry.node)));
            true
        })
        .unwrap();
    assert_eq!(listed[0], (b"a".to_vec(), file.attr.ino, Some(one.node)));
    volume.unlink(ROOT, b"a").unwrap();
    assert_eq!(volume.getattr(other.node).unwrap().nlink, 1);
    let mut expected = [1; 5000];
    expected[0] = b'x';
    assert_eq!(contents(&volume, "/d/b"), expected);
    assert_sound(&volume);
}

#[test]
fn a_linked_name_renamed_over_a_plain_file_leaves_none_of_its_bytes() {
    let (disk, volume) = volume();
    let plain = mkfile(&volume, ROOT, "plain");
    volume.write(plain.node, 0, &[9; 50_000]).unwrap();
    let file = mkfile(&volume, ROOT, "a");
    volume.link(file.node, ROOT, b"b").unwrap();
    volume.rename(ROOT, b"b", ROOT, b"plain", RenameFlags::default()).unwrap();
    assert_sound(&volume);
    volume.unlink(ROOT, b"plain").unwrap();
    let again = mkfile(&volume, ROOT, "plain");
    volume.setattr(again.node, &SetAttr { size: Some(50_000), ..SetAttr::default() }).unwrap();
    assert_eq!(read_all(&volume, again.node), [0; 50_000]);
    assert_sound(&volume);
    volume.close().unwrap();
    assert_eq!(contents(&disk.open(), "/plain"), [0; 50_000]);
}

#[test]
fn special_files_and_symbolic_links_can_have_names_too() {
    let (disk, volume) = volume();
    let symlink = volume.symlink(ROOT, b"s", b"target", 1, 1).unwrap();
    volume.link(symlink.node, ROOT, b"s2").unwrap();
    let device = NewNode { file_type: FileType::BlockDevice, rdev: 0x801, ..new_file() };
    let device = volume.create(ROOT, b"dev", &device).unwrap();
    volume.link(device.node, ROOT, b"dev2").unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(volume.readlink(volume.resolve(b"/s2").unwrap().node).unwrap(), b"target");
    let attr = volume.resolve(b"/dev2").unwrap().attr;
    assert_eq!((attr.rdev, attr.nlink, attr.ino), (0x801, 2, device.attr.ino));
    for name in [&b"s"[..], b"s2", b"dev", b"dev2"] {
        volume.unlink(ROOT, name).unwrap();
    }
    assert_sound(&volume);
}
