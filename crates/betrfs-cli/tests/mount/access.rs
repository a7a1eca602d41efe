//! Times of access in stat(2).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;

use rustix::fs::OFlags;

use crate::mounted::{Mounted, next_tick, ok};

type Time = (i64, i64);

fn atime(path: &Path) -> Time {
    let seen = fs::symlink_metadata(path).unwrap();
    (seen.atime(), seen.atime_nsec())
}

fn mtime(path: &Path) -> Time {
    let seen = fs::symlink_metadata(path).unwrap();
    (seen.mtime(), seen.mtime_nsec())
}

fn list(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn access_times_seen_by_stat_survive_a_remount() {
    let mounted = Mounted::new();
    let [dir, small, large, link] = ["d", "d/small", "d/large", "d/link"].map(|name| mounted.path(name));
    fs::create_dir(&dir).unwrap();
    fs::write(&small, b"x").unwrap();
    fs::write(&large, vec![1; 300_000]).unwrap();
    symlink("small", &link).unwrap();
    let all = [&dir, &small, &large, &link];
    let made = all.map(|path| atime(path));
    next_tick();
    assert_eq!(list(&dir), 3);
    fs::read(&small).unwrap();
    fs::read(&large).unwrap();
    fs::read_link(&link).unwrap();
    let shown = all.map(|path| atime(path));
    assert!(made.iter().zip(&shown).all(|(made, shown)| shown > made), "{made:?} {shown:?}");
    mounted.remount();
    assert_eq!(all.map(|path| atime(path)), shown);
    mounted.remount();
    assert_eq!(all.map(|path| atime(path)), shown);
}

/// By this, mail programs distinguish new mail from read mail.
#[test]
fn reading_a_changed_file_moves_its_access_time_however_it_is_read() {
    let mounted = Mounted::new();
    let path = mounted.path("mbox");
    fs::write(&path, b"From a\n").unwrap();
    let append = |bytes: &[u8]| {
        next_tick();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(bytes).unwrap();
        assert!(mtime(&path) > atime(&path), "new mail");
        next_tick();
    };
    let is_read =
        |by: &str| assert!(atime(&path) >= mtime(&path), "by {by}: {:?} {:?}", atime(&path), mtime(&path));

    append(b"From b\n");
    fs::read(&path).unwrap();
    is_read("a READ");
    append(&vec![b'\n'; 3 * 4096 - 14]);
    fs::read(&path).unwrap();
    is_read("READs");
    // The kernel has this file's pages.
    append(&vec![b'c'; 4096]);
    let requests = mounted.requests_of(|| {
        let mut last = [0; 4096];
        File::open(&path).unwrap().read_exact_at(&mut last, 3 * 4096).unwrap();
    });
    assert_eq!(requests.get("read"), None, "the kernel answers by itself");
    is_read("the kernel's pages");
    append(&vec![b'd'; 4096]);
    {
        let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.seek(std::io::SeekFrom::End(-100)).unwrap();
        file.read_exact(&mut [0; 100]).unwrap();
    }
    is_read("a descriptor that could write");
    append(&vec![b'e'; 4096]);
    let other = mounted.path("copy");
    std::io::copy(&mut File::open(&path).unwrap(), &mut File::create(&other).unwrap()).unwrap();
    is_read("a copy by the kernel");
    File::create(&path).unwrap();
    next_tick();
    fs::read(&path).unwrap();
    is_read("a look at the end of an empty file");
    let before = (atime(&path), mtime(&path));
    mounted.remount();
    assert_eq!((atime(&path), mtime(&path)), before);
}

#[test]
fn repeated_reading_costs_no_more_requests() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    let read = || {
        fs::read(&path).unwrap();
    };
    let requests = |of: &[&str]| of.iter().map(|name| ((*name).to_owned(), 1)).collect();
    // The kernel's own READ, and writes past its pages, make its attributes stale.
    assert_eq!(mounted.requests_of(read), requests(&["open", "statx", "read", "release"]));
    assert_eq!(mounted.requests_of(read), requests(&["open", "statx", "release"]));
    assert_eq!(mounted.requests_of(read), requests(&["open", "release"]));
    assert_eq!(mounted.requests_of(read), requests(&["open", "release"]));
    let commits = || mounted.stats()["engine"]["commits"].as_u64().unwrap();
    let before = commits();
    for _ in 0..10 {
        read();
        list(&mounted.dir);
    }
    assert_eq!(commits(), before);
}

#[test]
fn access_times_follow_o_noatime_and_the_mount_options() {
    let mounted = Mounted::unmounted();
    let (file, dir) = (mounted.path("d/f"), mounted.path("d"));
    let all = || {
        next_tick();
        let before = (atime(&file), atime(&dir));
        fs::read(&file).unwrap();
        list(&dir);
        let after = (atime(&file), atime(&dir));
        (before.0 != after.0, before.1 != after.1)
    };
    let mount = |options: &str| ok(&mounted.try_mount(&["-o", options]));
    mounted.mount();
    fs::create_dir(&dir).unwrap();
    fs::write(&file, b"x").unwrap();
    next_tick();
    let made = atime(&file);
    let mut quiet =
        OpenOptions::new().read(true).custom_flags(OFlags::NOATIME.bits() as i32).open(&file).unwrap();
    quiet.read_exact(&mut [0]).unwrap();
    drop(quiet);
    assert_eq!(atime(&file), made, "O_NOATIME");
    mounted.umount();
    for (options, moves) in [
        ("noatime", (false, false)),
        ("ro", (false, false)),
        ("nodiratime", (true, false)),
        ("relatime", (false, true)),
        ("relatime", (false, false)),
        ("strictatime", (true, true)),
        ("strictatime,nodiratime", (true, false)),
    ] {
        mount(options);
        assert_eq!(all(), moves, "{options}");
        mounted.umount();
    }
}

#[test]
fn reading_a_snapshot_does_not_change_it() {
    let mounted = Mounted::new();
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("f"), b"x").unwrap();
    fs::write(dir.join("linked"), b"x").unwrap();
    fs::hard_link(dir.join("linked"), dir.join("too")).unwrap();
    symlink("f", dir.join("s")).unwrap();
    ok(&crate::mounted::betrfs().args(["snapshot", "create"]).arg(&dir).arg("one").output().unwrap());
    let snapshot = dir.join(".betrfs-snapshots/one");
    let all = ["", "f", "linked", "too", "s"].map(|name| snapshot.join(name));
    let now = || {
        all.clone().map(|path| {
            let seen = fs::symlink_metadata(path).unwrap();
            let times = [
                seen.atime(),
                seen.atime_nsec(),
                seen.mtime(),
                seen.mtime_nsec(),
                seen.ctime(),
                seen.ctime_nsec(),
            ];
            (times, seen.mode(), seen.nlink(), seen.size(), seen.blocks())
        })
    };
    let before = now();
    next_tick();
    let access = || {
        assert_eq!(list(&snapshot), 4);
        for name in ["f", "linked", "too", "s"] {
            fs::read(snapshot.join(name)).unwrap();
        }
        fs::read_link(snapshot.join("s")).unwrap();
    };
    access();
    access();
    assert_eq!(now(), before);
    mounted.remount();
    assert_eq!(now(), before);
    access();
    assert_eq!(now(), before);
}
