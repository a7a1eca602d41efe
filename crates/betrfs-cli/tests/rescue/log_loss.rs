//! A volume whose log has lost durable changes: a mount refuses it, unless the loss is accepted.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform};
use betrfs::{FileType, InodeId, Volume};

use super::mounted::{Mounted, ok, refused};
use super::{BLOCK_BYTES, betrfs, new};

const FILES: usize = 12;
/// The segment of the log that is smashed, counted from the first.
const LOST: usize = 6;

/// The epoch and number of the segment of the log that begins with a block.
fn segment(block: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    block.starts_with(b"BetrLog\x01").then(|| (number(16), number(24)))
}

#[test]
fn a_mount_goes_on_without_what_the_log_lost_only_if_that_is_accepted() {
    let mounted = Mounted::of_size("64M");
    let options = betrfs::OpenOptions::new(Arc::new(StdPlatform::new()));
    let volume = Volume::open(Arc::new(FileDevice::open(&mounted.volume).unwrap()), options).unwrap();
    for file in 0..FILES {
        let name = format!("file{file}");
        let made =
            volume.create_with(InodeId::ROOT, name.as_bytes(), &new(FileType::Regular, 0o644), b"text");
        volume.fsync(made.unwrap().node).unwrap();
    }
    volume.env().abandon();
    drop(volume);
    let whole = fs::read(&mounted.volume).unwrap();
    let mut segments: Vec<((u64, u64), usize)> = whole
        .chunks(BLOCK_BYTES)
        .enumerate()
        .filter_map(|(index, block)| Some((segment(block)?, index * BLOCK_BYTES)))
        .collect();
    segments.sort();
    let newest = segments.last().unwrap().0.0;
    segments.retain(|((epoch, _), _)| *epoch == newest);
    assert!(segments.len() >= FILES, "{segments:?}");
    let at = segments[LOST].1 + 100;
    let file = OpenOptions::new().write(true).open(&mounted.volume).unwrap();
    file.write_all_at(&[whole[at] ^ 1], at as u64).unwrap();

    refused(&mounted.try_mount(&[]), &["log segment", "was durable"]);
    let path = mounted.volume.to_str().unwrap();
    let check = |options: &[&str]| {
        let output = betrfs(&[&["check"], options, &[path]].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(check(&["-p", "-f"]).0, Some(4), "nothing is taken away without being asked for");
    let (code, told) = check(&["-y"]);
    assert!(code == Some(1) && told.contains("takes away: changes from here on are missing"), "{told}");
    assert_eq!(check(&[]).0, Some(0));
    assert_eq!(check(&["--undo"]).0, Some(0));
    let (code, told) = check(&[]);
    assert!(code == Some(4) && told.contains("[bad-log]"), "{told}");
    ok(&mounted.try_mount(&["--accept-log-loss"]));
    let names = fs::read_dir(&mounted.dir).unwrap().count();
    assert!((1..=LOST).contains(&names), "{names} files are left");
    assert_eq!(fs::read(mounted.path("file0")).unwrap(), b"text");
    assert!(!mounted.path(format!("file{}", FILES - 1)).exists());
    assert!(mounted.log().contains("are lost, as was accepted: log segment"), "{}", mounted.log());
    fs::write(mounted.path("new"), b"new").unwrap();
    mounted.umount();
    // Once is enough.
    mounted.mount();
    assert_eq!(fs::read(mounted.path("new")).unwrap(), b"new");
    mounted.umount();
}
