//! The kernel's cache of an object agrees with the server: by stat(2), and by the kernel's behaviour. The
//! rows are those of the table in `betrfs-fuse`'s `protocol/kernel_cache.rs`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags};
use rustix::process::{Gid, Uid};

use crate::mounted::{Mounted, betrfs, next_tick, ok, refused};

/// The owner of the program, and the user who changes it.
const OWNER: u32 = 1;
const OTHER: u32 = 65_534;
/// Prints its effective user.
const PROGRAM: &str = "/usr/bin/id";

/// A way to change a file's contents; the second argument is the program's bytes.
type Change = fn(&Path, &[u8]);

fn to_write(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn fallocate(path: &Path, flags: FallocateFlags, offset: u64, len: u64) {
    rustix::fs::fallocate(to_write(path), flags, offset, len).unwrap();
}

fn by_copy_file_range(path: &Path, from: &Path) {
    let (from, to) = (File::open(from).unwrap(), to_write(path));
    let len = from.metadata().unwrap().len() as usize;
    let copied = rustix::fs::copy_file_range(from, Some(&mut 0), to, Some(&mut 0), len).unwrap();
    assert!(copied > 0);
}

fn by_splice(path: &Path, program: &[u8]) {
    let (out, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let bytes = &program[..4096];
    assert_eq!(rustix::io::write(into, bytes).unwrap(), bytes.len());
    let flags = rustix::pipe::SpliceFlags::empty();
    rustix::pipe::splice(out, None, to_write(path), Some(&mut 0), bytes.len(), flags).unwrap();
}

const WAYS: [(&str, Change); 12] = [
    ("write", |path, program| to_write(path).write_all_at(program, 0).unwrap()),
    ("a short write", |path, program| to_write(path).write_all_at(&program[..1], 0).unwrap()),
    ("direct write", |path, program| {
        let direct = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, direct, rustix::fs::Mode::empty()).unwrap());
        // FUSE accepts any alignment of the buffer.
        file.write_all_at(&program[..4096], 0).unwrap();
    }),
    ("O_TRUNC", |path, _| drop(File::create(path).unwrap())),
    ("ftruncate", |path, _| to_write(path).set_len(100).unwrap()),
    ("truncate", |path, _| rustix::fs::ftruncate(to_write(path), 1 << 20).unwrap()),
    ("fallocate", |path, _| fallocate(path, FallocateFlags::empty(), 0, 1 << 20)),
    ("fallocate of what is there", |path, _| fallocate(path, FallocateFlags::KEEP_SIZE, 0, 1)),
    ("punch", |path, _| {
        fallocate(path, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096);
    }),
    ("zero range", |path, _| fallocate(path, FallocateFlags::ZERO_RANGE, 10, 20)),
    ("copy_file_range", |path, _| by_copy_file_range(path, &path.with_file_name("source"))),
    ("splice", by_splice),
];

/// Runs `work` as another user, in a thread with an identity of its own.
fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        other.join().unwrap()
    })
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// What a program prints.
fn printed_by(program: &mut Command) -> String {
    String::from_utf8(program.output().unwrap().stdout).unwrap().trim().to_owned()
}

/// The effective user of a program run by `user`.
fn runs_as(path: &Path, user: u32) -> String {
    printed_by(Command::new(path).arg("-u").uid(user).gid(user))
}

/// A set-id program of [`OWNER`], writable by all, with its attributes in the kernel's cache.
fn program(mounted: &Mounted) -> (std::path::PathBuf, Vec<u8>) {
    let bytes = fs::read(PROGRAM).unwrap();
    fs::set_permissions(mounted.dir.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&mounted.dir, Permissions::from_mode(0o777)).unwrap();
    fs::write(mounted.path("source"), &bytes).unwrap();
    (mounted.path("program"), bytes)
}

fn make_set_id(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
    chown(path, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(mode(path), 0o6777);
    assert_eq!(runs_as(path, OTHER), OWNER.to_string());
}

#[test]
fn set_id_bits_do_not_outlive_another_users_change() {
    let mounted = Mounted::new();
    let (path, bytes) = program(&mounted);
    for (way, change) in WAYS {
        make_set_id(&path, &bytes);
        as_user(OTHER, || change(&path, &bytes));
        // The superuser, whose writes keep the bits, restores the program; the bits are first checked now.
        to_write(&path).write_all_at(&bytes, 0).unwrap();
        assert_eq!(runs_as(&path, OTHER), OTHER.to_string(), "by {way}");
        assert_eq!(mode(&path), 0o777, "by {way}");
    }
}

#[test]
fn set_id_bits_survive_changes_by_privileged_users() {
    let mounted = Mounted::new();
    let (path, bytes) = program(&mounted);
    for (way, change) in WAYS {
        make_set_id(&path, &bytes);
        change(&path, &bytes);
        assert_eq!(mode(&path), 0o6777, "by {way}");
        to_write(&path).write_all_at(&bytes, 0).unwrap();
        assert_eq!(runs_as(&path, OTHER), OWNER.to_string(), "by {way}");
    }
}

#[test]
fn a_changed_program_run_by_descriptor_has_no_more_rights() {
    let mounted = Mounted::new();
    let (path, bytes) = program(&mounted);
    make_set_id(&path, &bytes);
    let open = File::open(&path).unwrap();
    as_user(OTHER, || to_write(&path).write_all_at(&bytes, 0).unwrap());
    let by_descriptor = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&open));
    assert_eq!(printed_by(Command::new(by_descriptor).arg("-u")), "0");
    assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn capabilities_do_not_outlive_a_change() {
    let mounted = Mounted::new();
    let (path, bytes) = program(&mounted);
    // Version 2, effective: CAP_NET_RAW.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (way, change) in WAYS {
        let _ = fs::remove_file(&path);
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let name = "security.capability";
        rustix::fs::setxattr(&path, name, &capability, rustix::fs::XattrFlags::empty()).unwrap();
        as_user(OTHER, || change(&path, &bytes));
        let mut value = [0; 64];
        let left = rustix::fs::getxattr(&path, name, &mut value[..]);
        assert_eq!(left, Err(rustix::io::Errno::NODATA), "by {way}");
    }
}

/// The status with one attribute requested, from the kernel's cache if it is valid there.
fn only(path: &Path, what: StatxFlags) -> rustix::fs::Statx {
    rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, what).unwrap()
}

/// The status as the server has it.
fn by_server(path: &Path) -> rustix::fs::Statx {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS).unwrap()
}

#[test]
fn counts_of_names_are_up_to_date() {
    let mounted = Mounted::new();
    let nlink = |name: &str| only(&mounted.path(name), StatxFlags::NLINK).stx_nlink;
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("f"), b"").unwrap();
    assert_eq!((nlink("d"), nlink("f")), (2, 1));
    fs::create_dir(mounted.path("d/e")).unwrap();
    assert_eq!(nlink("d"), 3, "mkdir");
    fs::create_dir(mounted.path("o")).unwrap();
    assert_eq!(nlink("o"), 2);
    fs::rename(mounted.path("d/e"), mounted.path("o/e")).unwrap();
    assert_eq!((nlink("d"), nlink("o")), (2, 3), "rename of a directory");
    fs::remove_dir(mounted.path("o/e")).unwrap();
    assert_eq!(nlink("o"), 2, "rmdir");
    fs::create_dir(mounted.path("o/g")).unwrap();
    fs::write(mounted.path("d/file"), b"").unwrap();
    assert_eq!((nlink("d"), nlink("o")), (2, 3));
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(CWD, mounted.path("d/file"), CWD, mounted.path("o/g"), exchange).unwrap();
    assert_eq!((nlink("d"), nlink("o")), (3, 2), "exchange of a file and a directory");
    fs::create_dir(mounted.path("o/target")).unwrap();
    assert_eq!((nlink("d"), nlink("o")), (3, 3));
    fs::rename(mounted.path("d/file"), mounted.path("o/target")).unwrap();
    fs::rename(mounted.path("o/target"), mounted.path("o/other")).unwrap();
    assert_eq!((nlink("d"), nlink("o")), (2, 3), "rename of a directory over another");

    fs::hard_link(mounted.path("f"), mounted.path("f2")).unwrap();
    assert_eq!(nlink("f"), 2, "link");
    fs::create_dir(mounted.path("tree")).unwrap();
    fs::hard_link(mounted.path("f"), mounted.path("tree/f3")).unwrap();
    assert_eq!(nlink("f2"), 3);
    ok(&betrfs().arg("rm-tree").arg(mounted.path("tree")).output().unwrap());
    assert_eq!(nlink("f"), 2, "rm-tree");
    fs::write(mounted.path("new"), b"").unwrap();
    fs::rename(mounted.path("new"), mounted.path("f2")).unwrap();
    assert_eq!(nlink("f"), 1, "rename over a name");
    let open = File::open(mounted.path("f")).unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0, "unlink while open");
}

/// Creates files in a directory until it is removed, or `stop` is set.
fn keep_creating(dir: &Path, stop: &AtomicBool) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) || File::create(dir.join(format!("new{number}"))).is_err() {
            return;
        }
    }
}

#[test]
fn a_removal_that_fails_midway_leaves_no_removed_name() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    let old = ["a", "b", "deep", "deep/c", ".betrfs-snapshots/monday", ".betrfs-snapshots/monday/a"];
    let failed = (0..50).any(|_| {
        fs::create_dir_all(dir.join("deep")).unwrap();
        ["a", "b", "deep/c"].iter().for_each(|name| fs::write(dir.join(name), name).unwrap());
        fs::create_dir(dir.join(".betrfs-snapshots/monday")).unwrap();
        // The kernel knows all of them.
        for name in old {
            fs::symlink_metadata(dir.join(name)).unwrap();
        }
        let stop = AtomicBool::new(false);
        let removed = thread::scope(|scope| {
            scope.spawn(|| keep_creating(&dir, &stop));
            let removed = betrfs().args(["rm-tree", "--snapshots"]).arg(&dir).output().unwrap();
            stop.store(true, Ordering::Relaxed);
            removed
        });
        if removed.status.success() {
            return false;
        }
        refused(&removed, &["something else has been created there", "run the command again"]);
        true
    });
    assert!(failed, "no file was ever created in time");
    for name in old {
        let found = fs::symlink_metadata(dir.join(name)).map(drop).map_err(|error| error.kind());
        assert_eq!(found, Err(ErrorKind::NotFound), "{name}");
    }
    let mut names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.all(|name| name.to_string_lossy().starts_with("new")));
    ok(&betrfs().arg("rm-tree").arg(&dir).output().unwrap());
}

#[test]
fn sizes_blocks_and_times_are_up_to_date() {
    let mounted = Mounted::new();
    let (path, from) = (mounted.path("f"), mounted.path("from"));
    fs::write(&from, vec![1; 2 << 20]).unwrap();
    let changes: [(&str, &dyn Fn()); 7] = [
        ("write", &|| to_write(&path).write_all_at(&[1; 5000], 0).unwrap()),
        ("truncate", &|| to_write(&path).set_len(10_000).unwrap()),
        ("fallocate", &|| fallocate(&path, FallocateFlags::empty(), 0, 20_000)),
        ("punch", &|| {
            fallocate(&path, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096);
        }),
        ("copy_file_range", &|| by_copy_file_range(&path, &from)),
        ("O_TRUNC", &|| drop(File::create(&path).unwrap())),
        ("write behind a hole", &|| to_write(&path).write_all_at(&[1], 1 << 20).unwrap()),
    ];
    fs::write(&path, b"x").unwrap();
    for (what, change) in changes {
        let before = only(&path, StatxFlags::BASIC_STATS);
        next_tick();
        change();
        // First one by one: a request for all would refresh all.
        let parts = [StatxFlags::SIZE, StatxFlags::BLOCKS, StatxFlags::MTIME, StatxFlags::CTIME];
        let [size, blocks, mtime, ctime] = parts.map(|part| only(&path, part));
        let after = by_server(&path);
        assert_eq!(size.stx_size, after.stx_size, "{what}");
        assert_eq!(blocks.stx_blocks, after.stx_blocks, "{what}");
        let at = |time: &rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
        assert_eq!(at(&mtime.stx_mtime), at(&after.stx_mtime), "{what}");
        assert_eq!(at(&ctime.stx_ctime), at(&after.stx_ctime), "{what}");
        assert!(at(&after.stx_ctime) > at(&before.stx_ctime), "{what}");
    }
}

#[test]
fn a_filled_copy_is_up_to_date() {
    let mounted = Mounted::new();
    let (path, bytes) = program(&mounted);
    make_set_id(&path, &bytes);
    ok(&betrfs().arg("clone").arg(&path).arg(mounted.path("copy")).output().unwrap());
    let (was, copy) = (fs::metadata(&path).unwrap(), fs::metadata(mounted.path("copy")).unwrap());
    assert_eq!((copy.mode(), copy.uid(), copy.gid()), (was.mode(), was.uid(), was.gid()));
    assert_eq!((copy.size(), copy.blocks(), copy.mtime_nsec()), (was.size(), was.blocks(), was.mtime_nsec()));
    assert_eq!(runs_as(&mounted.path("copy"), OTHER), OWNER.to_string());
    assert!(fs::read(mounted.path("copy")).unwrap() == bytes);
}
