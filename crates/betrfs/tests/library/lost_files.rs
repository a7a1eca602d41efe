//! Files with several names whose record is lost: their names can be renamed and removed, and copies of
//! directories have them too. Whatever else is asked of such a file is an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree_sim::MemDevice;
use betrfs::{Error, InodeId, RenameFlags, SetAttr, SnapshotsBelow, Volume};

use crate::repair::{META, with};
use crate::repair_changes::{leaves, repair_of, without};
use crate::support::*;

/// So many that the names of one directory are taken from their files in pieces.
const FILES: usize = 150;

fn sample() -> Disk {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let [a, b] = ["a", "b"].map(|name| mkdir(&volume, ROOT, name).node);
    for file in 0..FILES {
        let made = volume.create_with(a, name(file).as_bytes(), &new_file(), name(file).as_bytes());
        volume.link(made.unwrap().node, b, name(file).as_bytes()).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    disk
}

fn name(file: usize) -> String {
    format!("file{file:03}")
}

fn open(disk: &Disk, device: &Arc<MemDevice>) -> Volume {
    Volume::open(device.clone(), disk.options.clone()).unwrap()
}

fn dir(volume: &Volume, path: &str) -> InodeId {
    volume.resolve(path.as_bytes()).unwrap().node
}

/// The files of which a name in a directory leads to nothing. The others have their contents.
fn lost_in(volume: &Volume, path: &str) -> BTreeSet<usize> {
    let is_lost = |file: &usize| {
        let path = format!("{path}/{}", name(*file));
        match volume.resolve(path.as_bytes()) {
            Ok(found) => {
                assert_eq!(read_all(volume, found.node), name(*file).as_bytes());
                false
            }
            Err(error) => {
                assert!(matches!(error, Error::Damaged { .. }), "{path}: {error}");
                true
            }
        }
    };
    (0..FILES).filter(is_lost).collect()
}

/// Volumes in which records of files are lost, and all names are there.
fn damaged(disk: &Disk) -> Vec<Arc<MemDevice>> {
    let mut all = Vec::new();
    for block in leaves(disk, META.0) {
        let device = without(disk, &[block]);
        let repaired = repair_of(disk, &device);
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        let volume = open(disk, &device);
        let are_listed = ["/a", "/b"].iter().all(|path| {
            let node = volume.resolve(path.as_bytes()).map(|entry| entry.node);
            let mut listed = 0;
            let all = node.and_then(|node| {
                volume.readdir(node, 0, betrfs::Objects::None, &mut |_| {
                    listed += 1;
                    true
                })
            });
            all.is_ok() && listed == FILES
        });
        let is_fit = are_listed && lost_in(&volume, "/a").len() > 4;
        volume.close().unwrap();
        if is_fit {
            all.push(device);
        }
    }
    assert!(all.len() > 1, "{} volumes have lost files", all.len());
    all
}

#[test]
fn nothing_but_their_names_is_left_of_lost_files() {
    let disk = sample();
    // Some damage reaches beyond the files, where names or the root may be.
    let mut cleared = 0;
    for device in damaged(&disk) {
        let volume = open(&disk, &device);
        let lost = lost_in(&volume, "/a");
        assert_eq!(lost_in(&volume, "/b"), lost);
        let names: Vec<String> = lost.iter().map(|file| name(*file)).collect();
        let (a, b) = (dir(&volume, "/a"), dir(&volume, "/b"));
        let node = volume.lookup_lost(a, names[0].as_bytes()).unwrap().node;
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        assert_eq!(volume.lookup_lost(ROOT, b"a"), Err(Error::NotFound), "it is no lost file");
        let refused = [
            volume.getattr(node).err(),
            volume.find_inode(node).err(),
            volume.write(node, 0, b"new").err(),
            volume.setattr(node, &cut).err(),
            volume.open_inode(node).err(),
            volume.link(node, ROOT, b"other").err(),
            volume.clone_inode(node, ROOT, b"other").err(),
        ];
        let is_right = |error: &Option<Error>| matches!(error, Some(Error::Damaged { .. }));
        assert!(refused.iter().all(is_right), "{refused:?}");
        // Other names of the files stay what they are.
        volume.unlink(a, names[0].as_bytes()).unwrap();
        volume.rename(a, names[1].as_bytes(), ROOT, b"moved", RenameFlags::default()).unwrap();
        let new = volume.create_with(ROOT, b"new", &new_file(), b"new").unwrap().node;
        volume.rename(ROOT, b"new", a, names[2].as_bytes(), RenameFlags::default()).unwrap();
        assert_eq!(read_all(&volume, new), b"new");
        assert!(volume.resolve(format!("/a/{}", names[0]).as_bytes()).is_err());
        assert_eq!(lost_in(&volume, "/b"), lost);
        let report = volume.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.problems, []);
        volume.unlink(ROOT, b"moved").unwrap();
        volume.remove_below(a, SnapshotsBelow::Go).unwrap();
        assert_eq!(lost_in(&volume, "/b"), lost);
        names.iter().for_each(|name| volume.unlink(b, name.as_bytes()).unwrap());
        for file in (0..FILES).filter(|file| !lost.contains(file)) {
            assert_eq!(volume.resolve(format!("/b/{}", name(file)).as_bytes()).unwrap().attr.nlink, 1);
        }
        volume.remove_below(b, SnapshotsBelow::Go).unwrap();
        volume.close().unwrap();
        drop(volume);
        let volume = open(&disk, &device);
        let report = volume.check(&mut |_, _| ()).unwrap();
        assert_eq!((report.problems.len(), report.files.len()), (0, 0));
        cleared += usize::from(report.known_damage.is_empty());
    }
    assert!(cleared > 0, "no volume is without damage");
}

#[test]
fn copies_of_directories_have_the_names_of_lost_files() {
    let disk = sample();
    let mut snapshots_made = 0;
    for device in damaged(&disk) {
        let volume = open(&disk, &device);
        let lost = lost_in(&volume, "/a");
        let (a, b) = (dir(&volume, "/a"), dir(&volume, "/b"));
        volume.clone_inode(a, ROOT, b"copy").unwrap();
        // The damage may reach to where snapshots are.
        let snapshots = volume.lookup(b, betrfs::SNAPSHOTS_NAME);
        let made = snapshots.and_then(|dir| volume.create(dir.node, b"monday", &new_dir()));
        let is_made = made.map_err(|error| assert!(error.is_known_damage(), "{error}")).is_ok();
        snapshots_made += usize::from(is_made);
        // Few names go another way.
        let few = mkdir(&volume, ROOT, "few").node;
        let some: Vec<usize> = lost.iter().copied().take(3).collect();
        for file in &some {
            let name = name(*file);
            volume.rename(b, name.as_bytes(), few, name.as_bytes(), RenameFlags::default()).unwrap();
        }
        volume.clone_inode(few, ROOT, b"few copied").unwrap();
        volume.usage(ROOT).unwrap();
        let copies = ["/copy", "/a", "/b/.betrfs-snapshots/monday"];
        for path in &copies[..if is_made { 3 } else { 2 }] {
            assert_eq!(lost_in(&volume, path), lost, "{path}");
        }
        assert_eq!(names(&volume, dir(&volume, "/few copied")).len(), some.len());
        let report = volume.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.problems, [], "a copy of known damage is known damage");
        for path in ["/copy", "/few copied", "/few"] {
            volume.remove_below(dir(&volume, path), SnapshotsBelow::Go).unwrap();
        }
        assert_eq!(lost_in(&volume, "/a"), lost);
        let rest: BTreeSet<usize> = lost.iter().copied().filter(|file| !some.contains(file)).collect();
        let is_there = |file: &usize| volume.lookup_lost(b, name(*file).as_bytes()).is_ok();
        assert_eq!(lost.iter().copied().filter(is_there).collect::<BTreeSet<usize>>(), rest);
        let report = volume.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.problems, []);
        volume.close().unwrap();
    }
    assert!(snapshots_made > 0);
}

/// Without a repair, nothing is noted.
#[test]
fn names_of_a_file_without_a_record_can_go() {
    let device = with(&crate::repair::sample(), |pairs, batch| {
        let object = pairs.keys().find(|(dict, key)| *dict == META.0 && key.first() == Some(&1)).unwrap();
        batch.delete(META, &object.1);
    });
    let volume = Volume::open(device, crate::repair::options()).unwrap();
    let d = dir(&volume, "/d");
    assert!(matches!(volume.resolve(b"/d/b"), Err(Error::Damaged { .. })));
    volume.clone_inode(d, ROOT, b"copy").unwrap();
    assert!(matches!(volume.resolve(b"/copy/b"), Err(Error::Damaged { .. })));
    volume.unlink(d, b"b").unwrap();
    volume.remove_below(dir(&volume, "/copy"), SnapshotsBelow::Go).unwrap();
    volume.unlink(ROOT, b"a").unwrap();
    assert_sound(&volume);
}
