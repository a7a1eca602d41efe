//! Quotas of directories on a mount: what users meet, and the command.

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::attributes::open_to_all;
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};
use crate::program::program_beside;
use crate::schemas::valid;

const ADA: u32 = 5101;

/// What a process meets in a directory with 64 KiB and 8 objects, of which it makes the first itself.
const MATRIX: &str = r#"
import ctypes, errno, mmap, os, sys, time

os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
K = 1024

def fails(wanted, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == wanted, (call, arguments, error)
    else:
        raise AssertionError((call, arguments, "worked"))

def refused(call, *arguments):
    fails(errno.EDQUOT, call, *arguments)

# close(2) does not wait for the server to hear of it: what has no name any more counts a little longer.
def soon(call, *arguments, **more):
    until = time.monotonic() + 30
    while True:
        try:
            return call(*arguments, **more)
        except OSError as error:
            if error.errno != errno.EDQUOT or time.monotonic() > until:
                raise
            time.sleep(0.01)

def fallocate(fd, mode, offset, length):
    call = libc.fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    if call(fd, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")

fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
assert os.pwrite(fd, b"x" * (48 * K), 0) == 48 * K
refused(os.pwrite, fd, b"x" * (20 * K), 48 * K)
refused(os.pwrite, fd, b"x" * (20 * K), 1 << 30)
assert os.fstat(fd).st_size == 48 * K
room = os.statvfs(".")
assert room.f_blocks * room.f_frsize == 64 * K, room
assert room.f_bavail * room.f_frsize == 16 * K, room
assert (room.f_files, room.f_ffree) == (8, 7), room
# Of a descriptor, and of a file.
assert os.fstatvfs(fd).f_blocks == room.f_blocks

refused(fallocate, fd, 0, 48 * K, 20 * K)
fallocate(fd, 0, 48 * K, 8 * K)
os.ftruncate(fd, 48 * K)
os.ftruncate(fd, 10 << 20)
os.ftruncate(fd, 48 * K)

# Written through a mapping, past the pages' room: told when they are written back, and never there.
hole = os.open("hole", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
os.ftruncate(hole, 256 * K)
pages = mmap.mmap(hole, 256 * K)
pages[: 256 * K] = b"y" * (256 * K)
try:
    pages.flush()
    os.fsync(hole)
except OSError as error:
    assert error.errno in (errno.EDQUOT, errno.EIO), error
    print("a mapping's pages:", errno.errorcode[error.errno])
else:
    raise AssertionError("msync worked")
pages.close()
os.close(hole)
os.unlink("hole")

# Buffered, by a program that asks for nothing.
with open("g", "wb", buffering=0) as g:
    refused(g.write, b"x" * (64 * K))
    assert soon(g.write, b"x" * (8 * K)) == 8 * K
# A write in pieces returns those that fit: none here, as it is one piece.
copy = os.open("copy", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
refused(os.copy_file_range, fd, copy, 40 * K)
os.close(copy)

# Objects: f, g, copy and five more.
os.mkdir("dir")
os.symlink("to", "link")
os.mkfifo("pipe")
os.link("f", "second")
for name in ["one", "two"]:
    os.close(soon(os.open, name, os.O_CREAT | os.O_CLOEXEC))
refused(os.open, "three", os.O_CREAT | os.O_CLOEXEC)
refused(os.mkdir, "dir2")
refused(os.symlink, "to", "link2")
refused(os.mkfifo, "pipe2")
refused(os.open, ".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC)
os.link("f", "third")

# Nothing moves out or in.
fails(errno.EXDEV, os.rename, "one", "../one")
fails(errno.EXDEV, os.rename, "dir", "../dir")
fails(errno.EXDEV, os.link, "one", "../one")
os.rename("one", "dir/one")

# Without a name, it takes its room until it is closed.
for name in ["f", "second", "third"]:
    os.unlink(name)
refused(os.pwrite, fd, b"x" * (20 * K), 48 * K)
os.close(fd)
with soon(open, "again", "wb", buffering=0) as again:
    assert again.write(b"x" * (56 * K)) == 56 * K
"#;

fn quota(arguments: &[&str], dir: &Path, more: &[&str]) -> Output {
    betrfs().arg("quota").args(arguments).arg(dir).args(more).output().unwrap()
}

fn json(action: &str, dir: &Path) -> Value {
    let output = quota(&[action, "--format", "json"], dir, &[]);
    ok(&output);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid(&format!("quota-{action}"), &document);
    document
}

/// Bytes and objects that a directory's quota counts.
fn used(dir: &Path) -> (u64, u64) {
    let document = json("get", dir);
    (document["used_bytes"].as_u64().unwrap(), document["used_objects"].as_u64().unwrap())
}

/// The same by a walk.
fn walked(dir: &Path) -> (u64, u64) {
    let script = "find \"$1\" -mindepth 1 -printf '%i %y %b\\n' | sort -u | \
                  awk '{ n++; if ($2 == \"f\") b += $3 } END { print b * 512, n + 0 }'";
    let output = Command::new("sh").args(["-euc", script, "sh"]).arg(dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (bytes, objects) = text.trim().split_once(' ').unwrap();
    (bytes.parse().unwrap(), objects.parse().unwrap())
}

#[test]
fn whatever_would_grow_over_a_quota_meets_edquot_for_root_and_for_a_user() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    for user in [0, ADA] {
        let dir = mounted.path(format!("of-{user}"));
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(user), Some(user)).unwrap();
        ok(&quota(&["set"], &dir, &["64K", "--objects", "8"]));
        let matrix =
            Command::new("python3").args(["-c", MATRIX]).arg(&dir).uid(user).gid(user).output().unwrap();
        assert!(matrix.status.success(), "{user}: {}", String::from_utf8_lossy(&matrix.stderr));
        assert!(String::from_utf8_lossy(&matrix.stdout).contains("a mapping's pages:"));
        assert_eq!(used(&dir), walked(&dir));
        // mv(1) copies where nothing moves.
        let target = mounted.path(format!("moved-{user}"));
        ok(&Command::new("mv").arg(dir.join("dir")).arg(&target).output().unwrap());
        assert!(target.join("one").exists());
        assert_eq!(used(&dir), walked(&dir));
    }
}

#[test]
fn quotas_are_set_shown_listed_and_cleared_and_bad_input_changes_nothing() {
    let mounted = Mounted::new();
    let (home, mail, other) = (mounted.path("home"), mounted.path("home/mail"), mounted.path("other"));
    fs::create_dir_all(&mail).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(mail.join("letter"), vec![7; 5000]).unwrap();
    fs::hard_link(mail.join("letter"), other.join("letter")).unwrap();

    refused(&quota(&["get"], &home, &[]), &["is in no quota", "betrfs quota set"]);
    refused(&quota(&["clear"], &home, &[]), &["has no quota of its own"]);
    // Names outside.
    refused(&quota(&["set"], &home, &["1G"]), &["has a name outside", "/home/mail/letter"]);
    fs::remove_file(other.join("letter")).unwrap();
    for (arguments, words) in [
        (&["10X"][..], "is not a size"),
        (&["-1"], "unexpected argument"),
        (&["1.5.2G"], "is not a size"),
        (&[], "required"),
        (&["1G", "--objects", "lots"], "is not a number of objects"),
        (&["1G", "--objects", "+3"], "is not a number of objects"),
    ] {
        ended_with(&quota(&["set"], &home, arguments), 2, &[words]);
    }
    refused(&quota(&["set"], &mail.join("letter"), &["1G"]), &["no directory"]);
    refused(&quota(&["set"], &home.join("none"), &["1G"]), &["No such file"]);
    refused(&quota(&["set"], Path::new("/tmp"), &["1G"]), &["on no BetrFS mount"]);
    refused(&quota(&["get"], &home, &[]), &["is in no quota"]);

    // What is there counts at once.
    ok(&quota(&["set"], &home, &["1M"]));
    assert_eq!(used(&home), (5120, 2));
    ok(&quota(&["set"], &mail, &["any", "--objects", "3"]));
    ok(&quota(&["set"], &home, &["--objects", "100"]));
    let document = json("get", &mounted.path("home/mail/../mail"));
    assert_eq!((&document["limit_bytes"], &document["limit_objects"]), (&Value::Null, &Value::from(3)));
    assert_eq!(document["path"].as_str(), mail.to_str());
    let document = json("get", &home);
    assert_eq!(
        (&document["limit_bytes"], &document["limit_objects"]),
        (&Value::from(1 << 20), &Value::from(100))
    );
    // The nearest above.
    fs::create_dir(mail.join("old")).unwrap();
    assert_eq!(json("get", &mail.join("old"))["path"].as_str(), mail.to_str());
    let text = String::from_utf8(quota(&["get"], &mail, &[]).stdout).unwrap();
    assert!(text.contains("5.0 KiB of any") && text.contains("2 of 3"), "{text}");

    let listed = |document: Value| -> Vec<String> {
        let quotas = document["quotas"].as_array().unwrap();
        quotas.iter().map(|quota| quota["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(json("list", &mounted.dir)), [home.to_str().unwrap(), mail.to_str().unwrap()]);
    assert_eq!(listed(json("list", &mail)), [mail.to_str().unwrap()]);
    assert_eq!(listed(json("list", &other)), [""; 0]);
    let text = String::from_utf8(quota(&["list"], &mounted.dir, &[]).stdout).unwrap();
    assert!(text.contains("1.0 MiB") && text.lines().count() == 3, "{text}");

    // In a snapshot, and of a closed volume.
    ok(&betrfs().args(["snapshot", "create"]).arg(&home).arg("s").output().unwrap());
    refused(&quota(&["set"], &home.join(".betrfs-snapshots/s"), &["1G"]), &["in a snapshot"]);
    refused(&quota(&["list"], &mounted.volume, &[]), &["in use"]);
    mounted.umount();
    assert_eq!(listed(json("list", &mounted.volume)), ["/home", "/home/mail"]);
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
    mounted.mount();
    assert_eq!((used(&home), used(&mail)), (walked(&home), walked(&mail)));
    ok(&quota(&["clear"], &mail, &[]));
    assert_eq!(json("get", &mail)["path"].as_str(), home.to_str());
    ok(&quota(&["clear"], &home, &[]));
    refused(&quota(&["get"], &mail, &[]), &["is in no quota"]);
}

#[test]
fn only_root_and_the_mounter_set_clear_and_list_quotas_and_all_may_look_at_theirs() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(ADA), Some(ADA)).unwrap();
    ok(&quota(&["set"], &dir, &["1G"]));
    let as_ada = |arguments: &[&str], more: &[&str]| {
        let mut command = Command::new(program_beside(&mounted));
        command.arg("quota").args(arguments).arg(&dir).args(more).uid(ADA).gid(ADA).output().unwrap()
    };
    refused(&as_ada(&["set"], &["2G"]), &["only root and the user who mounted"]);
    refused(&as_ada(&["clear"], &[]), &["only root and the user who mounted"]);
    refused(&as_ada(&["list"], &[]), &["only root and the user who mounted"]);
    ok(&as_ada(&["get"], &[]));
    assert_eq!(json("get", &dir)["limit_bytes"], 1u64 << 30);
}

#[test]
fn clones_removals_and_a_killed_server_leave_the_right_counts() {
    let mounted = Mounted::new();
    let (tree, home) = (mounted.path("tree"), mounted.path("home"));
    for dir in ["a/b", "c"] {
        fs::create_dir_all(tree.join(dir)).unwrap();
        for i in 0..20 {
            fs::write(tree.join(dir).join(i.to_string()), vec![1; i * 700]).unwrap();
        }
    }
    fs::hard_link(tree.join("a/b/7"), tree.join("linked")).unwrap();
    fs::create_dir(&home).unwrap();
    ok(&quota(&["set"], &home, &["10M"]));
    let run = |arguments: &[&str], paths: &[&Path]| betrfs().args(arguments).args(paths).output().unwrap();
    ok(&run(&["clone"], &[&tree, &home.join("copy")]));
    assert_eq!(used(&home), walked(&home));
    // A clone into a quota without room, and that of a quota.
    ok(&quota(&["set"], &home, &["300K"]));
    refused(&run(&["clone"], &[&tree, &home.join("second")]), &["a quota", "has no room"]);
    assert!(!home.join("second").exists());
    assert_eq!(used(&home), walked(&home));
    ok(&run(&["clone"], &[&home, &mounted.path("home2")]));
    assert_eq!(json("get", &mounted.path("home2"))["limit_bytes"], 300 << 10);
    assert_eq!(used(&mounted.path("home2")), walked(&home));
    ok(&run(&["rm-tree"], &[&home.join("copy/a")]));
    assert_eq!(used(&home), walked(&home));
    ok(&run(&["snapshot", "create"], &[&home, Path::new("s")]));
    ok(&run(&["rm-tree"], &[&home.join("copy")]));
    assert_eq!(used(&home), (0, 0));
    ok(&run(&["snapshot", "restore"], &[&home, Path::new("s")]));
    assert_eq!(used(&home), walked(&home));
    assert!(used(&home).1 > 20);

    let mut file = fs::File::create(home.join("synced")).unwrap();
    file.write_all(&[7; 9000]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    for i in 0..10 {
        fs::write(home.join(format!("later{i}")), [7; 3000]).unwrap();
    }
    mounted.kill_server();
    mounted.mount();
    assert_eq!(used(&home), walked(&home));
    assert_eq!(fs::metadata(home.join("synced")).unwrap().len(), 9000);
    ok(&betrfs().arg("check").arg(&mounted.dir).output().unwrap());
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

/// For others' quotas 0 means no limit; taken as a number it would forbid all.
#[test]
fn a_limit_of_nothing_is_refused() {
    let mounted = Mounted::new();
    let home = mounted.path("home");
    fs::create_dir(&home).unwrap();
    for limit in [&["0"][..], &["0M"], &["any", "--objects", "0"]] {
        let output = betrfs().args(["quota", "set"]).arg(&home).args(limit).output().unwrap();
        ended_with(&output, 2, &["a limit of 0 would forbid all", "`any`"]);
    }
    let got = betrfs().args(["quota", "get"]).arg(&home).output().unwrap();
    assert!(!got.status.success(), "it has a quota");
}
