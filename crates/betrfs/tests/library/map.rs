//! Where the bytes of a file lie.

use betree::{Level, Sharing};
use betrfs::{Error, FileExtent, Volume};

use crate::support::*;

const BLOCK: u64 = 4096;
/// The whole blocks of the file.
const BLOCKS: u64 = 1000;

/// The extents of a file, in order and without overlaps.
fn mapped(volume: &Volume, path: &str, offset: u64, len: u64) -> Vec<FileExtent> {
    let file = volume.resolve(path.as_bytes()).unwrap().node;
    let extents = volume.map(file, offset, len).unwrap();
    assert!(extents.is_sorted_by(|one, next| one.offset + one.len <= next.offset), "{extents:?}");
    extents
}

#[test]
fn a_map_ends_with_the_file_and_what_is_written_in_part_is_in_several_places() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    // It does not compress, and is large enough to be shared.
    let noise = |at: u64| ((at * at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let data: Vec<u8> = (0..BLOCKS * BLOCK + 100).map(noise).collect();
    let file = mkfile(&volume, dir, "file").node;
    for (part, at) in data.chunks(1 << 16).zip((0..).step_by(1 << 16)) {
        volume.write(file, at, part).unwrap();
    }
    volume.env().checkpoint().unwrap();
    volume.clone_inode(dir, ROOT, b"copy").unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    let written = mapped(&volume, "/dir/file", 0, u64::MAX);
    let last = written.last().unwrap();
    assert_eq!((written[0].offset, last.offset + last.len), (0, (BLOCKS + 1) * BLOCK));
    assert!(written.iter().all(|extent| !extent.is_in_memory), "{written:?}");
    let part = mapped(&volume, "/dir/file", 5000, 4000);
    assert_eq!((part[0].offset, part.iter().map(|extent| extent.len).sum()), (BLOCK, 2 * BLOCK));
    assert_eq!(mapped(&volume, "/dir/file", (BLOCKS + 1) * BLOCK, u64::MAX), []);

    // The rest of a block that is written in part stays with the copy's.
    let shared = written.iter().find(|extent| extent.sharing == Sharing::Shared);
    let FileExtent { offset, runs, .. } = shared.unwrap();
    let file = volume.resolve(b"/dir/file").unwrap().node;
    volume.write(file, offset + 10, &[8; 20]).unwrap();
    let block = &mapped(&volume, "/dir/file", *offset, BLOCK)[0];
    assert_eq!((block.level, block.is_in_memory, block.sharing), (Level::Memtable, true, Sharing::Shared));
    assert_eq!(block.runs, *runs);
    // One that is written as a whole is nowhere else.
    volume.write(file, offset + BLOCK, &[8; BLOCK as usize]).unwrap();
    let block = &mapped(&volume, "/dir/file", offset + BLOCK, BLOCK)[0];
    assert_eq!((block.is_in_memory, block.sharing, block.runs.len()), (true, Sharing::Own, 0));

    assert_eq!(volume.map(ROOT, 0, 1).unwrap_err(), Error::IsADirectory);
}
