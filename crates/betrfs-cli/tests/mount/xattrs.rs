//! Extended attributes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::thread;

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
fn trusted_attributes_are_listed_to_the_superuser_alone() {
    const NOBODY: u32 = 65_534;
    let mounted = Mounted::new();
    for dir in [mounted.dir.parent().unwrap(), &mounted.dir] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(mounted.path("f"), b"").unwrap();
    fs::create_dir(mounted.path("d")).unwrap();
    // A thread has a user of its own.
    let seen_by = |uid: u32, path: &Path| {
        let as_user = || {
            rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(uid)).unwrap();
            list(path)
        };
        thread::scope(|threads| threads.spawn(as_user).join().unwrap())
    };
    for path in [mounted.path("f"), mounted.path("d"), mounted.dir.clone()] {
        setxattr(&path, "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        setxattr(&path, "security.note", b"n", XattrFlags::empty()).unwrap();
        setxattr(&path, "user.a", b"a", XattrFlags::empty()).unwrap();
        // The kernel hides no `security.` names on any file system. An owner does not see `trusted.` names.
        assert_eq!(seen_by(NOBODY, &path), ["security.note", "user.a"]);
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        assert_eq!(seen_by(NOBODY, &path), ["security.note", "user.a"]);
        assert_eq!(seen_by(0, &path), ["security.note", "trusted.overlay.opaque", "user.a"]);
    }
}

/// The kernel enforces these rules for all file systems.
#[test]
fn attributes_of_users_are_for_files_and_directories() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"").unwrap();
    std::os::unix::fs::symlink("f", mounted.path("s")).unwrap();
    let fifo = mounted.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    for path in [mounted.path("s"), fifo] {
        let set = |name| rustix::fs::lsetxattr(&path, name, b"x", XattrFlags::empty());
        assert_eq!(set("user.x"), Err(Errno::PERM));
        set("trusted.x").unwrap();
        assert_eq!(rustix::fs::llistxattr(&path, &mut [0; 20][..]), Ok(10));
    }
    for name in ["system.x", "betrfs.x", "other", "user."] {
        let set = setxattr(mounted.path("f"), name, b"x", XattrFlags::empty());
        assert!(matches!(set, Err(Errno::OPNOTSUPP | Errno::INVAL)), "{name}: {set:?}");
    }
    assert_eq!(list(&mounted.path("f")), [""; 0]);
}
