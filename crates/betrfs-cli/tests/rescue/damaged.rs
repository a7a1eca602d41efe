//! Damaged volumes: what is missing is listed, and all else is copied as it was.

use std::collections::BTreeSet;
use std::fs;

use betree_sim::Rng;
use betrfs::{FileType, InodeId};
use serde_json::Value;

use super::{BLOCK_BYTES, Missing, Sample, betrfs, new, noise, repaired};

const SUPERBLOCKS: usize = 4;

/// How many files a volume has, in how many directories, and how much of it is overwritten.
pub struct Extent {
    size: &'static str,
    pub dirs: u64,
    pub files: u64,
    noise_blocks: usize,
    rounds: u64,
}

pub const SMALL: Extent = Extent { size: "128M", dirs: 20, files: 2000, noise_blocks: 20, rounds: 4 };

impl Extent {
    pub fn path_of(&self, file: u64) -> String {
        format!("/dir{}/file{file}", file % self.dirs)
    }

    pub fn contents(&self, file: u64) -> Vec<u8> {
        noise(file, 200 + (file as usize * 7919) % 12_000)
    }

    pub fn filled(&self) -> Sample {
        let sample = Sample::new(self.size);
        let volume = sample.open();
        for dir in 0..self.dirs {
            let name = format!("dir{dir}");
            let made = volume.create(InodeId::ROOT, name.as_bytes(), &new(FileType::Directory, 0o755));
            let parent = made.unwrap().node;
            for file in (0..self.files).filter(|file| file % self.dirs == dir) {
                let name = format!("file{file}");
                let made = new(FileType::Regular, 0o644);
                volume.create_with(parent, name.as_bytes(), &made, &self.contents(file)).unwrap();
            }
        }
        volume.close().unwrap();
        sample
    }
}

/// Whether a line names a file, or a range of names that may have it.
fn names(missing: &Missing, path: &str) -> bool {
    missing.path == path || missing.part.starts_with("names") || missing.path == "-"
}

/// The files whose copies differ, each of which has to be listed; no other is listed with a part of its own.
fn differing(extent: &Extent, sample: &Sample, missing: &[Missing], what: &str) -> BTreeSet<String> {
    let listed: BTreeSet<&str> = missing.iter().map(|missing| missing.path.as_str()).collect();
    let mut differing = BTreeSet::new();
    for file in 0..extent.files {
        let path = extent.path_of(file);
        let copied = fs::read(sample.copy().join(&path[1..]));
        if copied.is_ok_and(|bytes| bytes == extent.contents(file)) {
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

/// Overwrites random blocks in use with noise, each round others. Every file that differs in the copy is
/// named by the rescue and by check, and every other one is right: also on the volume itself, once it is
/// repaired.
fn overwritten_with_noise(extent: &Extent) {
    let sample = extent.filled();
    let whole = sample.bytes();
    let used: Vec<usize> = whole
        .chunks(BLOCK_BYTES)
        .enumerate()
        .skip(SUPERBLOCKS)
        .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        .map(|(index, _)| index)
        .collect();
    let (mut differed, mut by_name, mut healed) = (0, 0, 0);
    for round in 0..extent.rounds {
        let mut rng = Rng::new(round);
        let blocks: Vec<usize> = (0..extent.noise_blocks).map(|_| *rng.pick(&used) * BLOCK_BYTES).collect();
        for block in &blocks {
            sample.write(*block, &noise(rng.next_u64(), BLOCK_BYTES));
        }
        let (code, missing, said) = sample.rescue();
        let differing = differing(extent, &sample, &missing, &format!("round {round}: {said}"));
        assert_eq!(code, Some(if missing.is_empty() { 0 } else { 4 }), "{said}");
        let output = betrfs(&["check", "--format", "json", sample.path.to_str().unwrap()]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let files: BTreeSet<&str> =
            report["files"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
        // A name that is lost as a part of a range is not in check's list of files. Where nothing is left of
        // the node table's directory, that is all names, though a rescue finds the nodes by their headers.
        let all_names_are_lost = files.contains("/");
        let has_names_lost =
            all_names_are_lost || missing.iter().any(|missing| missing.part.starts_with("names"));
        for path in &differing {
            let is_named = files.contains(path.as_str());
            assert!(is_named || has_names_lost, "round {round}: check does not name {path}: {report:#}");
            by_name += usize::from(is_named);
        }
        if !has_names_lost {
            let named: BTreeSet<&str> = differing.iter().map(String::as_str).collect();
            assert_eq!(files, named, "round {round}: {missing:?}");
        }
        println!("round {round}: {} of {} files differ", differing.len(), extent.files);
        differed += differing.len();
        if report["error"].is_null() {
            healed += repaired::has_what_is_not_named(extent, &sample, &report, &differing, has_names_lost);
            fs::write(&sample.path, &whole).unwrap();
        }
        // Nothing else was written to it.
        for block in blocks {
            sample.write(block, &whole[block..block + BLOCK_BYTES]);
        }
    }
    assert!(differed > 20 && by_name > 10, "{differed} files differed, {by_name} of them named by check");
    assert!(healed > 10, "{healed} files were lost in part, and deleted or written anew");
}

#[test]
fn of_a_volume_with_noise_all_files_are_copied_but_those_that_check_names() {
    overwritten_with_noise(&SMALL);
}

/// The same with a hundred thousand files.
#[test]
#[cfg(feature = "large-tests")]
fn of_a_hundred_thousand_files_all_are_copied_but_those_that_check_names() {
    overwritten_with_noise(&Extent { size: "1G", dirs: 100, files: 100_000, noise_blocks: 50, rounds: 1 });
}

/// Structures that a mount needs: without them the volume does not open, and all of it is copied.
#[test]
fn a_volume_that_does_not_open_is_copied() {
    let sample = SMALL.filled();
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
    // All of the node table; the newest pair of superblocks; all of them.
    let pair = if is_newer { [0, 1] } else { [2, 3] };
    let all = [("table", table.as_slice()), ("a pair of superblocks", &pair), ("superblocks", &[0, 1, 2, 3])];
    for (what, blocks) in all {
        for block in blocks {
            sample.write(block * BLOCK_BYTES, &noise(1, BLOCK_BYTES));
        }
        let checked = betrfs(&["check", sample.path.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        let words = if what == "superblocks" { "it has no superblock" } else { "cannot be mounted" };
        assert!(told.contains(words), "{what}: {told}");
        let (code, missing, said) = sample.rescue();
        let differing = differing(&SMALL, &sample, &missing, what);
        assert_eq!(code, Some(4), "{said}");
        if what != "a pair of superblocks" {
            assert!(differing.is_empty(), "{what}: {differing:?}: {missing:?}");
        }
        assert!(missing.iter().any(|missing| missing.path == "-"), "{what}: {missing:?}");
        fs::write(&sample.path, &whole).unwrap();
    }
}

/// The list says of each name of a linked file that it leads to one with missing parts.
#[test]
fn all_names_of_a_linked_file_with_a_hole_are_listed() {
    let sample = Sample::new("64M");
    let volume = sample.open();
    let contents = noise(1, 300_000);
    let made = volume.create(InodeId::ROOT, b"one", &new(FileType::Regular, 0o644)).unwrap().node;
    volume.write(made, 0, &contents).unwrap();
    volume.link(made, InodeId::ROOT, b"other").unwrap();
    volume.create_with(InodeId::ROOT, b"alone", &new(FileType::Regular, 0o644), b"alone").unwrap();
    volume.close().unwrap();
    drop(volume);
    let whole = sample.bytes();
    let at = whole.windows(64).position(|bytes| bytes == &contents[150_000..150_064]).unwrap();
    sample.write(at, &[!contents[150_000]]);
    let (code, missing, said) = sample.rescue();
    assert_eq!(code, Some(4), "{said}");
    let part_of = |path: &str| missing.iter().find(|missing| missing.path == path).map(|found| &*found.part);
    assert_eq!([part_of("/one"), part_of("/other"), part_of("/alone")], [Some("name"), Some("name"), None]);
}
