//! A volume whose node table gives the same blocks to two nodes, under right checksums.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{BLOCK_BYTES, Sample, betrfs, contents, strings};

/// Offsets in a superblock: generation, the directory's first byte, length and checksum, its own checksum.
const GENERATION_AT: usize = 32;
const TABLE_AT: usize = 112;
const TABLE_LEN_AT: usize = 120;
const TABLE_SUM_AT: usize = 128;
const SUM_AT: usize = 4088;
/// Pages and directory: the head, and a slot. In a slot: number of blocks, length of the header, height,
/// whether it is used.
const HEAD_BYTES: usize = 16;
const SLOT_BYTES: usize = 40;
const BLOCKS_AT: usize = 16;
const HEADER_LEN_AT: usize = 20;
const HEIGHT_AT: usize = 32;
const USED_AT: usize = 33;
/// In a node's header: its checksum, the first byte that has one, the dictionary, the lower bound. In a run's
/// reference: the codec.
const HEADER_SUM_AT: usize = 8;
const CHECKED_FROM: usize = 16;
const DICT_AT: usize = 52;
const BOUNDS_AT: usize = 64;
const CODEC_AT: usize = 12;
/// The dictionary of contents.
const DATA: u8 = 1;

fn long(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize
}

/// The newest superblock's place, the directory's and the first page's.
pub struct Places {
    superblocks: Vec<usize>,
    directory: usize,
    directory_len: usize,
    page: usize,
    page_len: usize,
}

impl Places {
    pub fn of(volume: &[u8]) -> Places {
        let all = (0..4).map(|copy| copy * BLOCK_BYTES);
        let newest = all.clone().map(|at| long(volume, at + GENERATION_AT)).max().unwrap();
        let superblocks: Vec<_> = all.filter(|at| long(volume, at + GENERATION_AT) == newest).collect();
        let directory = long(volume, superblocks[0] + TABLE_AT);
        let entry = directory + HEAD_BYTES;
        Places {
            directory_len: word(volume, superblocks[0] + TABLE_LEN_AT),
            superblocks,
            directory,
            page: long(volume, entry) * BLOCK_BYTES,
            page_len: word(volume, entry + 20),
        }
    }

    /// The places of the slots of leaves with contents.
    fn leaves(&self, volume: &[u8]) -> Vec<usize> {
        let slots = (self.page + HEAD_BYTES..).step_by(SLOT_BYTES);
        let slots = slots.take_while(|at| at + SLOT_BYTES <= self.page + self.page_len);
        let is_leaf = |at: &usize| {
            let header = long(volume, *at) * BLOCK_BYTES;
            volume[at + USED_AT] == 1 && volume[at + HEIGHT_AT] == 0 && volume[header + DICT_AT] == DATA
        };
        slots.filter(is_leaf).collect()
    }

    /// Gives the first run of a leaf a codec that no version knows, under right checksums.
    pub fn make_a_leaf_later(&self, volume: &mut [u8]) {
        let slot = self.leaves(volume)[0];
        let header = long(volume, slot) * BLOCK_BYTES;
        let len = word(volume, slot + HEADER_LEN_AT);
        // Past both bounds, the first key, and the number of runs.
        let mut at = header + BOUNDS_AT;
        for _ in 0..2 {
            at += 5 + word(volume, at + 1);
        }
        at += 4 + word(volume, at) + 4;
        volume[at + CODEC_AT] |= 3;
        let sum = xxh3_64(&volume[header + CHECKED_FROM..header + len]);
        volume[header + HEADER_SUM_AT..][..8].copy_from_slice(&sum.to_le_bytes());
        volume[slot + 8..][..8].copy_from_slice(&sum.to_le_bytes());
        self.seal(volume);
    }

    /// Makes all checksums of the node table fit.
    fn seal(&self, volume: &mut [u8]) {
        let page = xxh3_64(&volume[self.page..self.page + self.page_len]);
        volume[self.directory + HEAD_BYTES + 8..][..8].copy_from_slice(&page.to_le_bytes());
        let directory = xxh3_64(&volume[self.directory..self.directory + self.directory_len]);
        for at in &self.superblocks {
            volume[at + TABLE_SUM_AT..][..8].copy_from_slice(&directory.to_le_bytes());
            let sum = xxh3_64(&volume[*at..at + SUM_AT]);
            volume[at + SUM_AT..][..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// A sample in which a leaf stands where another one is, before or behind it in the table.
fn claimed(is_first_wrong: bool) -> Sample {
    let sample = Sample::new();
    let mut volume = fs::read(&sample.path).unwrap();
    let places = Places::of(&volume);
    let leaves = places.leaves(&volume);
    let [mut owner, mut thief] = [leaves[0], leaves[leaves.len() - 1]];
    assert!(owner < thief);
    if is_first_wrong {
        (owner, thief) = (thief, owner);
    }
    volume.copy_within(owner..owner + 8, thief);
    volume.copy_within(owner + BLOCKS_AT..owner + BLOCKS_AT + 4, thief + BLOCKS_AT);
    places.seal(&mut volume);
    fs::write(&sample.path, volume).unwrap();
    sample
}

fn checked(sample: &Sample, options: &[&str]) -> (Option<i32>, Value, String) {
    let output = betrfs(&[&["check", "--format", "json"], options].concat(), &sample.path);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), said)
}

fn problem<'r>(report: &'r Value, code: &str) -> &'r Value {
    let mut problems = report["problems"].as_array().unwrap().iter();
    let found = problems.find(|problem| problem["code"] == code);
    assert!(found.is_some(), "no {code}: {report:#}");
    found.unwrap()
}

/// The files that were copied as they were.
fn rescued(sample: &Sample) -> usize {
    let copy = sample.path.with_extension("copy");
    drop(fs::remove_dir_all(&copy));
    let mut command = Command::new(env!("CARGO_BIN_EXE_betrfs"));
    let output = command.arg("rescue").arg(&sample.path).arg(&copy).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    (0..20)
        .filter(|file| fs::read(copy.join(format!("dir/file{file}"))).ok() == Some(contents(*file)))
        .count()
}

#[test]
fn of_leaves_at_one_place_the_one_that_is_not_there_is_lost_with_its_files_alone() {
    for is_first_wrong in [false, true] {
        let sample = claimed(is_first_wrong);
        let before = fs::read(&sample.path).unwrap();
        let (code, found, said) = checked(&sample, &[]);
        assert_eq!(code, Some(4), "{said}");
        let disputed = problem(&found, "disputed-blocks");
        assert!(disputed["place"].as_str().unwrap() == "node" && disputed["offset"].is_u64(), "{disputed:#}");
        assert!(disputed["what"].as_str().unwrap().contains("in part those of node"), "{disputed:#}");
        let lost = strings(&problem(&found, "bad-node")["files"]).join(" ");
        assert!(lost.contains("/dir/file"), "{found:#}");
        assert!(said.contains("cannot be mounted") && said.contains("`betrfs check -y`"), "{said}");
        let dir = sample.path.with_extension("dir");
        fs::create_dir_all(&dir).unwrap();
        for refused in [
            betrfs(&["check", "-p", "-f"], &sample.path),
            Command::new(env!("CARGO_BIN_EXE_betrfs"))
                .arg("mount")
                .args([&sample.path, &dir])
                .output()
                .unwrap(),
        ] {
            let said = String::from_utf8(refused.stderr).unwrap();
            assert!(!refused.status.success() && said.contains("in use already"), "{said}");
            assert!(said.contains("`betrfs check -y`") && said.contains("`betrfs rescue`"), "{said}");
        }
        let copied = rescued(&sample);
        assert!(fs::read(&sample.path).unwrap() == before, "nothing was written");
        let (code, repaired, said) = checked(&sample, &["-y"]);
        assert_eq!(code, Some(1), "{said} {repaired:#}");
        let changes = repaired["repair"]["changes"].as_array().unwrap();
        let of = |code: &str| changes.iter().find(|change| change["code"] == code).unwrap();
        assert_eq!(of("bad-node")["loses"], true, "{repaired:#}");
        // The second in the table is told of.
        assert_eq!(of("disputed-blocks")["loses"], !is_first_wrong, "{repaired:#}");
        let (code, known, _) = checked(&sample, &[]);
        assert_eq!((code, &known["clean"]), (Some(0), &Value::Bool(true)), "{known:#}");
        let damaged = strings(&known["files"]);
        assert!(!damaged.is_empty() && damaged.iter().all(|file| lost.contains(file)), "{known:#}");
        assert_eq!(damaged.len() + copied, 20, "{known:#}");
        assert_eq!(betrfs(&["check", "--undo"], &sample.path).status.code(), Some(0));
        problem(&checked(&sample, &[]).1, "disputed-blocks");
    }
}
