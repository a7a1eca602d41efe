//! A source tree, in the long suite that of Linux: unpacked, compared, built in, kept in git.

use std::fs;
use std::time::Instant;

use betree_sim::harness::is_long;

use crate::build_and_git;
use crate::compare::assert_same;
use crate::mounted::Mounted;
use crate::programs::{check_is_clean, source_tar, unpack};

/// Minimum number of objects; with fewer it is the wrong tree.
const OBJECTS_MIN: u64 = 5_000;
/// The same of the long suite's tree, that of Linux.
const OBJECTS_OF_LINUX_MIN: u64 = 70_000;

#[test]
fn a_source_tree_is_stored_whole_and_can_be_worked_in() {
    let tar = source_tar();
    let elsewhere = tempfile::tempdir().unwrap();
    unpack(&tar, elsewhere.path());

    let start = Instant::now();
    let lap = |what: &str| println!("{:6.1} s: {what}", start.elapsed().as_secs_f64());
    let mounted = Mounted::of_size("8G");
    mounted.mount();
    fs::create_dir(mounted.path("tree")).unwrap();
    unpack(&tar, &mounted.path("tree"));
    lap("unpacked");
    mounted.remount();
    lap("mounted again");
    let objects = assert_same(elsewhere.path(), &mounted.path("tree"));
    let objects_min = if is_long() { OBJECTS_OF_LINUX_MIN } else { OBJECTS_MIN };
    assert!(objects >= objects_min, "{objects} objects");
    lap("compared");
    mounted.umount();
    check_is_clean(&mounted.volume);
    lap("checked");

    mounted.mount();
    build_and_git::build_in_c(&mounted.path("program"));
    lap("a program built");
    let top = fs::read_dir(mounted.path("tree")).unwrap().next().unwrap().unwrap().path();
    // All of Linux keeps git busy for minutes.
    let part = std::env::var("BETRFS_GIT_FOLDER");
    let part = part.unwrap_or_else(|_| if is_long() { "fs" } else { "." }.into());
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
