//! Costs of operations on the device, as counts.

use betree_sim::{Counts, Rng};
use betrfs::{InodeId, Objects, Volume};

use crate::support::*;

/// The calls to the device during `run`.
fn device_cost(disk: &Disk, run: impl FnOnce()) -> Counts {
    let before = disk.device.counts();
    run();
    disk.device.counts().since(&before)
}

#[test]
fn ten_thousand_small_creations_read_nothing() {
    let disk = Disk::of_bytes(1 << 30);
    let volume = disk.open();
    let cost = device_cost(&disk, || {
        for i in 0..100 {
            let dir = mkdir(&volume, ROOT, &format!("d{i}"));
            for j in 0..100 {
                let file = mkfile(&volume, dir.node, &format!("f{j}"));
                volume.write(file.node, 0, &[b'x'; 200]).unwrap();
                volume.forget(file.node, 1);
            }
        }
    });
    assert_eq!((cost.reads, cost.read_bytes), (0, 0));
    volume.sync().unwrap();
}

#[test]
fn random_small_writes_into_a_large_file_on_the_disk_read_nothing() {
    const FILE_BYTES: u64 = 1 << 30;
    let disk = Disk::of_bytes(4 << 30);
    let volume = disk.open();
    let file = mkfile(&volume, ROOT, "large");
    let mut part = vec![0; 1 << 20];
    for at in (0..FILE_BYTES).step_by(part.len()) {
        part.iter_mut().step_by(64).for_each(|byte| *byte = (at >> 20) as u8);
        volume.write(file.node, at, &part).unwrap();
    }
    volume.close().unwrap();

    let volume = disk.open();
    let file = volume.resolve(b"/large").unwrap();
    let mut rng = Rng::new(1);
    let places: Vec<u64> = (0..10_000).map(|_| rng.next_u64() % (FILE_BYTES - 4)).collect();
    let cost = device_cost(&disk, || {
        for at in &places {
            volume.write(file.node, *at, b"\xff\xfe\xfd\xfc").unwrap();
        }
    });
    assert_eq!((cost.reads, cost.read_bytes), (0, 0));
    assert_eq!(volume.getattr(file.node).unwrap().size, FILE_BYTES);

    // They are there and nothing else has changed, also after the messages were flushed.
    volume.close().unwrap();
    let volume = disk.open();
    let file = volume.resolve(b"/large").unwrap();
    for at in places.iter().step_by(100) {
        let mut out = Vec::new();
        volume.read(file.node, *at, 4, &mut out).unwrap();
        assert_eq!(out, b"\xff\xfe\xfd\xfc", "at {at}");
    }
}

#[test]
fn an_fsync_is_one_log_write_and_one_device_sync() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f");
    volume.fsync(file.node).unwrap();
    for round in 0..10u8 {
        volume.write(file.node, u64::from(round) * 10, b"ten bytes!").unwrap();
        let cost = device_cost(&disk, || volume.fsync(file.node).unwrap());
        assert_eq!((cost.reads, cost.writes, cost.syncs), (0, 1, 1));
    }
    let cost = device_cost(&disk, || volume.fsync(file.node).unwrap());
    assert_eq!((cost.writes, cost.syncs), (0, 0), "there was nothing to make durable");
}

/// Lists and reads everything below a directory; returns the number of bytes in files.
fn read_below(volume: &Volume, dir: InodeId) -> u64 {
    let mut entries = Vec::new();
    let mut list = |entry: &betrfs::DirEntry<'_>| {
        entries.extend(entry.entry.map(|found| (found.node, found.attr)));
        true
    };
    volume.readdir(dir, 0, Objects::All, &mut list).unwrap();
    let mut bytes = 0;
    for (node, attr) in entries {
        if attr.file_type == betrfs::FileType::Directory {
            bytes += read_below(volume, node);
        } else {
            bytes += read_all(volume, node).len() as u64;
        }
        volume.forget(node, 1);
    }
    bytes
}

#[test]
fn a_scan_of_ten_thousand_small_files_reads_the_tree_once() {
    let disk = Disk::of_bytes(1 << 30);
    let volume = disk.open();
    let mut rng = Rng::new(7);
    let mut written = 0;
    for i in 0..100 {
        let dir = mkdir(&volume, ROOT, &format!("d{i}"));
        for j in 0..100 {
            let file = mkfile(&volume, dir.node, &format!("f{j}"));
            let contents: Vec<u8> = (0..rng.between(500, 6000)).map(|_| rng.next_u64() as u8).collect();
            volume.write(file.node, 0, &contents).unwrap();
            written += contents.len() as u64;
            volume.forget(file.node, 1);
        }
        volume.forget(dir.node, 1);
    }
    volume.close().unwrap();
    let volume = disk.open();
    let taken = volume.env().space().used_bytes;
    volume.close().unwrap();
    let mut volume = None;
    let cost = device_cost(&disk, || {
        let opened = disk.open();
        assert_eq!(read_below(&opened, ROOT), written);
        volume = Some(opened);
    });
    let most = taken + taken / 10;
    assert!(cost.read_bytes <= most, "read {} bytes of a tree of {taken}", cost.read_bytes);
    assert!(cost.read_bytes >= written / 2, "what was read came from the device");
}
