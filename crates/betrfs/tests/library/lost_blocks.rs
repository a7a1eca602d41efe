//! Reports of `check` on volumes damaged on purpose.

use crate::support::*;
use betree::{Batch, DictId};
use betrfs::{Error, Objects, Volume, XattrMode};

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
