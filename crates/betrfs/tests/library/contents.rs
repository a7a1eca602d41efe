//! Bytes, sizes and holes.

use crate::support::*;
use betree::{Batch, DictId};
use betree_platform::DeviceOp;
use betree_sim::{EIO, Fault};
use betrfs::{Error, FILE_BYTES_MAX, FallocateMode, InodeId, SeekWhat, SetAttr, Volume};

fn truncate(volume: &Volume, node: InodeId, size: u64) {
    volume.setattr(node, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

/// A file of 100 bytes, cut to 50.
fn cut_file(volume: &Volume, name: &str) -> InodeId {
    let node = mkfile(volume, ROOT, name).node;
    volume.write(node, 0, &[7; 100]).unwrap();
    truncate(volume, node, 50);
    node
}

#[test]
fn bytes_that_were_cut_off_never_come_back() {
    let (disk, volume) = volume();
    let node = cut_file(&volume, "truncate");
    truncate(&volume, node, 100);
    let node = cut_file(&volume, "write");
    volume.write(node, 99, &[0]).unwrap();
    let node = cut_file(&volume, "allocate");
    volume.fallocate(node, FallocateMode::Allocate { keep_size: false }, 0, 100).unwrap();
    let node = cut_file(&volume, "zero");
    volume.fallocate(node, FallocateMode::Zero { keep_size: false }, 60, 40).unwrap();
    let mut expected = [7; 100];
    expected[50..].fill(0);
    let compare = |volume: &Volume| {
        for name in ["truncate", "write", "allocate", "zero"] {
            assert_eq!(contents(volume, &format!("/{name}")), expected, "{name}");
        }
        assert_sound(volume);
    };
    compare(&volume);
    volume.close().unwrap();
    compare(&disk.open());
}

#[test]
fn a_short_block_inside_a_file_reads_as_zeros_to_its_end() {
    let (disk, volume) = volume();
    let node = mkfile(&volume, ROOT, "f").node;
    volume.write(node, 0, &[7; 100]).unwrap();
    volume.write(node, 8192, &[8; 100]).unwrap();
    volume.close().unwrap();
    let volume = disk.open();
    let node = volume.resolve(b"/f").unwrap().node;
    let mut out = Vec::new();
    volume.read(node, 0, 4096, &mut out).unwrap();
    assert_eq!(out.len(), 4096);
    assert!(out[..100] == [7; 100] && out[100..].iter().all(|b| *b == 0));
    volume.read(node, 50, 8192, &mut out).unwrap();
    assert_eq!(out.len(), 8192);
    assert_eq!(volume.getattr(node).unwrap().size, 8292);
    assert_sound(&volume);
}

#[test]
fn a_lost_block_is_an_error_and_a_hole_is_not() {
    let (_disk, volume) = volume();
    let dense = mkfile(&volume, ROOT, "dense").node;
    let sparse = mkfile(&volume, ROOT, "sparse").node;
    volume.write(dense, 0, &[1; 20_000]).unwrap();
    volume.write(sparse, 20_000, &[1; 1]).unwrap();
    let mut batch = Batch::new();
    batch.delete(DictId(1), b"\0\0dense\0\0\0\0\0\0\0\0\x02");
    volume.env().commit(&batch).unwrap();
    let mut out = Vec::new();
    for (offset, len) in [(0, 20_000), (8192, 10), (4096, 8192)] {
        let error = volume.read(dense, offset, len, &mut out).unwrap_err();
        assert_eq!(error.to_string(), "damaged: /dense, block 2: the block is lost");
        volume.read(sparse, offset, len, &mut out).unwrap();
        assert!(out.len() == len && out.iter().all(|b| *b == 0));
    }
    volume.read(dense, 0, 8192, &mut out).unwrap();
    assert_eq!(out, [1; 8192]);
}

#[test]
fn holes_are_found_and_counted() {
    let (_disk, volume) = volume();
    let node = mkfile(&volume, ROOT, "f").node;
    volume.write(node, 0, &[1; 16_384]).unwrap();
    assert_eq!(volume.getattr(node).unwrap().blocks_512, 32);
    assert_eq!(volume.seek(node, 5, SeekWhat::Hole), Ok(16_384));
    volume.fallocate(node, FallocateMode::PunchHole, 4000, 5000).unwrap();
    assert_eq!(volume.seek(node, 0, SeekWhat::Hole), Ok(4096));
    assert_eq!(volume.seek(node, 4096, SeekWhat::Data), Ok(8192));
    assert_eq!(volume.seek(node, 9000, SeekWhat::Hole), Ok(16_384));
    let attr = volume.getattr(node).unwrap();
    assert!(attr.blocks_512 > 0 && attr.blocks_512 < attr.size / 512);
    let mut expected = vec![1; 16_384];
    expected[4000..9000].fill(0);
    assert_eq!(read_all(&volume, node), expected);
    truncate(&volume, node, 1 << 40);
    assert_eq!(volume.seek(node, 16_384, SeekWhat::Data), Err(Error::NoSuchPlace));
    assert_eq!(volume.seek(node, 1 << 40, SeekWhat::Hole), Err(Error::NoSuchPlace));
    assert_sound(&volume);
    volume.unlink(ROOT, b"f").unwrap();
    assert_sound(&volume);
}

/// Others can go on between the steps.
#[test]
fn a_hole_behind_many_blocks_is_looked_for_in_steps() {
    const MIB: u64 = 1 << 20;
    let (_disk, volume) = volume();
    let node = mkfile(&volume, ROOT, "f").node;
    truncate(&volume, node, 18 * MIB);
    let fill = |from: u64, to: u64| {
        (from..to).for_each(|at| {
            volume.write(node, at * MIB, &[1; MIB as usize]).unwrap();
        });
    };
    let seek = |offset, what| {
        let scans = || volume.counters().of(betrfs::OpKind::Fallocate).scans;
        let before = scans();
        (volume.seek(node, offset, what).unwrap(), scans() - before)
    };
    fill(0, 17);
    assert_eq!(seek(0, SeekWhat::Hole), (17 * MIB, 2));
    assert_eq!(seek(5 * MIB + 1, SeekWhat::Hole), (17 * MIB, 1));
    fill(17, 18);
    assert_eq!(seek(0, SeekWhat::Hole), (18 * MIB, 2));
    volume.fallocate(node, FallocateMode::PunchHole, 16 * MIB, MIB).unwrap();
    assert_eq!(seek(0, SeekWhat::Hole), (16 * MIB, 2));
    volume.fallocate(node, FallocateMode::PunchHole, 0, 17 * MIB).unwrap();
    assert_eq!(seek(0, SeekWhat::Data), (17 * MIB, 1));
}

#[test]
fn files_reach_to_two_to_the_62_and_no_further() {
    let (_disk, volume) = volume();
    let node = mkfile(&volume, ROOT, "f").node;
    volume.write(node, FILE_BYTES_MAX - 1, b"x").unwrap();
    assert_eq!(volume.write(node, FILE_BYTES_MAX, b"x"), Err(Error::FileTooLarge));
    assert_eq!(volume.write(node, u64::MAX, b"xx"), Err(Error::FileTooLarge));
    let set = SetAttr { size: Some(FILE_BYTES_MAX + 1), ..SetAttr::default() };
    assert_eq!(volume.setattr(node, &set), Err(Error::FileTooLarge));
    let mut out = Vec::new();
    volume.read(node, FILE_BYTES_MAX - 1, 100, &mut out).unwrap();
    assert_eq!(out, b"x");
    volume.fallocate(node, FallocateMode::PunchHole, 4096, FILE_BYTES_MAX - 4096).unwrap();
    assert_eq!(volume.seek(node, 0, SeekWhat::Data), Err(Error::NoSuchPlace));
    assert_sound(&volume);
}

#[test]
fn a_large_write_is_cut_into_batches_that_the_log_can_hold() {
    let (_disk, volume) = volume();
    let node = mkfile(&volume, ROOT, "f").node;
    let data: Vec<u8> = (0..3_000_001u32).map(|i| (i / 1000) as u8).collect();
    volume.write(node, 777, &data).unwrap();
    let mut out = Vec::new();
    volume.read(node, 777, data.len() + 1, &mut out).unwrap();
    assert!(out == data);
    let copy = mkfile(&volume, ROOT, "g").node;
    assert_eq!(volume.copy_range(node, 1000, copy, 10, 1 << 40), Ok(2_999_778));
    volume.read(copy, 10, 2_999_778, &mut out).unwrap();
    assert!(out == data[223..]);
    assert!(matches!(volume.copy_range(node, 0, node, 100, 200), Err(Error::Invalid(_))));
    assert_sound(&volume);
}

/// Found by a simulated history: a copy behind the end of its own source went on with what it had written.
#[test]
fn a_copy_that_extends_its_source_ends_where_the_source_ended() {
    let (_disk, volume) = volume();
    let node = mkfile(&volume, ROOT, "f").node;
    volume.write(node, 0, &[7; 100]).unwrap();
    assert_eq!(volume.copy_range(node, 40, node, 5000, 1000), Ok(60));
    assert_eq!(volume.getattr(node).unwrap().size, 5060);
    // Whole pieces too.
    let large = mkfile(&volume, ROOT, "g").node;
    volume.write(large, 0, &vec![7; 2 << 20]).unwrap();
    assert_eq!(volume.copy_range(large, 0, large, 2 << 20, 64 << 20), Err(overlap()));
    assert_eq!(volume.copy_range(large, 0, large, 64 << 20, 64 << 20), Ok(2 << 20));
    assert_eq!(volume.copy_range(large, 66 << 20, large, 0, 10), Ok(0));
}

/// Whichever read of the device fails, the result says what was copied.
#[test]
fn a_copy_whose_later_piece_fails_returns_what_it_has_copied() {
    const BYTES: u64 = 1 << 20;
    let disk = Disk::new();
    let volume = disk.open();
    let from = mkfile(&volume, ROOT, "from").node;
    let data: Vec<u8> = (0..BYTES).map(|i| seeded::mix(i) as u8).collect();
    volume.write(from, 0, &data).unwrap();
    volume.close().unwrap();
    let mut partial = 0;
    for at_call in 1.. {
        // Opened anew, so that nothing of the source is in memory.
        let volume = disk.open();
        let from = volume.resolve(b"/from").unwrap().node;
        let to = mkfile(&volume, ROOT, &format!("to{at_call}")).node;
        let fault = Fault { at_call, op: Some(DeviceOp::Read), errno: EIO, lasting: true };
        disk.device.set_fault(Some(fault));
        // At another offset, so that nothing is shared.
        let copied = volume.copy_range(from, 0, to, 1, BYTES);
        disk.device.set_fault(None);
        let size = volume.getattr(to).unwrap().size;
        match copied {
            Ok(BYTES) => break,
            Ok(copied) => {
                assert_eq!(size, copied + 1, "read {at_call}");
                partial += 1;
            }
            Err(_) => assert_eq!(size, 0, "read {at_call}"),
        }
    }
    assert!(partial > 0, "no copy stopped early");
}

fn overlap() -> Error {
    Error::Invalid("the ranges overlap")
}

/// Each block of a file has the whole path in its key.
#[test]
fn a_file_that_lies_deep_is_written_on_a_small_volume() {
    let disk = Disk::of_bytes(16 << 20);
    let volume = disk.open();
    let name = "d".repeat(250);
    let dir = (0..60).fold(ROOT, |dir, _| mkdir(&volume, dir, &name).node);
    let node = mkfile(&volume, dir, "f").node;
    let data: Vec<u8> = (0..200_000u32).map(|i| (i / 100) as u8).collect();
    volume.write(node, 777, &data).unwrap();
    let copy = mkfile(&volume, dir, "g").node;
    assert_eq!(volume.copy_range(node, 1000, copy, 10, 1 << 40), Ok(199_777));
    for (node, at, data) in [(node, 777, &data[..]), (copy, 10, &data[223..])] {
        let mut out = Vec::new();
        volume.read(node, at, data.len() + 1, &mut out).unwrap();
        assert!(out == data);
    }
    assert_sound(&volume);
}

/// Each record is written as a whole, at an offset that no other append gets.
#[test]
fn appends_by_many_threads_keep_all_records() {
    let (_disk, volume) = volume();
    let node = mkfile(&volume, ROOT, "log").node;
    assert_eq!(volume.append(node, b"").unwrap(), (0, 0));
    let append = |record: u8| {
        let (at, written) = volume.append(node, &[record; 100]).unwrap();
        assert_eq!(written, 100);
        at
    };
    let mut places = std::thread::scope(|scope| {
        let spawn = |record| scope.spawn(move || (0..200).map(|_| append(record)).collect::<Vec<u64>>());
        let threads: Vec<_> = (0..4u8).map(spawn).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<u64>>()
    });
    places.sort_unstable();
    assert_eq!(places, (0..800).map(|record| record * 100).collect::<Vec<u64>>());
    let bytes = contents(&volume, "/log");
    let records = bytes.chunks(100).map(|record| record.iter().all(|byte| *byte == record[0]));
    assert_eq!((bytes.len(), records.filter(|whole| *whole).count()), (80_000, 800));
    let mut counts = [0; 4];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    assert_eq!(counts, [20_000; 4]);
}
