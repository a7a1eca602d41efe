//! The space of sparse files as reported.

use betrfs::{Attr, FallocateMode, InodeId, OpKind, SetAttr, Volume};

use crate::dice::Dice;
use crate::support::*;

const BLOCK: u64 = 4096;

fn attr(volume: &Volume, node: InodeId) -> Attr {
    volume.getattr(node).unwrap()
}

/// In blocks of a file system, rounded up.
fn blocks(volume: &Volume, node: InodeId) -> u64 {
    attr(volume, node).blocks_512.div_ceil(8)
}

fn resize(volume: &Volume, node: InodeId, size: u64) {
    volume.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

fn write(volume: &Volume, node: InodeId, offset: u64, len: usize) {
    volume.write(node, offset, &vec![7; len]).unwrap();
}

/// Queries and scans of all operations so far.
fn all_queries(volume: &Volume) -> u64 {
    OpKind::ALL.iter().map(|kind| queries(volume, *kind)).sum()
}

#[test]
fn every_change_of_a_sparse_file_keeps_the_count_without_a_query() {
    let (disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    let before = all_queries(&volume);
    let is = |blocks_512: u64, by: &str| {
        assert_eq!(attr(&volume, file).blocks_512, blocks_512, "by {by}");
        assert_eq!(all_queries(&volume), before, "{by} asked the tree");
    };
    is(0, "its making");
    resize(&volume, file, 1 << 30);
    is(1, "a truncation to more: one unit says that it is not empty");
    write(&volume, file, 1 << 30, 1);
    is(8, "a byte behind a hole");
    write(&volume, file, 100 * BLOCK, 10 * BLOCK as usize);
    is(88, "a write into a hole");
    write(&volume, file, 105 * BLOCK, 10 * BLOCK as usize);
    is(128, "a write over that and more");
    write(&volume, file, 105 * BLOCK + 1, 10);
    write(&volume, file, 100 * BLOCK, BLOCK as usize);
    is(128, "writes over what is there");
    write(&volume, file, 200 * BLOCK + 4090, 10);
    is(144, "a write over a border");
    let punch = |from: u64, len: u64| volume.fallocate(file, FallocateMode::PunchHole, from, len).unwrap();
    punch(100 * BLOCK, 5 * BLOCK);
    is(104, "a hole");
    punch(100 * BLOCK, 5 * BLOCK);
    punch(105 * BLOCK + 1, BLOCK);
    is(104, "a hole in a hole, and one that takes no whole block");
    resize(&volume, file, 110 * BLOCK + 5);
    is(48, "a truncation");
    resize(&volume, file, 1 << 40);
    is(48, "an extension again");
    resize(&volume, file, 0);
    is(0, "an emptying");
    write(&volume, file, 0, 10_000);
    is(20, "a write from the start: it is not sparse any more");
    punch(0, 4096);
    is(16, "a hole in a file without any");
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(volume.resolve(b"/f").unwrap().attr.blocks_512, 16);
    assert_sound(&volume);
}

/// Blocks with room set aside count before and after they are written, but once.
#[test]
fn allocated_blocks_count_once() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    resize(&volume, file, 1 << 30);
    write(&volume, file, 0, 4 << 20);
    volume.fallocate(file, FallocateMode::Allocate { keep_size: true }, 2 << 20, 4 << 20).unwrap();
    assert_eq!(blocks(&volume, file), 1536);
    write(&volume, file, 3 << 20, 2 << 20);
    assert_eq!(blocks(&volume, file), 1536);
    write(&volume, file, 5 << 20, 1);
    assert_eq!(blocks(&volume, file), 1536, "a block that is written in part");
    volume.fallocate(file, FallocateMode::Zero { keep_size: true }, 0, 1 << 20).unwrap();
    assert_eq!(blocks(&volume, file), 1280);
    volume.fallocate(file, FallocateMode::Allocate { keep_size: false }, 1 << 30, 1 << 20).unwrap();
    assert_eq!((blocks(&volume, file), attr(&volume, file).size), (1536, (1 << 30) + (1 << 20)));
    volume.fallocate(file, FallocateMode::PunchHole, 1 << 30, 1 << 20).unwrap();
    assert_eq!(blocks(&volume, file), 1280);
    assert_eq!(volume.resolve(b"/f").unwrap().attr.blocks_512, 1280 * 8, "a lookup tells the same");
    resize(&volume, file, 4 << 20);
    assert_eq!(blocks(&volume, file), 768);
    assert_sound(&volume);
}

#[test]
fn copies_take_what_they_share() {
    let (_disk, volume) = volume();
    let source = mkfile(&volume, ROOT, "source").node;
    resize(&volume, source, 64 << 20);
    write(&volume, source, 4 << 20, 1 << 20);
    write(&volume, source, 40 << 20, 2 << 20);
    assert_eq!(blocks(&volume, source), 768);
    let clone = volume.clone_inode(source, ROOT, b"clone").unwrap();
    assert_eq!(clone.attr.blocks_512, 768 * 8);
    write(&volume, clone.node, 0, 1);
    assert_eq!((blocks(&volume, source), blocks(&volume, clone.node)), (768, 769));

    let copy = mkfile(&volume, ROOT, "copy").node;
    volume.copy_range(source, 0, copy, 0, 64 << 20).unwrap();
    assert_eq!(blocks(&volume, copy), 768);
    // From a file without holes into one with some, and back.
    let dense = mkfile(&volume, ROOT, "dense").node;
    write(&volume, dense, 0, 8 << 20);
    volume.copy_range(dense, 2 << 20, copy, 2 << 20, 4 << 20).unwrap();
    assert_eq!(blocks(&volume, copy), 768 + 768);
    volume.copy_range(source, 2 << 20, dense, 2 << 20, 4 << 20).unwrap();
    assert_eq!(blocks(&volume, dense), 2048 - 768);
    assert_eq!(attr(&volume, dense).size, 8 << 20);
    // A copy byte by byte writes all bytes, zeros too, behind a hole of a block.
    let shifted = mkfile(&volume, ROOT, "shifted").node;
    volume.copy_range(source, 0, shifted, 4096, 8 << 20).unwrap();
    assert_eq!(blocks(&volume, shifted), 2048);
    assert_sound(&volume);
}

#[test]
fn renames_links_and_clones_of_a_file_keep_its_count() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    resize(&volume, file, 1 << 30);
    write(&volume, file, 12_345_678, 100_000);
    let is = blocks(&volume, file);
    assert_eq!(is, 25);
    volume.rename(dir, b"f", ROOT, b"g", betrfs::RenameFlags::default()).unwrap();
    volume.link(file, dir, b"other").unwrap();
    volume.clone_inode(dir, ROOT, b"e").unwrap();
    let told = |path: &[u8]| volume.resolve(path).unwrap().attr.blocks_512.div_ceil(8);
    assert_eq!([told(b"/g"), told(b"/d/other"), told(b"/e/other")], [is; 3]);
    volume.open_inode(file).unwrap();
    volume.unlink(ROOT, b"g").unwrap();
    volume.unlink(dir, b"other").unwrap();
    write(&volume, file, 0, 1);
    assert_eq!(blocks(&volume, file), is + 1);
    volume.release_node(file);
    volume.close().unwrap();
    let volume = disk.open();
    assert_eq!(volume.resolve(b"/e/other").unwrap().attr.blocks_512.div_ceil(8), is);
    assert_sound(&volume);
}

/// As many holes as in a disk image: they do not fit into the record, and reopening the volume forgets the
/// places of the smallest.
#[test]
fn very_many_holes_are_counted_closely_without_a_query() {
    const BLOCKS: u64 = 50_000;
    let disk = Disk::of_bytes(256 << 20);
    let (mut there, mut dice) = (std::collections::BTreeSet::new(), Dice(5));
    let mut volume = disk.open();
    let file = mkfile(&volume, ROOT, "f").node;
    resize(&volume, file, BLOCKS * BLOCK);
    volume.close().unwrap();
    for round in 1..=4u64 {
        volume = disk.open();
        let file = volume.resolve(b"/f").unwrap().node;
        let before = all_queries(&volume);
        while there.len() as u64 <= 2000 * round {
            let block = dice.next() % BLOCKS;
            volume.write(file, block * BLOCK, &[1; 100]).unwrap();
            there.insert(block);
        }
        assert_eq!(all_queries(&volume), before);
        let (told, there) = (blocks(&volume, file), there.len() as u64);
        assert!(
            told.abs_diff(there) <= there / 10,
            "round {round}: {told} blocks are told, {there} are there"
        );
        assert_sound(&volume);
        volume.close().unwrap();
    }
}
