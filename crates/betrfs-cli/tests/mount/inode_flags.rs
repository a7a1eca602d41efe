//! Inode flags, set by chattr(1) and shown by lsattr(1). What each refuses on any file system is
//! `cases/inode-flags.py`; here is what the kernel does not do, and what of it concerns this file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::attributes::{as_nobody, open_to_all};
use crate::mapping::Mapping;
use crate::mounted::{Mounted, betrfs, ok, refused, told};

fn chattr(change: &str, path: &Path) {
    let output = Command::new("chattr").arg(change).arg(path).output().unwrap();
    ok(&output);
}

/// The letters that lsattr(1) shows.
fn lsattr(path: &Path) -> String {
    let output = Command::new("lsattr").arg("-d").arg(path).output().unwrap();
    ok(&output);
    let line = String::from_utf8(output.stdout).unwrap();
    line.split_whitespace().next().unwrap().replace('-', "")
}

fn shell(script: &str, path: &Path) -> Output {
    Command::new("sh").arg("-ec").arg(script).arg("sh").arg(path).output().unwrap()
}

fn is_refused<T: std::fmt::Debug>(result: io::Result<T>) {
    let number = result.as_ref().err().and_then(io::Error::raw_os_error);
    assert_eq!(number, Some(Errno::PERM.raw_os_error()), "{result:?}");
}

/// Waits until something holds.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(60), "it does not come");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn flags_are_shown_obeyed_and_kept() {
    let mounted = Mounted::new();
    let (file, dir) = (mounted.path("f"), mounted.path("d"));
    fs::write(&file, b"bytes").unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("g"), b"bytes").unwrap();
    assert_eq!(
        (lsattr(&file), lsattr(&dir), lsattr(&mounted.dir)),
        (String::new(), String::new(), String::new())
    );
    chattr("+id", &file);
    chattr("+aA", &dir);
    chattr("+d", &mounted.dir);
    for _ in 0..2 {
        assert_eq!(
            (lsattr(&file), lsattr(&dir), lsattr(&mounted.dir)),
            ("id".into(), "aA".into(), "d".into())
        );
        is_refused(fs::write(&file, b"x"));
        is_refused(OpenOptions::new().append(true).open(&file));
        is_refused(fs::remove_file(&file));
        is_refused(fs::rename(&file, mounted.path("x")));
        is_refused(fs::hard_link(&file, mounted.path("x")));
        is_refused(fs::remove_file(dir.join("g")));
        fs::write(dir.join("g"), b"other").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"bytes");
        mounted.remount();
    }
    fs::write(dir.join("new"), b"").unwrap();
    assert_eq!(lsattr(&dir.join("new")), "A");
    chattr("-i", &file);
    chattr("-a", &dir);
    fs::remove_file(&file).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn programs_meet_them() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    let done = shell(
        r#"cd "$1"/..; mkdir -p d/e; echo kept >d/e/f; echo free >d/g
        chattr +i d/e/f; ! rm -rf d 2>err; grep -q 'Operation not permitted' err
        [ "$(ls d)" = e ]; [ "$(cat d/e/f)" = kept ]
        cp -a d/e/f copy; echo more >>copy; ! cp copy d/e/f; ! mv copy d/e/f; [ "$(cat d/e/f)" = kept ]
        tar cf t.tar d; mkdir out; tar xf t.tar -C out; rm -r out
        ! tar xf t.tar; [ "$(cat d/e/f)" = kept ]; ! sed -i s/kept/lost/ d/e/f; ! truncate -s 0 d/e/f
        chattr -R -i d; chattr +a d/e/f; echo more >>d/e/f; ! echo lost >d/e/f
        [ "$(cat d/e/f)" = "$(printf 'kept\nmore')" ]; tail -c 3 d/e/f >tail
        chattr -a d/e/f; rm -r d"#,
        &dir,
    );
    ok(&done);
}

#[test]
fn owners_set_what_forbids_nothing_and_root_the_rest() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let file = mounted.path("f");
    fs::write(&file, b"").unwrap();
    assert!(!as_nobody("chattr +d \"$1\"", &file));
    chown(&file, Some(65_534), Some(65_534)).unwrap();
    assert!(as_nobody("chattr +dA \"$1\"", &file));
    for change in ["+i", "+a"] {
        assert!(!as_nobody(&format!("chattr {change} \"$1\""), &file), "{change}");
    }
    // In a user namespace of its own a user is root, and may not here.
    assert!(!as_nobody("unshare --user --map-root-user chattr +i \"$1\"", &file));
    assert_eq!(lsattr(&file), "dA");
    let unknown = Command::new("chattr").arg("+S").arg(&file).output().unwrap();
    assert!(!unknown.status.success() && told(&unknown).contains("not supported"), "{unknown:?}");
    ok(&Command::new("chattr").args(["-p", "7"]).arg(&file).output().unwrap());
    mounted.remount();
    let shown = Command::new("lsattr").args(["-p"]).arg(&file).output().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().trim_start().starts_with("7 "));
}

#[test]
fn the_time_of_a_change_of_flags_is_seen_at_once() {
    let mounted = Mounted::new();
    let file = mounted.path("f");
    fs::write(&file, b"").unwrap();
    let ctime = || fs::metadata(&file).map(|seen| (seen.ctime(), seen.ctime_nsec())).unwrap();
    let before = ctime();
    chattr("+d", &file);
    assert!(ctime() > before);
}

#[test]
fn the_time_of_access_stays_where_a_flag_says_so() {
    let mounted = Mounted::unmounted();
    ok(&mounted.try_mount(&["-o", "strictatime"]));
    let file = mounted.path("f");
    fs::write(&file, b"bytes").unwrap();
    let moves = || {
        let atime = || fs::metadata(&file).map(|seen| (seen.atime(), seen.atime_nsec())).unwrap();
        let before = atime();
        assert_eq!(fs::read(&file).unwrap(), b"bytes");
        atime() > before
    };
    assert!(moves() && moves());
    chattr("+A", &file);
    assert!(!moves() && !moves());
    chattr("-A", &file);
    assert!(moves());
}

#[test]
fn descriptors_that_are_open_already_are_refused_too() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, b"first").unwrap();
    let (writer, mut appender) = (
        OpenOptions::new().write(true).open(&path).unwrap(),
        OpenOptions::new().append(true).open(&path).unwrap(),
    );
    chattr("+i", &path);
    is_refused(writer.write_all_at(b"x", 0));
    is_refused(appender.write_all(b"x"));
    is_refused(writer.set_len(0));
    assert_eq!(fs::read(&path).unwrap(), b"first");
    chattr("-i", &path);
    chattr("+a", &path);
    // Unlike on others: an append-only file only grows, whoever has it open.
    is_refused(writer.write_all_at(b"x", 0));
    appender.write_all(b", second").unwrap();
    // The kernel does not keep O_APPEND on a descriptor, as it would where it knows the flag.
    let now = OpenOptions::new().append(true).open(&path).unwrap();
    rustix::fs::fcntl_setfl(&now, OFlags::empty()).unwrap();
    is_refused(now.write_all_at(b"x", 0));
    assert_eq!(fs::read(&path).unwrap(), b"first, second");
}

#[test]
fn an_append_only_file_is_not_mapped_to_be_written() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, [1; 4096]).unwrap();
    chattr("+a", &path);
    let file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    assert!(Mapping::try_of(&file, 4096).is_err());
    // It can be read and written all the same, at once by either.
    (&file).write_all(&[2; 10]).unwrap();
    let read = File::open(&path).unwrap();
    let mut bytes = [0; 5000];
    assert_eq!((read.read_at(&mut bytes, 0).unwrap(), bytes[4105]), (4106, 2));
    assert_eq!((file.read_at(&mut bytes, 4000).unwrap(), bytes[96]), (106, 2));
    let mut direct = OpenOptions::new().append(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
    direct.write_all(&[3; 10]).unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), 4116);
}

#[test]
fn what_was_written_to_a_mapping_before_is_kept_and_what_comes_after_is_not() {
    for change in ["i", "a"] {
        let mounted = Mounted::new();
        let path = mounted.path("f");
        fs::write(&path, vec![1; 100_000]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut mapping = Mapping::of(&file, 100_000);
        mapping[..50_000].fill(2);
        chattr(&format!("+{change}"), &path);
        let mut expected = [vec![2; 50_000], vec![1; 50_000]].concat();
        assert!(fs::read(&path).unwrap() == expected, "{change}");
        // Pages that arrive before the kernel has written back all older ones are still accepted.
        let mut byte = 2_u8;
        let is_refused = || {
            byte += 1;
            mapping[60_000] = byte;
            let written = mapping.sync();
            if written.is_ok() {
                expected[60_000] = byte;
            }
            written.is_err()
        };
        wait_until(is_refused);
        wait_until(|| fs::read(&path).unwrap() == expected);
        drop((mapping, file));
        mounted.remount();
        assert!(fs::read(&path).unwrap() == expected, "{change}");
    }
}

#[test]
fn the_top_of_a_clone_is_free_and_what_is_below_keeps_its_flags() {
    let mounted = Mounted::new();
    let (dir, copy) = (mounted.path("d"), mounted.path("copy"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("f"), b"bytes").unwrap();
    chattr("+i", &dir.join("f"));
    chattr("+id", &dir);
    ok(&betrfs().args(["snapshot", "create"]).arg(&dir).arg("s").output().unwrap());
    ok(&betrfs().arg("clone").arg(&dir).arg(&copy).output().unwrap());
    mounted.remount();
    let taken = dir.join(".betrfs-snapshots/s");
    assert_eq!((lsattr(&dir), lsattr(&copy), lsattr(&taken)), ("id".into(), "d".into(), "id".into()));
    for dir in [&dir, &copy, &taken] {
        assert_eq!(lsattr(&dir.join("f")), "i");
    }
    let in_snapshot = Command::new("chattr").arg("-i").arg(taken.join("f")).output().unwrap();
    assert!(told(&in_snapshot).contains("Read-only"), "{in_snapshot:?}");
    is_refused(fs::remove_file(copy.join("f")));
    // Into a directory that keeps its names no copy comes, and none is begun.
    let closed = mounted.path("closed");
    fs::create_dir(&closed).unwrap();
    for change in ["+a", "+i"] {
        chattr(change, &closed);
        refused(&betrfs().arg("clone").arg(&copy).arg(closed.join("x")).output().unwrap(), &["lsattr -d"]);
        assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
    }
    // `rm-tree` looks at the directory and at the one above.
    let rm_tree = |dir: &Path| betrfs().arg("rm-tree").arg(dir).output().unwrap();
    ok(&betrfs().args(["snapshot", "delete"]).arg(&dir).arg("s").output().unwrap());
    refused(&rm_tree(&dir), &["lsattr -d"]);
    chattr("+a", &mounted.dir);
    refused(&rm_tree(&copy), &["lsattr -d"]);
    assert_eq!(fs::read(copy.join("f")).unwrap(), b"bytes");
    chattr("-a", &mounted.dir);
    ok(&rm_tree(&copy));
    chattr("-i", &dir);
    ok(&rm_tree(&dir));
}

/// The generation that lsattr(1) shows.
fn generation(path: &Path) -> u32 {
    let output = Command::new("lsattr").args(["-d", "-v"]).arg(path).output().unwrap();
    ok(&output);
    let line = String::from_utf8(output.stdout).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_file_has_a_generation_that_stays_and_is_its_own() {
    let mounted = Mounted::new();
    let (file, dir) = (mounted.path("f"), mounted.path("d"));
    fs::write(&file, b"bytes").unwrap();
    fs::create_dir(&dir).unwrap();
    let before = (generation(&file), generation(&dir));
    assert_ne!(before.0, before.1);
    fs::rename(&file, dir.join("g")).unwrap();
    mounted.remount();
    assert_eq!((generation(&dir.join("g")), generation(&dir)), before);
    // The kernel knows the root without asking.
    assert_eq!(generation(&mounted.dir), 0);
}

/// Neither goes through FUSE: the kernel itself refuses, and nothing waits or is swapped.
#[test]
fn swap_files_and_freezes_by_the_kernel_are_refused() {
    let mounted = Mounted::new();
    let file = mounted.path("swap");
    fs::write(&file, vec![0; 8 << 20]).unwrap();
    ok(&shell("chmod 600 \"$1\"; mkswap \"$1\"", &file));
    refused_by_kernel(Command::new("swapon").arg(&file), "Invalid argument");
    assert!(!fs::read_to_string("/proc/swaps").unwrap().contains(file.to_str().unwrap()));
    refused_by_kernel(Command::new("fsfreeze").arg("-f").arg(&mounted.dir), "Operation not supported");
    fs::write(&file, b"goes on").unwrap();
}

fn refused_by_kernel(command: &mut Command, why: &str) {
    let output = command.env("LC_ALL", "C").output().unwrap();
    assert!(!output.status.success() && told(&output).contains(why), "{}", told(&output));
}
