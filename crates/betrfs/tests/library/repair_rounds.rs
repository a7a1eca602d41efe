//! Repairs of many problems of one kind, of some that lie below others, and of files that a repair makes
//! anew: one repair mends them all, and what is lost stays an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree::{Batch, DictId, Env};
use betree_platform::{BLOCK_BYTES, Device, DeviceOp};
use betree_sim::{ENOSPC, Fault};
use betrfs::{Error, InodeId, Mending, SnapshotsBelow, Volume, XattrMode};

use crate::detached::{farm, links, markers};
use crate::kept::{disk_that_reads, linked_tree, put_off};
use crate::repair::{
    CACHE_BYTES, DATA, ENTRIES_AT, FILE, LINKS, LINKS_AT, META, NAME, OTHER_NAME, SIZE_AT, SPARSE, codes,
    key, options, pairs, repair, sample, set,
};
use crate::repair_changes::{damaged_as, interior, leaves, noise, repair_of, without};
use crate::support::*;

/// More than all looks of a repair change one by one.
const MANY: u64 = 17_000;

/// A put, or a delete.
type Change = (DictId, Vec<u8>, Option<&'static [u8]>);

/// Changes pairs of a volume that is closed.
fn change(device: &Arc<dyn Device>, changes: &[Change]) {
    let env = Env::open(device.clone(), Volume::engine_options(CACHE_BYTES)).unwrap();
    for changes in changes.chunks(1000) {
        let mut batch = Batch::new();
        for (dict, key, value) in changes {
            match value {
                Some(value) => batch.put(*dict, key, value),
                None => batch.delete(*dict, key),
            }
        }
        env.commit(&batch).unwrap();
        env.checkpoint().unwrap();
    }
    env.close().unwrap();
}

/// A volume with every kind of record, and what else is made in it.
fn sample_with(make: impl Fn(&Volume)) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(sample());
    let volume = Volume::open(device.clone(), options()).unwrap();
    make(&volume);
    volume.close().unwrap();
    device
}

fn block(own: &[u8], number: u64) -> Vec<u8> {
    [own, b"\0", &number.to_be_bytes()].concat()
}

#[test]
fn all_directories_that_are_missing_above_a_name_are_made_at_once() {
    const DEPTH: usize = 40;
    let device = sample_with(|volume| {
        let dir = (0..DEPTH).fold(ROOT, |dir, _| mkdir(volume, dir, "x").node);
        volume.write(mkfile(volume, dir, "deep").node, 0, b"deep").unwrap();
    });
    let gone = |depth: usize| (META, [&b"\0x".repeat(depth), &b"\0\0x"[..]].concat(), None);
    change(&device, &(0..DEPTH).map(gone).collect::<Vec<_>>());
    let repaired = repair(&device, Mending::Safe);
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    let volume = Volume::open(device, options()).unwrap();
    assert_eq!(contents(&volume, &format!("{}/deep", "/x".repeat(DEPTH))), b"deep");
    volume.close().unwrap();
}

/// The repair changes the record of that file too.
#[test]
fn a_nameless_file_comes_to_no_directory_that_is_a_file() {
    let device = sample_with(|volume| {
        mkfile(volume, ROOT, "lost+found");
    });
    let names = [NAME, OTHER_NAME].into_iter();
    let gone = names.flat_map(|name| [META, LINKS].map(|dict| (dict, name.to_vec(), None)));
    change(&device, &gone.collect::<Vec<_>>());
    let device = damaged_as(&device, |pairs, batch| {
        set(pairs, batch, META, b"\0\0lost+found", LINKS_AT, &9u32.to_le_bytes());
    });
    let repaired = repair(&device, Mending::All);
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
    let volume = Volume::open(device, options()).unwrap();
    assert_eq!(contents(&volume, "/lost+found.1/#1"), b"linked");
    assert_eq!(contents(&volume, "/lost+found"), b"");
    volume.close().unwrap();
}

#[test]
fn however_many_blocks_are_behind_the_end_of_a_file_one_repair_removes_them() {
    for (own, first) in [(FILE, 3), (SPARSE, 256)] {
        let device: Arc<dyn Device> = Arc::new(sample());
        let expected = pairs(&device);
        let behind = (first..first + MANY).map(|number| (DATA, block(own, number), Some(&b"x"[..])));
        change(&device, &behind.collect::<Vec<_>>());
        let repaired = repair(&device, Mending::All);
        assert_eq!(codes(&repaired.before), BTreeSet::from(["bytes-behind-end"]));
        assert_eq!(repaired.after.found(), 0, "{:?}", repaired.after.problems.first());
        assert!(pairs(&device) == expected);
    }
}

/// As where the marker of a tree that is being removed was lost.
#[test]
fn however_many_keys_a_detached_tree_without_a_marker_has_one_repair_removes_them() {
    let device: Arc<dyn Device> = Arc::new(sample());
    let expected = pairs(&device);
    let of_tree = (0..MANY).flat_map(|file| {
        let own = [&b"\x04\0\0\0\0\0\0\0\x09\0\0"[..], file.to_string().as_bytes()].concat();
        let name = (LINKS, own.clone(), Some(&[0, 0, 0, 0, 0, 0, 0, 1][..]));
        [(DATA, block(&own, 0), Some(&b"x"[..])), (META, own, Some(&b"x"[..])), name]
    });
    change(&device, &of_tree.collect::<Vec<_>>());
    let repaired = repair(&device, Mending::All);
    assert_eq!(codes(&repaired.before), BTreeSet::from(["bad-key"]));
    assert_eq!(repaired.after.found(), 0, "{:?}", repaired.after.problems.first());
    assert!(pairs(&device) == expected);
}

/// The number of lost blocks of a file; the others are as they were.
fn lost_blocks(volume: &Volume, file: InodeId, bytes: &[u8]) -> usize {
    let is_lost = |at: &u64| {
        let mut read = Vec::new();
        match volume.read(file, *at, 4096, &mut read) {
            Ok(_) => assert!(read[..] == bytes[*at as usize..][..read.len()], "{at}"),
            Err(Error::Engine(betree::Error::KnownDamage { .. })) => return true,
            Err(error) => panic!("{at}: {error}"),
        }
        false
    };
    (0..volume.getattr(file).unwrap().size).step_by(4096).filter(is_lost).count()
}

/// What is lost of it stays an error, though its record is made anew.
#[test]
fn known_damage_stays_in_a_file_whose_record_is_made_anew() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let bytes = noise(3, 200_000);
    volume.write(mkfile(&volume, ROOT, "file").node, 0, &bytes).unwrap();
    volume.close().unwrap();
    drop(volume);
    change(&(disk.device.clone() as Arc<dyn Device>), &[(META, b"\0\0file".to_vec(), None)]);
    let mut lost = 0;
    for leaf in leaves(&disk, DATA.0) {
        let device = without(&disk, &[leaf]);
        assert_eq!(repair_of(&disk, &device).after.problems, []);
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        lost += lost_blocks(&volume, volume.resolve(b"/file").unwrap().node, &bytes);
        volume.close().unwrap();
    }
    assert!(lost > 10, "{lost}");
}

/// It is no name's yet.
#[test]
fn known_damage_stays_in_what_is_kept_of_a_directory() {
    let disk = disk_that_reads();
    let volume = disk.open();
    let tree = linked_tree(&volume, ROOT);
    let bytes = noise(3, 200_000);
    volume.write(mkfile(&volume, tree, "large").node, 0, &bytes).unwrap();
    volume.close().unwrap();
    drop(volume);
    let (disk, volume, _) = put_off(&disk, "/tree");
    volume.env().checkpoint().unwrap();
    volume.env().abandon();
    drop(volume);
    let mut lost = 0;
    for leaf in leaves(&disk, DATA.0) {
        let device = without(&disk, &[leaf]);
        assert_eq!(repair_of(&disk, &device).after.problems, []);
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        let file = volume.resolve(b"/tree/.betrfs-snapshots/kept/large").unwrap().node;
        lost += lost_blocks(&volume, file, &bytes);
        volume.close().unwrap();
    }
    assert!(lost > 10, "{lost}");
}

/// The record of the file has to be changed for each of them.
#[test]
fn however_many_values_of_a_files_attributes_are_lost_one_repair_takes_them_off() {
    let attributes = || (0..30).map(|number| format!("user.{number}").into_bytes());
    let device = sample_with(|volume| {
        let file = mkfile(volume, ROOT, "file").node;
        attributes().for_each(|name| volume.set_xattr(file, &name, &[1; 1000], XattrMode::Any).unwrap());
    });
    let gone = attributes().map(|name| (DATA, [&b"\0\0file\0\xff"[..], &name].concat(), None));
    change(&device, &gone.collect::<Vec<_>>());
    let repaired = repair(&device, Mending::All);
    assert_eq!(codes(&repaired.before), BTreeSet::from(["lost-attribute"]), "{repaired:#?}");
    assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
}

/// A volume that was not closed, with a [`farm`] of this many files whose tree is being removed.
pub fn removal_under_way(files: u64) -> Disk {
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    (disk.options.links_alone_max, disk.options.cache_bytes) = (2, 128 << 10);
    let volume = disk.open();
    let (tree, _) = farm(&volume, files);
    volume.sync().unwrap();
    let write = Fault { at_call: 1, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true };
    disk.device.set_fault(Some(write));
    volume.remove_below(tree, SnapshotsBelow::Hold).unwrap();
    disk.device.set_fault(None);
    volume.sync().unwrap();
    volume.env().checkpoint().unwrap();
    volume.env().abandon();
    drop(volume);
    assert_eq!(markers(&disk.device).len(), 1, "the removal is not over");
    disk
}

/// Names in a tree that is being removed count until they have gone, also where they cannot be read.
#[test]
fn files_with_unreadable_names_in_a_detached_tree_keep_their_count() {
    const FILES: u64 = 1000;
    let disk = removal_under_way(FILES);
    let mut met = 0;
    for leaf in leaves(&disk, LINKS.0) {
        let device = without(&disk, &[leaf]);
        let found = Volume::examine(device.clone(), disk.options.clone(), &mut |_, _| ()).unwrap();
        let codes = codes(&found);
        met += usize::from(codes.contains("bad-node"));
        assert!(!codes.contains("wrong-link-count") && !codes.contains("nameless-file"), "{codes:?}");
        let repaired = repair_of(&disk, &device);
        assert_eq!(repaired.after.problems, [], "{repaired:#?}");
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        assert_sound(&volume);
        for file in (0..FILES).step_by(2) {
            assert_eq!(links(&volume, &format!("/beside/{file}")), 1);
        }
    }
    assert!(met > 1, "{met}");
}

/// What waited in a node that was found again may have been the newest record of the volume.
#[test]
fn numbers_are_given_once_where_the_volumes_record_may_be_older() {
    const LIVES: u64 = 20;
    const FILES: u64 = 80;
    let disk = Disk::of_tiny_nodes(32 << 20);
    for life in 0..LIVES {
        let volume = disk.open();
        for file in 0..FILES {
            mkfile(&volume, ROOT, &format!("{file} {life}"));
        }
        volume.close().unwrap();
    }
    let mut met = 0;
    for node in interior(&disk, META.0) {
        let device = without(&disk, &[node]);
        let repaired = repair_of(&disk, &device);
        assert_eq!(repaired.after.problems, []);
        met += usize::from(repaired.mended.iter().any(|mended| mended.code == "number-not-given"));
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        let all = (0..LIVES).flat_map(|life| (0..FILES).map(move |file| format!("{file} {life}")));
        let given: BTreeSet<u64> =
            all.filter_map(|name| Some(volume.lookup(ROOT, name.as_bytes()).ok()?.attr.ino)).collect();
        let names = (0..10).map(|number| format!("new {number}"));
        let made = names.filter_map(|name| volume.create(ROOT, name.as_bytes(), &new_file()).ok());
        made.for_each(|made| assert!(!given.contains(&made.attr.ino), "{}", made.attr.ino));
        volume.close().unwrap();
    }
    assert!(met > 0);
}

/// They may be there still: only a repair that takes them for lost counts without them.
#[test]
fn a_directory_with_names_that_cannot_be_read_keeps_its_count() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let d = mkdir(&volume, ROOT, "d").node;
    for file in 0..300 {
        mkfile(&volume, d, &format!("file{file}"));
    }
    volume.close().unwrap();
    drop(volume);
    let wrong = damaged_as(&(disk.device.clone() as Arc<dyn Device>), |pairs, batch| {
        set(pairs, batch, META, b"\0\0d", ENTRIES_AT, &5u64.to_le_bytes());
    });
    let mut met = 0;
    for leaf in leaves(&disk, META.0) {
        let device = damaged_as(&wrong, |_, _| ());
        device.write_at(leaf * BLOCK_BYTES as u64, &[7; BLOCK_BYTES]).unwrap();
        let repaired =
            Volume::repair(device.clone(), &disk.options, Mending::Safe, &mut |_| true, &mut |_, _| ());
        let Ok(repaired) = repaired else { continue };
        let codes = codes(&repaired.before);
        if !codes.contains("bad-node") {
            continue;
        }
        met += usize::from(codes.contains("wrong-entry-counts"));
        assert!(repaired.mended.iter().all(|mended| mended.code != "wrong-entry-counts"), "{repaired:#?}");
    }
    assert!(met > 1, "{met}");
}

/// A volume that was not closed, with a file that was unlinked while it was open, and its bytes.
fn with_unlinked_file() -> (Disk, Vec<u8>) {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let bytes = noise(3, 200_000);
    let file = mkfile(&volume, ROOT, "a").node;
    volume.write(file, 0, &bytes).unwrap();
    volume.open_inode(file).unwrap();
    volume.unlink(ROOT, b"a").unwrap();
    // What stands between its blocks and its marker, and brings the marker down to a leaf.
    let d = mkdir(&volume, ROOT, "d").node;
    for other in 0..200 {
        let other = format!("file with a name that is not short {other}");
        volume.link(mkfile(&volume, d, &other).node, ROOT, other.as_bytes()).unwrap();
    }
    volume.env().checkpoint().unwrap();
    volume.env().abandon();
    drop(volume);
    (disk, bytes)
}

/// The marker may be there still.
#[test]
fn blocks_of_an_unlinked_file_are_no_problem_where_its_marker_cannot_be_read() {
    let (disk, _) = with_unlinked_file();
    let mut met = 0;
    for leaf in leaves(&disk, META.0) {
        let device = without(&disk, &[leaf]);
        let found = Volume::examine(device, disk.options.clone(), &mut |_, _| ()).unwrap();
        assert!(!codes(&found).contains("lost-record"), "{found:#?}");
        met += usize::from(found.notes.iter().any(|note| note.contains("the data of 1 file belong")));
    }
    assert!(met > 0);
}

/// It is taken for one whose record was lost.
#[test]
fn known_damage_stays_in_an_unlinked_file_whose_marker_is_lost() {
    let (disk, bytes) = with_unlinked_file();
    let (mut met, mut lost) = (0, 0);
    for marker in leaves(&disk, META.0) {
        for leaf in leaves(&disk, DATA.0) {
            let device = without(&disk, &[marker, leaf]);
            let repaired = repair_of(&disk, &device);
            assert_eq!(repaired.after.problems, [], "{repaired:#?}");
            if !repaired.mended.iter().any(|mended| mended.code == "lost-record") {
                continue;
            }
            met += 1;
            let volume = Volume::open(device, disk.options.clone()).unwrap();
            if let Ok(file) = volume.resolve(b"/a") {
                lost += lost_blocks(&volume, file.node, &bytes);
            }
            volume.close().unwrap();
        }
    }
    assert!(met > 3 && lost > 10, "{met}, {lost}");
}

/// Each has to get a name of its own.
#[test]
fn however_many_files_without_a_name_there_are_one_repair_names_them() {
    let device: Arc<dyn Device> = Arc::new(sample());
    let mut record = pairs(&device)[&key(META, &object(1))].clone();
    record[SIZE_AT..SIZE_AT + 8].fill(0);
    let env = Env::open(device.clone(), Volume::engine_options(CACHE_BYTES)).unwrap();
    for number in 100..100 + MANY {
        let mut batch = Batch::new();
        batch.put(META, &object(number), &record);
        env.commit(&batch).unwrap();
    }
    env.close().unwrap();
    drop(env);
    let repaired = repair(&device, Mending::All);
    assert_eq!(codes(&repaired.before), BTreeSet::from(["nameless-file", "number-not-given"]));
    assert_eq!(repaired.after.found(), 0, "{:?}", repaired.after.problems.first());
    let volume = Volume::open(device, options()).unwrap();
    assert_eq!(names(&volume, volume.resolve(b"/lost+found").unwrap().node).len() as u64, MANY);
    volume.close().unwrap();
}

fn object(number: u64) -> Vec<u8> {
    [&[1][..], &number.to_be_bytes()].concat()
}
