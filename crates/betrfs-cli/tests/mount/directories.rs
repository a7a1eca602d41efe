//! Listing directories.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use rustix::fs::{Dir, Mode, OFlags};

use crate::mounted::Mounted;

fn listed(mounted: &Mounted, dir: &str) -> BTreeSet<String> {
    fs::read_dir(mounted.path(dir)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn ten_thousand_entries_are_listed_once_each_with_deletes_between() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let name = |i: usize| format!("entry-{i:05}");
    for i in 0..10_000 {
        fs::write(mounted.path("d").join(name(i)), b"").unwrap();
    }
    let all: BTreeSet<String> = (0..10_000).map(name).collect();
    assert_eq!(listed(&mounted, "d"), all);
    mounted.remount();
    assert_eq!(listed(&mounted, "d"), all);
    mounted.remount();
    // An entry that was not deleted before its turn comes exactly once, others at most once.
    let mut seen = Vec::new();
    for (i, entry) in fs::read_dir(mounted.path("d")).unwrap().enumerate() {
        seen.push(entry.unwrap().file_name().into_string().unwrap());
        if i % 3 == 0 {
            fs::remove_file(mounted.path("d").join(seen.last().unwrap())).unwrap();
        }
    }
    let once: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!((seen.len(), once), (10_000, all.clone()));
    let removed: BTreeSet<String> = seen.iter().step_by(3).cloned().collect();
    assert_eq!(listed(&mounted, "d"), &all - &removed);
    fs::remove_dir_all(mounted.path("d")).unwrap();
    assert!(!mounted.path("d").exists());
}

#[test]
fn a_listing_can_be_rewound_and_continued() {
    let mounted = Mounted::new();
    for i in 0..500 {
        fs::write(mounted.path(format!("f{i}")), b"").unwrap();
    }
    let open = || {
        Dir::new(rustix::fs::open(&mounted.dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap())
            .unwrap()
    };
    let mut first = open();
    let names = |dir: &mut Dir| -> Vec<_> { dir.map(|e| e.unwrap().file_name().to_owned()).collect() };
    let begin: Vec<_> = first.by_ref().take(100).map(|e| e.unwrap().file_name().to_owned()).collect();
    let whole = names(&mut open());
    assert_eq!(whole.len(), 502, "with . and ..");
    let rest = names(&mut first);
    assert_eq!([begin, rest].concat(), whole);
    first.rewind();
    fs::write(mounted.path("late"), b"").unwrap();
    assert_eq!(names(&mut first).len(), 503, "rewinding shows what came meanwhile");
}

#[test]
fn dots_and_inode_numbers_are_those_of_stat() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), b"").unwrap();
    fs::hard_link(mounted.path("d/f"), mounted.path("d/g")).unwrap();
    for round in ["warm", "cold"] {
        let entries = fs::read_dir(mounted.path("d")).unwrap().map(Result::unwrap);
        for entry in entries {
            assert_eq!(entry.ino(), entry.metadata().unwrap().ino(), "{round}: {:?}", entry.file_name());
        }
        let dots = Dir::new(
            rustix::fs::open(mounted.path("d"), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap(),
        )
        .unwrap();
        let dot = dots.map(Result::unwrap).find(|e| e.file_name().to_bytes() == b".").unwrap();
        assert_eq!(dot.ino(), fs::metadata(mounted.path("d")).unwrap().ino());
        mounted.remount();
    }
}

#[test]
fn an_open_directory_that_is_removed_is_empty() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let fd = rustix::fs::open(mounted.path("d"), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    fs::remove_dir(mounted.path("d")).unwrap();
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_nlink, 0);
    let made = rustix::fs::openat(&fd, "f", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU);
    assert_eq!(made.err(), Some(rustix::io::Errno::NOENT));
    rustix::fs::fsync(&fd).unwrap();
}

#[test]
fn link_counts_of_directories_count_subdirectories() {
    let mounted = Mounted::new();
    let nlink = || fs::metadata(mounted.path("d")).unwrap().nlink();
    fs::create_dir(mounted.path("d")).unwrap();
    assert_eq!(nlink(), 2);
    fs::create_dir(mounted.path("d/a")).unwrap();
    fs::create_dir(mounted.path("d/b")).unwrap();
    assert_eq!(nlink(), 4);
    fs::rename(mounted.path("d/a"), mounted.path("a")).unwrap();
    fs::remove_dir(mounted.path("d/b")).unwrap();
    assert_eq!(nlink(), 2);
}
