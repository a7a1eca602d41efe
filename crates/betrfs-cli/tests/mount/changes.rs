//! Changes by requests that the kernel does not know: they need a mount for writing, and what needs the
//! rights of an administrator needs the capability, not the number 0.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::mounted::{Mounted, betrfs, ok};

/// Changes something of an open file or directory, as the command does.
pub fn change(open: impl AsFd, cmd: u32, argument: &[u8]) -> Result<(), Errno> {
    let value = [&cmd.to_le_bytes(), argument].concat();
    let flags = XattrFlags::CREATE | XattrFlags::REPLACE;
    rustix::fs::fsetxattr(open, "system.betrfs.change", &value, flags)
}

/// The start of a program: requests by name, each told with its error number, or 0.
const ASKING: &str = r#"
import errno, fcntl, os, struct, sys, time
dir = os.open(sys.argv[1], os.O_RDONLY)
file = os.open(sys.argv[1] + "/file", os.O_RDONLY)
io = lambda d, n, s: (d << 30) | (s << 16) | (ord("B") << 8) | n
FILL, EMPTY, EMPTY_WITH_SNAPSHOTS, RESTORE = io(1, 2, 8), io(0, 3, 0), io(0, 6, 0), io(1, 8, 520)
SET_PROPERTIES, CLEAR_QUOTA, PERMIT, CHECKPOINT = io(1, 12, 64), io(0, 15, 0), io(1, 19, 8), io(0, 18, 0)
SOURCE, RECOMPRESS, TRIM = io(2, 1, 8), io(3, 17, 48), (3 << 30) | (24 << 16) | (ord("X") << 8) | 121
restore = struct.pack("<Q", 7) + b"old\0keep\0" + bytes(503)
noatime = struct.pack("<II", 2, 1) + bytes(56)
changes = dict(FILL=bytes(8), EMPTY=b"", EMPTY_WITH_SNAPSHOTS=b"", RESTORE=restore, SET_PROPERTIES=noatime,
    CLEAR_QUOTA=b"", PERMIT=bytes(8))
def told(name, ask):
    try: ask(); error = 0
    except OSError as e: error = e.errno
    print(name, errno.errorcode.get(error, "done"))
def by_ioctl(fd, cmd, argument):
    fcntl.ioctl(fd, cmd, bytearray(argument) if argument else 0)
for name, argument in changes.items():
    told("ioctl " + name, lambda: by_ioctl(dir, globals()[name], argument))
    told("change " + name, lambda: os.setxattr(dir, "system.betrfs.change", struct.pack("<I", globals()[name]) + argument, 3))
told("ioctl RECOMPRESS", lambda: by_ioctl(file, RECOMPRESS, struct.pack("<6Q", 0, 2, 0, 0, 0, 0)))
told("ioctl TRIM", lambda: by_ioctl(dir, TRIM, struct.pack("<3Q", 0, 2**64 - 1, 0)))
told("ioctl SOURCE", lambda: by_ioctl(dir, SOURCE, bytes(8)))
"#;

/// A directory with a file, a quota and a snapshot.
fn filled(mounted: &Mounted) -> std::path::PathBuf {
    let work = mounted.path("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("file"), b"precious").unwrap();
    ok(&betrfs().args(["quota", "set"]).arg(&work).arg("100M").output().unwrap());
    ok(&betrfs().args(["snapshot", "create"]).arg(&work).arg("old").output().unwrap());
    fs::write(work.join("file"), b"newer").unwrap();
    work
}

fn is_whole(work: &Path) -> bool {
    let quota = betrfs().args(["quota", "get"]).arg(work).output().unwrap();
    let limit = String::from_utf8_lossy(&quota.stdout).contains("100");
    let snapshots = betrfs().args(["snapshot", "list"]).arg(work).output().unwrap();
    limit && snapshots.stdout == b"old\n" && fs::read(work.join("file")).is_ok_and(|bytes| bytes == b"newer")
}

fn asked(script: &str, work: &Path) -> (Output, Vec<String>) {
    let mut command = Command::new("timeout");
    command.args(["60", "bash", "-euc", script, "bash"]).arg(work).env("ASKING", ASKING);
    let output = command.output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    (output, lines)
}

/// As a container has it: `docker run -v /data/work:/work:ro --cap-drop ALL`.
#[test]
fn root_without_capabilities_changes_nothing_through_a_read_only_bind_mount() {
    let mounted = Mounted::unmounted();
    mounted.mount();
    let work = filled(&mounted);
    let script = r#"
        exec unshare --mount --propagation private bash -euc '
            mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"
            exec setpriv --bounding-set -all --inh-caps -all --no-new-privs python3 -c "$ASKING" "$1"
        ' bash "$1""#;
    let (output, told) = asked(script, &work);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told.len(), 2 * 7 + 3, "{told:?}");
    for line in &told {
        let right = match line.split(' ').collect::<Vec<_>>()[..] {
            ["change", _, error] => error == "EROFS",
            ["ioctl", "TRIM" | "SOURCE", error] => error == "EPERM",
            ["ioctl", "RECOMPRESS", error] => error == "ESTALE",
            // On Linux this is EOPNOTSUPP.
            ["ioctl", _, error] => error == "ENOTSUP",
            _ => false,
        };
        assert!(right, "{line}");
    }
    assert!(is_whole(&work), "{told:?}");
    mounted.umount();
}

/// On a mount for writing it may do what the owner of an object may, and no more. In a user namespace of its
/// own it has all capabilities, and they do not count.
#[test]
fn what_is_an_administrators_needs_the_capability() {
    let mounted = Mounted::new();
    let work = filled(&mounted);
    let bare = r#"exec setpriv --bounding-set -all --inh-caps -all --no-new-privs python3 -c "$ASKING" "$1""#;
    let own_namespace = r#"exec unshare --user --map-root-user python3 -c "$ASKING" "$1""#;
    for script in [bare, own_namespace] {
        let (output, told) = asked(script, &work);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for name in ["FILL", "EMPTY", "EMPTY_WITH_SNAPSHOTS", "RESTORE", "CLEAR_QUOTA"] {
            assert!(told.contains(&format!("change {name} EPERM")), "{name}: {told:?}");
        }
        for name in ["TRIM", "SOURCE"] {
            assert!(told.contains(&format!("ioctl {name} EPERM")), "{name}: {told:?}");
        }
        // The owner's.
        assert!(told.contains(&"change SET_PROPERTIES done".to_owned()), "{told:?}");
        assert!(is_whole(&work), "{told:?}");
    }
    let open = File::open(&work).unwrap();
    const CLEAR_QUOTA: u32 = rustix::ioctl::opcode::none(b'B', 15);
    assert_eq!(change(&open, CLEAR_QUOTA, &[]), Ok(()), "root itself may");
    drop(open);
    mounted.umount();
}
