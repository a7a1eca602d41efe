//! Reports of `check` on volumes damaged on purpose; and blocks that a repair finds to be lost.

use std::sync::Arc;

use betree::{Batch, DictId, Env};
use betree_sim::MemDevice;
use betrfs::{Error, Mending, Objects, RenameFlags, SetAttr, Volume, XattrMode};

use crate::repair::codes;
use crate::repair_changes::{leaves, repair_of, without};
use crate::support::*;

const META: DictId = DictId(0);
const DATA: DictId = DictId(1);
const LINKS: DictId = DictId(2);

/// `/d` with the file `f` of 10,000 bytes with a large attribute; `/a` and `/d/b`, one file.
fn sample() -> (Disk, Volume) {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let file = mkfile(&volume, dir.node, "f");
    volume.write(file.node, 0, &[1; 10_000]).unwrap();
    volume.set_xattr(file.node, b"user.x", &[1; 3000], XattrMode::Any).unwrap();
    let linked = mkfile(&volume, ROOT, "a");
    volume.link(linked.node, dir.node, b"b").unwrap();
    assert_sound(&volume);
    (disk, volume)
}

fn problems(damage: impl FnOnce(&mut Batch, &Volume)) -> Vec<String> {
    let (_disk, volume) = sample();
    let mut batch = Batch::new();
    damage(&mut batch, &volume);
    volume.env().commit(&batch).unwrap();
    let found = volume.check(&mut |_, _| ()).unwrap().problems;
    found.into_iter().map(|problem| problem.what).collect()
}

#[test]
fn each_kind_of_damage_is_a_sentence_that_names_the_place() {
    let file = b"\0d\0\0f";
    assert_eq!(
        problems(|batch, _| batch.delete(DATA, b"\0d\0\0f\0\0\0\0\0\0\0\0\x01")),
        ["/d/f, block 1: the block is lost"]
    );
    assert_eq!(
        problems(|batch, _| batch.put(DATA, b"\0d\0\0f\0\0\0\0\0\0\0\0\x02", &[1; 4096])),
        ["/d/f, block 2: there are bytes past the end of the file, or of the block"]
    );
    assert_eq!(
        problems(|batch, _| batch.delete(DATA, b"\0d\0\0f\0\xffuser.x")),
        ["/d/f, attribute user.x: its value is lost"]
    );
    assert_eq!(
        problems(|batch, _| batch.put(DATA, b"\0d\0\0ghost\0\0\0\0\0\0\0\0\0", b"x")),
        ["/d/ghost: it has blocks, and no record"]
    );
    assert_eq!(
        problems(|batch, volume| {
            let record = volume.env().get(META, file).unwrap().unwrap();
            batch.put(META, b"\0d\0\0g", &record[..10]);
            batch.put(META, b"\0none\0\0g", &record[..10]);
        }),
        [
            "damaged: /d/g: the record is too short",
            "damaged: /none/g: the record is too short",
            "/none/g: what should be its directory is none",
            "/d: it counts 2 entries, 0 of them directories, but has 3 and 0",
        ]
    );
    assert_eq!(
        problems(|batch, _| {
            batch.delete(META, b"\0\0a");
        }),
        [
            "/: it counts 2 entries, 1 of them directories, but has 1 and 1",
            "/a: it is listed among the links, but is none",
            "the linked file 1: it counts 2 names, but has 1",
        ]
    );
    assert_eq!(
        problems(|batch, _| batch.delete(LINKS, b"\0d\0\0b")),
        [
            "/d/b: it is not listed, or wrongly, among the links",
            "2 names of linked files, of which 1 is listed",
        ]
    );
    assert_eq!(
        problems(|batch, _| batch.delete(META, b"\x01\0\0\0\0\0\0\0\x01")),
        ["/a: the file that it links to is lost", "/d/b: the file that it links to is lost"]
    );
    assert_eq!(
        problems(|batch, _| batch.put(META, b"\x05\x09", b"?")),
        ["the key \"\\x05\\t\": no such key has a meaning"]
    );
}

#[test]
fn damaged_records_fail_only_the_operations_that_read_them() {
    let (disk, volume) = sample();
    let mut batch = Batch::new();
    batch.put(META, b"\0d\0\0f", &[1, 1, 2]);
    volume.env().commit(&batch).unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    assert!(matches!(volume.resolve(b"/d/f"), Err(Error::Damaged { .. })));
    assert!(volume.resolve(b"/d/b").is_ok());
    let dir = volume.resolve(b"/d").unwrap();
    assert!(matches!(volume.readdir(dir.node, 0, Objects::None, &mut |_| true), Err(Error::Damaged { .. })));
}

/// Repeated lookups of absent names read all names in one pass, which a damaged record ends.
#[test]
fn a_damaged_record_hides_no_other_name_after_misses() {
    let (disk, volume) = sample();
    let dir = volume.resolve(b"/d").unwrap();
    let other = mkfile(&volume, dir.node, "z");
    let ino = other.attr.ino;
    let mut batch = Batch::new();
    batch.put(META, b"\0d\0\0f", &[1, 1, 2]);
    volume.env().commit(&batch).unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    for absent in 0..20 {
        let path = format!("/d/absent{absent}");
        assert!(matches!(volume.resolve(path.as_bytes()), Err(Error::NotFound)), "{path}");
    }
    assert_eq!(volume.resolve(b"/d/z").unwrap().attr.ino, ino);
    assert!(matches!(volume.resolve(b"/d/f"), Err(Error::Damaged { .. })));
}

const BLOCK: usize = 4096;

/// The files that lose blocks: how long they are, and which blocks are lost.
const LOST: [(&str, usize, std::ops::Range<usize>); 5] = [
    ("first", 5 * BLOCK, 0..1),
    ("last", 4 * BLOCK + 7, 4..5),
    ("only", 10, 0..1),
    ("some", 100 * BLOCK, 50..53),
    ("many", 200 * BLOCK, 20..180),
];

fn text(name: &str, len: usize) -> Vec<u8> {
    seeded::bytes(name.len() as u64, 7, len)
}

/// A file beside the others, and all of them without some blocks.
fn without_blocks() -> Disk {
    let disk = Disk::of_tiny_nodes(64 << 20);
    let volume = disk.open();
    for (name, len, _) in LOST.into_iter().chain([("whole", 50 * BLOCK, 0..0)]) {
        volume.write(mkfile(&volume, ROOT, name).node, 0, &text(name, len)).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let env = Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    for (name, _, blocks) in LOST {
        for number in blocks {
            let at = [b"\0\0", name.as_bytes(), b"\0", &(number as u64).to_be_bytes()].concat();
            assert!(env.get(DATA, &at).unwrap().is_some());
            batch.delete(DATA, &at);
        }
    }
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);
    disk
}

fn open(disk: &Disk, device: &Arc<MemDevice>) -> Volume {
    Volume::open(device.clone(), disk.options.clone()).unwrap()
}

/// A block of a file; `None` if it is known to be lost.
fn block(volume: &Volume, name: &str, number: usize) -> Option<Vec<u8>> {
    let node = volume.resolve(format!("/{name}").as_bytes()).unwrap().node;
    let mut bytes = Vec::new();
    match volume.read(node, (number * BLOCK) as u64, BLOCK, &mut bytes) {
        Ok(_) => Some(bytes),
        Err(Error::Engine(betree::Error::KnownDamage { .. })) => None,
        Err(error) => panic!("{name}, {number}: {error}"),
    }
}

#[test]
fn lost_blocks_become_known_damage_which_a_write_heals_and_a_removal_clears() {
    let disk = without_blocks();
    let safe =
        Volume::repair(disk.device.clone(), &disk.options, Mending::Safe, &mut |_| true, &mut |_, _| ());
    assert_eq!(safe.unwrap().generation, None);
    let repaired = repair_of(&disk, &disk.device);
    assert_eq!(codes(&repaired.before), ["lost-block"].into(), "{repaired:#?}");
    assert!(repaired.generation.is_some() && repaired.in_vain.is_empty(), "{repaired:#?}");
    assert!(repaired.mended.iter().all(|mended| mended.loses), "{repaired:#?}");
    let examine = || Volume::examine(disk.device.clone(), disk.options.clone(), &mut |_, _| ()).unwrap();
    let report = examine();
    assert_eq!(report.problems, []);
    let files: Vec<String> = LOST.iter().map(|(name, ..)| format!("/{name}")).collect();
    assert_eq!(report.files, files.into_iter().collect());
    let volume = open(&disk, &disk.device);
    for (name, len, lost) in LOST {
        let whole = text(name, len);
        for (number, bytes) in whole.chunks(BLOCK).enumerate() {
            let expected = (!lost.contains(&number)).then(|| bytes.to_vec());
            assert!(block(&volume, name, number) == expected, "{name}, {number}");
        }
    }
    // Nothing is made of a part of a block.
    let some = volume.resolve(b"/some").unwrap().node;
    let _ = volume.write(some, 51 * BLOCK as u64 + 10, b"part");
    assert!(block(&volume, "some", 51).is_none());
    for (name, len, lost) in LOST.into_iter().take(4) {
        let node = volume.resolve(format!("/{name}").as_bytes()).unwrap().node;
        for number in lost {
            let whole = &text(name, len)[number * BLOCK..len.min((number + 1) * BLOCK)];
            volume.write(node, (number * BLOCK) as u64, whole).unwrap();
        }
        assert!(read_all(&volume, node) == text(name, len), "{name}");
    }
    volume.close().unwrap();
    drop(volume);
    let report = examine();
    assert_eq!((report.problems, report.files), (vec![], [String::from("/many")].into()));
    let volume = open(&disk, &disk.device);
    volume.unlink(ROOT, b"many").unwrap();
    volume.close().unwrap();
    drop(volume);
    assert_eq!(examine(), betrfs::Report::default());
}

#[test]
fn a_file_that_has_lost_blocks_is_removed_or_cut_off_with_its_damage() {
    let disk = without_blocks();
    repair_of(&disk, &disk.device);
    let volume = open(&disk, &disk.device);
    for (number, (name, ..)) in LOST.into_iter().enumerate() {
        if number % 2 == 0 {
            volume.unlink(ROOT, name.as_bytes()).unwrap();
        } else {
            let node = volume.resolve(format!("/{name}").as_bytes()).unwrap().node;
            volume.setattr(node, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        }
    }
    volume.close().unwrap();
    drop(volume);
    let report = Volume::examine(disk.device.clone(), disk.options.clone(), &mut |_, _| ()).unwrap();
    assert_eq!(report, betrfs::Report::default());
}

/// Blocks that are not there before what cannot be read, behind it, and in it.
#[test]
fn lost_blocks_beside_a_lost_leaf_are_no_zeros_either() {
    let disk = without_blocks();
    for leaf in leaves(&disk, DATA.0) {
        let device = without(&disk, &[leaf]);
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        let volume = open(&disk, &device);
        for (name, len, lost) in LOST {
            for (number, bytes) in text(name, len).chunks(BLOCK).enumerate() {
                let found = block(&volume, name, number);
                match lost.contains(&number) {
                    true => assert!(found.is_none(), "{name}, {number}"),
                    false => assert!(found.is_none_or(|found| found == bytes), "{name}, {number}"),
                }
            }
        }
        volume.close().unwrap();
    }
}

/// Their blocks move as a range, and those of the other one as messages, if both are small.
#[test]
fn files_that_have_lost_blocks_are_exchanged_with_others_and_keep_what_is_left() {
    let disk = without_blocks();
    repair_of(&disk, &disk.device);
    let volume = open(&disk, &disk.device);
    let left: Vec<Vec<Option<Vec<u8>>>> = LOST
        .into_iter()
        .map(|(name, len, _)| (0..len.div_ceil(BLOCK)).map(|number| block(&volume, name, number)).collect())
        .collect();
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    for ((name, ..), left) in LOST.into_iter().zip(&left) {
        for is_first in [true, false] {
            let other = mkfile(&volume, ROOT, "other").node;
            volume.write(other, 0, &text("other", 7 * BLOCK)).unwrap();
            let (one, two) = if is_first { (name, "other") } else { ("other", name) };
            volume.rename(ROOT, one.as_bytes(), ROOT, two.as_bytes(), exchange).unwrap();
            assert!(contents(&volume, &format!("/{name}")) == text("other", 7 * BLOCK), "{name}");
            for (number, expected) in left.iter().enumerate() {
                assert!(block(&volume, "other", number) == *expected, "{name}, {number}, {is_first}");
            }
            volume.rename(ROOT, b"other", ROOT, name.as_bytes(), RenameFlags::default()).unwrap();
            for (number, expected) in left.iter().enumerate() {
                assert!(block(&volume, name, number) == *expected, "{name}, {number}, {is_first}");
            }
        }
    }
    let report = volume.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.problems, []);
    volume.close().unwrap();
}
