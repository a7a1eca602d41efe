//! Extended attributes.

use std::fs;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::mounted::Mounted;

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = Vec::with_capacity(1 << 16);
    getxattr(path, name, rustix::buffer::spare_capacity(&mut value)).map(|_| value)
}

fn list(path: &Path) -> Vec<String> {
    let mut names = Vec::with_capacity(1 << 16);
    listxattr(path, rustix::buffer::spare_capacity(&mut names)).unwrap();
    let mut names: Vec<String> = names
        .split(|b| *b == 0)
        .filter(|n| !n.is_empty())
        .map(|n| String::from_utf8(n.to_vec()).unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn attributes_are_set_listed_changed_and_removed() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"").unwrap();
    fs::create_dir(mounted.path("d")).unwrap();
    for path in [mounted.path("f"), mounted.path("d"), mounted.dir.clone()] {
        let large = vec![9; 60_000];
        setxattr(&path, "user.small", b"value", XattrFlags::empty()).unwrap();
        setxattr(&path, "user.empty", b"", XattrFlags::CREATE).unwrap();
        setxattr(&path, "trusted.large", &large, XattrFlags::empty()).unwrap();
        assert_eq!(setxattr(&path, "user.small", b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(setxattr(&path, "user.none", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
        setxattr(&path, "user.small", b"other", XattrFlags::REPLACE).unwrap();
        assert_eq!(list(&path), ["trusted.large", "user.empty", "user.small"]);
        mounted.remount();
        assert_eq!(list(&path), ["trusted.large", "user.empty", "user.small"]);
        assert_eq!(get(&path, "user.small").unwrap(), b"other");
        assert_eq!(get(&path, "user.empty").unwrap(), b"");
        assert!(get(&path, "trusted.large").unwrap() == large);
        let mut short = [0; 3];
        assert_eq!(getxattr(&path, "user.small", &mut short[..]), Err(Errno::RANGE));
        removexattr(&path, "trusted.large").unwrap();
        assert_eq!(removexattr(&path, "trusted.large"), Err(Errno::NODATA));
        assert_eq!(get(&path, "trusted.large"), Err(Errno::NODATA));
        assert_eq!(list(&path), ["user.empty", "user.small"]);
    }
    assert_eq!(
        fs::read_dir(&mounted.dir).unwrap().count(),
        2,
        "the root's attributes took nothing with them"
    );
}

#[test]
fn access_control_lists_are_refused() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"").unwrap();
    // Version 2, then tag, permissions and id for the owner, the group and the others.
    let entry = |tag| [tag, 0, 6, 0, 255, 255, 255, 255];
    let acl = [&[2, 0, 0, 0][..], &entry(1), &entry(4), &entry(0x20)].concat();
    let set = setxattr(mounted.path("f"), "system.posix_acl_access", &acl, XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
}

#[test]
fn the_status_is_not_listed_and_cannot_be_set() {
    let mounted = Mounted::new();
    assert!(list(&mounted.dir).is_empty());
    assert!(get(&mounted.dir, "betrfs.status").unwrap().starts_with(b"{"));
    assert_eq!(setxattr(&mounted.dir, "betrfs.status", b"{}", XattrFlags::empty()), Err(Errno::PERM));
    assert_eq!(removexattr(&mounted.dir, "betrfs.status"), Err(Errno::PERM));
    fs::write(mounted.path("f"), b"").unwrap();
    assert!(get(&mounted.path("f"), "betrfs.status").is_err());
}
