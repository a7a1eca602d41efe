//! The room that files and directories take.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use betree::{Stats, Usage};
use betrfs::{InodeId, RenameFlags, SnapshotsBelow, Volume};

use crate::support::*;

/// A directory with files, one of which has a name outside, and a copy of a file that shares its blocks.
fn filled(volume: &Volume) -> [InodeId; 3] {
    let dir = mkdir(volume, ROOT, "dir").node;
    for number in 0..20 {
        let file = mkfile(volume, dir, &format!("file{number}")).node;
        volume.write(file, 0, &seeded::bytes(number, 0, 100_000)).unwrap();
    }
    let inside = volume.resolve(b"/dir/file3").unwrap().node;
    volume.link(inside, ROOT, b"outside").unwrap();
    let large = mkfile(volume, ROOT, "large").node;
    volume.write(large, 0, &seeded::bytes(99, 0, 3 << 20)).unwrap();
    volume.clone_inode(large, ROOT, b"copy").unwrap();
    [ROOT, dir, large]
}

fn settle(volume: &Volume) {
    for _ in 0..2 {
        while volume.env().run_due_work().unwrap() {}
        volume.env().checkpoint().unwrap();
    }
}

fn usages(volume: &Volume, nodes: &[InodeId]) -> Vec<Usage> {
    nodes.iter().map(|node| volume.usage(*node).unwrap()).collect()
}

#[test]
fn usage_needs_no_sync_and_no_checkpoint_and_counts_what_is_not_written() {
    let (_disk, volume) = volume();
    let nodes = filled(&volume);
    let counts = |volume: &Volume| {
        let Stats { device_writes, device_syncs, checkpoints, flushes, commits, .. } = volume.env().stats();
        [device_writes, device_syncs, checkpoints, flushes, commits]
    };
    let before = counts(&volume);
    let unwritten = usages(&volume, &nodes);
    assert_eq!(counts(&volume), before);
    settle(&volume);
    let written = usages(&volume, &nodes);
    for (unwritten, written) in unwritten.iter().zip(&written) {
        let unlike = unwritten.stored_bytes.abs_diff(written.stored_bytes);
        assert!(unlike < written.stored_bytes / 10, "{unwritten:?}, written {written:?}");
    }
    let [root, dir, large] = written[..] else { panic!("{written:?}") };
    // All of the volume but for its own record; the file with a name outside is not the directory's alone.
    assert!(root.stored_bytes > 4_900_000 && root.exclusive_bytes + 100_000 > root.stored_bytes, "{root:?}");
    assert!((2_000_000..2_300_000).contains(&dir.stored_bytes), "{dir:?}");
    assert!((1_000_000..dir.stored_bytes - 90_000).contains(&dir.exclusive_bytes), "{dir:?}");
    assert!(large.exclusive_bytes < large.stored_bytes / 2, "{large:?}");
}

#[test]
fn usage_beside_writers_who_move_copy_and_remove_counts_what_stays() {
    let (_disk, volume) = volume();
    let [_, dir, _] = filled(&volume);
    let (here, there) = (mkdir(&volume, dir, "here").node, mkdir(&volume, dir, "there").node);
    let file = mkfile(&volume, here, "moved").node;
    volume.write(file, 0, &seeded::bytes(7, 0, 1 << 20)).unwrap();
    settle(&volume);
    let (is_over, moves) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let (from, to) = if moves.load(Relaxed) % 2 == 0 { (here, there) } else { (there, here) };
                volume.rename(from, b"moved", to, b"moved", RenameFlags::default()).unwrap();
                volume.clone_inode(here, ROOT, b"here").unwrap();
                let copy = volume.resolve(b"/here").unwrap().node;
                volume.remove_below(copy, SnapshotsBelow::Hold).unwrap();
                volume.rmdir(ROOT, b"here").unwrap();
                moves.fetch_add(1, Relaxed);
            }
        });
        let _until = SetOnDrop(&is_over);
        let mut looks = 0;
        // The machine may leave the other thread without a turn for long.
        while looks < 40 || (moves.load(Relaxed) <= 3 && looks < 100_000) {
            looks += 1;
            let now = volume.usage(dir).unwrap();
            assert!(now.stored_bytes > 1_500_000, "{now:?} beside files of 2 MB that nobody touches");
        }
    });
    assert!(moves.load(Relaxed) > 3);
    assert_sound(&volume);
}
