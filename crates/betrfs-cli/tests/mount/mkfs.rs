//! What `mkfs` finds before it refuses, and its options as mkfs(8) and other mkfs.TYPE have them.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::mounted::{betrfs, ended_with, ok, refused, told};

const MIB: usize = 1 << 20;

fn mkfs(volume: &Path, more: &[&str]) -> Output {
    betrfs().arg("mkfs").arg(volume).args(more).output().unwrap()
}

fn blkid(path: &Path) -> String {
    let output = Command::new("blkid").args(["-p", "-o", "export"]).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_there_is_named_and_kept_unless_it_is_forced() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    fs::File::create(&volume).unwrap().set_len(64 << 20).unwrap();
    let ext4 = Command::new("mkfs.ext4").args(["-q", "-L", "old home"]).arg(&volume).output().unwrap();
    ok(&ext4);
    let before = fs::read(&volume).unwrap();
    refused(&mkfs(&volume, &[]), &["has a file system of type ext4", "label old home", "UUID ", "--force"]);
    refused(&mkfs(&volume, &["-n"]), &["has a file system of type ext4"]);
    assert!(fs::read(&volume).unwrap() == before, "it was changed");
    ok(&mkfs(&volume, &["-f", "-L", "mine"]));
    refused(&mkfs(&volume, &["-n"]), &["is a BetrFS volume already", "label mine", "UUID "]);

    // Marks at 32 KiB, where the log is, and at the end, where partition tables and RAIDs have copies.
    let file = fs::OpenOptions::new().write(true).open(&volume).unwrap();
    file.set_len(0).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"\x01CD001\x01", 32 << 10).unwrap();
    file.write_all_at(&[0xa5; 512], (64 << 20) - 512).unwrap();
    refused(&mkfs(&volume, &[]), &["type iso9660"]);
    ok(&mkfs(&volume, &["-f"]));
    assert_eq!(blkid(&volume), "", "another's mark is left");
    let made = fs::read(&volume).unwrap();
    // The second copy of the node table is there now.
    assert!(made.len() == 64 << 20 && !made[made.len() - 512..].contains(&0xa5));
    ok(&betrfs().arg("check").arg(&volume).output().unwrap());
}

/// A wrong size loses nothing, even where overwriting was allowed.
#[test]
fn a_size_that_cannot_be_is_refused_before_anything_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    fs::write(&volume, b"a letter").unwrap();
    for size in [&["4K"][..], &["--size", "4K"]] {
        refused(&mkfs(&volume, &[&["--force"], size].concat()), &["cannot make a volume of", "least"]);
        assert_eq!(fs::read(&volume).unwrap(), b"a letter");
    }
    // Nobody has asked for a volume of 8 bytes.
    for more in [&["--force"][..], &["--force", "-n"]] {
        refused(&mkfs(&volume, more), &["shorter than a block", "say how large to make it"]);
        assert_eq!(fs::read(&volume).unwrap(), b"a letter");
    }
}

#[test]
fn a_uuid_is_random_or_one_that_names_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let uuid_of = |volume: &Path| betrfs().arg("uuid").arg(volume).output().unwrap().stdout;
    let made: Vec<Vec<u8>> = [&["64M"][..], &["64M", "-U", "random"], &["64M", "-U", "generate"]]
        .into_iter()
        .enumerate()
        .map(|(number, more)| {
            let volume = dir.path().join(number.to_string());
            ok(&mkfs(&volume, more));
            uuid_of(&volume)
        })
        .collect();
    assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2], "{made:?}");
    let zeros = "00000000-0000-0000-0000-000000000000";
    let (none, first) = (dir.path().join("none"), dir.path().join("0"));
    ended_with(&mkfs(&none, &["64M", "-U", zeros]), 2, &["names no volume", "random"]);
    assert!(!none.exists());
    ended_with(&betrfs().arg("uuid").arg(&first).arg(zeros).output().unwrap(), 2, &["names no volume"]);
    assert_eq!(uuid_of(&first), made[0]);
}

#[test]
fn a_dry_run_says_what_would_be_made_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    let output = mkfs(&volume, &["-n", "8G", "--format", "json"]);
    ok(&output);
    let told_json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told_json["schema_version"], &told_json["uuid"]), (&1.into(), &Value::Null));
    assert_eq!(
        (&told_json["size_bytes"], &told_json["log_bytes"]),
        (&(8u64 << 30).into(), &(512 << 20).into())
    );
    assert!(!volume.exists());
    refused(&mkfs(&volume, &["-n"]), &["does not exist", "--size"]);
    refused(&mkfs(&volume, &["-n", "4K"]), &["cannot make a volume of 4.0 KiB"]);
    let output = mkfs(&volume, &["-n", "256M"]);
    ok(&output);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("would be a volume of 256.0 MiB, with nodes of 1.0 MiB and a log of 16.0 MiB"),
        "{said}"
    );
    fs::write(&volume, vec![0; 64 * MIB]).unwrap();
    ok(&mkfs(&volume, &["-n"]));
    assert!(fs::read(&volume).unwrap().iter().all(|byte| *byte == 0));
}

/// So it has no progress to show.
#[test]
fn a_volume_of_any_size_is_made_by_writes_of_a_few_mib() {
    let dir = tempfile::tempdir().unwrap();
    for size in ["256M", "1T"] {
        let volume = dir.path().join(size);
        ok(&mkfs(&volume, &[size]));
        // Over an old volume, of which both ends are cleared.
        ok(&mkfs(&volume, &["-f"]));
        let written = fs::metadata(&volume).unwrap().blocks() * 512;
        assert!(written > 0 && written < 4 << 20, "{size}: {written} bytes");
    }
}

#[test]
fn metadata_has_two_copies_if_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("v");
    let features = || {
        let output = betrfs().args(["debug", "super"]).arg(&volume).output().unwrap();
        ok(&output);
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines().find(|line| line.starts_with("incompat")).map(str::to_owned)
    };
    for (copies, says) in [("1", "none"), ("2", "nodes with two copies")] {
        let output = mkfs(&volume, &["64M", "-f", "--metadata-copies", copies, "--format", "json"]);
        ok(&output);
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(made["metadata_copies"].to_string(), copies);
        assert_eq!(features(), Some(format!("incompat      {says}")));
    }
    ended_with(&mkfs(&volume, &["-f", "--metadata-copies", "3"]), 2, &["there can be 1 or 2 copies"]);
}

/// `mkfs -t betrfs -f -q -L label -U uuid FILE SIZE` runs `mkfs.betrfs` with the rest.
#[test]
fn the_options_are_those_of_other_mkfs_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, helper) = (dir.path().join("v"), dir.path().join("mkfs.betrfs"));
    symlink(env!("CARGO_BIN_EXE_betrfs"), &helper).unwrap();
    let uuid = "6ba7b812-9dad-11d1-80b4-00c04fd430c8";
    let mut command = Command::new("mkfs");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    command.args(["-t", "betrfs", "-f", "-q", "-L", "photos", "-U", uuid]).arg(&volume).arg("64M");
    let made = command.env("PATH", path).output().unwrap();
    ok(&made);
    assert_eq!((made.stdout.as_slice(), told(&made).as_str()), (&b""[..], ""));
    let probed = betrfs().arg("probe").arg(&volume).args(["--format", "json"]).output().unwrap();
    let probed: Value = serde_json::from_slice(&probed.stdout).unwrap();
    assert_eq!((&probed["label"], &probed["uuid"]), (&"photos".into(), &uuid.into()));
    assert_eq!(probed["size_bytes"], 64 << 20);
    for wrong in [&["64M", "--size", "64M"][..], &["-U", "12"], &["-L", &"x".repeat(256)], &["lots"]] {
        ended_with(&mkfs(&volume, wrong), 2, &[]);
    }
}
