//! `betrfs check` of damaged volumes, which can be opened or not: the problems that it lists.
#![forbid(unsafe_code)]
// Also in helpers outside of `#[test]` functions.
#![allow(clippy::unwrap_used)]

mod claims;
mod interrupted;
mod read_only;
mod repair;
#[path = "../mount/schemas.rs"]
mod schemas;
mod versions;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use betree_sim::Rng;
use betree_std::{FileDevice, StdPlatform};
use betrfs::{FileType, InodeId, NewNode, Volume};
use serde_json::Value;
use tempfile::TempDir;

const BLOCK_BYTES: usize = 4096;

/// A closed volume of files that do not compress, each of them large.
struct Sample {
    _temp: TempDir,
    path: PathBuf,
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// The contents of `/dir/fileN`.
fn contents(file: u64) -> Vec<u8> {
    noise(file, 200_000)
}

/// A name of a file in `/many`; names have no parts in common.
fn many_name(number: u64) -> String {
    noise(number, 24)
        .iter()
        .map(|byte| char::from(b'A' + byte % 58))
        .map(|c| if c.is_alphabetic() { c } else { '-' })
        .collect()
}

fn betrfs(arguments: &[&str], volume: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_betrfs"));
    command.args(arguments).arg(volume).stdin(Stdio::null()).output().unwrap()
}

impl Sample {
    fn new() -> Sample {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("volume");
        assert!(betrfs(&["mkfs", "--size", "64M"], &path).status.success());
        let options = betrfs::OpenOptions::new(Arc::new(StdPlatform::new()));
        let volume = Volume::open(Arc::new(FileDevice::open(&path).unwrap()), options).unwrap();
        let new = |file_type| NewNode { file_type, perm: 0o755, uid: 0, gid: 0, rdev: 0, umask: 0 };
        let dir = volume.create(InodeId::ROOT, b"dir", &new(FileType::Directory)).unwrap().node;
        for file in 0..20 {
            let made = volume.create(dir, format!("file{file}").as_bytes(), &new(FileType::Regular)).unwrap();
            volume.write(made.node, 0, &contents(file)).unwrap();
        }
        let many = volume.create(InodeId::ROOT, b"many", &new(FileType::Directory)).unwrap().node;
        for number in 0..3000 {
            volume.create(many, many_name(number).as_bytes(), &new(FileType::Regular)).unwrap();
        }
        volume.close().unwrap();
        Sample { _temp: temp, path }
    }

    /// The offset on the volume at which some bytes are stored.
    fn find(&self, bytes: &[u8]) -> u64 {
        self.find_one_of([bytes]).unwrap()
    }

    /// The offset of the first of these that is stored uncompressed.
    fn find_one_of<B: AsRef<[u8]>>(&self, all: impl IntoIterator<Item = B>) -> Option<u64> {
        let whole = fs::read(&self.path).unwrap();
        let find = |bytes: B| {
            let bytes = bytes.as_ref();
            whole.windows(bytes.len()).position(|window| window == bytes)
        };
        all.into_iter().find_map(find).map(|at| at as u64)
    }

    fn smash(&self, at: u64, len: usize) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(&vec![0x5a; len], at).unwrap();
    }

    fn check(&self) -> (Value, Output) {
        let output = betrfs(&["check", "--format", "json"], &self.path);
        (document(&output.stdout), output)
    }
}

/// The document of a check.
fn document(stdout: &[u8]) -> Value {
    let document = serde_json::from_slice(stdout).unwrap();
    schemas::valid("check", &document);
    document
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

/// The problems of a report.
fn sentences(report: &Value) -> Vec<&str> {
    report["problems"].as_array().unwrap().iter().map(|problem| problem["what"].as_str().unwrap()).collect()
}

#[test]
fn several_smashed_places_are_each_listed_with_their_files() {
    let sample = Sample::new();
    let (report, _) = sample.check();
    assert_eq!((&report["clean"], &report["error"]), (&Value::Bool(true), &Value::Null));
    for (file, at) in [(3, 100), (11, 150_000), (17, 40_000)] {
        sample.smash(sample.find(&contents(file)[at..at + 32]), 16);
    }
    sample.smash(4096 + 64, 512);
    // A name among many: most are stored uncompressed.
    sample.smash(sample.find_one_of((1000..1020).map(many_name)).unwrap(), 8);
    let whole = fs::read(&sample.path).unwrap();
    let (report, output) = sample.check();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!((&report["clean"], &report["schema_version"]), (&false.into(), &1.into()));
    let problems = sentences(&report);
    assert_eq!(problems.len(), 5, "{report:#}");
    let told = |words: &[&str]| {
        let all = problems.iter().filter(|problem| words.iter().all(|word| problem.contains(word)));
        assert_eq!(all.count(), 1, "{words:?}: {report:#}");
    };
    told(&["superblock's copy at byte 4096"]);
    let superblock =
        report["problems"].as_array().unwrap().iter().find(|p| p["code"] == "bad-superblock").unwrap();
    assert_eq!((&superblock["place"], &superblock["offset"]), (&"superblock".into(), &4096.into()));
    let piece =
        report["problems"].as_array().unwrap().iter().find(|p| p["files"][0] == "/dir/file3").unwrap();
    assert_eq!((&piece["code"], &piece["place"]), (&"bad-piece".into(), &"node".into()));
    told(&["basement", "the data of /dir/file3 (bytes 0 to "]);
    told(&["basement", "/dir/file11 (bytes "]);
    told(&["basement", "/dir/file17 (bytes "]);
    // Names that wait above the lost node are readable: ranges are between them.
    told(&["the names from ", ", from /many/"]);
    // The directory cannot be listed.
    for file in ["/dir/file11", "/dir/file17", "/dir/file3", "/many"] {
        assert!(strings(&report["files"]).contains(&file), "{file}: {report:#}");
    }
    assert!(strings(&report["notes"]).iter().any(|note| note.contains("/many (")), "{report:#}");
    // The same, for people.
    fs::write(&sample.path, whole).unwrap();
    let output = betrfs(&["check"], &sample.path);
    let lines = String::from_utf8(output.stdout).unwrap();
    let shown = sample.path.display();
    let is_shown = |line: &str| lines.lines().any(|told| told == format!("{shown}: {line}"));
    for problem in report["problems"].as_array().unwrap() {
        let (what, code) = (problem["what"].as_str().unwrap(), problem["code"].as_str().unwrap());
        assert!(is_shown(&format!("{what} [{code}]")), "{what}: {lines}");
    }
    for note in strings(&report["notes"]) {
        assert!(is_shown(note), "{note}: {lines}");
    }
}

/// Damages structures that opening needs: each time check prints a document with the error and the other
/// damage.
#[test]
fn a_volume_that_cannot_be_opened_is_checked_and_mended_or_not_changed() {
    let sample = Sample::new();
    let place = sample.find(&contents(5)[100..132]);
    sample.smash(place, 16);
    let whole = fs::read(&sample.path).unwrap();
    let (mut mended, mut unmended) = (0, 0);
    let blocks = whole.chunks(BLOCK_BYTES).enumerate().skip(4);
    let blocks: Vec<usize> =
        blocks.filter(|(_, block)| block.iter().any(|b| *b != 0)).map(|(at, _)| at).collect();
    // With its second copy, if it has one.
    let bytes_of = |block: usize| &whole[block * BLOCK_BYTES..][..BLOCK_BYTES];
    let with_copies = |block: &usize| -> Vec<usize> {
        blocks.iter().copied().filter(|other| bytes_of(*other) == bytes_of(*block)).collect()
    };
    // The table and its directory are written last. The copies of the directory are not the same.
    let mut damages: Vec<Vec<usize>> = blocks.iter().rev().take(12).map(with_copies).collect();
    let map = betrfs(&["debug", "map", "--format", "json"], &sample.path);
    let map: Value = serde_json::from_slice(&map.stdout).unwrap();
    let ranges = map["ranges"].as_array().unwrap().iter();
    let directories = ranges.filter(|range| range["owner"] == "table-directory");
    damages.push(directories.map(|at| at["offset"].as_u64().unwrap() as usize / BLOCK_BYTES).collect());
    for damaged in damages {
        let block = damaged[0];
        damaged.iter().for_each(|block| sample.smash((block * BLOCK_BYTES) as u64, 256));
        let smashed = fs::read(&sample.path).unwrap();
        let (report, output) = sample.check();
        assert_eq!(output.status.code(), Some(4), "block {block}");
        assert_eq!(report["clean"], false, "block {block}");
        let problems = sentences(&report);
        assert!(!problems.is_empty(), "block {block}: {report:#}");
        if report["error"].is_string() {
            assert!(fs::read(&sample.path).unwrap() == smashed, "block {block}: it was changed");
            // A repair that cannot begin tells no less, and changes nothing either.
            let output = betrfs(&["check", "-y", "--format", "json"], &sample.path);
            let repair = document(&output.stdout);
            if repair["error"].as_str().is_some_and(|error| error.contains("no repair mends that")) {
                unmended += 1;
                assert_eq!((output.status.code(), &repair["repair"]), (Some(4), &Value::Null));
                assert_eq!(repair["problems"], report["problems"], "block {block}");
                assert!(fs::read(&sample.path).unwrap() == smashed, "block {block}: it was changed");
            } else {
                mended += 1;
                assert_eq!(output.status.code(), Some(1), "block {block}: {repair:#}");
                assert_eq!(sample.check().1.status.code(), Some(0), "block {block}: {repair:#}");
            }
        } else {
            assert!(
                problems.iter().any(|problem| problem.contains("/dir/file5")),
                "block {block}: {report:#}"
            );
        }
        fs::write(&sample.path, &whole).unwrap();
    }
    assert!(mended > 0 && unmended > 0, "{mended} were mended, {unmended} were not");
}

#[test]
fn a_document_is_printed_whatever_happens() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    let check = |code| {
        let output = betrfs(&["check", "--format", "json"], &path);
        assert_eq!(output.status.code(), Some(code));
        assert!(!output.stderr.is_empty());
        let report = document(&output.stdout);
        assert_eq!(report["clean"], false, "{report:#}");
        assert_eq!(report["volume"], path.to_str().unwrap());
        report
    };
    let error = |report: &Value| report["error"].as_str().unwrap().to_owned();
    assert!(error(&check(8)).contains("No such file"));
    for contents in [vec![], b"abc".to_vec(), vec![7; 1 << 20]] {
        fs::write(&path, contents).unwrap();
        assert!(error(&check(8)).contains("not a BetrFS volume"));
    }
    let sample = Sample::new();
    fs::write(&path, &fs::read(&sample.path).unwrap()[..1 << 20]).unwrap();
    let told = error(&check(4));
    assert!(told.contains("it should have 67108864 bytes, and has 1048576 bytes"), "{told}");
    assert!(told.contains("`truncate -s 67108864`") && !told.contains("not a BetrFS volume"), "{told}");
    // The size that the file has, whole blocks or not.
    fs::write(&path, &fs::read(&sample.path).unwrap()[..40_000_000]).unwrap();
    assert!(error(&check(4)).contains("bytes, and has 40000000 bytes;"), "{}", error(&check(4)));
    // All superblocks.
    fs::copy(&sample.path, &path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for copy in 0..4 {
        file.write_all_at(&[0x5a; 100], copy * 4096 + 64).unwrap();
    }
    let report = check(4);
    assert_eq!(sentences(&report).len(), 4, "{report:#}");
    assert!(error(&report).contains("superblock"), "{report:#}");
}

/// On a mount, the sentence names that.
#[test]
fn of_a_directory_on_which_nothing_is_mounted_check_says_what_scrub_does() {
    let temp = tempfile::tempdir().unwrap();
    let said = |arguments: &[&str]| {
        let output = betrfs(arguments, temp.path());
        assert_eq!(output.status.code(), Some(8), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let scrub = said(&["scrub"]);
    assert!(scrub.contains("no BetrFS volume is mounted on"), "{scrub}");
    for arguments in [&["check"][..], &["check", "-n"], &["check", "-p"], &["check", "-y"]] {
        assert_eq!(said(arguments), scrub, "{arguments:?}");
    }
}
