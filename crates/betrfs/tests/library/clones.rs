//! Copies of files and directories that share their contents.

use crate::support::*;
use betrfs::{
    Error, FallocateMode, InodeId, OpKind, RenameFlags, SetAttr, SnapshotsBelow, Volume, XattrMode,
};

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };

/// Makes a directory with an entry of each kind; returns it.
fn sample(volume: &Volume) -> InodeId {
    let dir = mkdir(volume, ROOT, "d").node;
    let inner = mkdir(volume, dir, "e").node;
    let file = mkfile(volume, inner, "f").node;
    volume.write(file, 0, &[1; 200_000]).unwrap();
    let small = mkfile(volume, dir, "small").node;
    volume.write(small, 0, b"few bytes").unwrap();
    volume.symlink(dir, b"s", b"small", 1, 2).unwrap();
    volume.set_xattr(dir, b"user.x", &[2; 5000], XattrMode::Any).unwrap();
    volume.set_xattr(file, b"user.y", &[3; 5000], XattrMode::Any).unwrap();
    dir
}

#[test]
fn a_clone_holds_what_its_source_held_and_neither_sees_the_other() {
    let (disk, volume) = volume();
    let dir = sample(&volume);
    let clone = volume.clone_inode(dir, ROOT, b"c").unwrap();
    assert_sound(&volume);
    assert_eq!(clone.attr.perm, 0o755);
    assert_ne!(clone.attr.ino, volume.getattr(dir).unwrap().ino);
    let file = volume.resolve(b"/c/e/f").unwrap().node;
    volume.write(file, 100_000, b"in the clone").unwrap();
    let source = volume.resolve(b"/d/small").unwrap().node;
    volume.write(source, 0, b"in the source").unwrap();
    volume.unlink(clone.node, b"s").unwrap();
    mkfile(&volume, dir, "new");
    volume.close().unwrap();

    let volume = disk.open();
    let mut changed = vec![1; 200_000];
    changed[100_000..100_012].copy_from_slice(b"in the clone");
    assert!(contents(&volume, "/d/e/f") == [1; 200_000]);
    assert!(contents(&volume, "/c/e/f") == changed);
    assert_eq!(contents(&volume, "/d/small"), b"in the source");
    assert_eq!(contents(&volume, "/c/small"), b"few bytes");
    let (dir, clone) = (volume.resolve(b"/d").unwrap(), volume.resolve(b"/c").unwrap());
    assert_eq!(names(&volume, dir.node), ["e", "new", "s", "small"]);
    assert_eq!(names(&volume, clone.node), ["e", "small"]);
    assert_eq!(volume.get_xattr(clone.node, b"user.x").unwrap(), [2; 5000]);
    let file = volume.resolve(b"/c/e/f").unwrap();
    assert_eq!(volume.get_xattr(file.node, b"user.y").unwrap(), [3; 5000]);
    assert_ne!(file.attr.ino, volume.resolve(b"/d/e/f").unwrap().attr.ino);
    assert_sound(&volume);
}

#[test]
fn names_of_one_file_inside_are_names_of_one_copy_and_of_nothing_outside() {
    let (disk, volume) = volume();
    let dir = sample(&volume);
    let small = volume.resolve(b"/d/small").unwrap().node;
    let large = volume.resolve(b"/d/e/f").unwrap().node;
    volume.link(small, dir, b"small2").unwrap();
    volume.link(small, ROOT, b"outside").unwrap();
    volume.link(large, ROOT, b"large outside").unwrap();
    volume.clone_inode(dir, ROOT, b"c").unwrap();
    assert_sound(&volume);
    let copy = volume.resolve(b"/c/small").unwrap();
    assert_eq!(copy.node, volume.resolve(b"/c/small2").unwrap().node);
    assert_eq!((copy.attr.nlink, volume.getattr(small).unwrap().nlink), (2, 3));
    let copy_of_large = volume.resolve(b"/c/e/f").unwrap();
    assert_eq!(copy_of_large.attr.nlink, 1);
    volume.write(copy.node, 0, b"FEW").unwrap();
    volume.write(copy_of_large.node, 0, b"LARGE").unwrap();
    volume.close().unwrap();

    let volume = disk.open();
    assert_eq!(contents(&volume, "/c/small2"), b"FEW bytes");
    assert_eq!(contents(&volume, "/outside"), b"few bytes");
    assert!(contents(&volume, "/large outside") == [1; 200_000]);
    assert_eq!(contents(&volume, "/c/e/f")[..6], *b"LARGE\x01");
    assert_eq!(volume.get_xattr(volume.resolve(b"/c/e/f").unwrap().node, b"user.y").unwrap(), [3; 5000]);
    let c = volume.resolve(b"/c").unwrap().node;
    volume.unlink(c, b"small").unwrap();
    volume.unlink(c, b"small2").unwrap();
    assert_eq!(contents(&volume, "/outside"), b"few bytes");
    assert_sound(&volume);
}

/// Below a copy, inode numbers differ from the stored ids; those of objects do not.
#[test]
fn an_open_file_that_lost_its_name_below_a_copy_keeps_its_number_under_a_new_one() {
    for is_unlinked in [true, false] {
        let (disk, volume) = volume();
        let dir = sample(&volume);
        let copy = volume.clone_inode(dir, ROOT, b"c").unwrap().node;
        let inner = volume.resolve(b"/c/e").unwrap().node;
        let file = volume.lookup(inner, b"f").unwrap();
        volume.open_inode(file.node).unwrap();
        if is_unlinked {
            volume.unlink(inner, b"f").unwrap();
            volume.rename(ROOT, b"c", ROOT, b"moved", PLAIN).unwrap();
        } else {
            volume.remove_below(copy, SnapshotsBelow::Hold).unwrap();
        }
        assert_eq!(volume.link(file.node, ROOT, b"g").unwrap().attr.ino, file.attr.ino);
        assert_sound(&volume);
        volume.close().unwrap();
        let volume = disk.open();
        let again = volume.resolve(b"/g").unwrap();
        assert_eq!(again.attr.ino, file.attr.ino);
        assert_eq!(volume.get_xattr(again.node, b"user.y").unwrap(), [3; 5000]);
        assert!(contents(&volume, "/g") == [1; 200_000]);
    }
}

/// The contents are more than one batch of a small log.
#[test]
fn many_small_files_are_copied_and_kept_on_a_small_volume() {
    let (disk, volume) = volume();
    let bytes = |i: u8| vec![i + 1; 32 << 10];
    let [linked, open] = ["linked", "open"].map(|name| mkdir(&volume, ROOT, name).node);
    for i in 0..20 {
        let file = mkfile(&volume, linked, &format!("f{i}")).node;
        volume.write(file, 0, &bytes(i)).unwrap();
        volume.link(file, linked, format!("l{i}").as_bytes()).unwrap();
    }
    volume.clone_inode(linked, ROOT, b"copy").unwrap();
    assert_sound(&volume);
    let files: Vec<InodeId> = (0..20)
        .map(|i| {
            let file = mkfile(&volume, open, &format!("f{i}")).node;
            volume.write(file, 0, &bytes(i)).unwrap();
            volume.open_inode(file).unwrap();
            file
        })
        .collect();
    volume.remove_below(open, SnapshotsBelow::Hold).unwrap();
    assert!(files.iter().zip(0..).all(|(file, i)| read_all(&volume, *file) == bytes(i)));
    assert_sound(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    for i in 0..20 {
        assert!(contents(&volume, &format!("/copy/f{i}")) == bytes(i));
        assert!(contents(&volume, &format!("/copy/l{i}")) == bytes(i));
    }
    assert_sound(&volume);
}

#[test]
fn a_clone_of_an_open_and_unlinked_file_and_beside_one() {
    let (_disk, volume) = volume();
    let dir = sample(&volume);
    let file = volume.resolve(b"/d/e/f").unwrap().node;
    volume.open_inode(file).unwrap();
    let inner = volume.resolve(b"/d/e").unwrap().node;
    volume.unlink(inner, b"f").unwrap();
    let saved = volume.clone_inode(file, ROOT, b"saved").unwrap();
    assert_eq!(saved.attr.nlink, 1);
    assert_eq!(volume.get_xattr(saved.node, b"user.y").unwrap(), [3; 5000]);
    volume.clone_inode(dir, ROOT, b"c").unwrap();
    assert_sound(&volume);
    assert_eq!(names(&volume, volume.resolve(b"/c/e").unwrap().node), Vec::<String>::new());
    volume.write(file, 0, b"still here").unwrap();
    assert!(contents(&volume, "/saved") == [1; 200_000]);
    assert_eq!(read_all(&volume, file)[..11], *b"still here\x01");
    volume.release_node(file);
    volume.forget(file, 1);
    assert_sound(&volume);
}

#[test]
fn a_clone_below_its_source_holds_the_source_as_it_was() {
    let (_disk, volume) = volume();
    let dir = sample(&volume);
    let inner = volume.resolve(b"/d/e").unwrap().node;
    volume.clone_inode(dir, inner, b"c").unwrap();
    assert_sound(&volume);
    assert_eq!(names(&volume, volume.resolve(b"/d/e/c").unwrap().node), ["e", "s", "small"]);
    assert_eq!(names(&volume, volume.resolve(b"/d/e/c/e").unwrap().node), ["f"]);
    assert!(contents(&volume, "/d/e/c/e/f") == [1; 200_000]);
    // And copies of the whole volume, twice.
    volume.clone_inode(ROOT, dir, b"all").unwrap();
    volume.clone_inode(ROOT, dir, b"again").unwrap();
    assert_sound(&volume);
    assert!(contents(&volume, "/d/again/d/all/d/e/c/e/f") == [1; 200_000]);
}

#[test]
fn the_rules_of_clones() {
    let (_disk, volume) = volume();
    let dir = sample(&volume);
    let file = volume.resolve(b"/d/small").unwrap().node;
    let empty = mkdir(&volume, ROOT, "empty").node;
    let empty_file = mkfile(&volume, ROOT, "empty file").node;
    assert_eq!(volume.clone_inode(dir, ROOT, b"empty"), Err(Error::Exists));
    assert_eq!(volume.clone_inode(dir, file, b"x"), Err(Error::NotADirectory));
    assert_eq!(volume.clone_onto(empty, dir), Err(Error::NotEmpty));
    assert_eq!(volume.clone_onto(empty_file, file), Err(Error::NotEmpty));
    assert!(matches!(volume.clone_onto(dir, empty_file), Err(Error::Invalid(_))));
    assert!(matches!(volume.clone_onto(empty, empty), Err(Error::Invalid(_))));
    let link = volume.resolve(b"/d/s").unwrap().node;
    assert!(matches!(volume.clone_onto(link, empty_file), Err(Error::Invalid(_))));
    let copy = volume.clone_inode(link, ROOT, b"s").unwrap();
    assert_eq!(volume.readlink(copy.node).unwrap(), b"small");
    volume.clone_onto(dir, empty).unwrap();
    volume.clone_onto(file, empty_file).unwrap();
    assert_eq!(contents(&volume, "/empty file"), b"few bytes");
    assert!(contents(&volume, "/empty/e/f") == [1; 200_000]);
    volume.rmdir(ROOT, b"empty").unwrap_err();
    volume.rename(ROOT, b"empty", dir, b"moved", PLAIN).unwrap();
    assert_sound(&volume);
    // If a key would get too long, nothing changes.
    let mut deep = ROOT;
    for _ in 0..254 {
        deep = volume.create(deep, &[b'n'; 255], &new_dir()).unwrap().node;
    }
    assert_eq!(volume.clone_inode(dir, deep, &[b'm'; 250]), Err(Error::NameTooLong));
    assert_eq!(names(&volume, deep), Vec::<String>::new());
    assert_sound(&volume);
}

#[test]
fn a_copy_of_a_range_at_the_same_place_shares_it_and_any_other_is_copied() {
    let (disk, volume) = volume();
    let data: Vec<u8> = (0..3_000_001).map(|i: u32| (i / 4096) as u8 ^ i as u8).collect();
    let from = mkfile(&volume, ROOT, "from").node;
    volume.write(from, 0, &data).unwrap();
    let writes = |volume: &Volume| volume.counters().of(OpKind::Write).commits;
    let copy = |name: &str, from_offset: u64, to_offset: u64, len: u64| {
        let to = mkfile(&volume, ROOT, name).node;
        let before = writes(&volume);
        let copied = volume.copy_range(from, from_offset, to, to_offset, len).unwrap();
        (to, copied, writes(&volume) == before)
    };
    assert!(matches!(copy("whole", 0, 0, u64::MAX >> 3), (_, 3_000_001, true)));
    assert!(matches!(copy("longer", 0, 0, 3_000_001), (_, 3_000_001, true)));
    let (shifted, copied, shared) = copy("shifted", 4096, 8192, 2_000_000);
    assert_eq!((copied, shared), (2_000_000, false));
    // Whole blocks are shared; the caller asks again for the rest.
    let shared_bytes = 2_000_000 / 4096 * 4096;
    let (part, copied, shared) = copy("part", 0, 0, 2_000_000);
    assert_eq!((copied, shared), (shared_bytes, true));
    let rest = 2_000_000 - shared_bytes;
    assert_eq!(volume.copy_range(from, shared_bytes, part, shared_bytes, rest).unwrap(), rest);
    assert!(contents(&volume, "/whole") == data);
    assert!(contents(&volume, "/part") == data[..2_000_000]);
    assert_eq!(volume.getattr(shifted).unwrap().size, 2_008_192);
    assert!(read_all(&volume, shifted)[8192..] == data[4096..2_004_096]);
    // In a longer file, only the requested range is replaced.
    let long = mkfile(&volume, ROOT, "long").node;
    volume.write(long, 0, &[9; 4_000_000]).unwrap();
    assert_eq!(volume.copy_range(from, 0, long, 0, 3_000_001).unwrap(), 3_000_001 / 4096 * 4096);
    let rest = 3_000_001 / 4096 * 4096;
    assert_eq!(volume.copy_range(from, rest, long, rest, 3_000_001 - rest).unwrap(), 3_000_001 - rest);
    let mut expected = data.clone();
    expected.resize(4_000_000, 9);
    assert!(read_all(&volume, long) == expected);
    // A range in the middle of both. Later writes of one do not show in the other.
    let (at, len) = (409_600, 1_228_800);
    volume.write(long, 0, &[7; 4_000_000]).unwrap();
    assert_eq!(volume.copy_range(from, at, long, at, len).unwrap(), len);
    volume.write(from, at + 5000, &[0; 10_000]).unwrap();
    volume.write(long, at + 50_000, &[1; 10_000]).unwrap();
    let mut expected = vec![7; 4_000_000];
    expected[at as usize..(at + len) as usize].copy_from_slice(&data[at as usize..(at + len) as usize]);
    expected[at as usize + 50_000..at as usize + 60_000].fill(1);
    assert!(read_all(&volume, long) == expected);
    // A gap past the end.
    let gap = mkfile(&volume, ROOT, "gap").node;
    assert_eq!(volume.copy_range(from, 1_638_400, gap, 1_638_400, 1_228_800).unwrap(), 1_228_800);
    assert!(read_all(&volume, gap)[..1_638_400].iter().all(|byte| *byte == 0));
    assert!(read_all(&volume, gap)[1_638_400..] == data[1_638_400..2_867_200]);
    volume.setattr(from, &SetAttr { size: Some(10), ..SetAttr::default() }).unwrap();
    assert!(contents(&volume, "/longer") == data);
    assert_sound(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    assert!(contents(&volume, "/whole") == data);
    assert_sound(&volume);
}

#[test]
fn a_clone_takes_the_same_queries_at_any_size() {
    let (_disk, volume) = volume();
    let mut costs = Vec::new();
    for size in [10, 1000, 5000] {
        let dir = mkdir(&volume, ROOT, &format!("d{size}")).node;
        for i in 0..size {
            let file = mkfile(&volume, dir, &format!("f{i}"));
            volume.write(file.node, 0, &[1; 100]).unwrap();
            volume.forget(file.node, 1);
        }
        let before = volume.counters().of(OpKind::Clone);
        volume.clone_inode(dir, ROOT, format!("c{size}").as_bytes()).unwrap();
        let after = volume.counters().of(OpKind::Clone);
        costs.push((
            after.queries - before.queries,
            after.scans - before.scans,
            after.commits - before.commits,
        ));
        let rename = queries(&volume, OpKind::Rename);
        volume
            .rename(ROOT, format!("d{size}").as_bytes(), ROOT, format!("r{size}").as_bytes(), PLAIN)
            .unwrap();
        assert_eq!(queries(&volume, OpKind::Rename) - rename, 3);
    }
    assert_eq!(costs, [(0, 2, 1); 3]);
    assert_sound(&volume);
}

#[test]
fn a_cold_clone_rename_and_removal_read_and_write_the_same_at_any_size() {
    let disk = Disk::of_tiny_nodes(256 << 20);
    let sizes = [10, 1000, 20_000];
    {
        let volume = disk.open();
        for size in sizes {
            let dir = mkdir(&volume, ROOT, &format!("d{size}")).node;
            for i in 0..size {
                let file = mkfile(&volume, dir, &format!("f{i}"));
                volume.write(file.node, 0, &[1; 100]).unwrap();
                volume.forget(file.node, 1);
            }
        }
        volume.close().unwrap();
    }
    // Blocks that a change reads, and that it and the next checkpoint write.
    let cost = |change: &dyn Fn(&Volume)| {
        let volume = disk.open();
        let before = disk.device.counts();
        change(&volume);
        volume.close().unwrap();
        let cost = disk.device.counts().since(&before);
        (cost.reads, cost.writes)
    };
    let node = |volume: &Volume, name: &str| volume.lookup(ROOT, name.as_bytes()).unwrap().node;
    let mut costs = Vec::new();
    for size in sizes {
        let [d, c, r] = ["d", "c", "r"].map(|kind| format!("{kind}{size}"));
        costs.push([
            cost(&|volume| _ = volume.clone_inode(node(volume, &d), ROOT, c.as_bytes()).unwrap()),
            cost(&|volume| volume.rename(ROOT, c.as_bytes(), ROOT, r.as_bytes(), PLAIN).unwrap()),
            cost(&|volume| _ = volume.remove_below(node(volume, &r), SnapshotsBelow::Hold).unwrap()),
        ]);
    }
    // Two or three paths in two dictionaries, of at most eight levels.
    let limit = |(reads, writes): &(u64, u64)| *reads <= 40 && *writes <= 40;
    assert!(costs.iter().flatten().all(limit), "reads and writes by size: {costs:?}");
    assert_sound(&disk.open());
}

#[test]
fn removing_a_tree_takes_the_same_queries_at_any_size() {
    let (_disk, volume) = volume();
    let mut costs = Vec::new();
    for size in [10, 1000, 5000] {
        let dir = mkdir(&volume, ROOT, &format!("d{size}")).node;
        for i in 0..size {
            let file = mkfile(&volume, dir, &format!("f{i}"));
            volume.write(file.node, 0, &[1; 100]).unwrap();
            volume.forget(file.node, 1);
        }
        let before = volume.counters().of(OpKind::RemoveTree);
        volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
        let after = volume.counters().of(OpKind::RemoveTree);
        costs.push((
            after.queries - before.queries,
            after.scans - before.scans,
            after.commits - before.commits,
        ));
        assert_eq!(names(&volume, dir), Vec::<String>::new());
        volume.rmdir(ROOT, format!("d{size}").as_bytes()).unwrap();
    }
    assert_eq!(costs, [(0, 2, 1); 3]);
    assert_sound(&volume);
}

#[test]
fn a_target_below_its_source_is_not_in_the_copy() {
    let (_disk, volume) = volume();
    let dir = sample(&volume);
    for (at, kept) in
        [(dir, &["e", "s", "small"][..]), (volume.resolve(b"/d/e").unwrap().node, &["e", "s", "small"])]
    {
        let target = mkdir(&volume, at, "new").node;
        volume.clone_onto(dir, target).unwrap();
        assert_sound(&volume);
        assert_eq!(names(&volume, target), kept);
        volume.remove_below(target, SnapshotsBelow::Hold).unwrap();
        volume.rmdir(at, b"new").unwrap();
    }
    assert_eq!(names(&volume, volume.resolve(b"/d/e").unwrap().node), ["f"]);
}

/// Found by a simulated history: the copy kept the large attributes of the target that it leaves out.
#[test]
fn a_target_with_large_attributes_leaves_none_of_them_in_the_copy() {
    let (_disk, volume) = volume();
    mkfile(&volume, ROOT, "other");
    let target = mkdir(&volume, ROOT, "target").node;
    volume.set_xattr(target, b"user.large", &[7; 3000], XattrMode::Any).unwrap();
    volume.set_xattr(target, b"user.small", b"7", XattrMode::Any).unwrap();
    volume.clone_onto(ROOT, target).unwrap();
    assert_eq!(volume.list_xattrs(target).unwrap(), Vec::<Vec<u8>>::new());
    assert_sound(&volume);
}

#[test]
fn a_full_volume_refuses_copies_and_allows_removals() {
    let disk = Disk::of_tiny_nodes(48 << 20);
    let volume = disk.open();
    let small = mkfile(&volume, ROOT, "small").node;
    volume.write(small, 0, &[3; 32 << 10]).unwrap();
    let dir = mkdir(&volume, ROOT, "d").node;
    let open = mkfile(&volume, dir, "open").node;
    volume.write(open, 0, &[4; 200_000]).unwrap();
    volume.open_inode(open).unwrap();
    snapshot_of(&volume, dir);
    volume.set_xattr(small, b"user.x", &[5; 9000], XattrMode::Any).unwrap();
    let beside = mkdir(&volume, ROOT, "beside").node;
    let lost = mkfile(&volume, beside, "lost").node;
    volume.write(lost, 0, &[6; 200_000]).unwrap();
    volume.open_inode(lost).unwrap();
    volume.unlink(beside, b"lost").unwrap();
    mkfile(&volume, beside, "file");
    let crowd = mkdir(&volume, ROOT, "crowd").node;
    let open_files: Vec<InodeId> = (0..20)
        .map(|i| {
            let file = mkfile(&volume, crowd, &format!("f{i}")).node;
            volume.write(file, 0, &[i; 20_000]).unwrap();
            volume.open_inode(file).unwrap();
            file
        })
        .collect();
    let targets: Vec<InodeId> = (0..3000).map(|i| mkfile(&volume, ROOT, &format!("t{i}")).node).collect();
    let filler = mkfile(&volume, ROOT, "filler").node;
    let mut noise = crate::dice::Dice(9);
    let mut at = 0;
    while {
        let bytes: Vec<u8> = (0..128 << 10).map(|_| noise.next() as u8).collect();
        volume.write(filler, at, &bytes).is_ok()
    } {
        at += 128 << 10;
    }
    let copied = targets.iter().take_while(|target| volume.clone_onto(small, **target).is_ok()).count();
    assert!(copied < 100, "{copied} copies on a full volume");
    // Before each case the volume is so full that only a change that frees has room.
    let fill = |name: &str| {
        let refused =
            (0..20_000).find_map(|i| volume.create(ROOT, format!("{name}{i}").as_bytes(), &new_file()).err());
        assert_eq!(refused, Some(Error::NoSpace));
        let refused = (0..20_000).find_map(|_| volume.write(filler, 5, b"1").err());
        assert_eq!(refused, Some(Error::NoSpace));
    };
    fill("a");
    volume.remove_below(beside, SnapshotsBelow::Hold).unwrap();
    fill("b");
    volume.remove_below(crowd, SnapshotsBelow::Hold).unwrap();
    fill("c");
    volume.fallocate(filler, FallocateMode::PunchHole, 4096, 8192).unwrap();
    fill("d");
    volume.remove_xattr(small, b"user.x").unwrap();
    fill("e");
    volume.env().checkpoint().unwrap();
    let snapshots = volume.lookup(dir, betrfs::SNAPSHOTS_NAME).unwrap().node;
    volume.rmdir(snapshots, b"s").unwrap();
    volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
    volume.env().checkpoint().unwrap();
    assert!(read_all(&volume, open) == [4; 200_000]);
    assert!(read_all(&volume, lost) == [6; 200_000]);
    assert!(open_files.iter().zip(0..).all(|(file, i)| read_all(&volume, *file) == [i; 20_000]));
    volume.unlink(ROOT, b"filler").unwrap();
    volume.forget(filler, 1);
    volume.release_node(open);
    volume.forget(open, 1);
    assert!(volume.statfs().unwrap().free_bytes > at / 2);
    volume.clone_onto(small, targets[2999]).unwrap();
    assert_sound(&volume);
    volume.close().unwrap();
    assert_sound(&disk.open());
}

fn snapshot_of(volume: &Volume, dir: InodeId) {
    let snapshots = volume.lookup(dir, betrfs::SNAPSHOTS_NAME).unwrap().node;
    mkdir(volume, snapshots, "s");
}
