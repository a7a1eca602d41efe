//! Labels, and the commands' messages on volumes of other versions.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform};
use betrfs::{OpenOptions, Volume};
use xxhash_rust::xxh3::xxh3_64;

use super::betrfs;

const BLOCK_BYTES: usize = 4096;

fn said(arguments: &[&str], volume: &Path) -> (Option<i32>, String) {
    let output = betrfs(arguments, volume);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Changes a byte of all superblocks.
fn patch_superblocks(path: &Path, at: usize, value: u8) {
    let mut bytes = fs::read(path).unwrap();
    for block in bytes.chunks_mut(BLOCK_BYTES).take(4) {
        block[at] = value;
        let sum = xxh3_64(&block[..BLOCK_BYTES - 8]);
        block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_volume_has_the_label_and_the_uuid_that_mkfs_is_given() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    let uuid = "0190163d-8694-739b-aea5-966c26f8ad91";
    let mkfs = ["mkfs", "--size", "16M", "--label", "Fotos für Ü", "--uuid", uuid];
    assert_eq!(said(&mkfs, &path).0, Some(0));
    let options = OpenOptions::new(Arc::new(StdPlatform::new()));
    let volume = Volume::open(Arc::new(FileDevice::open(&path).unwrap()), options).unwrap();
    let identity = volume.env().identity();
    assert_eq!((identity.label.as_str(), identity.uuid.to_string().as_str()), ("Fotos für Ü", uuid));
    drop(volume);
    for wrong in [["--label", &"x".repeat(256)], ["--label", "a\nb"], ["--uuid", "none"]] {
        let (code, why) = said(&["mkfs", "--force", wrong[0], wrong[1]], &path);
        assert!(code == Some(2) && why.contains(wrong[0]), "{why}");
    }
}

#[test]
fn a_volume_of_another_version_is_reported_as_such() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    assert_eq!(said(&["mkfs", "--size", "16M"], &path).0, Some(0));
    for (at, value, expected) in [
        (8, 5, "older format version 5"),
        (8, 5, "copy its contents to a new volume"),
        (8, 7, "format version 7"),
        (520, 16, "incompatible features that this version does not know: 4 (bits 0x10)"),
        (512, 2, "features that this version does not know, 1 (bits 0x2), and may only be read"),
    ] {
        let sound = fs::read(&path).unwrap();
        patch_superblocks(&path, at, value);
        let (code, why) = said(&["check"], &path);
        assert!(code == Some(8) && why.contains(expected), "{why}");
        assert!(!why.contains("damaged") && !why.contains("bad"), "{why}");
        fs::write(&path, sound).unwrap();
    }
    assert_eq!(said(&["check"], &path).0, Some(0));
}
