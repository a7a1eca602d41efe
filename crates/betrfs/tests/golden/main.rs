//! Golden volumes: every later version reads the volumes of a release. `fixtures/README.md` says how to add
//! one.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod describe;
mod making;
mod memory;

use std::fs;
use std::path::PathBuf;

use betrfs::{InodeId, NewNode, RenameFlags, Report, SetAttr, Volume};
use memory::{Disk, NEW_DIR, NEW_FILE};

/// The least number of golden volumes.
const FIXTURES_MIN: usize = 14;

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// The images, one for each golden volume.
fn images() -> Vec<PathBuf> {
    let formats = fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let folders = formats.filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    let mut images: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "zst")).collect();
    images.sort();
    images
}

/// Makes changes that are possible on every volume.
fn change(volume: &Volume) {
    let new_name = |name: &[u8], new: &NewNode| volume.create(InodeId::ROOT, name, new).unwrap().node;
    let dir = new_name(b"golden test", &NEW_DIR);
    let file = volume.create(dir, b"file", &NEW_FILE).unwrap().node;
    volume.write(file, 5000, &[7; 20_000]).unwrap();
    volume.link(file, dir, b"link").unwrap();
    volume.rename(dir, b"file", InodeId::ROOT, b"golden file", RenameFlags::default()).unwrap();
    volume.clone_inode(dir, InodeId::ROOT, b"golden clone").unwrap();
    volume.setattr(InodeId::ROOT, &SetAttr { perm: Some(0o700), ..SetAttr::default() }).unwrap();
    // Everything is cloned, and one of the clones is removed.
    let mut dirs = Vec::new();
    describe::children(volume, InodeId::ROOT, &mut |name, entry| {
        if entry.attr.file_type == betrfs::FileType::Directory && !name.starts_with(b"golden") {
            dirs.push((name.to_vec(), entry.node));
        }
    });
    for (name, node) in dirs {
        let copy = [b"golden copy of ", name.as_slice()].concat();
        volume.clone_inode(node, InodeId::ROOT, &copy[..copy.len().min(255)]).unwrap();
    }
    volume.sync().unwrap();
}

#[test]
fn every_golden_volume_is_what_its_manifest_says_and_can_be_changed() {
    let images = images();
    assert!(images.len() >= FIXTURES_MIN, "{images:?}");
    for image in images {
        let shown = image.display();
        let disk = Disk::of_image(&zstd::decode_all(fs::File::open(&image).unwrap()).unwrap());
        let expected = fs::read_to_string(image.with_extension("txt")).unwrap();
        {
            let volume = disk.open();
            let found = describe::volume(&volume);
            for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
                assert_eq!(found, expected, "{shown}: line {}", line + 1);
            }
            assert_eq!(found.lines().count(), expected.lines().count(), "{shown}");
            assert_eq!(volume.check(&mut |_, _| ()).unwrap(), Report::default(), "{shown}");
            change(&volume);
            volume.close().unwrap();
        }
        let volume = disk.open();
        assert_eq!(volume.check(&mut |_, _| ()).unwrap(), Report::default(), "{shown}, changed");
        volume.close().unwrap();
    }
}

/// Makes the missing volumes, if asked to; never changes an existing one.
#[test]
fn missing_golden_volumes_are_made_on_demand() {
    if std::env::var_os("BETRFS_MAKE_FIXTURES").is_none() {
        return;
    }
    let folder = fixtures().join(format!("format-{}", betree::FORMAT_VERSION));
    fs::create_dir_all(&folder).unwrap();
    for (name, make) in making::ALL {
        let (image, manifest) = (folder.join(format!("{name}.zst")), folder.join(format!("{name}.txt")));
        if image.exists() || manifest.exists() {
            println!("{name}: it is there, and stays as it is");
            continue;
        }
        let disk = make();
        let bytes = disk.bytes();
        fs::write(&image, zstd::encode_all(bytes.as_slice(), 19).unwrap()).unwrap();
        let volume = Disk::of_image(&bytes).open();
        fs::write(&manifest, describe::volume(&volume)).unwrap();
        println!("{name}: made");
    }
}
