//! Runs the examples on volumes in temporary files, and checks their output.
#![allow(clippy::unwrap_used)]
// The tests call `run` of each example, which has a `main` only for `cargo run --example`.

use std::fs;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform};
use betrfs::{OpenOptions, Volume};

#[path = "../examples/clones.rs"]
mod clones;
#[path = "../examples/files.rs"]
mod files;
#[path = "../examples/import.rs"]
mod import;
#[path = "../examples/snapshots.rs"]
mod snapshots;

/// The output of an example.
macro_rules! printed {
    ($run:path) => {{
        let dir = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        $run(&dir.path().join("volume"), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }};
}

#[test]
fn files_are_listed_and_read() {
    let expected = "Regular to-ada\nRegular to-bob\n10 bytes: Dear Ada,\n";
    assert_eq!(printed!(files::run), expected);
}

#[test]
fn a_clone_and_its_source_go_their_own_ways() {
    let expected = "project: first, copy: other\nthe copy shares most of it: true\ncopy: other\n";
    assert_eq!(printed!(clones::run), expected);
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let printed = printed!(snapshots::run);
    assert!(printed.starts_with("now: Friday\nthen: Monday\na change of it: "), "{printed}");
}

#[test]
fn an_imported_directory_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir_all(from.join("deep/er")).unwrap();
    fs::write(from.join("deep/er/file"), vec![7; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("deep/er/file", from.join("link")).unwrap();
    let mut out = Vec::new();
    import::run(&from, &dir.path().join("volume"), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "4 entries\n");

    let device = Arc::new(FileDevice::open(&dir.path().join("volume")).unwrap());
    let volume = Volume::open(device, OpenOptions::new(Arc::new(StdPlatform::new()))).unwrap();
    let mut bytes = Vec::new();
    let file = volume.resolve(b"/deep/er/file").unwrap();
    volume.read(file.node, 0, 4 << 20, &mut bytes).unwrap();
    assert!(bytes == vec![7; 3 << 20]);
    assert_eq!(volume.readlink(volume.resolve(b"/link").unwrap().node).unwrap(), b"deep/er/file");
    volume.close().unwrap();
}
