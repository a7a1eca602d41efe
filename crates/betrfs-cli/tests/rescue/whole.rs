//! A sound volume is copied as it is.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::Command;

use betrfs::{FallocateMode, FileType, InodeId, SetAttr, TimeSet, XattrMode};

use serde_json::{Value, json};

use super::schemas::valid;
use super::{Sample, betrfs, new, noise};

const LARGE: usize = 3000;
/// Those below, with the root, and those in the snapshot.
const OBJECTS: u64 = 17;

fn filled() -> Sample {
    let sample = Sample::new("64M");
    let volume = sample.open();
    let dir = volume.create(InodeId::ROOT, b"dir", &new(FileType::Directory, 0o511)).unwrap().node;
    let file = volume.create(dir, b"file", &new(FileType::Regular, 0o4751)).unwrap().node;
    volume.write(file, 0, &noise(1, 100_001)).unwrap();
    volume.set_xattr(file, b"user.small", b"value", XattrMode::Any).unwrap();
    volume.set_xattr(file, b"user.large", &noise(2, LARGE), XattrMode::Any).unwrap();
    volume.create(dir, b"empty", &new(FileType::Regular, 0o600)).unwrap();
    let sparse = volume.create(dir, b"sparse", &new(FileType::Regular, 0o600)).unwrap().node;
    volume.write(sparse, 1 << 20, b"behind a hole").unwrap();
    let size = SetAttr { size: Some(3 << 20), ..SetAttr::default() };
    volume.setattr(sparse, &size).unwrap();
    volume.fallocate(sparse, FallocateMode::PunchHole, 2 << 20, 4096).unwrap();
    volume.symlink(dir, b"symlink", b"/no/such/place", 1234, 4321).unwrap();
    volume.create(dir, b"fifo", &new(FileType::Fifo, 0o640)).unwrap();
    let linked = volume.create(dir, b"name1", &new(FileType::Regular, 0o600)).unwrap().node;
    volume.write(linked, 0, b"two names").unwrap();
    let below = volume.create(dir, b"below", &new(FileType::Directory, 0o700)).unwrap().node;
    volume.link(linked, below, b"name2").unwrap();
    let snapshots = volume.lookup(dir, betrfs::SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"monday", &new(FileType::Directory, 0o755)).unwrap();
    volume.write(file, 0, b"changed since").unwrap();
    for (node, time_ns) in [(file, 1_000_000_000_123_456_789), (dir, -5_000_000_001), (InodeId::ROOT, 7)] {
        let times = SetAttr {
            atime_ns: Some(TimeSet::At(time_ns + 1_000_000_000)),
            mtime_ns: Some(TimeSet::At(time_ns)),
            ..SetAttr::default()
        };
        volume.setattr(node, &times).unwrap();
    }
    volume.close().unwrap();
    sample
}

fn mtime_ns(data: &fs::Metadata) -> i64 {
    data.mtime() * 1_000_000_000 + data.mtime_nsec()
}

#[test]
fn all_of_a_sound_volume_is_copied() {
    let sample = filled();
    let (code, missing, said, document) = sample.rescue_with_document();
    assert_eq!((code, missing.as_slice()), (Some(0), &[][..]), "{said}");
    assert_eq!((&document["objects"], &document["damage"]), (&json!(OBJECTS), &json!([])), "{document}");
    let at = |path: &str| sample.copy().join(path);
    let stat = |path: &str| fs::symlink_metadata(at(path)).unwrap();
    let names = |path: &str| {
        let mut names: Vec<_> = fs::read_dir(at(path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["dir"]);
    assert_eq!(
        names("dir"),
        [".betrfs-snapshots", "below", "empty", "fifo", "file", "name1", "sparse", "symlink"]
    );
    // Before a read moves the time of access.
    let data = stat("dir/file");
    let mut file = noise(1, 100_001);
    assert!(fs::read(at("dir/.betrfs-snapshots/monday/file")).unwrap() == file);
    file[..13].copy_from_slice(b"changed since");
    assert!(fs::read(at("dir/file")).unwrap() == file);
    assert_eq!((data.mode() & 0o7777, data.uid(), data.gid()), (0o4751, 1234, 4321));
    assert_eq!((mtime_ns(&data), data.atime()), (1_000_000_000_123_456_789, 1_000_000_001));
    assert_eq!((stat("dir").mode() & 0o7777, mtime_ns(&stat("dir"))), (0o511, -5_000_000_001));
    assert_eq!(mtime_ns(&stat("")), 7);
    let xattr = |name: &str| {
        let mut value = vec![0; 1 << 16];
        let len = rustix::fs::getxattr(at("dir/file"), name, &mut value).unwrap();
        value.truncate(len);
        value
    };
    assert_eq!((xattr("user.small"), xattr("user.large")), (b"value".to_vec(), noise(2, LARGE)));
    let sparse = fs::read(at("dir/sparse")).unwrap();
    let (hole, rest) = sparse.split_at(1 << 20);
    assert_eq!((sparse.len(), rest.starts_with(b"behind a hole")), (3 << 20, true));
    assert!(hole.iter().chain(&rest[13..]).all(|byte| *byte == 0));
    assert!(stat("dir/sparse").blocks() < 64, "{} units of 512 bytes", stat("dir/sparse").blocks());
    assert_eq!(stat("dir/empty").len(), 0);
    assert_eq!(fs::read_link(at("dir/symlink")).unwrap().to_str(), Some("/no/such/place"));
    assert_eq!(stat("dir/symlink").uid(), 1234);
    assert!(stat("dir/fifo").file_type().is_fifo() && stat("dir/fifo").mode() & 0o7777 == 0o640);
    assert_eq!((stat("dir/name1").nlink(), stat("dir/name1").ino()), (2, stat("dir/below/name2").ino()));
    assert_eq!(fs::read(at("dir/below/name2")).unwrap(), b"two names");
    let old = stat("dir/.betrfs-snapshots/monday/name1");
    assert_eq!((old.nlink(), old.ino()), (2, stat("dir/.betrfs-snapshots/monday/below/name2").ino()));
}

#[test]
fn what_is_only_in_the_log_is_copied_too() {
    let sample = Sample::new("64M");
    let volume = sample.open();
    let file = volume.create(InodeId::ROOT, b"file", &new(FileType::Regular, 0o600)).unwrap().node;
    volume.write(file, 0, b"in the log").unwrap();
    volume.fsync(file).unwrap();
    volume.env().abandon();
    drop(volume);
    let (code, missing, said) = sample.rescue();
    assert_eq!((code, missing.as_slice()), (Some(0), &[][..]), "{said}");
    assert_eq!(fs::read(sample.copy().join("file")).unwrap(), b"in the log");
}

#[test]
fn it_refuses_what_is_no_volume_and_a_directory_in_use() {
    let sample = Sample::new("64M");
    let [volume, copy] = [&sample.path, &sample.copy()].map(|path| path.to_str().unwrap().to_owned());
    fs::create_dir(&copy).unwrap();
    fs::write(sample.copy().join("mine"), b"").unwrap();
    let output = betrfs(&["rescue", &volume, &copy]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
    fs::remove_file(sample.copy().join("mine")).unwrap();
    fs::write(&sample.path, vec![7; 1 << 20]).unwrap();
    let output = betrfs(&["rescue", &volume, &copy]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a BetrFS volume"));
    let output = betrfs(&["rescue", &volume, &copy, "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("rescue", &document);
    assert!(document["error"].as_str().unwrap().contains("not a BetrFS volume"), "{document}");
}

#[test]
fn the_help_has_all_parts_of_the_list() {
    let help = String::from_utf8(betrfs(&["rescue", "--help"]).stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas/rescue.json");
    let schema: Value = serde_json::from_slice(&fs::read(schema).unwrap()).unwrap();
    let parts = schema["properties"]["missing"]["items"]["properties"]["part"]["enum"].as_array().unwrap();
    assert!(parts.len() >= 8, "{parts:?}");
    for part in parts.iter().map(|part| part.as_str().unwrap()) {
        let is_told = match part {
            // These have words of their own in a line.
            "volume" => help.contains("`the volume's record`"),
            "structure" => help.contains("begins with `-` names a structure"),
            part => help.contains(&format!("`{part} ")) || help.contains(&format!("`{part}`")),
        };
        assert!(is_told, "{part}: {help}");
    }
}

#[test]
fn a_list_that_finds_no_room_is_named() {
    let sample = Sample::new("64M");
    // A structure of which an older state is left: a line of the list.
    sample.write(0, &[0x5a; 8192]);
    let [volume, copy] = [&sample.path, &sample.copy()].map(|path| path.to_str().unwrap().to_owned());
    let output = betrfs(&["rescue", &volume, &copy, "--list", "/dev/full"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the list to /dev/full: No space left on device"), "{said}");
}

#[test]
fn what_is_behind_the_end_of_a_truncated_volume_is_said_to_be_there() {
    let sample = Sample::new("64M");
    let volume = sample.open();
    for number in 0..40u8 {
        let name = format!("file{number}");
        let file =
            volume.create(InodeId::ROOT, name.as_bytes(), &new(FileType::Regular, 0o600)).unwrap().node;
        volume.write(file, 0, &noise(number.into(), 200_000)).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let used = fs::read(&sample.path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let file = fs::File::options().write(true).open(&sample.path).unwrap();
    // Until the data of files are cut off.
    let is_said = (1..used / (1 << 20)).any(|less| {
        file.set_len((used - (less << 20)) / 4096 * 4096).unwrap();
        let (code, missing, said) = sample.rescue();
        assert_eq!(code, Some(4), "{said}");
        format!("{said}{missing:?}").contains("behind the end of the device")
    });
    assert!(is_said);
}

/// Others have room for fewer and smaller ones: ext4 for some 4 KiB of them, and says that the disk is full.
#[test]
fn an_attribute_that_the_target_has_no_room_for_is_missing_and_all_else_is_copied() {
    let sample = Sample::new("64M");
    let volume = sample.open();
    for name in [b"a", b"b", b"c"] {
        let file = volume.create(InodeId::ROOT, name, &new(FileType::Regular, 0o600)).unwrap().node;
        volume.write(file, 0, name).unwrap();
        volume.set_xattr(file, b"user.small", b"small", XattrMode::Any).unwrap();
        if name == b"b" {
            volume.set_xattr(file, b"user.large", &[b'v'; 20_000], XattrMode::Any).unwrap();
        }
    }
    volume.close().unwrap();
    drop(volume);
    let script = r#"
        set -e
        truncate -s 16M "$2/image"
        mkfs.ext4 -q "$2/image"
        mkdir "$2/target"
        mount -o loop "$2/image" "$2/target"
        "$1" rescue "$3" "$2/target/copy" --list "$2/list" || echo "code $?"
        cat "$2/list"
        cd "$2/target/copy"
        cat a b c
        python3 -c 'import os; print(os.getxattr("b", "user.small").decode())'
    "#;
    let folder = sample.path.parent().unwrap();
    let mut shell = Command::new("timeout");
    shell.args(["60", "unshare", "--mount", "bash", "-c", script, "bash", env!("CARGO_BIN_EXE_betrfs")]);
    let output = shell.args([folder, &sample.path]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "code 4", "{told}");
    assert!(lines[1].starts_with("/b\tattribute user.large\t"), "{told}");
    assert_eq!(lines[2..], ["abcsmall"], "{told}");
}
