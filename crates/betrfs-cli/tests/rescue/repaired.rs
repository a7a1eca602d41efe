//! Damaged volumes after `betrfs check -y`: what is known damage, what is right, and what heals it.

use std::collections::BTreeSet;

use betrfs::{SetAttr, Volume};
use serde_json::Value;

use super::damaged::Extent;
use super::{Sample, betrfs};

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
