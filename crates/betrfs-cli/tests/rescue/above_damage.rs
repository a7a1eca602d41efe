//! What was written over a place that cannot be read any more, and has not come down to it.

use std::fs;

use betrfs::{FileType, InodeId, Volume};

use super::{BLOCK_BYTES, Sample, betrfs, new, noise};

const FILE_BYTES: usize = 4 << 20;
/// More than a leaf has.
const REWRITTEN_BYTES: usize = 512 << 10;

fn write(volume: &Volume, file: InodeId, contents: &[u8]) {
    for (index, part) in contents.chunks(64 << 10).enumerate() {
        volume.write(file, (index * (64 << 10)) as u64, part).unwrap();
        // What a sync finds in memory goes to the log only if it is little.
        volume.fsync(file).unwrap();
    }
}

/// A volume with a file whose first part was written again, which the log alone has. One bit of what a block
/// of the file was before is flipped.
fn rewritten_over_a_bad(block: usize) -> (Sample, Vec<u8>) {
    let sample = Sample::new("64M");
    let mut contents = noise(1, FILE_BYTES);
    let volume = sample.open();
    let file = volume.create(InodeId::ROOT, b"file", &new(FileType::Regular, 0o644)).unwrap().node;
    write(&volume, file, &contents);
    volume.close().unwrap();
    drop(volume);

    let wanted = contents[block * BLOCK_BYTES..][..64].to_vec();
    let volume = sample.open();
    let file = volume.lookup(InodeId::ROOT, b"file").unwrap().node;
    contents[..REWRITTEN_BYTES].copy_from_slice(&noise(2, REWRITTEN_BYTES));
    write(&volume, file, &contents[..REWRITTEN_BYTES]);
    volume.env().abandon();
    drop(volume);
    // The log had it too, and perhaps an older version of its node.
    let bytes = sample.bytes();
    let is_there = |at: &usize| bytes[*at..].starts_with(&wanted);
    (0..bytes.len()).filter(is_there).for_each(|at| sample.write(at, &[!bytes[at]]));
    (sample, contents)
}

/// The blocks of the file that are read as they should be.
fn readable(volume: &Volume, contents: &[u8]) -> Vec<bool> {
    let file = volume.lookup(InodeId::ROOT, b"file").unwrap().node;
    let blocks = contents.chunks(BLOCK_BYTES).enumerate();
    let read = |(index, block): (usize, &[u8])| {
        let mut found = Vec::new();
        volume.read(file, (index * BLOCK_BYTES) as u64, BLOCK_BYTES, &mut found).is_ok() && found == block
    };
    blocks.map(read).collect()
}

#[test]
fn it_is_there_for_readers_rescues_and_repairs() {
    let rewritten_blocks = REWRITTEN_BYTES / BLOCK_BYTES;
    for bad in [100, 600] {
        let (sample, contents) = rewritten_over_a_bad(bad);
        let (code, missing, said) = sample.rescue();
        let copied = fs::read(sample.copy().join("file")).unwrap();
        let is_right = |block: usize| {
            let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
            copied[range.clone()] == contents[range]
        };
        let rescued: Vec<bool> = (0..FILE_BYTES / BLOCK_BYTES).map(is_right).collect();
        assert!(rescued[..rewritten_blocks].iter().all(|is_right| *is_right), "block {bad}: {said}");
        let wrong = rescued.iter().filter(|is_right| !**is_right).count();
        assert_eq!(wrong > 0, bad >= rewritten_blocks, "block {bad}: {wrong} are lost");
        assert_eq!(
            (code, missing.len()),
            (Some(if wrong > 0 { 4 } else { 0 }), usize::from(wrong > 0)),
            "{missing:?}"
        );

        let path = sample.path.to_str().unwrap();
        let repaired = betrfs(&["check", "-y", path]);
        let told = String::from_utf8_lossy(&repaired.stdout);
        assert_eq!(repaired.status.code(), Some(1), "{told}");
        assert_eq!(betrfs(&["check", path]).status.code(), Some(0));
        assert_eq!(readable(&sample.open(), &contents), rescued, "block {bad}: {told}");
    }
}
