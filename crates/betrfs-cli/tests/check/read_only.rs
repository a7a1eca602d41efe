//! A check writes nothing, and sees what is only in the log.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use betree::{Batch, DictId, Env};
use betree_std::FileDevice;
use betrfs::Volume;

use super::{betrfs, strings};

/// Puts a record in `meta`, which is then in the log alone: the volume is left as by a crash.
fn log_record(path: &Path, key: &[u8]) {
    let device = Arc::new(FileDevice::open(path).unwrap());
    let env = Env::open(device, Volume::engine_options(8 << 20)).unwrap();
    let mut batch = Batch::new();
    batch.put(DictId(0), key, b"no record");
    env.commit(&batch).unwrap();
    env.sync().unwrap();
    env.abandon();
}

#[test]
fn a_check_replays_the_log_in_memory_and_leaves_every_byte_as_it_was() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    assert!(betrfs(&["mkfs", "--size", "64M"], &path).status.success());
    log_record(&path, b"\0\0wrong");
    let before = fs::read(&path).unwrap();
    let output = betrfs(&["check", "--format", "json"], &path);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let report = super::document(&output.stdout);
    assert!(strings(&report["files"]).contains(&"/wrong"), "the log was not replayed: {report:#}");
    assert!(fs::read(&path).unwrap() == before, "something was written");
}

#[test]
fn progress_is_told_in_lines_if_asked_for() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    assert!(betrfs(&["mkfs", "--size", "64M"], &path).status.success());
    let told = |arguments: &[&str]| String::from_utf8(betrfs(arguments, &path).stderr).unwrap();
    assert_eq!(told(&["check"]), "");
    let lines = told(&["check", "--progress"]);
    assert!(lines.lines().all(|line| line.starts_with("checked ")), "{lines}");
    // The roots of four dictionaries.
    assert!(lines.ends_with("checked 4 of 4 nodes\n"), "{lines}");
}
