//! Volumes that have the name of the directory in which a rescue keeps files without a name.

use std::fs;
use std::sync::Arc;

use betree::{Batch, Env};
use betree_std::FileDevice;
use betrfs::{FileType, InodeId, Volume};

use super::forged::{META, entry};
use super::{Sample, new};

#[test]
fn what_has_the_name_of_the_rescues_own_directory_is_copied() {
    let sample = Sample::new("64M");
    let volume = sample.open();
    let file = new(FileType::Regular, 0o600);
    let earlier =
        volume.create(InodeId::ROOT, b".betrfs-lost", &new(FileType::Directory, 0o750)).unwrap().node;
    volume.create_with(earlier, b"17", &file, b"of an earlier rescue").unwrap();
    volume.create_with(InodeId::ROOT, b".betrfs-lost.1", &file, b"a file").unwrap();
    // Two files with two names; one loses both.
    let lost = volume.create_with(InodeId::ROOT, b"lost1", &file, b"no name").unwrap().node;
    volume.link(lost, InodeId::ROOT, b"lost2").unwrap();
    let linked = volume.create_with(earlier, b"linked1", &file, b"two names").unwrap().node;
    volume.link(linked, InodeId::ROOT, b"linked2").unwrap();
    volume.close().unwrap();
    drop(volume);
    let (code, missing, said) = sample.rescue();
    assert_eq!((code, missing.as_slice()), (Some(0), &[][..]), "{said}");

    let device = Arc::new(FileDevice::open(&sample.path).unwrap());
    let env = Env::open(device, Volume::engine_options(8 << 20)).unwrap();
    let mut batch = Batch::new();
    for name in [b"lost1", b"lost2"] {
        assert!(env.get(META, &entry(&[], name)).unwrap().is_some());
        batch.delete(META, &entry(&[], name));
    }
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);

    let (code, missing, said) = sample.rescue();
    let at = |path: &str| sample.copy().join(path);
    assert_eq!(code, Some(4), "{said}");
    let [only] = missing.as_slice() else { panic!("{missing:?}") };
    let own = only.path.strip_prefix('/').unwrap();
    assert!(own.starts_with(".betrfs-lost.2/") && only.part == "name", "{only:?}");
    assert_eq!(fs::read(at(own)).unwrap(), b"no name");
    assert_eq!(fs::read(at(".betrfs-lost/17")).unwrap(), b"of an earlier rescue");
    assert_eq!(fs::read(at(".betrfs-lost.1")).unwrap(), b"a file");
    assert_eq!(fs::read(at(".betrfs-lost/linked1")).unwrap(), b"two names");
    assert_eq!(fs::read(at("linked2")).unwrap(), b"two names");
    let mut names: Vec<_> =
        fs::read_dir(sample.copy()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".betrfs-lost", ".betrfs-lost.1", ".betrfs-lost.2", "linked2"]);
}
