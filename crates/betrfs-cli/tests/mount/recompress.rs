//! `betrfs recompress`: files that were stored before their directory got a compression.

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{IFlags, ioctl_setflags};
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::Value;

use crate::attributes::open_to_all;
use crate::interrupting::interrupted;
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};
use crate::program::program_beside;
use crate::properties::{assert_filled, fill, set};
use crate::schemas::valid;

/// The bytes of the files of [`fill`].
const FILLED: u64 = 20 * 102_000;

fn recompress(path: &Path, more: &[&str]) -> Output {
    betrfs().arg("recompress").arg(path).args(more).output().unwrap()
}

fn document(output: &Output) -> Value {
    let document = serde_json::from_slice(&output.stdout).unwrap();
    valid("recompress", &document);
    document
}

fn json(path: &Path, more: &[&str]) -> Value {
    let output = recompress(path, &[more, &["--format", "json"]].concat());
    ok(&output);
    document(&output)
}

fn number(document: &Value, name: &str) -> u64 {
    document[name].as_u64().unwrap()
}

/// Times of a file and of one in it.
fn times(path: &Path) -> [(i64, i64); 3] {
    let found = fs::metadata(path).unwrap();
    [
        (found.atime(), found.atime_nsec()),
        (found.mtime(), found.mtime_nsec()),
        (found.ctime(), found.ctime_nsec()),
    ]
}

/// Calls, scans and commits of the server for it, and bytes of the device.
fn costs(mounted: &Mounted) -> [u64; 3] {
    let stats = mounted.stats();
    let of = |name: &str| stats["operations"]["recompress"][name].as_u64().unwrap_or(0);
    [of("calls"), of("scans"), of("commits")]
}

#[test]
fn files_take_what_their_directory_wants_and_a_second_call_does_nothing() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    fill(&dir);
    mounted.remount();
    // The kernel has pages of it, and a descriptor is open.
    let (seen, held) = (fs::read(dir.join("0")).unwrap(), File::open(dir.join("0")).unwrap());
    ok(&set(&dir, &["compression=zstd:9"]));
    let before = times(&dir.join("0"));
    let planned = json(&dir, &["-n"]);
    assert_eq!((number(&planned, "files"), number(&planned, "written_bytes")), (40, 0));
    assert_eq!((number(&planned, "to_write_bytes"), costs(&mounted)[2]), (FILLED, 0));
    let done = json(&dir, &[]);
    for (name, expected) in [
        ("files", 40),
        ("to_write_bytes", FILLED),
        ("written_bytes", FILLED),
        ("left_shared_bytes", 0),
        ("immutable_files", 0),
        ("failed", 0),
    ] {
        assert_eq!(number(&done, name), expected, "{name}: {done}");
    }
    let sizes = (number(&done, "stored_before_bytes"), number(&done, "stored_after_bytes"));
    assert!(sizes.1 * 10 < sizes.0 * 8, "{done}");
    assert_eq!(times(&dir.join("0")), before);
    assert_eq!(fs::read(dir.join("0")).unwrap(), seen);
    drop(held);
    assert_filled(&dir);
    for remounted in [false, true] {
        if remounted {
            mounted.remount();
        }
        let before = costs(&mounted);
        let again = json(&dir, &[]);
        assert_eq!((number(&again, "to_write_bytes"), number(&again, "written_bytes")), (0, 0), "{again}");
        assert_eq!(again["stored_after_bytes"], Value::Null);
        assert!(number(&again, "stored_before_bytes").abs_diff(sizes.1) * 10 < sizes.1, "{again}");
        let after = costs(&mounted);
        assert_eq!([after[0] - before[0], after[1] - before[1], after[2] - before[2]], [40, 0, 0]);
    }
    // A file by itself, in words. One piece of the directory has other files too.
    ok(&set(&dir, &["compression=none"]));
    let output = recompress(&dir.join("0"), &[]);
    ok(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("files                     1\nwritten            97.7 KiB\nstored before"),
        "{text}"
    );
    assert!(text.contains("stored after"), "{text}");
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn what_snapshots_share_is_left_alone_and_told_unless_it_is_asked_for() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    fill(&dir);
    mounted.remount();
    ok(&betrfs().arg("snapshot").arg("create").args([dir.as_path(), Path::new("monday")]).output().unwrap());
    ok(&set(&dir, &["compression=zstd:9"]));
    let left = json(&dir, &[]);
    assert_eq!((number(&left, "left_shared_bytes"), number(&left, "written_bytes")), (FILLED, 0), "{left}");
    let text = String::from_utf8(recompress(&dir, &[]).stdout).unwrap();
    assert!(text.contains("left, shared") && text.contains("--shared"), "{text}");
    let output = recompress(&dir, &["--shared", "--format", "json"]);
    ok(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("take room a second time"));
    assert_eq!(number(&document(&output), "written_bytes"), FILLED);
    let snapshot = dir.join(".betrfs-snapshots/monday");
    for more in [&[][..], &["--shared"]] {
        refused(&recompress(&snapshot, more), &["cannot recompress", "snapshot"]);
    }
    assert_filled(&dir);
    assert_filled(&snapshot);
    assert_eq!(number(&json(&dir, &["--shared"]), "to_write_bytes"), 0);
}

#[test]
fn files_of_others_and_immutable_ones_are_told_and_all_else_is_done() {
    const ADA: u32 = 5001;
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let dir = mounted.path("d");
    fill(&dir);
    // A second name is no second file; what is no file is passed over.
    fs::hard_link(dir.join("2"), dir.join("linked")).unwrap();
    std::os::unix::fs::symlink("/etc", dir.join("symlink")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for name in ["", "0", "1"] {
        chown(dir.join(name), Some(ADA), Some(ADA)).unwrap();
    }
    mounted.remount();
    ok(&set(&dir, &["compression=zstd:9"]));
    let as_ada = |path: &Path| {
        let mut command = Command::new(program_beside(&mounted));
        command.arg("recompress").arg(path).args(["--format", "json"]).uid(ADA).gid(ADA).output().unwrap()
    };
    let output = as_ada(&dir);
    ended_with(&output, 1, &["/2 is passed over: only its owner and root may"]);
    let done = document(&output);
    let found = ["files", "written_bytes", "failed"].map(|name| number(&done, name));
    // The first of two names that a file has, by its order.
    assert_eq!(found, [2, 102_000, 38], "{done}");
    ended_with(&as_ada(&dir.join("3")), 1, &["only its owner and root may"]);
    // What may not even be listed, and what may not be reached.
    let private = mounted.path("private");
    fs::create_dir(&private).unwrap();
    fs::write(private.join("file"), b"of somebody else's").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    ended_with(&as_ada(&private), 1, &["is passed over: Permission denied", "1 files or directories"]);
    ended_with(&as_ada(&private.join("file")), 1, &["cannot recompress", "Permission denied"]);
    // What another file system has below is none of it.
    let below = dir.join("below");
    fs::create_dir(&below).unwrap();
    rustix::mount::mount("none", &below, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(below.join("file"), b"elsewhere").unwrap();
    let immutable = File::open(dir.join("4")).unwrap();
    ioctl_setflags(&immutable, IFlags::IMMUTABLE).unwrap();
    let output = recompress(&dir, &["--format", "json"]);
    rustix::mount::unmount(&below, UnmountFlags::empty()).unwrap();
    ok(&output);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("/4 is passed over: it is immutable") && told.lines().count() == 1, "{told}");
    let done = document(&output);
    let found = ["files", "written_bytes", "immutable_files"].map(|name| number(&done, name));
    // A file with two names has what it had when it got the second.
    assert_eq!(found, [40, FILLED - 102_000 - 2 * 100_000, 1], "{done}");
    ioctl_setflags(&immutable, IFlags::empty()).unwrap();
    assert_filled(&dir);
}

#[test]
fn bad_input_is_told_and_changes_nothing() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    fill(&dir);
    ok(&set(&dir, &["compression=none"]));
    let before = mounted.stats()["engine"]["commits"].clone();
    ended_with(&betrfs().arg("recompress").output().unwrap(), 2, &["required"]);
    ended_with(&recompress(&dir, &["--level", "3"]), 2, &["--level"]);
    refused(&recompress(&dir.join("none"), &[]), &["cannot recompress", "No such file"]);
    refused(&recompress(Path::new("/proc"), &[]), &["cannot recompress /proc", "no BetrFS mount"]);
    // The second is wrong: nothing of the first is written.
    let both = betrfs().arg("recompress").arg(&dir).arg("/proc").output().unwrap();
    refused(&both, &["cannot recompress /proc"]);
    assert_eq!(mounted.stats()["engine"]["commits"], before);
    mounted.umount();
    ok(&mounted.try_mount(&["-o", "ro"]));
    refused(&recompress(&dir, &[]), &["cannot recompress", "read-only"]);
    assert_filled(&dir);
}

/// What one said that takes the compression of a directory away and was interrupted once a cost had grown, by
/// its place in [`costs`].
fn interrupted_recompress(mounted: &Mounted, dir: &Path, cost: usize) -> Output {
    let before = Cell::new(0);
    let begin = || {
        // If another was done, as it was before that.
        ok(&set(dir, &["compression=zstd"]));
        ok(&recompress(dir, &[]));
        ok(&set(dir, &["compression=none"]));
        before.set(costs(mounted)[cost]);
        let mut command = betrfs();
        command.arg("recompress").arg(dir).args(["--format", "json"]);
        command
    };
    interrupted(begin, || costs(mounted)[cost] > before.get())
}

#[test]
fn one_that_is_interrupted_says_so_and_the_next_goes_on() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for name in ["a", "b"] {
        fs::write(dir.join(name), vec![7; 48 << 20]).unwrap();
    }
    let output = interrupted_recompress(&mounted, &dir, 0);
    ended_with(&output, 1, &["interrupted", "the next call goes on"]);
    let part = document(&output);
    assert_eq!((&part["interrupted"], &part["stored_after_bytes"]), (&Value::Bool(true), &Value::Null));
    let rest = json(&dir, &[]);
    // A piece that comes to its leaf meanwhile is compressed as most of its bytes ask.
    let written = number(&part, "written_bytes") + number(&rest, "written_bytes");
    assert!((95 << 20..=96 << 20).contains(&written), "{part} {rest}");
    // The files meet in one piece, which may come to its leaf later.
    assert!(number(&json(&dir, &[]), "to_write_bytes") < 128 << 10);
    assert!(fs::read(dir.join("b")).unwrap().iter().all(|byte| *byte == 7));
}

/// Bytes that compress well, of which no two pieces are alike.
fn text(number: usize, len: usize) -> Vec<u8> {
    let line =
        |line: usize| format!("file {number}, line {line}, and what follows is the same in all of them\n");
    (0..).flat_map(|at| line(at).into_bytes()).take(len).collect()
}

#[test]
fn one_that_is_interrupted_while_it_writes_leaves_every_file_as_it_was() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    let files: Vec<Vec<u8>> = (0..6).map(|number| text(number, 16 << 20)).collect();
    for (number, contents) in files.iter().enumerate() {
        fs::write(dir.join(number.to_string()), contents).unwrap();
    }
    let assert_all_there = || {
        for (number, contents) in files.iter().enumerate() {
            assert!(fs::read(dir.join(number.to_string())).unwrap() == *contents, "{number}");
        }
    };
    mounted.remount();
    let output = interrupted_recompress(&mounted, &dir, 2);
    ended_with(&output, 1, &["interrupted", "the next call goes on"]);
    let at_its_end = costs(&mounted);
    let part = document(&output);
    let written = number(&part, "written_bytes");
    // How far it was by then is chance: on a busy machine it may have written all.
    assert!((1..=number(&part, "to_write_bytes")).contains(&written), "{part}");
    assert_eq!(part["stored_after_bytes"], Value::Null);
    assert_all_there();
    // Nothing goes on behind it.
    assert_eq!(costs(&mounted), at_its_end);
    let rest = json(&dir, &[]);
    assert!(number(&rest, "to_write_bytes") >= (95u64 << 20).saturating_sub(written), "{part} {rest}");
    assert!(number(&json(&dir, &[]), "to_write_bytes") < 512 << 10);
    assert_all_there();
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn on_a_full_volume_it_says_so_and_goes_on_once_there_is_room() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    // More than the volume would hold as it is.
    let files: Vec<Vec<u8>> = (0..10).map(|number| text(number, 8 << 20)).collect();
    for (number, contents) in files.iter().enumerate() {
        fs::write(dir.join(number.to_string()), contents).unwrap();
    }
    mounted.remount();
    ok(&set(&dir, &["compression=none"]));
    refused(&recompress(&dir, &[]), &["cannot recompress", "the volume is full", "the next call goes on"]);
    let assert_there = |numbers: std::ops::Range<usize>| {
        for (number, contents) in files.iter().enumerate().take(numbers.end).skip(numbers.start) {
            assert!(fs::read(dir.join(number.to_string())).unwrap() == *contents, "{number}");
        }
    };
    assert_there(0..10);
    assert_eq!(mounted.stats()["state"]["is"], "writable");
    // Again, and nothing is worse.
    refused(&recompress(&dir, &[]), &["the volume is full"]);
    (0..6).for_each(|number| fs::remove_file(dir.join(number.to_string())).unwrap());
    mounted.remount();
    let rest = json(&dir, &[]);
    assert!(number(&rest, "stored_after_bytes") >= 31 << 20, "{rest}");
    assert!(number(&json(&dir, &[]), "to_write_bytes") < 512 << 10);
    assert_there(6..10);
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}
