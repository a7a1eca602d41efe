//! A full volume.

use betree_platform::DeviceOp;
use betree_sim::{EIO, Fault};
use betrfs::{Error, FallocateMode, InodeId, RenameFlags, SetAttr, TimeSet, Volume, XattrMode};

use crate::support::*;

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_full_volume_refuses_writes_cleanly_and_keeps_its_files() {
    let disk = Disk::of_bytes(32 << 20);
    let volume = disk.open();
    let mut sizes = Vec::new();
    let error = loop {
        let i = sizes.len();
        let file = match volume.create(ROOT, format!("f{i}").as_bytes(), &new_file()) {
            Ok(file) => file,
            Err(error) => break error,
        };
        sizes.push(0);
        match volume.write(file.node, 0, &noise(i as u64, 200_000)) {
            Ok(written) => {
                sizes[i] = written as u64;
                // Whole pieces of a write without room may be there.
                assert!(written == 200_000 || written.is_multiple_of(64 << 10), "{written}");
                assert_eq!(volume.getattr(file.node).unwrap().size, sizes[i]);
            }
            Err(error) => {
                assert_eq!(volume.getattr(file.node).unwrap().size, 0);
                break error;
            }
        }
        volume.forget(file.node, 1);
    };
    assert_eq!(error, Error::NoSpace);
    assert!(sizes.len() > 30, "{} files of 200,000 bytes", sizes.len());
    let compare = |volume: &Volume| {
        for (i, size) in sizes.iter().enumerate() {
            let bytes = contents(volume, &format!("/f{i}"));
            assert!(bytes == noise(i as u64, 200_000)[..*size as usize], "f{i}");
        }
        assert_eq!(names(volume, ROOT).len(), sizes.len());
    };
    compare(&volume);
    volume.sync().unwrap();
    volume.env().abandon();
    drop(volume);
    let volume = disk.open();
    compare(&volume);

    // Deletes and changes of attributes are allowed, and make room again.
    let cut = volume.resolve(b"/f0").unwrap();
    let shorter = SetAttr { size: Some(100), perm: Some(0o600), ..SetAttr::default() };
    assert_eq!(volume.setattr(cut.node, &shorter).unwrap().size, 100);
    for i in 1..sizes.len() {
        volume.unlink(ROOT, format!("f{i}").as_bytes()).unwrap_or_else(|e| panic!("f{i}: {e}"));
    }
    while volume.env().run_due_work().unwrap() {}
    let again = mkfile(&volume, ROOT, "again");
    for part in 0..sizes.len() as u64 / 2 {
        volume.write(again.node, part * 200_000, &noise(part, 200_000)).unwrap();
    }
    assert_sound(&volume);
}

/// After a failure users ask `df` first.
#[test]
fn a_volume_whose_disk_fails_still_reports_its_room() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f");
    let piece = vec![7; 1 << 20];
    (0..16).for_each(|i| volume.write(file.node, i << 20, &piece).map(drop).unwrap());
    volume.unlink(ROOT, b"f").unwrap();
    let write = Fault { at_call: 1, op: Some(DeviceOp::Write), errno: EIO, lasting: true };
    disk.device.set_fault(Some(write));
    // The pending delete cannot be carried out.
    let total = volume.statfs().unwrap().total_bytes;
    assert!(disk.device.counts().failed > 0, "there was something to write");
    assert_eq!(volume.statfs().unwrap().total_bytes, total);
    assert!(volume.create(ROOT, b"g", &new_file()).is_err(), "it takes no change any more");
}

/// Writes files, and then makes empty ones, until neither has room.
fn fill(volume: &Volume) {
    let dir = mkdir(volume, ROOT, "filling");
    let mut number = 0;
    for len in [200_000, 5000, 0] {
        loop {
            number += 1;
            let name = format!("f{number}");
            let made = volume.create(dir.node, name.as_bytes(), &new_file());
            let written = made.and_then(|file| {
                let written = volume.write(file.node, 0, &noise(number, len));
                volume.forget(file.node, 1);
                written
            });
            match written {
                Ok(_) => {}
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };

/// Two directories and the names of the entries in the first, one of each kind.
fn entries_of_each_kind(volume: &Volume) -> (InodeId, InodeId, Vec<&'static str>) {
    let (a, b) = (mkdir(volume, ROOT, "a").node, mkdir(volume, ROOT, "b").node);
    let file = |parent, name: &str, len| {
        let file = mkfile(volume, parent, name);
        volume.write(file.node, 0, &noise(len as u64, len)).unwrap();
        file.node
    };
    file(a, "empty", 0);
    file(a, "small", 100);
    file(a, "eight blocks", 32 << 10);
    file(a, "large", 300_000);
    let linked = file(a, "linked", 20_000);
    volume.link(linked, ROOT, b"other name").unwrap();
    let attributed = file(a, "attributed", 10);
    volume.set_xattr(attributed, b"user.x", &noise(1, 5000), XattrMode::Any).unwrap();
    volume.symlink(a, b"symlink", b"target", 0, 0).unwrap();
    mkdir(volume, a, "directory");
    let full = mkdir(volume, a, "full directory").node;
    for i in 0..50 {
        file(full, &format!("f{i}"), 3000);
    }
    let below = file(full, "linked below", 50_000);
    volume.link(below, full, b"another").unwrap();
    let names = [
        "empty",
        "small",
        "eight blocks",
        "large",
        "linked",
        "attributed",
        "symlink",
        "directory",
        "full directory",
    ];
    (a, b, names.to_vec())
}

#[test]
fn renames_work_on_a_full_volume_again_and_again() {
    let disk = Disk::of_bytes(32 << 20);
    let volume = disk.open();
    let (a, b, names) = entries_of_each_kind(&volume);
    let victims = ["small", "large", "directory"];
    for (i, name) in victims.iter().cycle().take(60).enumerate() {
        let name = format!("victim {i} for {name}");
        if name.ends_with("directory") {
            mkdir(&volume, ROOT, &name);
        } else {
            let file = mkfile(&volume, ROOT, &name);
            volume.write(file.node, 0, &noise(i as u64, 20_000 * (1 + i % 3))).unwrap();
        }
    }
    fill(&volume);
    assert_eq!(volume.create(ROOT, b"one more", &new_file()).err(), Some(Error::NoSpace));
    let rename = |from, name: &str, to, new_name: &str, flags| {
        let done = volume.rename(from, name.as_bytes(), to, new_name.as_bytes(), flags);
        done.unwrap_or_else(|error| panic!("{name} to {new_name}: {error}"));
    };
    for _ in 0..40 {
        for name in &names {
            let other = format!("{name}, by a name that is longer by some fifty bytes than it was");
            rename(a, name, a, &other, PLAIN);
            rename(a, &other, b, name, PLAIN);
            rename(b, name, a, name, PLAIN);
        }
        for pair in names.windows(2) {
            rename(a, pair[0], a, pair[1], EXCHANGE);
        }
        for pair in names.windows(2).rev() {
            rename(a, pair[0], a, pair[1], EXCHANGE);
        }
    }
    // Renames over other entries.
    for (i, name) in victims.iter().cycle().take(60).enumerate() {
        let victim = format!("victim {i} for {name}");
        rename(a, name, ROOT, &victim, PLAIN);
        rename(ROOT, &victim, a, name, PLAIN);
    }
    let compare = |volume: &Volume| {
        for (path, len) in
            [("small", 100), ("eight blocks", 32 << 10), ("large", 300_000), ("linked", 20_000)]
        {
            assert!(contents(volume, &format!("/a/{path}")) == noise(len as u64, len), "{path}");
        }
        for i in 0..50 {
            assert!(contents(volume, &format!("/a/full directory/f{i}")) == noise(3000, 3000));
        }
        assert_sound(volume);
    };
    compare(&volume);
    volume.close().unwrap();
    drop(volume);
    compare(&disk.open());
}

#[test]
fn changes_of_attributes_and_deletes_work_on_a_full_volume() {
    let disk = Disk::of_bytes(32 << 20);
    let volume = disk.open();
    let (a, _, names) = entries_of_each_kind(&volume);
    fill(&volume);
    let node = |name: &str| {
        let path = format!("/a/{name}");
        volume.resolve(path.as_bytes()).unwrap().node
    };
    for round in 0..100u16 {
        for name in &names {
            let set = SetAttr {
                perm: Some(0o600 + round % 64),
                uid: Some(u32::from(round)),
                mtime_ns: Some(TimeSet::At(i64::from(round))),
                ..SetAttr::default()
            };
            volume.setattr(node(name), &set).unwrap_or_else(|error| panic!("{name}, {round}: {error}"));
        }
    }
    let large = node("large");
    let resize = |size| volume.setattr(large, &SetAttr { size: Some(size), ..SetAttr::default() });
    // A hole at the end takes nothing.
    resize(1 << 40).unwrap();
    resize(250_000).unwrap();
    volume.fallocate(large, FallocateMode::PunchHole, 100, 50).unwrap();
    volume.fallocate(large, FallocateMode::PunchHole, 4096, 100_000).unwrap();
    resize(10).unwrap();
    for round in 0..200 {
        let value = noise(round, 5000);
        volume.set_xattr(node("attributed"), b"user.x", &value, XattrMode::Replace).unwrap();
    }
    volume.remove_xattr(node("attributed"), b"user.x").unwrap();
    for name in ["empty", "small", "eight blocks", "large", "linked", "attributed", "symlink"] {
        volume.unlink(a, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    volume.rmdir(a, b"directory").unwrap();
    volume.remove_below(node("full directory"), betrfs::SnapshotsBelow::Hold).unwrap();
    volume.rmdir(a, b"full directory").unwrap();
    assert_sound(&volume);
}

const ALLOCATE: FallocateMode = FallocateMode::Allocate { keep_size: false };
const KEEP_SIZE: FallocateMode = FallocateMode::Allocate { keep_size: true };

fn available(volume: &Volume) -> u64 {
    volume.statfs().unwrap().available_bytes
}

#[test]
fn many_calls_allocate_no_more_than_is_free() {
    let volume = Disk::of_bytes(64 << 20).open();
    let free = available(&volume);
    let sizes = |node| volume.getattr(node).unwrap().size;
    for mode in [ALLOCATE, KEEP_SIZE, FallocateMode::Zero { keep_size: false }] {
        let file = mkfile(&volume, ROOT, "f").node;
        for len in [free + 1, free * 2, 1 << 60] {
            assert_eq!(volume.fallocate(file, mode, 0, len), Err(Error::NoSpace), "{mode:?} of {len}");
        }
        assert_eq!(sizes(file), 0, "nothing was changed");
        volume.fallocate(file, mode, 0, free / 10 * 6).unwrap();
        // The room is there once. The same range again needs no more room.
        let other = mkfile(&volume, ROOT, "g").node;
        assert_eq!(volume.fallocate(other, mode, 0, free / 10 * 6), Err(Error::NoSpace), "{mode:?}");
        assert!(available(&volume) < free / 10 * 4, "{mode:?}");
        volume.fallocate(file, mode, 0, free / 10 * 6).unwrap();
        volume.fallocate(file, mode, 1000, free / 10 * 6).unwrap();
        volume.fallocate(other, mode, 1 << 30, free / 10 * 3).unwrap();
        // A cut, a punch or a removal returns the room.
        volume.setattr(file, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        volume.fallocate(other, mode, 0, free / 10 * 6).unwrap();
        volume.fallocate(other, FallocateMode::PunchHole, 0, 1 << 40).unwrap();
        volume.fallocate(file, mode, 0, free / 10 * 6).unwrap();
        for name in ["f", "g"] {
            volume.unlink(ROOT, name.as_bytes()).unwrap();
        }
        volume.forget(file, 1);
        volume.forget(other, 1);
        let now = available(&volume);
        assert!(now > free / 100 * 99, "{mode:?}: of {free} bytes {now} are free again");
    }
    assert_sound(&volume);
}

/// All that `df` reports as available can be allocated, and then written (xfstests generic/103).
#[test]
fn what_is_available_can_be_allocated() {
    let volume = Disk::of_bytes(64 << 20).open();
    let file = mkfile(&volume, ROOT, "f").node;
    // Less what the change of the file itself takes.
    let len = available(&volume) - (64 << 10);
    volume.fallocate(file, ALLOCATE, 0, len).unwrap();
    let left = available(&volume);
    assert!(left <= 64 << 10, "{left} bytes are still available");
    let data = noise(7, 1 << 20);
    for at in (0..len).step_by(1 << 20) {
        let part = &data[..data.len().min((len - at) as usize)];
        assert_eq!(volume.write(file, at, part), Ok(part.len()), "at {at} of {len}");
    }
    assert_sound(&volume);
}

#[test]
fn allocated_room_can_be_written_on_a_full_volume() {
    let volume = Disk::of_bytes(64 << 20).open();
    let len = available(&volume) / 2;
    let data = noise(5, len as usize);
    // Large writes in order, small ones in order, and writes in random order.
    let pieces = [1 << 20, 1000, 4096, 12_000];
    let files: Vec<_> = pieces.iter().map(|piece| mkfile(&volume, ROOT, &format!("f{piece}")).node).collect();
    let each = len / pieces.len() as u64;
    for (i, file) in files.iter().enumerate() {
        volume.fallocate(*file, if i % 2 == 0 { ALLOCATE } else { KEEP_SIZE }, 0, each).unwrap();
    }
    fill(&volume);
    for (i, (file, piece)) in files.iter().zip(pieces).enumerate() {
        let mut offsets: Vec<usize> = (0..each as usize).step_by(piece).collect();
        if i == 2 {
            offsets.sort_by_key(|offset| offset.wrapping_mul(seeded::GOLDEN_RATIO as usize) >> 20);
        }
        for at in offsets {
            let bytes = &data[at..(at + piece).min(each as usize)];
            let written = volume.write(*file, at as u64, bytes);
            assert_eq!(written, Ok(bytes.len()), "at {at} of {each} in pieces of {piece}");
        }
        assert!(read_all(&volume, *file) == data[..each as usize], "in pieces of {piece}");
    }
    assert_eq!(volume.create(ROOT, b"one more", &new_file()).err(), Some(Error::NoSpace));
    assert_sound(&volume);
}

#[test]
fn stored_blocks_need_no_room_again() {
    let volume = Disk::of_bytes(64 << 20).open();
    let len = available(&volume) / 10 * 6;
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, &noise(1, len as usize)).unwrap();
    volume.fallocate(file, ALLOCATE, 0, len).unwrap();
    // A hole before the file's end, and another behind it.
    volume.fallocate(file, FallocateMode::PunchHole, 1 << 20, 1 << 20).unwrap();
    let before = available(&volume);
    volume.fallocate(file, ALLOCATE, 0, len + (1 << 20)).unwrap();
    let taken = before - available(&volume);
    assert!((2 << 20..(2 << 20) + (100 << 10)).contains(&taken), "{taken} bytes are set aside");
    assert_sound(&volume);
}
