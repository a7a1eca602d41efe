//! Damaged volumes: what is missing is listed, and all else is copied as it was.

use std::collections::BTreeSet;
use std::fs;

use betree_sim::Rng;
use betrfs::{FileType, InodeId};
use serde_json::Value;

use super::{BLOCK_BYTES, Missing, Sample, betrfs, new, noise};

const DIRS: u64 = 20;
const FILES: u64 = 2000;
/// Blocks that are overwritten in each round.
const NOISE_BLOCKS: usize = 20;
const SUPERBLOCKS: usize = 4;

fn path_of(file: u64) -> String {
    format!("/dir{}/file{file}", file % DIRS)
}

fn contents(file: u64) -> Vec<u8> {
    noise(file, 200 + (file as usize * 7919) % 12_000)
}

fn filled() -> Sample {
    let sample = Sample::new("128M");
    let volume = sample.open();
    for dir in 0..DIRS {
        let dir_node =
            volume.create(InodeId::ROOT, format!("dir{dir}").as_bytes(), &new(FileType::Directory, 0o755));
        let dir_node = dir_node.unwrap().node;
        for file in (0..FILES).filter(|file| file % DIRS == dir) {
            let name = format!("file{file}");
            let made = new(FileType::Regular, 0o644);
            volume.create_with(dir_node, name.as_bytes(), &made, &contents(file)).unwrap();
        }
    }
    volume.close().unwrap();
    sample
}

/// Whether a line names a file, or a range of names that may have it.
fn names(missing: &Missing, path: &str) -> bool {
    missing.path == path || missing.part.starts_with("names") || missing.path == "-"
}

/// The files whose copies differ, each of which has to be listed; no other is listed with a part of its own.
fn differing(sample: &Sample, missing: &[Missing], what: &str) -> BTreeSet<String> {
    let listed: BTreeSet<&str> = missing.iter().map(|missing| missing.path.as_str()).collect();
    let mut differing = BTreeSet::new();
    for file in 0..FILES {
        let path = path_of(file);
        let copied = fs::read(sample.copy().join(&path[1..]));
        if copied.is_ok_and(|bytes| bytes == contents(file)) {
            let lines: Vec<_> = missing.iter().filter(|missing| missing.path == path).collect();
            // Its contents may be there while its attributes are not.
            let are_right = lines.iter().all(|missing| missing.part == "record");
            assert!(are_right, "{what}: {path} was copied right: {lines:?}");
        } else {
            assert!(
                missing.iter().any(|missing| names(missing, &path)),
                "{what}: {path} is not listed: {listed:?}"
            );
            differing.insert(path);
        }
    }
    differing
}

/// Every file that differs is named by check and by the rescue, and every other one reads right.
#[test]
fn of_a_volume_with_noise_all_files_are_copied_but_those_that_check_names() {
    let sample = filled();
    let whole = sample.bytes();
    let used: Vec<usize> = whole
        .chunks(BLOCK_BYTES)
        .enumerate()
        .skip(SUPERBLOCKS)
        .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        .map(|(index, _)| index)
        .collect();
    let (mut differed, mut by_name) = (0, 0);
    for round in 0..4 {
        let mut rng = Rng::new(round);
        for _ in 0..NOISE_BLOCKS {
            sample.write(*rng.pick(&used) * BLOCK_BYTES, &noise(rng.next_u64(), BLOCK_BYTES));
        }
        let (code, missing, said) = sample.rescue();
        let differing = differing(&sample, &missing, &format!("round {round}: {said}"));
        assert_eq!(code, Some(if missing.is_empty() { 0 } else { 4 }), "{said}");
        // A name that is lost as a part of a range is not in check's list of files.
        let output = betrfs(&["check", "--format", "json", sample.path.to_str().unwrap()]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let files: BTreeSet<&str> =
            report["files"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
        let has_names_lost = missing.iter().any(|missing| missing.part.starts_with("names"));
        for path in &differing {
            let is_named = files.contains(path.as_str());
            assert!(is_named || has_names_lost, "round {round}: check does not name {path}: {report:#}");
            by_name += usize::from(is_named);
        }
        if !has_names_lost {
            let named: BTreeSet<&str> = differing.iter().map(String::as_str).collect();
            assert_eq!(files, named, "round {round}: {missing:?}");
        }
        differed += differing.len();
        fs::write(&sample.path, &whole).unwrap();
    }
    assert!(differed > 20 && by_name > 10, "{differed} files differed, {by_name} of them named by check");
}

/// Structures that a mount needs: without them the volume does not open, and all of it is copied.
#[test]
fn a_volume_that_does_not_open_is_copied() {
    let sample = filled();
    let whole = sample.bytes();
    let table: Vec<usize> = whole
        .chunks(BLOCK_BYTES)
        .enumerate()
        .filter(|(_, block)| block.starts_with(b"btpe") || block.starts_with(b"btdi"))
        .map(|(index, _)| index)
        .collect();
    let newest =
        whole.chunks(BLOCK_BYTES).take(SUPERBLOCKS).map(|block| block[32..40].to_vec()).collect::<Vec<_>>();
    let is_newer = newest[0] > newest[2];
    // All of the node table; then the newest pair of superblocks.
    let pair = if is_newer { [0, 1] } else { [2, 3] };
    for (what, blocks) in [("table", table.as_slice()), ("superblocks", &pair)] {
        for block in blocks {
            sample.write(block * BLOCK_BYTES, &noise(1, BLOCK_BYTES));
        }
        let checked = betrfs(&["check", sample.path.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(told.contains("cannot be mounted"), "{what}: {told}");
        let (code, missing, said) = sample.rescue();
        let differing = differing(&sample, &missing, what);
        assert_eq!(code, Some(4), "{said}");
        if what == "table" {
            assert!(differing.is_empty(), "{what}: {differing:?}: {missing:?}");
        }
        assert!(missing.iter().any(|missing| missing.path == "-"), "{what}: {missing:?}");
        fs::write(&sample.path, &whole).unwrap();
    }
}
