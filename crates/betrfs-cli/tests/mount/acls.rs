//! Access control lists on a mount: requests, and what the kernel remembers. Whom they let do what, and what
//! inherits them, is `cases/acls.py`; programs are in `cases/acl-tools.sh`.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::attributes::{as_nobody, open_to_all};
use crate::mounted::{Mounted, betrfs, ok};

const NOBODY: u32 = 65_534;
const FILES: u64 = 20;

fn setfacl(arguments: &[&str], path: &Path) {
    ok(&Command::new("setfacl").args(arguments).arg(path).output().unwrap());
}

fn reads(path: &Path) -> bool {
    as_nobody("cat \"$1\" >/dev/null", path)
}

fn getxattrs(requests: &BTreeMap<String, u64>) -> u64 {
    requests.get("getxattr").copied().unwrap_or(0)
}

/// A directory of root's with files, which everybody may read. It is in a directory of nobody's, whose list
/// is not asked for when nobody goes there: the kernel would ask at each step, as it remembers none there.
fn tree(mounted: &Mounted) {
    open_to_all(mounted);
    chown(&mounted.dir, Some(NOBODY), None).unwrap();
    fs::create_dir(mounted.path("d")).unwrap();
    (0..FILES).for_each(|i| fs::write(mounted.path(format!("d/f{i}")), b"x").unwrap());
}

#[test]
fn only_others_than_the_owner_cost_a_request_for_each_object_once() {
    let mounted = Mounted::new();
    tree(&mounted);
    mounted.umount();
    // Reading changes no time, which the kernel would ask for, and with it for the list.
    ok(&mounted.try_mount(&["-o", "noatime"]));
    let all = |script: &str| assert!(as_nobody(script, &mounted.path("d")), "{script}");
    // The owner's reading and listing.
    let dir = fs::File::open(mounted.path("d")).unwrap();
    let below = |i| Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(format!("f{i}"));
    let read = || (0..FILES).for_each(|i| assert_eq!(fs::read(below(i)).unwrap(), b"x"));
    assert_eq!(getxattrs(&mounted.requests_of(read)), 0);
    let listed = mounted.requests_of(|| {
        let entries = fs::read_dir(below(0).parent().unwrap()).unwrap();
        assert_eq!(entries.map(|e| e.unwrap().metadata().unwrap().len()).sum::<u64>(), FILES);
    });
    assert_eq!(getxattrs(&listed), 0);
    // Another user: one for each file and one for the directory, or two as its listing has moved its times;
    // and none the second time.
    let asked = getxattrs(&mounted.requests_of(|| all("cat \"$1\"/f*")));
    assert!((FILES + 1..=FILES + 2).contains(&asked), "{asked}");
    let again = getxattrs(&mounted.requests_of(|| all("cat \"$1\"/f*")));
    assert!(again <= 1, "{again}");
}

#[test]
fn without_lists_there_is_no_request_and_no_list() {
    let mounted = Mounted::new();
    tree(&mounted);
    let file = mounted.path("d/f0");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    setfacl(&["-m", "u:65534:r--"], &file);
    setfacl(&["-d", "-m", "u:65534:r--,o::---"], &mounted.path("d"));
    assert!(reads(&file));
    mounted.umount();
    ok(&mounted.try_mount(&["-o", "noacl"]));
    let requests = mounted.requests_of(|| assert!(as_nobody("cat \"$1\"/f1", &mounted.path("d"))));
    assert_eq!(getxattrs(&requests), 0);
    // The permission bits alone count: those of the group are the mask.
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
    assert!(!reads(&file));
    let set =
        |value: &[u8]| rustix::fs::setxattr(&file, "system.posix_acl_access", value, XattrFlags::empty());
    let entry = |tag| [tag, 0, 6, 0, 255, 255, 255, 255];
    let minimal = [&[2, 0, 0, 0][..], &entry(1), &entry(4), &entry(0x20)].concat();
    assert_eq!(set(&minimal), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::removexattr(&file, "system.posix_acl_access"), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::listxattr(&file, &mut [0; 100][..]), Ok(0));
    // They are still there.
    mounted.umount();
    ok(&mounted.try_mount(&["-o", "noacl,acl"]));
    assert!(reads(&file));
    fs::write(mounted.path("d/new"), b"").unwrap();
    assert!(reads(&mounted.path("d/new")));
}

#[test]
fn the_kernel_forgets_what_has_changed() {
    let mounted = Mounted::new();
    tree(&mounted);
    let file = mounted.path("d/f0");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    for round in 0..3 {
        assert!(!reads(&file), "{round}");
        setfacl(&["-m", "u:65534:r--"], &file);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
        assert!(reads(&file), "{round}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!reads(&file), "{round}: the mask is empty");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o660)).unwrap();
        assert!(reads(&file), "{round}");
        setfacl(&["-b"], &file);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    // A copy has the lists of the source at once, also where the kernel knew the empty target.
    setfacl(&["-m", "u:65534:r-x"], &file);
    setfacl(&["-m", "u:65534:r-x,o::---"], &mounted.path("d"));
    for (source, copy) in [(&file, "copy"), (&mounted.path("d"), "copied")] {
        let copy = mounted.path(copy);
        ok(&betrfs().arg("clone").arg(source).arg(&copy).output().unwrap());
        assert!(as_nobody("ls \"$1\" && (cat \"$1\" || cat \"$1\"/f0) 2>/dev/null", &copy));
    }
    // Who may search a directory finds its snapshots, and nobody else does.
    ok(&betrfs().args(["snapshot", "create"]).arg(mounted.path("d")).arg("s").output().unwrap());
    let taken = mounted.path("d/.betrfs-snapshots");
    assert!(as_nobody("ls \"$1\" | grep s && cat \"$1\"/s/f0", &taken));
    setfacl(&["-x", "u:65534"], &mounted.path("d"));
    assert!(!as_nobody("ls \"$1\"", &taken));
}

#[test]
fn a_list_that_names_somebody_twice_is_refused() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"").unwrap();
    let before = fs::metadata(mounted.path("f")).unwrap().mode();
    let entry = |tag, id| [tag, 0, 6, 0, id, 0, 0, 0];
    let nobody = |tag| [tag, 0, 7, 0, 255, 255, 255, 255];
    // The kernel itself checks all but this.
    for (users, expected) in [([7, 7], Err(Errno::INVAL)), ([8, 7], Ok(()))] {
        let users = users.map(|id| entry(2, id)).concat();
        let acl = [&[2, 0, 0, 0][..], &nobody(1), &users, &nobody(4), &nobody(0x10), &nobody(0x20)].concat();
        let set =
            rustix::fs::setxattr(mounted.path("f"), "system.posix_acl_access", &acl, XattrFlags::empty());
        assert_eq!(set, expected);
        let after = fs::metadata(mounted.path("f")).unwrap().mode();
        assert_eq!(after == before, expected.is_err(), "{after:o}");
    }
}

#[test]
fn making_files_where_one_is_not_the_owner_costs_one_request_more() {
    let mounted = Mounted::new();
    tree(&mounted);
    let dir = mounted.path("d");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    setfacl(&["-m", "u:65534:rwx"], &dir);
    let make = "i=0; while [ $i -lt 50 ]; do : >\"$1\"/$i || exit 1; i=$((i+1)); done";
    let requests = mounted.requests_of(|| assert!(as_nobody(make, &dir)));
    // With the attributes of the directory, which have changed, its list is asked for anew.
    let asked = getxattrs(&requests);
    assert!((50..=53).contains(&asked), "{requests:?}");
    assert_eq!(requests["create"], 50);
    chown(&dir, Some(NOBODY), None).unwrap();
    let requests = mounted.requests_of(|| assert!(as_nobody("for i in \"$1\"/*; do rm $i; done", &dir)));
    assert!(getxattrs(&requests) <= 1, "{requests:?}");
}
