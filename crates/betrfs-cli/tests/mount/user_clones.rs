//! Clones, snapshots and removals by users on a mount that lets them, and what keeps them from it.
#![allow(unsafe_code)] // An ioctl, whose argument only its number describes.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::attributes::open_to_all;
use crate::changes::change;
use crate::mounted::{Mounted, betrfs, ok, refused};
use crate::program::program_beside;

const ADA: u32 = 5001;
const BOB: u32 = 5002;

/// Runs the command as a user of this number, in a group of the same number and no other.
fn as_user(mounted: &Mounted, uid: u32, arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(program_beside(mounted)).args(arguments).args(paths).uid(uid).gid(uid).output().unwrap()
}

fn sh(script: &str, dir: &Path) {
    let mut shell = Command::new("sh");
    assert!(shell.args(["-euc", script, "sh"]).arg(dir).status().unwrap().success(), "{script}");
}

fn mounted(options: &str) -> Mounted {
    let mounted = Mounted::unmounted();
    ok(&mounted.try_mount(&["-o", options]));
    open_to_all(&mounted);
    mounted
}

/// A tree of a user's.
fn tree_of(uid: u32, dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/file"), b"bytes").unwrap();
    fs::hard_link(dir.join("a/b/file"), dir.join("link")).unwrap();
    sh(&format!("chown -R {uid}:{uid} \"$1\""), dir);
}

/// What keeps a user from treating a tree as one, how it is taken back, and the object that is named.
const FOREIGN: [(&str, &str, &str); 11] = [
    ("echo x > $1/a/b/x", "rm $1/a/b/x", "a/b/x"),
    ("ln -s x $1/a/x", "rm $1/a/x", "a/x"),
    ("chown 5002 $1/a/b", "chown 5001 $1/a/b", "a/b"),
    ("chown 5002 $1/link", "chown 5001 $1/link", "link"),
    ("chown 5002 $1", "chown 5001 $1", ""),
    ("mknod $1/x c 1 3; chown 5001 $1/x", "rm $1/x", "x"),
    ("cp /bin/true $1/x; chown 5001:7 $1/x; chmod 2755 $1/x", "rm $1/x", "x"),
    (
        "python3 -c \"import os; os.setxattr('$1/a/b/file', 'trusted.x', b'1')\"",
        "python3 -c \"import os; os.removexattr('$1/a/b/file', 'trusted.x')\"",
        "link",
    ),
    (
        "python3 -c \"import os; os.setxattr('$1/a', 'security.x', b'1')\"",
        "python3 -c \"import os; os.removexattr('$1/a', 'security.x')\"",
        "a",
    ),
    ("chattr +i $1/a/b", "chattr -i $1/a/b", "a/b"),
    ("chattr +a $1/a/b/file", "chattr -a $1/a/b/file", "link"),
];

#[test]
fn users_clone_snapshot_and_remove_what_is_theirs_as_a_whole_and_nothing_else() {
    let mounted = mounted("user_clone_allowed");
    let (tree, copy) = (mounted.path("tree"), mounted.path("copy"));
    tree_of(ADA, &tree);
    for (make, take_back, named) in FOREIGN {
        sh(make, &tree);
        let foreign =
            format!("{} is not theirs", tree.join(named).display().to_string().trim_end_matches('/'));
        refused(&as_user(&mounted, ADA, &["clone"], &[&tree, &copy]), &[&foreign]);
        if named.is_empty() {
            refused(&as_user(&mounted, ADA, &["snapshot", "create"], &[&tree, Path::new("s")]), &[]);
        } else {
            refused(&as_user(&mounted, ADA, &["snapshot", "create"], &[&tree, Path::new("s")]), &[&foreign]);
        }
        refused(&as_user(&mounted, ADA, &["rm-tree"], &[&tree]), &[]);
        assert!(!copy.exists() && tree.join("a/b/file").exists(), "{make}");
        sh(take_back, &tree);
    }
    // No user treats another's tree as one.
    refused(&as_user(&mounted, BOB, &["clone"], &[&tree, &copy]), &["tree is not theirs"]);
    // What only its owner could do is the owner's.
    sh("cp /bin/true $1/x; chown 5001:5001 $1/x; chmod 6755 $1/x", &tree);
    sh("setfacl -m u:5002:rwx $1/a; chmod 2775 $1/a/b; chmod 0 $1/a/b/file", &tree);
    ok(&as_user(&mounted, ADA, &["clone"], &[&tree, &copy]));
    let (from, to) = (fs::metadata(tree.join("x")).unwrap(), fs::metadata(copy.join("x")).unwrap());
    assert_eq!((to.mode(), to.uid(), to.gid()), (from.mode(), ADA, ADA));
    assert_eq!(fs::metadata(copy.join("link")).unwrap().nlink(), 2);
    assert_eq!(fs::read(copy.join("a/b/file")).unwrap(), b"bytes");
    let file = mounted.path("file");
    fs::write(&file, b"of ada").unwrap();
    chown(&file, Some(ADA), Some(ADA)).unwrap();
    ok(&as_user(&mounted, ADA, &["clone"], &[&file, &mounted.path("of-ada")]));
    refused(&as_user(&mounted, BOB, &["clone"], &[&file, &mounted.path("of-bob")]), &["file is not theirs"]);
    // Not into a place where she cannot write.
    sh("mkdir -m 755 $1/closed", &mounted.dir);
    refused(
        &as_user(&mounted, ADA, &["clone"], &[&tree, &mounted.path("closed/copy")]),
        &["Permission denied"],
    );
    let entries = fs::read_dir(&mounted.dir).unwrap();
    assert!(
        entries
            .map(|entry| entry.unwrap().file_name())
            .all(|name| !name.as_encoded_bytes().starts_with(b"."))
    );

    // She removes the snapshots that she has made.
    ok(&as_user(&mounted, ADA, &["snapshot", "create"], &[&tree, Path::new("own")]));
    ok(&betrfs().args(["snapshot", "create"]).arg(&tree).arg("roots").output().unwrap());
    refused(&as_user(&mounted, ADA, &["snapshot", "delete"], &[&tree, Path::new("roots")]), &["only root"]);
    refused(&as_user(&mounted, ADA, &["snapshot", "restore"], &[&tree, Path::new("own")]), &["only root"]);
    refused(&as_user(&mounted, ADA, &["rm-tree", "--snapshots"], &[&tree]), &["only root"]);
    refused(&as_user(&mounted, ADA, &["rm-tree"], &[&tree]), &["2 snapshots hold it"]);
    ok(&as_user(&mounted, ADA, &["snapshot", "delete"], &[&tree, Path::new("own")]));
    ok(&betrfs().args(["snapshot", "delete"]).arg(&tree).arg("roots").output().unwrap());
    refused(&as_user(&mounted, BOB, &["rm-tree"], &[&tree]), &[]);
    rustix::mount::mount("none", tree.join("a"), "tmpfs", MountFlags::empty(), None).unwrap();
    refused(&as_user(&mounted, ADA, &["rm-tree"], &[&tree]), &["mounted"]);
    // The server refuses it too, with EBUSY, whatever program asks to have the directory emptied.
    let empty = "import os, sys\ntry: os.setxattr(sys.argv[1], 'system.betrfs.change', b'\\x03\\x42\\0\\0', 3)\nexcept OSError as e: sys.exit(e.errno)";
    let mut python = Command::new("python3");
    let emptied = python.args(["-c", empty]).arg(&tree).uid(ADA).gid(ADA).status().unwrap();
    assert_eq!(emptied.code(), Some(16));
    rustix::mount::unmount(tree.join("a"), UnmountFlags::empty()).unwrap();
    ok(&as_user(&mounted, ADA, &["rm-tree"], &[&tree]));
    ok(&as_user(&mounted, ADA, &["rm-tree"], &[&copy]));
    assert!(!tree.exists() && !copy.exists());
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn without_the_option_users_may_not() {
    let mounted = mounted("nouser_clone_allowed");
    let tree = mounted.path("tree");
    tree_of(ADA, &tree);
    refused(&as_user(&mounted, ADA, &["clone"], &[&tree, &mounted.path("copy")]), &["only root"]);
    refused(&as_user(&mounted, ADA, &["snapshot", "create"], &[&tree, Path::new("s")]), &["only root"]);
    refused(&as_user(&mounted, ADA, &["rm-tree"], &[&tree]), &["only root"]);
    assert!(tree.join("a/b/file").exists());
}

/// The look at everything costs the caller queries of the tree, and no others a wait for it.
#[test]
fn a_clone_by_a_user_reads_the_records_in_one_scan() {
    let mounted = mounted("user_clone_allowed");
    let tree = mounted.path("tree");
    fs::create_dir(&tree).unwrap();
    (0..500).for_each(|number| fs::write(tree.join(format!("f{number}")), b"x").unwrap());
    sh("chown -R 5001:5001 $1", &tree);
    let queries =
        mounted.tree_queries_of(|| ok(&as_user(&mounted, ADA, &["clone"], &[&tree, &mounted.path("copy")])));
    assert!(queries <= 30, "{queries}");
}

/// What the server remembers for users has a bound for each.
#[test]
fn a_users_many_sources_take_none_from_root() {
    use rustix::ioctl::{Getter, ioctl, opcode};
    const SOURCE: u32 = opcode::read::<u64>(b'B', 1);
    const FILL: u32 = opcode::write::<u64>(b'B', 2);
    let mounted = mounted("user_clone_allowed");
    fs::write(mounted.path("roots"), b"of root").unwrap();
    fs::write(mounted.path("copy"), b"").unwrap();
    fs::write(mounted.path("adas"), b"of ada").unwrap();
    chown(mounted.path("adas"), Some(ADA), Some(ADA)).unwrap();
    let source = fs::File::open(mounted.path("roots")).unwrap();
    // SAFETY: the argument has the type that the ioctl writes.
    let token = unsafe { ioctl(&source, Getter::<SOURCE, u64>::new()) }.unwrap();
    let many = "import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(1500): fcntl.ioctl(file, 0x80084201, bytearray(8))";
    let mut python = Command::new("python3");
    ok(&python.args(["-c", many]).arg(mounted.path("adas")).uid(ADA).gid(ADA).output().unwrap());
    let copy = fs::File::open(mounted.path("copy")).unwrap();
    assert_eq!(change(&copy, FILL, &token.to_le_bytes()), Ok(()));
    assert_eq!(fs::read(mounted.path("copy")).unwrap(), b"of root");
}
