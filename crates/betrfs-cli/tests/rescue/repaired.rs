//! Damaged volumes after `betrfs check -y`: what is known damage, what is right, and what heals it.

use std::collections::BTreeSet;
use std::fs;

use betrfs::{SetAttr, Volume};
use serde_json::Value;

use super::damaged::Extent;
use super::{BLOCK_BYTES, Sample, betrfs};

/// The exit code of a check, and its document.
fn check(sample: &Sample, options: &[&str]) -> (Option<i32>, Value) {
    let path = sample.path.to_str().unwrap();
    let output = betrfs(&[&["check", "--format", "json"], options, &[path]].concat());
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

/// The contents of a file, if all of it can be read.
fn read(volume: &Volume, path: &str) -> betrfs::Result<Vec<u8>> {
    let file = volume.resolve(path.as_bytes())?;
    let mut bytes = Vec::new();
    volume.read(file.node, 0, file.attr.size as usize, &mut bytes)?;
    Ok(bytes)
}

/// Repairs a volume whose check gave `report`. Then every file reads right but those that differ in a
/// rescue's copy, which give an error. Where all names are left, these are all that known damage names; half
/// of them are deleted and half written anew, and no damage is left. Returns how many.
pub fn has_what_is_not_named(
    extent: &Extent,
    sample: &Sample,
    report: &Value,
    differing: &BTreeSet<String>,
    has_names_lost: bool,
) -> usize {
    let (code, repaired) = check(sample, &["-y"]);
    let found = report["problems"].as_array().unwrap().len();
    assert_eq!(code, Some(i32::from(found > 0)), "{repaired:#}");
    assert_eq!(repaired["repair"]["left"]["problems"], Value::Array(Vec::new()));
    let (code, known) = check(sample, &[]);
    assert!(code == Some(0) && known["clean"] == true, "{known:#}");
    let of_damage = known["known_damage"].as_array().unwrap().iter();
    assert!(of_damage.clone().all(|known| known["code"] == "known-damage"));
    let volume = sample.open();
    for file in 0..extent.files {
        let path = extent.path_of(file);
        match read(&volume, &path) {
            Ok(bytes) => {
                assert!(bytes == extent.contents(file), "{path} reads wrong");
                assert!(!differing.contains(&path), "{path} can be read, and was not copied");
            }
            Err(error) => assert!(differing.contains(&path), "{path} was copied right: {error}"),
        }
    }
    if has_names_lost {
        volume.close().unwrap();
        return 0;
    }
    let named: BTreeSet<&str> =
        known["files"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert_eq!(named, differing.iter().map(String::as_str).collect(), "{known:#}");
    let mut deleted = BTreeSet::new();
    for file in (0..extent.files).filter(|file| differing.contains(&extent.path_of(*file))) {
        let path = extent.path_of(file);
        if file % 2 == 0 {
            let (dir, name) = path.rsplit_once('/').unwrap();
            let dir = volume.resolve(dir.as_bytes()).unwrap().node;
            volume.unlink(dir, name.as_bytes()).unwrap();
            deleted.insert(path);
        } else {
            let node = volume.resolve(path.as_bytes()).unwrap().node;
            volume.setattr(node, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            volume.write(node, 0, &extent.contents(file)).unwrap();
        }
    }
    volume.close().unwrap();
    drop(volume);
    let (code, healed) = check(sample, &[]);
    assert!(code == Some(0) && healed["known_damage"] == Value::Array(Vec::new()), "{healed:#}");
    let volume = sample.open();
    for file in 0..extent.files {
        let path = extent.path_of(file);
        let is_right = read(&volume, &path).is_ok_and(|bytes| bytes == extent.contents(file));
        assert!(is_right != deleted.contains(&path), "{path} after it was deleted or written anew");
    }
    volume.close().unwrap();
    differing.len()
}

/// The places of dictionary and height in a node's header.
const DICT_AT: usize = 52;
const HEIGHT_AT: usize = 53;

/// The roots of names and data lead to a leaf and to interior nodes. All of these are found again, by a
/// rescue as by a repair.
#[test]
fn below_lost_roots_a_repaired_volume_has_what_a_rescue_copies() {
    let extent = &super::damaged::SMALL;
    let sample = extent.filled();
    let whole = sample.bytes();
    let [meta, data] = [0, 1];
    let is_root = |block: &[u8]| {
        let kind = (block[DICT_AT], block[HEIGHT_AT]);
        block.starts_with(b"btrn") && (kind == (meta, 1) || kind == (data, 2))
    };
    let roots = whole.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| is_root(block));
    roots.for_each(|(index, _)| sample.write(index * BLOCK_BYTES + 8, &[0; 8]));
    let (code, missing, said) = sample.rescue();
    let found_again: Vec<_> = missing.iter().filter(|missing| missing.path == "-").collect();
    assert!(code == Some(4) && found_again.len() == 2 && missing.len() == 2, "{said}");
    assert!(found_again.iter().all(|missing| missing.why.contains("are found again")), "{found_again:?}");
    let (_, unrepaired) = check(&sample, &[]);
    assert!(!unrepaired["error"].is_null(), "{unrepaired:#}");
    let (code, repaired) = check(&sample, &["-y"]);
    assert_eq!(code, Some(1), "{repaired:#}");
    let changes = repaired["repair"]["changes"].as_array().unwrap().iter();
    let told = changes.filter(|change| change["what"].as_str().unwrap().contains("are found again"));
    assert_eq!(told.count(), 2, "{repaired:#}");
    let volume = sample.open();
    let mut right = 0u64;
    for file in 0..extent.files {
        let path = extent.path_of(file);
        let copied = fs::read(sample.copy().join(&path[1..])).ok();
        match read(&volume, &path) {
            Ok(bytes) => {
                assert!(copied.as_ref() == Some(&bytes), "{path} is not as it was copied");
                right += u64::from(bytes == extent.contents(file));
            }
            // A part of it is copied at most, and listed.
            Err(_) => {
                assert!(copied.is_none() || missing.iter().any(|missing| missing.path == path), "{path}")
            }
        }
    }
    // Nothing waited in the roots.
    assert_eq!(right, extent.files, "files are as they were");
    volume.close().unwrap();
}

#[test]
fn names_that_were_lost_are_given_up_only_when_asked_and_their_files_are_there_again() {
    let extent = &super::damaged::SMALL;
    let sample = extent.filled();
    let is_leaf_of_names =
        |block: &[u8]| block.starts_with(b"btrn") && (block[DICT_AT], block[HEIGHT_AT]) == (0, 0);
    let whole = sample.bytes();
    let leaves = whole.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| is_leaf_of_names(block));
    let lost: Vec<usize> = leaves.map(|(index, _)| index * BLOCK_BYTES).step_by(2).collect();
    assert!(!lost.is_empty());
    lost.iter().for_each(|at| sample.write(at + 8, &[0; 8]));
    assert_eq!(check(&sample, &["-y"]).0, Some(1));
    let read_of_all = || -> Vec<bool> {
        let volume = sample.open();
        let are_right = (0..extent.files).map(|file| {
            let read = read(&volume, &extent.path_of(file));
            assert!(read.as_ref().is_err() || read.as_ref().unwrap() == &extent.contents(file), "{file}");
            read.is_ok()
        });
        let are_right = are_right.collect();
        volume.close().unwrap();
        are_right
    };
    assert!(read_of_all().contains(&false));
    let path = sample.path.to_str().unwrap();
    assert_eq!(betrfs(&["check", "--accept-name-loss", path]).status.code(), Some(16), "without -y");
    let (code, known) = check(&sample, &["-y"]);
    assert!(code == Some(0) && known["known_damage"] != Value::Array(Vec::new()), "{known:#}");
    let (code, told) = check(&sample, &["-y", "--accept-name-loss"]);
    assert!(code == Some(1) && told["repair"]["written"] == true, "{told:#}");
    let mut changes = told["repair"]["changes"].as_array().unwrap().iter();
    assert!(changes.any(|change| change["code"] == "known-damage" && change["loses"] == true), "{told:#}");
    let (code, left) = check(&sample, &["-y", "--accept-name-loss"]);
    assert!(code == Some(0) && left["known_damage"] == Value::Array(Vec::new()), "{left:#}");
    assert_eq!((&left["notes"], &left["problems"]), (&Value::Array(Vec::new()), &Value::Array(Vec::new())));
    assert!(!read_of_all().contains(&false));
}
