//! Volumes of other versions, seen by the file system.

use betree::{Batch, Cut, DictId, Env};
use betree_platform::Device;
use betrfs::{
    AccessTimes, Error, FallocateMode, Objects, OpenOptions, RenameFlags, SetAttr, Uuid, Volume, XattrMode,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::support::*;

/// The offset of the feature word `ro_compat` in a superblock.
const RO_COMPAT: usize = 512;

/// Changes a byte of all four superblocks.
fn patch_superblocks(disk: &Disk, at: usize, value: u8) {
    for slot in 0..4 {
        let mut block = [0; 4096];
        disk.device.read_at(slot * 4096, &mut block).unwrap();
        block[at] = value;
        let sum = xxh3_64(&block[..4088]);
        block[4088..].copy_from_slice(&sum.to_le_bytes());
        disk.device.write_at(slot * 4096, &block).unwrap();
    }
}

fn bytes(disk: &Disk) -> Vec<u8> {
    let mut all = vec![0; disk.device.len() as usize];
    disk.device.read_at(0, &mut all).unwrap();
    all
}

#[test]
fn a_volume_with_an_unknown_read_only_feature_is_read_and_left_as_it_is() {
    let disk = Disk::of_bytes(16 << 20);
    {
        let volume = disk.open();
        let dir = mkdir(&volume, ROOT, "d").node;
        let file = mkfile(&volume, dir, "f").node;
        volume.write(file, 0, b"in the tree").unwrap();
        volume.env().checkpoint().unwrap();
        // An orphan, and a change that is only in the log.
        let orphan = mkfile(&volume, ROOT, "orphan").node;
        volume.write(orphan, 0, &[1; 10_000]).unwrap();
        volume.open_inode(orphan).unwrap();
        volume.unlink(ROOT, b"orphan").unwrap();
        volume.write(file, 0, b"in the log ").unwrap();
        volume.sync().unwrap();
        volume.env().abandon();
    }
    patch_superblocks(&disk, RO_COMPAT + 7, 0x80);
    let before = bytes(&disk);
    let options = OpenOptions { access_times: AccessTimes::Always, ..disk.options.clone() };
    let volume = Volume::open(disk.device.clone(), options).unwrap();
    assert_eq!(contents(&volume, "/d/f"), b"in the log ");
    assert_eq!(names(&volume, ROOT), ["d"]);
    let dir = volume.resolve(b"/d").unwrap().node;
    volume.readdir(dir, 0, Objects::All, &mut |_| true).unwrap();
    let refused = [
        volume.create(ROOT, b"new", &new_file()).err(),
        volume.unlink(dir, b"f").err(),
        volume.setattr(dir, &SetAttr { perm: Some(0), ..SetAttr::default() }).err(),
        volume.write(volume.resolve(b"/d/f").unwrap().node, 0, b"x").err(),
    ];
    for error in refused {
        assert!(matches!(&error, Some(Error::ReadOnly { why }) if why.contains("63")), "{error:?}");
    }
    let mut markers = volume.env().cursor(DictId(0), Cut::before([2]), Cut::after([2]));
    assert!(markers.next().unwrap().is_some(), "the orphan is left alone");
    volume.statfs().unwrap();
    volume.sync().unwrap();
    volume.close().unwrap();
    drop(markers);
    drop(volume);
    assert!(bytes(&disk) == before, "something was written");
    patch_superblocks(&disk, RO_COMPAT + 7, 0);
    let volume = disk.open();
    assert_eq!(contents(&volume, "/d/f"), b"in the log ");
    assert_sound(&volume);
}

#[test]
fn a_volume_has_the_label_and_the_uuid_that_it_was_made_with() {
    let uuid = Uuid::from_bytes([7; 16]);
    let options = betrfs::FormatOptions {
        label: "photos".into(),
        uuid: Some(uuid),
        ..betrfs::FormatOptions::default()
    };
    let platform = TestPlatform::new();
    let disk = Disk::of_bytes(16 << 20);
    let made = disk.open().env().identity();
    assert_eq!((made.label.as_str(), made.uuid.get_version_num()), ("", 4));
    assert!(made.made_ns > 0 && made.made_by.starts_with("betrfs "), "{made:?}");
    Volume::format(disk.device.clone(), &options, &*platform).unwrap();
    let identity = disk.open().env().identity();
    assert_eq!((identity.label.as_str(), identity.uuid), ("photos", uuid));
    let options = betrfs::FormatOptions { label: "a\nb".into(), ..options };
    assert!(Volume::format(disk.device.clone(), &options, &*platform).is_err());
}

const META: DictId = DictId(0);
const DATA: DictId = DictId(1);
const USER: DictId = DictId(3);
/// A tagged tail of a later version: tag 0x1234, five bytes.
const TAIL: &[u8] = b"\x34\x12\x05\0later";

/// Commits a batch to a closed volume.
fn change(disk: &Disk, batch: &Batch) {
    let env = Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    env.commit(batch).unwrap();
    env.close().unwrap();
}

fn record(volume: &Volume, key: &[u8]) -> Vec<u8> {
    volume.env().get(META, key).unwrap().unwrap()
}

#[test]
fn values_of_a_later_version_survive_every_change_of_a_record() {
    let disk = Disk::of_bytes(16 << 20);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    volume.write(file, 0, &[1; 9000]).unwrap();
    let mut later = record(&volume, b"\0d\0\0f");
    volume.close().unwrap();
    drop(volume);
    later[30..32].copy_from_slice(&(TAIL.len() as u16).to_le_bytes());
    later[108..120].copy_from_slice(b"gen Flagproj");
    later.extend_from_slice(TAIL);
    let mut batch = Batch::new();
    batch.put(META, b"\0d\0\0f", &later);
    change(&disk, &batch);

    let volume = disk.open();
    let is_kept = |key: &[u8]| {
        let record = record(&volume, key);
        record.ends_with(TAIL) && &record[108..120] == b"gen Flagproj"
    };
    let file = volume.resolve(b"/d/f").unwrap().node;
    let chmod = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    volume.setattr(file, &chmod).unwrap();
    volume.write(file, 8000, &[2; 9000]).unwrap();
    volume.set_xattr(file, b"user.small", b"value", XattrMode::Any).unwrap();
    volume.set_xattr(file, b"user.large", &[3; 9000], XattrMode::Any).unwrap();
    volume.fallocate(file, FallocateMode::PunchHole, 0, 4096).unwrap();
    assert!(is_kept(b"\0d\0\0f"), "in place");
    let dir = volume.resolve(b"/d").unwrap().node;
    volume.rename(dir, b"f", ROOT, b"g", RenameFlags::default()).unwrap();
    assert!(is_kept(b"\0\0g"), "renamed");
    volume.clone_inode(file, ROOT, b"copy").unwrap();
    volume.write(volume.resolve(b"/copy").unwrap().node, 0, b"x").unwrap();
    assert!(is_kept(b"\0\0copy") && is_kept(b"\0\0g"), "cloned");
    volume.rename(ROOT, b"g", dir, b"g", RenameFlags::default()).unwrap();
    volume.clone_inode(dir, ROOT, b"e").unwrap();
    volume.write(volume.resolve(b"/e/g").unwrap().node, 0, b"x").unwrap();
    assert!(is_kept(b"\0e\0\0g"), "cloned with its directory");
    volume.link(volume.resolve(b"/d/g").unwrap().node, ROOT, b"h").unwrap();
    let mut objects = volume.env().cursor(META, Cut::before([1]), Cut::after([1]));
    let (object, _) = objects.next().unwrap().unwrap();
    assert!(is_kept(object), "linked");
    assert_sound(&volume);
}

#[test]
fn a_check_reports_keys_of_later_versions_and_nothing_reads_them() {
    let cases: [(DictId, &[u8], &str); 6] = [
        (META, b"\x07\0\0\0\0\0\0\0\x01", "a key of the space 0x07"),
        (META, b"\x06d", "a key of the space 0x06"),
        (META, b"\xff", "a key of the space 0xff"),
        (DATA, b"\x06x", "a key of the space 0x06"),
        (DATA, b"\0\0f\0\xfekey", "/f: it has a value of the tag 0xfe"),
        (USER, b"a pair", "it stands in the dictionary `user`"),
    ];
    for (dict, key, expected) in cases {
        let disk = Disk::of_bytes(16 << 20);
        let volume = disk.open();
        let file = mkfile(&volume, ROOT, "f").node;
        volume.write(file, 0, b"contents").unwrap();
        volume.close().unwrap();
        drop(volume);
        let mut batch = Batch::new();
        batch.put(dict, key, b"later");
        change(&disk, &batch);
        let volume = disk.open();
        assert_eq!((names(&volume, ROOT), contents(&volume, "/f")), (vec!["f".into()], b"contents".to_vec()));
        let problems = volume.check(&mut |_, _| ()).unwrap().problems;
        assert!(problems.len() == 1 && problems[0].what.contains(expected), "{problems:?}");
    }
}
