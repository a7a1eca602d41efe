//! Access control lists: copies have those of the volume, and none that their directory hands down.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use betrfs::{FileType, InodeId, XattrMode};

use super::{Sample, new};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A list as the kernel has it: of the owner, a user, the group, the mask and others.
fn acl(user: u32, perm: u16) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, perm, id) in
        [(1u16, 7u16, none), (2, perm, user), (4, 5, none), (0x10, 7, none), (0x20, 0, none)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The lists of a file.
fn lists(path: &Path) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let list = |name: &str| {
        let mut value = vec![0; 1 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
        value.truncate(len);
        Some(value)
    };
    (list(ACCESS), list(DEFAULT))
}

#[test]
fn copies_have_the_access_control_lists_of_the_volume_and_no_others() {
    let sample = Sample::new("64M");
    let volume = sample.open();
    let types = [
        (&b"file"[..], FileType::Regular, 0o660),
        (b"sub", FileType::Directory, 0o770),
        (b"pipe", FileType::Fifo, 0o666),
        (b"socket", FileType::Socket, 0o666),
        (b"device", FileType::CharDevice, 0o666),
    ];
    let dir = volume.create(InodeId::ROOT, b"dir", &new(FileType::Directory, 0o755)).unwrap().node;
    for (name, file_type, perm) in types {
        volume.create(dir, name, &new(file_type, perm)).unwrap();
    }
    volume.symlink(dir, b"symlink", b"file", 0, 0).unwrap();
    let two = volume.create(dir, b"name1", &new(FileType::Regular, 0o660)).unwrap().node;
    volume.link(two, InodeId::ROOT, b"name2").unwrap();
    let own = volume.create(dir, b"own", &new(FileType::Regular, 0o670)).unwrap().node;
    volume.set_xattr(own, ACCESS.as_bytes(), &acl(7, 6), XattrMode::Any).unwrap();
    // Its lists come last, so that nothing has them of it. A snapshot has a directory without a record.
    volume.set_xattr(dir, DEFAULT.as_bytes(), &acl(1000, 7), XattrMode::Any).unwrap();
    let snapshots = volume.lookup(dir, betrfs::SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"monday", &new(FileType::Directory, 0o755)).unwrap();
    volume.close().unwrap();
    drop(volume);
    // Also the directory that is copied to hands a list down.
    let target = sample.temp.path();
    let hands_down = |path: &Path| {
        rustix::fs::setxattr(path, DEFAULT, &acl(1001, 7), rustix::fs::XattrFlags::empty()).unwrap();
    };
    hands_down(target);
    let (code, missing, said) = sample.rescue();
    assert_eq!((code, missing.as_slice()), (Some(0), &[][..]), "{said}");
    let copy = sample.copy();
    assert_eq!(lists(&copy), (None, None));
    for dir in [copy.join("dir"), copy.join("dir/.betrfs-snapshots/monday")] {
        assert_eq!(lists(&dir), (None, Some(acl(1000, 7))), "{}", dir.display());
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o755);
        for (name, _, perm) in types {
            let path = dir.join(std::str::from_utf8(name).unwrap());
            assert_eq!(lists(&path), (None, None), "{}", path.display());
            assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, u32::from(perm));
        }
        assert_eq!(lists(&dir.join("symlink")), (None, None));
        assert_eq!(lists(&dir.join("name1")), (None, None));
        assert_eq!(lists(&dir.join("own")), (Some(acl(7, 6)), None));
        assert_eq!(fs::metadata(dir.join("own")).unwrap().mode() & 0o7777, 0o770);
    }
    assert_eq!(lists(&copy.join("dir/.betrfs-snapshots")), (None, None));
}

/// One that was there before, with lists of its own.
#[test]
fn the_directory_that_is_copied_to_gets_the_lists_of_the_root() {
    let sample = Sample::new("64M");
    let volume = sample.open();
    volume.create_with(InodeId::ROOT, b"file", &new(FileType::Regular, 0o640), b"text").unwrap();
    volume.close().unwrap();
    drop(volume);
    fs::create_dir(sample.copy()).unwrap();
    for name in [ACCESS, DEFAULT] {
        rustix::fs::setxattr(sample.copy(), name, &acl(1001, 7), rustix::fs::XattrFlags::empty()).unwrap();
    }
    let mut rescue = Command::new(env!("CARGO_BIN_EXE_betrfs"));
    assert!(rescue.arg("rescue").args([&sample.path, &sample.copy()]).status().unwrap().success());
    assert_eq!(lists(&sample.copy()), (None, None));
    assert_eq!(fs::metadata(sample.copy()).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(lists(&sample.copy().join("file")), (None, None));
    assert_eq!(fs::metadata(sample.copy().join("file")).unwrap().mode() & 0o7777, 0o640);
}
