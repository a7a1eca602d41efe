//! Permissions, owners, times.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use crate::mounted::{Mounted, next_tick};

/// A user and a group that own nothing.
const NOBODY: u32 = 65_534;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs a shell command as nobody.
pub fn as_nobody(script: &str, path: &Path) -> bool {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg("sh").arg(path).uid(NOBODY).gid(NOBODY);
    shell.output().unwrap().status.success()
}

/// A directory that nobody can reach and write to.
pub fn open_to_all(mounted: &Mounted) {
    chmod(mounted.dir.parent().unwrap(), 0o755);
    chmod(&mounted.dir, 0o777);
}

#[test]
fn permissions_are_kept_and_obeyed() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let file = mounted.path("f");
    fs::write(&file, b"secret").unwrap();
    chmod(&file, 0o600);
    assert!(!as_nobody("cat \"$1\"", &file));
    chmod(&file, 0o604);
    assert!(as_nobody("cat \"$1\"", &file));
    assert!(!as_nobody("echo >> \"$1\"", &file));
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    chmod(&file, 0o600);
    assert!(as_nobody("echo more >> \"$1\"", &file));
    let seen = fs::metadata(&file).unwrap();
    assert_eq!((seen.uid(), seen.gid(), seen.mode() & 0o7777, seen.len()), (NOBODY, NOBODY, 0o600, 11));
    // In a sticky directory nobody can remove others' files.
    chmod(&mounted.dir, 0o1777);
    fs::write(mounted.path("roots"), b"").unwrap();
    assert!(!as_nobody("rm -f \"$1\"", &mounted.path("roots")));
    assert!(as_nobody("rm \"$1\"", &file));
}

#[test]
fn the_umask_and_the_callers_identity_make_a_new_file() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    assert!(as_nobody("umask 027; echo > \"$1\"", &mounted.path("f")));
    let seen = fs::metadata(mounted.path("f")).unwrap();
    assert_eq!((seen.uid(), seen.gid(), seen.mode() & 0o7777), (NOBODY, NOBODY, 0o640));
    assert!(as_nobody("umask 077; mkdir \"$1\"", &mounted.path("d")));
    assert_eq!(mode(&mounted.path("d")), 0o700);
}

#[test]
fn a_set_group_id_directory_passes_its_group_on() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    chown(&dir, None, Some(NOBODY)).unwrap();
    chmod(&dir, 0o2775);
    fs::write(dir.join("f"), b"").unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    assert_eq!(fs::metadata(dir.join("f")).unwrap().gid(), NOBODY);
    assert_eq!(fs::metadata(dir.join("sub")).unwrap().gid(), NOBODY);
    assert_eq!(mode(&dir.join("sub")) & 0o2000, 0o2000);
}

#[test]
fn set_id_bits_are_cleared_by_write_truncation_and_chown() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let file = mounted.path("f");
    fs::write(&file, b"program").unwrap();
    let falls = |by: &str, change: &dyn Fn()| {
        chmod(&file, 0o6777);
        assert_eq!(mode(&file), 0o6777);
        change();
        assert_eq!(mode(&file), 0o777, "by {by}");
    };
    falls("another's write", &|| assert!(as_nobody("echo x >> \"$1\"", &file)));
    falls("another's truncation", &|| assert!(as_nobody("truncate -s 3 \"$1\"", &file)));
    falls("another's O_TRUNC", &|| assert!(as_nobody(": > \"$1\"", &file)));
    falls("a chown", &|| chown(&file, Some(NOBODY), None).unwrap());
    falls("a chgrp", &|| chown(&file, None, Some(NOBODY)).unwrap());
    chmod(&file, 0o6777);
    OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut f| std::io::Write::write_all(&mut f, b"x"))
        .unwrap();
    assert_eq!(mode(&file), 0o6777, "the superuser's write leaves them");
}

#[test]
fn times_have_nanoseconds_and_may_lie_before_1970() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, b"").unwrap();
    let set = |atime: (i64, i64), mtime: (i64, i64)| {
        let times = Timestamps {
            last_access: Timespec { tv_sec: atime.0, tv_nsec: atime.1 },
            last_modification: Timespec { tv_sec: mtime.0, tv_nsec: mtime.1 },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    };
    let seen = || {
        let seen = fs::metadata(&path).unwrap();
        ((seen.atime(), seen.atime_nsec()), (seen.mtime(), seen.mtime_nsec()))
    };
    for (atime, mtime) in
        [((1_700_000_000, 1), (1_700_000_001, 999_999_999)), ((-2, 800_000_000), (-1, 1)), ((0, 0), (-1, 0))]
    {
        set(atime, mtime);
        assert_eq!(seen(), (atime, mtime));
        mounted.remount();
        assert_eq!(seen(), (atime, mtime), "after a remount");
    }
}

#[test]
fn a_time_at_the_end_of_its_type_does_no_harm() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"").unwrap();
    for tv_sec in [i64::MAX, i64::MIN, i64::MIN + 1] {
        let time = Timespec { tv_sec, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        // Accepted or refused: the mount must answer afterwards.
        let _ = rustix::fs::utimensat(CWD, mounted.path("f"), &times, AtFlags::empty());
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"");
    }
}

#[test]
fn changes_move_the_times_that_they_should() {
    let mounted = Mounted::new();
    let (dir, file) = (mounted.path("d"), mounted.path("d/f"));
    fs::create_dir(&dir).unwrap();
    fs::write(&file, b"x").unwrap();
    let times = |path: &Path| {
        let seen = fs::metadata(path).unwrap();
        ((seen.mtime(), seen.mtime_nsec()), (seen.ctime(), seen.ctime_nsec()))
    };
    let moved = |what: &str, path: &Path, mtime: bool, change: &dyn Fn()| {
        next_tick();
        let before = times(path);
        change();
        let after = times(path);
        assert_eq!((after.0 > before.0, after.1 > before.1), (mtime, true), "{what}: {before:?} {after:?}");
    };
    moved("write", &file, true, &|| fs::write(&file, b"yy").unwrap());
    moved("truncate", &file, true, &|| File::options().write(true).open(&file).unwrap().set_len(1).unwrap());
    moved("chmod", &file, false, &|| chmod(&file, 0o600));
    moved("link", &file, false, &|| fs::hard_link(&file, dir.join("g")).unwrap());
    moved("create", &dir, true, &|| fs::write(dir.join("h"), b"").unwrap());
    moved("unlink", &dir, true, &|| fs::remove_file(dir.join("h")).unwrap());
    moved("unlink of a link", &file, false, &|| fs::remove_file(dir.join("g")).unwrap());
    moved("rename in", &dir, true, &|| fs::rename(&file, dir.join("f2")).unwrap());
}
