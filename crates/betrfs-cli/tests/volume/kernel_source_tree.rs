//! A large source tree: unpacked, compared, built in, kept in git.

use std::fs;
use std::time::{Duration, Instant};

use crate::build_and_git;
use crate::compare::assert_same;
use crate::mounted::Mounted;
use crate::programs::{check_is_clean, linux_tar, unpack};

/// Minimum number of objects; with fewer it is the wrong tree.
const OBJECTS_MIN: u64 = 70_000;

#[test]
fn a_linux_tree_is_stored_whole_and_can_be_worked_in() {
    let tar = linux_tar();
    let elsewhere = tempfile::tempdir().unwrap();
    unpack(&tar, elsewhere.path());

    let start = Instant::now();
    let lap = |what: &str| println!("{:6.1} s: {what}", start.elapsed().as_secs_f64());
    let mounted = Mounted::lasting("8G", Duration::from_secs(1800));
    mounted.mount();
    fs::create_dir(mounted.path("tree")).unwrap();
    unpack(&tar, &mounted.path("tree"));
    lap("unpacked");
    mounted.remount();
    lap("mounted again");
    let objects = assert_same(elsewhere.path(), &mounted.path("tree"));
    assert!(objects >= OBJECTS_MIN, "{objects} objects");
    lap("compared");
    mounted.umount();
    check_is_clean(&mounted.volume);
    lap("checked");

    mounted.mount();
    build_and_git::build_in_c(&mounted.path("program"));
    lap("a program built");
    let top = fs::read_dir(mounted.path("tree")).unwrap().next().unwrap().unwrap().path();
    // All of it keeps git busy for minutes.
    let part = std::env::var_os("BETRFS_GIT_FOLDER").unwrap_or_else(|| "fs".into());
    build_and_git::keep_in_git(&top.join(part), &mounted.path("git"));
    lap("kept in git");
    mounted.remount();
    // Git does not change the files that it stores.
    assert_eq!(assert_same(elsewhere.path(), &mounted.path("tree")), objects);
    lap("compared again");
    fs::remove_dir_all(&top).unwrap();
    fs::remove_dir_all(mounted.path("git")).unwrap();
    lap("all removed");
    assert_eq!(fs::read_dir(mounted.path("tree")).unwrap().count(), 0);
    mounted.umount();
    check_is_clean(&mounted.volume);
    lap("checked again");
}
