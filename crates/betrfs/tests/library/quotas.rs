//! Quotas of directories: what counts, what is refused, and what it costs.

use std::collections::BTreeMap;

use betree::{Batch, DictId};
use betree_platform::DeviceOp;
use betree_sim::{EIO, Fault};
use betrfs::{
    Error, FallocateMode, FileType, InodeId, NewNode, Objects, OpKind, Quota, QuotaLimits, QuotaUse,
    RenameFlags, Result, SNAPSHOTS_NAME, SetAttr, SnapshotsBelow, Volume,
};

use crate::support::*;

const META: DictId = DictId(0);
const DATA: DictId = DictId(1);
pub const ANY: QuotaLimits = QuotaLimits { bytes: None, objects: None };

pub fn limits(bytes: u64, objects: u64) -> QuotaLimits {
    QuotaLimits { bytes: Some(bytes), objects: Some(objects) }
}

pub fn used(volume: &Volume, dir: InodeId) -> QuotaUse {
    let quota = volume.quota(dir).unwrap().unwrap();
    assert_eq!(quota.levels_up, 0);
    quota.used
}

fn use_of(bytes: u64, objects: u64) -> QuotaUse {
    QuotaUse { bytes, objects }
}

/// What is below a directory, counted one by one.
pub fn counted(volume: &Volume, dir: InodeId) -> QuotaUse {
    let mut objects = BTreeMap::new();
    let mut dirs = vec![dir];
    while let Some(dir) = dirs.pop() {
        for name in names(volume, dir) {
            let entry = volume.lookup(dir, name.as_bytes()).unwrap();
            volume.forget(entry.node, 1);
            if entry.attr.file_type == FileType::Directory {
                dirs.push(entry.node);
            }
            let is_file = entry.attr.file_type == FileType::Regular;
            objects.insert(entry.attr.ino, if is_file { entry.attr.blocks_512 * 512 } else { 0 });
        }
    }
    use_of(objects.values().sum(), objects.len() as u64)
}

pub fn snapshots_of(volume: &Volume, dir: InodeId) -> InodeId {
    volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node
}

pub fn rename(volume: &Volume, from: InodeId, name: &[u8], to: InodeId, new: &[u8]) -> Result<()> {
    volume.rename(from, name, to, new, RenameFlags::default())
}

pub fn write_all(volume: &Volume, node: InodeId, offset: u64, bytes: usize) -> Result<usize> {
    volume.write(node, offset, &vec![7; bytes])
}

#[test]
fn each_change_that_would_grow_over_a_limit_is_refused_and_changes_nothing() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    let outside = volume.create_with(ROOT, b"outside", &new_file(), &[1; 9000]).unwrap().node;
    write_all(&volume, file, 0, 8192).unwrap();
    let tree = mkdir(&volume, ROOT, "tree").node;
    mkfile(&volume, tree, "one");
    // Two units of bytes and one object are left.
    volume.set_quota(dir, limits(8192 + 1024, 2)).unwrap();
    assert_eq!(used(&volume, dir), use_of(8192, 1));

    let refused = Err(Error::QuotaExceeded);
    let before = volume.getattr(file).unwrap();
    assert_eq!(write_all(&volume, file, 8192, 1025).map(drop), refused);
    assert_eq!(write_all(&volume, file, 1 << 30, 4096).map(drop), refused);
    assert_eq!(volume.append(file, &[7; 2000]).map(drop), refused);
    assert_eq!(volume.create_with(dir, b"g", &new_file(), &[1; 1025]).map(drop), refused);
    assert_eq!(volume.copy_range(outside, 0, file, 8192, 2000).map(drop), refused);
    assert_eq!(volume.clone_inode(outside, dir, b"copy").map(drop), refused);
    let allocate = FallocateMode::Allocate { keep_size: false };
    assert_eq!(volume.fallocate(file, allocate, 8192, 2048), refused);
    assert_eq!(volume.clone_inode(tree, dir, b"copy").map(drop), refused, "two objects");
    assert_eq!((volume.getattr(file).unwrap(), names(&volume, dir)), (before, vec!["f".into()]));
    assert_eq!(used(&volume, dir), use_of(8192, 1));

    // Overwriting, shrinking and what fits is not refused.
    write_all(&volume, file, 0, 8192).unwrap();
    write_all(&volume, file, 8192, 1024).unwrap();
    assert_eq!(used(&volume, dir), use_of(8192 + 1024, 1));
    mkdir(&volume, dir, "last");
    for make in [
        &|| volume.create(dir, b"x", &new_file()).map(drop),
        &|| volume.create(dir, b"x", &new_dir()).map(drop),
        &|| volume.create(dir, b"x", &NewNode { file_type: FileType::Fifo, ..new_file() }).map(drop),
        &|| volume.symlink(dir, b"x", b"to", 0, 0).map(drop),
        &|| volume.create_unnamed(dir, &new_file()).map(drop),
        &|| volume.clone_inode(tree, dir, b"x").map(drop),
    ] as [&dyn Fn() -> Result<()>; 6]
    {
        assert_eq!(make(), refused);
    }
    let whiteout = RenameFlags { whiteout: true, ..RenameFlags::default() };
    assert_eq!(volume.rename(dir, b"f", dir, b"moved", whiteout), refused);
    assert_eq!(names(&volume, dir), ["f", "last"]);
    // A link is no object more, and a limit below the use refuses growth alone.
    volume.link(file, dir, b"link").unwrap();
    volume.set_quota(dir, limits(10, 0)).unwrap();
    write_all(&volume, file, 0, 100).unwrap();
    assert_eq!(write_all(&volume, file, 1 << 20, 1).map(drop), refused);
    volume.setattr(file, &SetAttr { size: Some(100), ..SetAttr::default() }).unwrap();
    rename(&volume, dir, b"link", dir, b"other").unwrap();
    volume.unlink(dir, b"f").unwrap();
    assert_eq!(used(&volume, dir), use_of(512, 2));
    volume.unlink(dir, b"other").unwrap();
    volume.rmdir(dir, b"last").unwrap();
    assert_eq!(used(&volume, dir), use_of(0, 0));
    assert_sound(&volume);
}

#[test]
fn nested_quotas_count_all_the_way_up_and_the_room_is_that_of_the_nearest() {
    let (disk, volume) = volume();
    let outer = mkdir(&volume, ROOT, "outer").node;
    let inner = mkdir(&volume, outer, "inner").node;
    let deep = mkdir(&volume, inner, "deep").node;
    volume.set_quota(outer, limits(1 << 20, 100)).unwrap();
    volume.set_quota(inner, QuotaLimits { bytes: Some(64 << 10), objects: None }).unwrap();
    let file = volume.create_with(deep, b"f", &new_file(), &[1; 40_000]).unwrap().node;
    assert_eq!((used(&volume, outer), used(&volume, inner)), (use_of(40_448, 3), use_of(40_448, 2)));
    let Quota { used: of_deep, levels_up, .. } = volume.quota(deep).unwrap().unwrap();
    assert_eq!((of_deep, levels_up), (use_of(40_448, 2), 1));
    assert_eq!(volume.quota(ROOT).unwrap(), None);
    let room = volume.statfs_at(deep).unwrap();
    let left = (64 << 10) - 40_448;
    assert_eq!((room.total_bytes, room.available_bytes), (64 << 10, left));
    assert_eq!(volume.statfs_at(file).unwrap(), room);
    let of_outer = volume.statfs_at(outer).unwrap();
    assert_eq!((of_outer.total_bytes, of_outer.files, of_outer.files_free), (1 << 20, 100, 97));
    assert_eq!(volume.statfs_at(ROOT).unwrap(), volume.statfs().unwrap());

    // The outer one refuses what the inner one would allow.
    volume.set_quota(outer, limits(45_056, 100)).unwrap();
    assert_eq!(write_all(&volume, file, 40_448, 5000).map(drop), Err(Error::QuotaExceeded));
    assert_eq!(used(&volume, inner), use_of(40_448, 2), "what the inner one had added was taken back");
    volume.clear_quota(inner).unwrap();
    assert_eq!(volume.clear_quota(inner), Err(Error::NoData));
    assert_eq!(volume.quota(inner).unwrap().unwrap().levels_up, 1);
    volume.close().unwrap();
    let volume = disk.open();
    let outer = volume.resolve(b"/outer").unwrap().node;
    assert_eq!(used(&volume, outer), use_of(40_448, 3));
    let all = volume.quotas_below(ROOT, None, 10).unwrap();
    assert_eq!(all.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(), [b"outer"]);
    assert_sound(&volume);
}

#[test]
fn nothing_moves_between_quotas_and_no_file_has_names_in_two() {
    let (_disk, volume) = volume();
    let [a, b] = ["a", "b"].map(|name| mkdir(&volume, ROOT, name).node);
    let file = mkfile(&volume, a, "f").node;
    mkdir(&volume, a, "sub");
    volume.link(file, ROOT, b"out").unwrap();
    let Err(Error::LinkedOutside { name }) = volume.set_quota(a, ANY) else {
        panic!("it has a name outside")
    };
    assert_eq!(name, "/a/f");
    assert_eq!(volume.quota(a).unwrap(), None);
    volume.unlink(ROOT, b"out").unwrap();
    volume.set_quota(a, ANY).unwrap();
    let other = Err(Error::OtherQuota);
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    let [of_a, single] = [(a, "h"), (b, "g")].map(|(dir, name)| mkfile(&volume, dir, name).node);
    for is_quota in [false, true] {
        if is_quota {
            volume.set_quota(b, ANY).unwrap();
        }
        assert_eq!(rename(&volume, a, b"f", b, b"f"), other);
        assert_eq!(rename(&volume, a, b"sub", b, b"sub"), other);
        assert_eq!(rename(&volume, b, b"g", a, b"f"), other);
        assert_eq!(volume.rename(a, b"f", b, b"g", exchange), other);
        assert_eq!(volume.link(file, b, b"f").map(drop), other);
        assert_eq!(volume.link(single, a, b"g").map(drop), other);
        assert_eq!(volume.link(of_a, b, b"h").map(drop), other);
    }
    // Within one, and of a directory with a quota itself.
    rename(&volume, a, b"f", volume.lookup(a, b"sub").unwrap().node, b"f").unwrap();
    mkdir(&volume, ROOT, "c");
    rename(&volume, ROOT, b"a", volume.lookup(ROOT, b"c").unwrap().node, b"a").unwrap();
    assert_eq!(used(&volume, a), use_of(0, 3));
    write_all(&volume, file, 0, 1000).unwrap();
    assert_eq!(used(&volume, a), use_of(1024, 3));
    volume.rename(ROOT, b"b", ROOT, b"c", exchange).unwrap();
    assert_eq!((used(&volume, a), used(&volume, b)), (use_of(1024, 3), use_of(0, 1)));
    assert_sound(&volume);
}

#[test]
fn a_file_with_several_names_counts_for_the_quota_that_is_left_and_for_one_that_comes() {
    let (_disk, volume) = volume();
    let outer = mkdir(&volume, ROOT, "outer").node;
    let inner = mkdir(&volume, outer, "inner").node;
    let file = mkfile(&volume, inner, "f").node;
    volume.link(file, inner, b"g").unwrap();
    // It is in memory when its quotas come, the nearer one first.
    volume.set_quota(inner, ANY).unwrap();
    volume.set_quota(outer, ANY).unwrap();
    write_all(&volume, file, 0, 5000).unwrap();
    assert_eq!((used(&volume, outer), used(&volume, inner)), (use_of(5120, 2), use_of(5120, 1)));
    volume.clear_quota(inner).unwrap();
    for name in [b"f", b"g"] {
        rename(&volume, inner, name, outer, name).unwrap();
    }
    volume.rmdir(outer, b"inner").unwrap();
    write_all(&volume, file, 5120, 5120).unwrap();
    assert_eq!(used(&volume, outer), use_of(10_240, 1));
    assert_sound(&volume);
}

/// Each way in which a file gets an object id in a quota. A name is taken as long as the blocks of an
/// unlinked file lie there.
#[test]
fn files_at_taken_names_and_named_late_count_as_they_grow() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.set_quota(dir, ANY).unwrap();
    let source = mkfile(&volume, dir, "source").node;
    let unnamed = volume.create_unnamed(dir, &new_file()).unwrap().node;
    let ways = [
        &|name| volume.create(dir, name, &new_file()).map(|_| ()),
        &|name| volume.clone_inode(source, dir, name).map(|_| ()),
        &|name| rename(&volume, dir, b"source", dir, name),
        &|name| volume.link(unnamed, dir, &[name, b" late"].concat()).map(|_| ()),
    ] as [&dyn Fn(&[u8]) -> Result<()>; 4];
    for (number, way) in ways.into_iter().enumerate() {
        let name = format!("file{number}");
        let unlinked = mkfile(&volume, dir, &name).node;
        volume.open_inode(unlinked).unwrap();
        volume.unlink(dir, name.as_bytes()).unwrap();
        way(name.as_bytes()).unwrap();
        for name in names(&volume, dir) {
            let file = volume.lookup(dir, name.as_bytes()).unwrap();
            write_all(&volume, file.node, file.attr.size, 5000).unwrap();
        }
        assert_eq!(used(&volume, dir), counted(&volume, dir), "{name}");
        volume.release_node(unlinked);
    }
    assert_sound(&volume);
}

#[test]
fn copies_count_in_full_and_copies_of_quotas_are_quotas() {
    let (disk, volume) = volume();
    let home = mkdir(&volume, ROOT, "home").node;
    let tree = mkdir(&volume, ROOT, "tree").node;
    let file = volume.create_with(tree, b"f", &new_file(), &[1; 5000]).unwrap().node;
    volume.link(file, tree, b"g").unwrap();
    volume.link(file, ROOT, b"outside").unwrap();
    let nested = mkdir(&volume, tree, "nested").node;
    volume.create_with(nested, b"f", &new_file(), &[1; 5000]).unwrap();
    volume.set_quota(nested, limits(10_000, 5)).unwrap();
    volume.set_quota(home, ANY).unwrap();
    volume.clone_inode(tree, home, b"copy").unwrap();
    assert_eq!(used(&volume, home), use_of(2 * 5120, 4));
    assert_eq!(used(&volume, home), counted(&volume, home));
    let copied = volume.resolve(b"/home/copy/nested").unwrap().node;
    assert_eq!(volume.quota(copied).unwrap().unwrap().limits, limits(10_000, 5));
    assert_eq!(
        write_all(&volume, volume.resolve(b"/home/copy/nested/f").unwrap().node, 5120, 5000).map(drop),
        Err(Error::QuotaExceeded)
    );

    // A copy of a quota within itself leaves itself out.
    let inside = mkdir(&volume, nested, "inside").node;
    volume.clone_onto(tree, inside).unwrap_err();
    volume.set_quota(nested, ANY).unwrap();
    volume.clone_onto(tree, inside).unwrap();
    assert_eq!(used(&volume, nested), counted(&volume, nested));
    let again = volume.resolve(b"/tree/nested/inside/nested").unwrap().node;
    assert_eq!(used(&volume, again), use_of(5120, 1));
    assert_eq!(used(&volume, again), counted(&volume, again));

    // Snapshots do not count, and a directory goes back to one in its own limits.
    mkdir(&volume, snapshots_of(&volume, home), "s");
    assert_eq!(used(&volume, home), use_of(2 * 5120, 4));
    volume.remove_below(volume.resolve(b"/home/copy").unwrap().node, SnapshotsBelow::Hold).unwrap();
    assert_eq!(used(&volume, home), use_of(0, 1));
    volume.set_quota(home, limits(1 << 20, 3)).unwrap();
    assert_eq!(volume.restore_snapshot(home, b"s", b"t").map(drop), Err(Error::QuotaExceeded));
    volume.set_quota(home, limits(1 << 20, 4)).unwrap();
    volume.restore_snapshot(home, b"s", b"t").unwrap();
    assert_eq!(used(&volume, home), use_of(2 * 5120, 4));
    assert_eq!(used(&volume, home), counted(&volume, home));
    assert_eq!(volume.quota(home).unwrap().unwrap().limits, limits(1 << 20, 4));
    // A clone of a snapshot of a quota.
    let taken = volume.resolve(b"/home/.betrfs-snapshots/s").unwrap().node;
    let clone = volume.clone_inode(taken, ROOT, b"clone").unwrap().node;
    assert_eq!(used(&volume, clone), use_of(2 * 5120, 4));
    assert_eq!(used(&volume, clone), counted(&volume, clone));
    assert_eq!(volume.clone_onto(tree, home), Err(Error::NotEmpty));
    assert_sound(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    let clone = volume.resolve(b"/clone").unwrap().node;
    volume.remove_below(clone, SnapshotsBelow::Hold).unwrap();
    assert_eq!(used(&volume, clone), use_of(0, 0));
    volume.rmdir(ROOT, b"clone").unwrap();
    assert_sound(&volume);
}

#[test]
fn files_without_a_name_hold_their_room_until_they_are_gone() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.set_quota(dir, limits(8192, 2)).unwrap();
    let file = volume.create_with(dir, b"f", &new_file(), &[1; 4096]).unwrap().node;
    volume.open_inode(file).unwrap();
    volume.unlink(dir, b"f").unwrap();
    assert_eq!(used(&volume, dir), use_of(0, 0), "after a crash it is gone");
    let refused = Err(Error::QuotaExceeded);
    assert_eq!(write_all(&volume, file, 4096, 8192).map(drop), refused);
    write_all(&volume, file, 4096, 2048).unwrap();
    assert_eq!(volume.create_with(dir, b"g", &new_file(), &[1; 4096]).map(drop), refused);
    // Its blocks move away with the directory.
    rename(&volume, ROOT, b"d", ROOT, b"e").unwrap();
    assert_eq!(volume.create_with(dir, b"g", &new_file(), &[1; 4096]).map(drop), refused);
    volume.release_node(file);
    volume.forget(file, 1);
    let other = volume.create_unnamed(dir, &new_file()).unwrap().node;
    volume.open_inode(other).unwrap();
    write_all(&volume, other, 0, 8192).unwrap();
    assert_eq!(volume.create_with(dir, b"g", &new_file(), b"x").map(drop), refused);
    volume.link(other, dir, b"named").unwrap();
    assert_eq!(used(&volume, dir), use_of(8192, 1), "what it held is what it takes");
    volume.release_node(other);
    volume.unlink(dir, b"named").unwrap();
    volume.create_with(dir, b"g", &new_file(), &[1; 8192]).unwrap();
    // Open in a tree that is removed.
    let held = volume.resolve(b"/e/g").unwrap().node;
    volume.open_inode(held).unwrap();
    volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
    assert_eq!(volume.create_with(dir, b"h", &new_file(), b"x").map(drop), refused);
    volume.env().sync().unwrap();
    let volume = disk.open();
    let dir = volume.resolve(b"/e").unwrap().node;
    volume.create_with(dir, b"h", &new_file(), &[1; 8192]).unwrap();
    assert_eq!(used(&volume, dir), use_of(8192, 1));
    assert_sound(&volume);
}

#[test]
fn what_a_file_without_a_name_holds_stays_held_when_its_directory_is_forgotten() {
    for was_named in [true, false] {
        let mut disk = Disk::new();
        disk.options.inodes_max = 4;
        let volume = disk.open();
        let dir = mkdir(&volume, ROOT, "d").node;
        volume.set_quota(dir, limits(8192, 9)).unwrap();
        let file = match was_named {
            true => mkfile(&volume, dir, "f").node,
            false => volume.create_unnamed(dir, &new_file()).unwrap().node,
        };
        volume.open_inode(file).unwrap();
        write_all(&volume, file, 0, 8192).unwrap();
        if was_named {
            volume.unlink(dir, b"f").unwrap();
        }
        volume.forget(dir, 1);
        for i in 0..50 {
            let other = mkfile(&volume, ROOT, &format!("other{i}")).node;
            volume.forget(other, 1);
        }
        let dir = volume.resolve(b"/d").unwrap().node;
        assert_eq!(volume.create_with(dir, b"g", &new_file(), b"x").map(drop), Err(Error::QuotaExceeded));
        volume.release_node(file);
        volume.forget(file, 1);
        volume.create_with(dir, b"g", &new_file(), b"x").unwrap();
    }
}

#[test]
fn what_an_outer_quota_refuses_a_file_without_a_name_the_inner_one_does_not_hold() {
    let (_disk, volume) = volume();
    let outer = mkdir(&volume, ROOT, "outer").node;
    let inner = mkdir(&volume, outer, "inner").node;
    volume.set_quota(inner, limits(8192, 9)).unwrap();
    volume.set_quota(outer, limits(4096, 9)).unwrap();
    let file = volume.create_unnamed(inner, &new_file()).unwrap().node;
    let refused = Err(Error::QuotaExceeded);
    assert_eq!(write_all(&volume, file, 0, 8192).map(drop), refused);
    volume.set_quota(outer, ANY).unwrap();
    write_all(&volume, file, 0, 8192).unwrap();
    assert_eq!(write_all(&volume, file, 8192, 1).map(drop), refused);
}

#[test]
fn a_change_below_a_quota_asks_the_tree_once_for_its_use_and_a_read_never() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let below = mkdir(&volume, dir, "below").node;
    volume.create_with(below, b"f", &new_file(), &[1; 5000]).unwrap();
    volume.set_quota(dir, ANY).unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    let file = volume.resolve(b"/d/below/f").unwrap().node;
    let all = |kind| queries(&volume, kind);
    let mut bytes = Vec::new();
    volume.read(file, 0, 100, &mut bytes).unwrap();
    let (reads, writes) = (all(OpKind::Read), all(OpKind::Write));
    volume.read(file, 0, 5000, &mut bytes).unwrap();
    write_all(&volume, file, 0, 100).unwrap();
    assert_eq!(all(OpKind::Write), writes, "it does not grow");
    for round in 0..50u64 {
        write_all(&volume, file, 5000 + round * 4096, 4096).unwrap();
    }
    assert_eq!(all(OpKind::Write), writes + 1, "the use is read once");
    let creates = all(OpKind::Create);
    let dir = volume.resolve(b"/d").unwrap().node;
    for i in 0..50 {
        mkfile(&volume, dir, &format!("new{i}"));
    }
    assert!(all(OpKind::Create) <= creates + 3, "as without a quota");
    assert_eq!(all(OpKind::Quota), 0);
    let scans = volume.counters().of(OpKind::Quota).scans;
    volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
    assert_eq!(volume.counters().of(OpKind::Quota).scans, scans, "of a quota as a whole nothing is measured");
    assert_eq!(all(OpKind::Read), reads + 1, "of the block");
}

#[test]
fn a_volume_with_quotas_says_so_and_a_quota_cannot_be_in_a_snapshot() {
    let (_disk, volume) = volume();
    let features = || volume.env().get(META, &[5, 1]).unwrap().unwrap()[8];
    let dir = mkdir(&volume, ROOT, "d").node;
    assert_eq!(features(), 0);
    volume.set_quota(dir, ANY).unwrap();
    assert_eq!(features(), 1);
    let snapshot = mkdir(&volume, snapshots_of(&volume, dir), "s").node;
    assert_eq!(volume.set_quota(snapshot, ANY), Err(Error::InSnapshot));
    assert_eq!(volume.clear_quota(snapshot), Err(Error::InSnapshot));
    assert_eq!(volume.set_quota(mkfile(&volume, ROOT, "f").node, ANY), Err(Error::NotADirectory));
    // The root may have one.
    volume.set_quota(ROOT, limits(1 << 20, 2)).unwrap();
    assert_eq!(volume.create(dir, b"x", &new_file()).map(drop), Err(Error::QuotaExceeded));
    assert_eq!(volume.statfs_at(dir).unwrap().total_bytes, volume.statfs().unwrap().total_bytes);
    assert_eq!(volume.statfs_at(ROOT).unwrap().total_bytes, 1 << 20);
    assert_sound(&volume);
}

#[test]
fn a_file_found_by_its_number_counts_for_its_quota() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.set_quota(dir, ANY).unwrap();
    let file = mkfile(&volume, dir, "f").node;
    volume.link(file, dir, b"g").unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    let found = volume.find_inode(file).unwrap().node;
    write_all(&volume, found, 0, 5000).unwrap();
    let dir = volume.resolve(b"/d").unwrap().node;
    assert_eq!(used(&volume, dir), use_of(5120, 1));
    assert_sound(&volume);
}

#[test]
fn a_check_finds_a_wrong_use_in_one_that_is_in_use_too() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.create_with(dir, b"f", &new_file(), &[1; 5000]).unwrap();
    volume.set_quota(dir, ANY).unwrap();
    let wrong = b"\0\0d\0\xfe";
    for value in [Some([9u8; 16]), None] {
        let mut batch = Batch::new();
        match value {
            Some(value) => batch.put(DATA, wrong, &value),
            None => batch.delete(DATA, wrong),
        }
        volume.env().commit(&batch).unwrap();
        let codes = |report: betrfs::Report| report.problems.iter().map(|p| p.code).collect::<Vec<_>>();
        assert_eq!(codes(volume.check(&mut |_, _| ()).unwrap()), ["wrong-quota-use"]);
        let in_use = volume.check_in_use(&mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!(codes(in_use), ["wrong-quota-use"]);
    }
    let mut listed = 0;
    volume
        .readdir(dir, 0, Objects::None, &mut |_| {
            listed += 1;
            true
        })
        .unwrap();
    assert!(listed > 0);
}

/// A read that fails is no reason to count less, whichever it is.
#[test]
fn what_is_there_is_counted_whole_or_not_at_all_where_reads_fail() {
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    disk.options.cache_bytes = 256 << 10;
    let volume = disk.open();
    let (dir, beside) = (mkdir(&volume, ROOT, "dir").node, mkdir(&volume, ROOT, "beside").node);
    for i in 0..200 {
        let name = format!("{i}");
        let file = mkfile(&volume, dir, &name).node;
        volume.write(file, 0, &[7; 300]).unwrap();
        if i % 10 == 0 {
            volume.link(file, dir, format!("{i} too").as_bytes()).unwrap();
        }
        volume.set_xattr(file, b"user.large", &[5; 200], betrfs::XattrMode::Any).unwrap();
        mkfile(&volume, beside, &name);
    }
    let right = counted(&volume, dir);
    volume.close().unwrap();
    let mut refused = 0;
    for at_call in 1.. {
        let volume = disk.open();
        let dir = volume.resolve(b"/dir").unwrap().node;
        let reads = disk.device.counts();
        let read = Fault { at_call, op: Some(DeviceOp::Read), errno: EIO, lasting: true };
        disk.device.set_fault(Some(read));
        let set = volume.set_quota(dir, ANY);
        disk.device.set_fault(None);
        if disk.device.counts().failed == reads.failed {
            assert_eq!((set, used(&volume, dir)), (Ok(()), right));
            break;
        }
        match set {
            Ok(()) => assert_eq!(used(&volume, dir), right, "read {at_call}"),
            Err(error) => {
                assert!(matches!(error, Error::Engine(betree::Error::Device(_))), "{error}");
                assert_eq!(volume.quota(dir).unwrap(), None);
                refused += 1;
            }
        }
        // Nothing is kept for the next round.
        volume.env().abandon();
    }
    assert!(refused > 5, "{refused} reads");
}
