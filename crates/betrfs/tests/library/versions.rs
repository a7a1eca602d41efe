//! Volumes of other versions, as the file system sees them.

use betree::{Cut, DictId};
use betree_platform::Device;
use betrfs::{AccessTimes, Error, Objects, OpenOptions, SetAttr, Uuid, Volume};
use xxhash_rust::xxh3::xxh3_64;

use crate::support::*;

/// Where the feature word `ro_compat` stands in a superblock.
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
        volume.write(file, 0, b"in the tree", false).unwrap();
        volume.env().checkpoint().unwrap();
        // An orphan, and what only the log has.
        let orphan = mkfile(&volume, ROOT, "orphan").node;
        volume.write(orphan, 0, &[1; 10_000], false).unwrap();
        volume.open_inode(orphan).unwrap();
        volume.unlink(ROOT, b"orphan").unwrap();
        volume.write(file, 0, b"in the log ", false).unwrap();
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
        volume.write(volume.resolve(b"/d/f").unwrap().node, 0, b"x", false).err(),
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
