//! A full volume.

use betree_sys::DeviceOp;
use betrfs::{Error, SetAttr, Volume};
use betrfs_sim::{EIO, Fault};

use crate::support::*;

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn it_refuses_writes_cleanly_and_keeps_what_it_has() {
    let disk = Disk::of_bytes(32 << 20);
    let volume = disk.open();
    let mut sizes = Vec::new();
    let error = loop {
        let i = sizes.len();
        let file = match volume.create(ROOT, format!("f{i}").as_bytes(), &new_file()) {
            Ok(file) => file,
            Err(error) => break error,
        };
        sizes.push(0);
        match volume.write(file.node, 0, &noise(i as u64, 200_000), false) {
            Ok(written) => {
                sizes[i] = written as u64;
                // Whole pieces of what did not fit may be there.
                assert!(written == 200_000 || written.is_multiple_of(128 << 10), "{written}");
                assert_eq!(volume.getattr(file.node).unwrap().size, sizes[i]);
            }
            Err(error) => {
                assert_eq!(volume.getattr(file.node).unwrap().size, 0);
                break error;
            }
        }
        volume.forget(file.node, 1);
    };
    assert_eq!(error, Error::NoSpace);
    assert!(sizes.len() > 30, "{} files of 200,000 bytes", sizes.len());
    let compare = |volume: &Volume| {
        for (i, size) in sizes.iter().enumerate() {
            let bytes = contents(volume, &format!("/f{i}"));
            assert!(bytes == noise(i as u64, 200_000)[..*size as usize], "f{i}");
        }
        assert_eq!(names(volume, ROOT).len(), sizes.len());
    };
    compare(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = disk.open();
    compare(&volume);

    // What frees or only changes attributes is taken, and gives room again.
    let cut = volume.resolve(b"/f0").unwrap();
    let shorter = SetAttr { size: Some(100), perm: Some(0o600), ..SetAttr::default() };
    assert_eq!(volume.setattr(cut.node, &shorter).unwrap().size, 100);
    for i in 1..sizes.len() {
        volume.unlink(ROOT, format!("f{i}").as_bytes()).unwrap_or_else(|e| panic!("f{i}: {e}"));
    }
    while volume.env().pump().unwrap() {}
    let again = mkfile(&volume, ROOT, "again");
    for part in 0..sizes.len() as u64 / 2 {
        volume.write(again.node, part * 200_000, &noise(part, 200_000), false).unwrap();
    }
    assert_sound(&volume);
}

/// Whoever looks for the reason of a failure asks `df` first.
#[test]
fn a_volume_whose_disk_fails_still_says_what_room_it_has() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f");
    let piece = vec![7; 1 << 20];
    (0..16).for_each(|i| volume.write(file.node, i << 20, &piece, false).map(drop).unwrap());
    volume.unlink(ROOT, b"f").unwrap();
    let write = Fault { at_call: 1, op: Some(DeviceOp::Write), errno: EIO, lasting: true };
    disk.device.set_fault(Some(write));
    // What was deleted cannot be carried out.
    let total = volume.statfs().unwrap().total_bytes;
    assert!(disk.device.counts().failed > 0, "there was something to write");
    assert_eq!(volume.statfs().unwrap().total_bytes, total);
    assert!(volume.create(ROOT, b"g", &new_file()).is_err(), "it takes no change any more");
}
