//! Reports of checks of volumes with changed blocks: all damage, with the files, and no problem that only
//! follows from other damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::*;
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::{MemDevice, Rng};
use betrfs::{FileType, NewNode, Problem, Report, Volume, XattrMode};

const DIRS: usize = 6;
const FILES: usize = 14;
const SUPERBLOCKS: u64 = 4 * BLOCK_BYTES as u64;

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// A closed volume with small nodes: files of up to some blocks, files with several names, attributes, a copy
/// of a directory and a snapshot.
fn sample() -> Disk {
    let disk = Disk::of_tiny_nodes(48 << 20);
    let volume = disk.open();
    for dir in 0..DIRS {
        let node = mkdir(&volume, ROOT, &format!("dir{dir}")).node;
        let below = mkdir(&volume, node, "below").node;
        for file in 0..FILES {
            let seed = (dir * FILES + file) as u64;
            let parent = if file % 3 == 0 { below } else { node };
            let made = mkfile(&volume, parent, &format!("file{file}-{:x}", seed * 0x9e37_79b9)).node;
            volume.write(made, 0, &noise(seed, 500 + file * 1700)).unwrap();
            if file % 5 == 0 {
                volume.link(made, node, format!("link{file}").as_bytes()).unwrap();
                volume.set_xattr(made, b"user.large", &noise(seed, 3000), XattrMode::Any).unwrap();
            }
        }
        let fifo = NewNode { file_type: FileType::Fifo, ..new_file() };
        volume.create(node, b"pipe", &fifo).unwrap();
    }
    let first = volume.resolve(b"/dir0").unwrap().node;
    volume.clone_inode(first, ROOT, b"copy").unwrap();
    let snapshots = volume.lookup(first, betrfs::SNAPSHOTS_NAME).unwrap().node;
    mkdir(&volume, snapshots, "monday");
    // Some messages wait above the leaves.
    for path in all_paths().iter().step_by(9) {
        let node = volume.resolve(path.as_bytes()).unwrap().node;
        volume.write(node, 100, &noise(1, 1500)).unwrap();
        volume.env().checkpoint().unwrap();
    }
    assert_sound(&volume);
    volume.close().unwrap();
    disk
}

fn smash(device: &MemDevice, block: u64) {
    let mut bytes = [0; BLOCK_BYTES];
    device.read_at(block, &mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    device.write_at(block, &bytes).unwrap();
}

/// Checks a copy of a volume with blocks smashed.
fn examine(disk: &Disk, blocks: &[u64]) -> (Report, Arc<MemDevice>) {
    let device = Arc::new(disk.device.copy());
    blocks.iter().for_each(|block| smash(&device, *block));
    let before = device.copy();
    let report = Volume::examine(device.clone(), disk.options.clone(), &mut |_, _| ()).unwrap();
    (report, Arc::new(before))
}

/// The places on the device that a report names.
fn places(report: &Report) -> BTreeSet<u64> {
    let of = |problem: &Problem| {
        let words: Vec<_> = problem
            .what
            .split(" at byte ")
            .skip(1)
            .map(|rest| rest.split([' ', ':']).next().unwrap().to_owned())
            .collect();
        words.into_iter().map(|word| word.parse().unwrap()).collect::<Vec<u64>>()
    };
    report.problems.iter().flat_map(of).collect()
}

/// Fails if a problem only follows from an unreadable part.
fn assert_no_consequences(report: &Report, what: &str) {
    for problem in &report.problems {
        let is_cause = problem.what.contains(" is damaged: ") || problem.what.contains("copy at byte");
        assert!(is_cause, "{what}: `{problem}` of {:#?}", report.problems);
    }
}

/// The contents of all paths; `None` for an unreadable one.
fn read_everything(volume: &Volume, paths: &[String]) -> BTreeMap<String, Option<Vec<u8>>> {
    let read = |path: &String| {
        let entry = volume.resolve(path.as_bytes()).ok()?;
        let mut bytes = Vec::new();
        if entry.attr.file_type == FileType::Regular {
            volume.read(entry.node, 0, entry.attr.size as usize, &mut bytes).ok()?;
        }
        Some(bytes)
    };
    paths.iter().map(|path| (path.clone(), read(path))).collect()
}

fn all_paths() -> Vec<String> {
    let mut all = Vec::new();
    for dir in (0..DIRS).map(|dir| format!("dir{dir}")).chain(["copy".into()]) {
        let number: usize = dir.strip_prefix("dir").map_or(0, |number| number.parse().unwrap());
        for file in 0..FILES {
            let seed = (number * FILES + file) as u64;
            let below = if file % 3 == 0 { "below/" } else { "" };
            all.push(format!("/{dir}/{below}file{file}-{:x}", seed * 0x9e37_79b9));
        }
    }
    all
}

/// The blocks whose damage is noticed, with the reports.
fn noticed(disk: &Disk) -> BTreeMap<u64, Report> {
    let blocks = disk.device.written_blocks().into_iter().map(|block| (block, examine(disk, &[block]).0));
    blocks.filter(|(_, report)| !report.problems.is_empty()).collect()
}

#[test]
fn each_smashed_block_is_reported_with_all_unreadable_files() {
    let disk = sample();
    let paths = all_paths();
    let whole = read_everything(&disk.open(), &paths);
    assert!(whole.values().all(Option::is_some), "{whole:?}");
    let (mut kinds, mut losing, mut unopened) = (BTreeSet::new(), 0, 0);
    for block in disk.device.written_blocks() {
        let (report, device) = examine(&disk, &[block]);
        if report.problems.is_empty() {
            assert_eq!(report, Report::default(), "block {block}");
        }
        assert_no_consequences(&report, &format!("block {block}"));
        for kind in [
            "node's header",
            "basement",
            "messages for",
            "page of the node table",
            "directory at",
            "superblock's copy",
        ] {
            if report.problems.iter().any(|problem| problem.what.contains(kind)) {
                kinds.insert(kind);
            }
        }
        let device = MemDevice::copy(&device);
        let Ok(volume) = Volume::open(Arc::new(device), disk.options.clone()) else {
            assert!(report.refused.is_some(), "block {block}");
            unopened += 1;
            continue;
        };
        assert_eq!(report.refused, None, "block {block}");
        for (path, read) in read_everything(&volume, &paths) {
            match read {
                Some(read) => assert_eq!(Some(read), whole[&path], "{path}"),
                None => {
                    losing += 1;
                    // An object below a lost directory is out of reach.
                    let above = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]);
                    let is_named = above.chain([path.as_str()]).any(|path| report.files.contains(path));
                    assert!(is_named, "block {block}, {path}: {report:#?}");
                    let is_told = |problem: &Problem| {
                        !problem.files.is_empty() && problem.what.contains("cannot be read because of it")
                    };
                    assert!(report.problems.iter().any(is_told), "block {block}: {report:#?}");
                }
            }
        }
    }
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    assert!(losing > 100 && unopened > 1, "{losing} readings failed, {unopened} volumes could not be opened");
}

#[test]
fn several_smashed_blocks_are_reported_as_each_alone() {
    let disk = sample();
    let alone = noticed(&disk);
    // Damage hides everything below it: these blocks are checked alone.
    let hides = |report: &Report| {
        report.refused.is_some() || report.problems.iter().any(|p| p.what.contains("header"))
    };
    let (hiding, mut others): (Vec<_>, Vec<_>) = alone.iter().partition(|(_, report)| hides(report));
    // Damage of both copies of a part of the node table is another case.
    let is_second = |report: &Report| report.problems.iter().any(|p| p.what.contains("second copy"));
    others.retain(|(_, report)| !is_second(report));
    assert!(hiding.len() > 20 && others.len() > 60, "{} and {}", hiding.len(), others.len());
    let mut rng = Rng::new(7);
    for round in 0..40 {
        let mut chosen = BTreeSet::new();
        for _ in 0..2 + round % 9 {
            chosen.insert(*rng.pick(&others).0);
        }
        // Damage of both copies of a generation is another case.
        chosen.retain(|block| *block >= SUPERBLOCKS || *block == 0);
        let chosen: Vec<u64> = chosen.into_iter().collect();
        let (report, _) = examine(&disk, &chosen);
        let told: BTreeSet<u64> = chosen.iter().flat_map(|block| places(&alone[block])).collect();
        assert_eq!(places(&report), told, "{chosen:?}: {report:#?}");
        let files: BTreeSet<_> = chosen.iter().flat_map(|block| alone[block].files.clone()).collect();
        assert_eq!(report.files, files, "{chosen:?}");
        assert_no_consequences(&report, &format!("{chosen:?}"));
        // Damage that hides other damage is itself still reported.
        let block = *rng.pick(&hiding).0;
        let (report, _) = examine(&disk, &[&chosen[..], &[block]].concat());
        assert!(places(&alone[&block]).is_subset(&places(&report)), "{chosen:?}, {block}: {report:#?}");
        assert_no_consequences(&report, &format!("{chosen:?}, {block}"));
    }
}

#[test]
fn the_report_of_a_volume_smashed_all_over_is_bounded() {
    let disk = sample();
    let blocks: Vec<u64> =
        disk.device.written_blocks().into_iter().filter(|block| *block >= SUPERBLOCKS).collect();
    let (report, _) = examine(&disk, &blocks);
    assert!(report.refused.is_some() && !report.problems.is_empty(), "{report:#?}");
    assert!(
        report.problems.iter().any(|problem| problem.what.contains("from the first to the last")),
        "{report:#?}"
    );
    assert!(report.problems.len() < 50, "{report:#?}");
    let device = Arc::new(disk.device.copy());
    [0, 4096, 8192, 12288].into_iter().for_each(|copy| device.rot(copy + 100, 3));
    let report = Volume::examine(device, disk.options, &mut |_, _| ()).unwrap();
    assert_eq!(places(&report).into_iter().collect::<Vec<_>>(), [0, 4096, 8192, 12288], "{report:#?}");
    assert!(report.refused.is_some());
}
