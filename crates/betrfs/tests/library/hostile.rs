//! Forged volumes: every number of every kind of record is replaced. They are refused or not; nothing panics,
//! and nothing runs for ever.

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry};
use betree_sim::MemDevice;
use betrfs::{
    FallocateMode, FormatOptions, InodeId, Objects, OpenOptions, RenameFlags, Result, SeekWhat, SetAttr,
    Volume, XattrMode,
};

use crate::support::*;

const META: DictId = DictId(0);
const DATA: DictId = DictId(1);
const LINKS: DictId = DictId(2);
const VOLUME_KEY: &[u8] = b"\x05\x01";
const NUMBERS: [u64; 4] = [0, 1, 1 << 63, u64::MAX];
/// Bounds of the entries listed in a directory and of the bytes read of a file.
const ENTRIES_MAX: usize = 1000;
const READ_BYTES: usize = 64 << 10;

/// A volume with every kind of record.
fn sample() -> Disk {
    let geometry = Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4 << 10,
        fanout_max: 4,
        log_bytes: 1 << 20,
        dicts: 4,
    };
    let device = Arc::new(MemDevice::new(4 << 20));
    let platform = TestPlatform::new();
    let format = FormatOptions { geometry: Some(geometry), ..FormatOptions::default() };
    Volume::format(device.clone(), &format, &*platform).unwrap();
    let disk = Disk::holding(device, OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::new(platform) });
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    volume.write(file, 0, &[1; 10_000]).unwrap();
    volume.set_xattr(file, b"user.x", &[1; 3000], XattrMode::Any).unwrap();
    volume.set_xattr(file, b"user.y", b"small", XattrMode::Any).unwrap();
    volume.symlink(dir, b"s", b"to somewhere", 0, 0).unwrap();
    let linked = mkfile(&volume, ROOT, "a").node;
    volume.link(linked, dir, b"b").unwrap();
    let mut marker = Batch::new();
    marker.put(META, b"\x02\0\0\0\0\0\0\0\x09", b"\x01\0\0\0\0d\0\0gone");
    volume.env().commit(&marker).unwrap();
    volume.close().unwrap();
    disk
}

/// All pairs of a dictionary.
fn pairs(disk: &Disk, dict: DictId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let env = Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut cursor = env.cursor(dict, Cut::LOW, Cut::HIGH);
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

/// A copy of the volume with another value under a key.
fn with(disk: &Disk, dict: DictId, key: &[u8], value: &[u8]) -> Disk {
    let device = Arc::new(disk.device.copy());
    let env = Env::open(device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    batch.put(dict, key, value);
    env.commit(&batch).unwrap();
    env.close().unwrap();
    Disk::holding(device, disk.options.clone())
}

/// Whether opening, checking or using the volume reports an error or a problem.
fn is_refused(disk: &Disk) -> bool {
    let Ok(volume) = Volume::open(disk.device.clone(), disk.options.clone()) else { return true };
    let checked = volume.check(&mut |_, _| ());
    let told = checked.as_ref().is_ok_and(|report| !report.problems.is_empty());
    let paths = ["/", "/d", "/d/f", "/d/s", "/a", "/d/b", "/d/none"];
    let used: Vec<bool> = paths.iter().map(|path| use_path(&volume, path).is_ok()).collect();
    let _ = change_all(&volume);
    volume.close().is_err() || checked.is_err() || told || used[..6].contains(&false)
}

fn use_path(volume: &Volume, path: &str) -> Result<()> {
    let node = volume.resolve(path.as_bytes())?.node;
    let attr = volume.getattr(node)?;
    let mut buffer = Vec::new();
    for offset in [0, 5000, attr.size.saturating_sub(10), u64::MAX] {
        let _ = volume.read(node, offset, READ_BYTES, &mut buffer);
        let _ = volume.seek(node, offset, SeekWhat::Hole);
        let _ = volume.seek(node, offset, SeekWhat::Data);
    }
    let _ = volume.readlink(node);
    // A number that no object has, so that all names are looked at.
    let _ = volume.find_inode(InodeId(node.0 ^ 1 << 40));
    for name in volume.list_xattrs(node)? {
        let _ = volume.get_xattr(node, &name);
    }
    let mut entries = 0;
    let _ = volume.readdir(node, 0, Objects::All, &mut |_| {
        entries += 1;
        entries < ENTRIES_MAX
    });
    volume.usage(node).map(|_| ())
}

/// Makes changes; each may be refused.
fn change_all(volume: &Volume) -> Result<()> {
    let dir = volume.resolve(b"/d")?.node;
    let _ = volume.create(dir, b"new", &new_file());
    let _ = volume.create(dir, b"newdir", &new_dir());
    let _ = volume.clone_inode(dir, ROOT, b"copy");
    if let Ok(file) = volume.resolve(b"/d/f") {
        let file = file.node;
        let _ = volume.setattr(file, &SetAttr { kill_set_id: true, ..SetAttr::default() });
        let _ = volume.write(file, 3, b"changed");
        let size = volume.getattr(file).map_or(0, |attr| attr.size);
        let _ = volume.write(file, size, b"appended");
        let _ = volume.fallocate(file, FallocateMode::PunchHole, 100, 6000);
        let _ = volume.setattr(file, &SetAttr { size: Some(5), perm: Some(0o600), ..SetAttr::default() });
        let _ = volume.set_xattr(file, b"user.z", b"z", XattrMode::Any);
        let _ = volume.remove_xattr(file, b"user.x");
        let _ = volume.link(file, ROOT, b"linked");
    }
    let _ = volume.rename(dir, b"f", dir, b"g", RenameFlags::default());
    if let Ok(linked) = volume.resolve(b"/a") {
        let _ = volume.link(linked.node, ROOT, b"c");
    }
    let _ = volume.rename(ROOT, b"d", ROOT, b"e", RenameFlags::default());
    let _ = volume.unlink(ROOT, b"a");
    let _ = volume.remove_below(dir, betrfs::SnapshotsBelow::Go);
    let _ = volume.rmdir(ROOT, b"e");
    volume.sync()
}

#[test]
fn every_number_of_every_record() {
    let disk = sample();
    let (mut refused, mut all, mut records) = (0, 0, 0);
    for dict in [META, LINKS] {
        for (key, value) in pairs(&disk, dict) {
            records += 1;
            for at in 0..value.len().min(150) {
                for number in NUMBERS {
                    let mut hostile = value.clone();
                    let end = hostile.len().min(at + 8);
                    hostile[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
                    if hostile == value {
                        continue;
                    }
                    all += 1;
                    refused += usize::from(is_refused(&with(&disk, dict, &key, &hostile)));
                }
            }
        }
    }
    println!("{refused} of {all} numbers in {records} records were refused");
    assert!(records >= 10 && refused > all / 3);
}

#[test]
fn a_volume_whose_numbers_are_near_the_end_of_their_type_is_refused() {
    let disk = sample();
    assert!(!is_refused(&Disk::holding(Arc::new(disk.device.copy()), disk.options.clone())));
    let (_, record) = pairs(&disk, META).into_iter().find(|(key, _)| key == VOLUME_KEY).unwrap();
    for at in [16, 24] {
        for number in [0, (1 << 62) + 1, u64::MAX - 5000, u64::MAX - 1, u64::MAX] {
            let mut hostile = record.clone();
            hostile[at..at + 8].copy_from_slice(&number.to_le_bytes());
            let hostile = with(&disk, META, VOLUME_KEY, &hostile);
            assert!(
                Volume::open(hostile.device.clone(), hostile.options.clone()).is_err(),
                "{number} at {at}"
            );
        }
    }
    // The last number that is accepted: an error when it is used up.
    let mut hostile = record.clone();
    hostile[16..24].copy_from_slice(&(1u64 << 62).to_le_bytes());
    let volume = with(&disk, META, VOLUME_KEY, &hostile).open();
    assert!(volume.create(ROOT, b"new", &new_file()).is_err());
    assert_eq!(volume.resolve(b"/d/f").unwrap().attr.size, 10_000);
}

#[test]
fn values_that_are_too_long_are_reported() {
    let disk = sample();
    let all = pairs(&disk, DATA);
    for (key, value) in &all {
        let longer = [value.as_slice(), &[7; 60_000]].concat();
        assert!(is_refused(&with(&disk, DATA, key, &longer)), "{}", key.escape_ascii());
    }
    assert!(all.len() >= 4);
}
