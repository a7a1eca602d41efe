//! Data that is written anew as its properties want it now: what it takes, what it costs, and that nothing
//! else changes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use betrfs::{
    Attr, DataCompression, Error, FlagSetter, InodeFlags, InodeId, OpKind, PropertyChange, Recompress,
    Recompressed, RenameFlags, SNAPSHOTS_NAME, SetAttr, SetProperties, Volume,
};

use crate::properties::{FILES, assert_filled, compression, disk_with_zstd, fill, node, stored, text, zstd};
use crate::support::*;

const NONE: DataCompression = DataCompression::None;
const LZ4: DataCompression = DataCompression::Lz4;

/// Goes through a file.
fn recompress(volume: &Volume, file: InodeId, what: Recompress) -> Recompressed {
    let mut sum = Recompressed { next: Some(0), ..Recompressed::default() };
    while let Some(from) = sum.next {
        let part = volume.recompress(file, from, what, None).unwrap();
        assert!(part.next.is_none_or(|next| next > from));
        sum = Recompressed {
            next: part.next,
            stored_bytes: sum.stored_bytes + part.stored_bytes,
            own_bytes: sum.own_bytes + part.own_bytes,
            shared_bytes: sum.shared_bytes + part.shared_bytes,
            written_bytes: sum.written_bytes + part.written_bytes,
        };
    }
    sum
}

/// Goes through the files of [`fill`]; returns the sums.
fn recompress_all(volume: &Volume, path: &str, what: Recompress) -> Recompressed {
    let mut sum = Recompressed::default();
    for number in 0..FILES {
        let part = recompress(volume, node(volume, &format!("{path}/{number}")), what);
        sum.stored_bytes += part.stored_bytes;
        sum.own_bytes += part.own_bytes;
        sum.shared_bytes += part.shared_bytes;
        sum.written_bytes += part.written_bytes;
    }
    sum
}

/// The bytes of the files of [`fill`].
fn filled_bytes() -> u64 {
    u64::from(FILES / 2) * 63_000
}

fn set(volume: &Volume, path: &str, wanted: DataCompression) {
    volume.set_properties(node(volume, path), &compression(wanted), None).unwrap();
}

fn attributes(volume: &Volume, path: &str) -> Vec<Attr> {
    (0..FILES).map(|number| volume.resolve(format!("{path}/{number}").as_bytes()).unwrap().attr).collect()
}

/// What files in a directory of their own take that were written like this.
fn written_as(wanted: DataCompression) -> u64 {
    let volume = disk_with_zstd().open();
    let dir = mkdir(&volume, ROOT, "d").node;
    set(&volume, "/d", wanted);
    fill(&volume, dir);
    stored(&volume, "/d")
}

#[test]
fn files_take_what_they_would_if_they_were_written_now_and_keep_bytes_and_times() {
    let disk = disk_with_zstd();
    let mut volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    set(&volume, "/d", NONE);
    fill(&volume, dir);
    for wanted in [LZ4, zstd(1), NONE, zstd(19), zstd(3), LZ4] {
        set(&volume, "/d", wanted);
        let before = attributes(&volume, "/d");
        let counted = recompress_all(&volume, "/d", Recompress::Count);
        assert_eq!((counted.written_bytes, counted.shared_bytes), (0, 0));
        let written = recompress_all(&volume, "/d", Recompress::Own);
        assert_eq!(written.written_bytes, filled_bytes(), "{wanted:?}");
        assert_eq!(counted.own_bytes, filled_bytes(), "{wanted:?}");
        // In memory, on the device above the leaves, and opened anew.
        assert_eq!(recompress_all(&volume, "/d", Recompress::Own).written_bytes, 0, "{wanted:?}");
        assert!(attributes(&volume, "/d") == before, "{wanted:?}");
        assert_filled(&volume, "/d");
        volume.close().unwrap();
        volume = disk.open();
        let again = recompress_all(&volume, "/d", Recompress::Own);
        assert_eq!((again.own_bytes, again.written_bytes), (0, 0), "{wanted:?}");
        // What waits above the leaves is stored as wanted; what it replaces goes when it comes down.
        let fresh = written_as(wanted);
        assert!(again.stored_bytes.abs_diff(fresh) * 8 < fresh, "{wanted:?}: {again:?}, fresh {fresh}");
        assert_filled(&volume, "/d");
        assert_sound(&volume);
    }
}

/// Headers of nodes tell it, and messages in memory: nothing else is read.
#[test]
fn what_is_as_wanted_is_neither_read_nor_written() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    set(&volume, "/d", NONE);
    // One that does not compress too: it is stored as it is, whatever it asks for.
    let noise: Vec<u8> =
        (0..50_000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).rotate_left(n % 31).to_le_bytes()).collect();
    let noisy = volume.create_with(dir, b"noise", &new_file(), &noise).unwrap().node;
    fill(&volume, dir);
    set(&volume, "/d", zstd(9));
    assert_eq!(recompress_all(&volume, "/d", Recompress::Own).written_bytes, filled_bytes());
    assert_eq!(recompress(&volume, noisy, Recompress::Own).written_bytes, noise.len() as u64);
    volume.close().unwrap();
    drop(volume);
    let volume = disk.open();
    let noisy = node(&volume, "/d/noise");
    assert_filled(&volume, "/d");
    let before = volume.env().stats();
    let calls = volume.counters().of(OpKind::Recompress).calls;
    let nothing = |what| {
        for again in [recompress_all(&volume, "/d", what), recompress(&volume, noisy, what)] {
            assert_eq!((again.own_bytes, again.shared_bytes, again.written_bytes), (0, 0, 0));
        }
    };
    nothing(Recompress::Count);
    let after = volume.env().stats();
    let counted = volume.counters().of(OpKind::Recompress);
    assert_eq!(counted.calls - calls, u64::from(FILES) + 1);
    assert_eq!((counted.queries, counted.scans, counted.commits), (0, 0, 0));
    assert_eq!(
        (after.device_read_bytes, after.device_write_bytes, after.commits),
        (before.device_read_bytes, before.device_write_bytes, before.commits)
    );
    // Files that are gone through to be written look into their first piece.
    [Recompress::Own, Recompress::OwnAndShared].into_iter().for_each(nothing);
    let counted = volume.counters().of(OpKind::Recompress);
    assert!(counted.scans <= 2 * (u64::from(FILES) + 1) && counted.commits == 0, "{counted:?}");
    assert_eq!(volume.env().stats().device_write_bytes, before.device_write_bytes);
}

/// A piece asks for what most of its bytes do: files of other directories beside are read, and not written.
#[test]
fn few_files_in_a_piece_of_others_are_written_once() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    for (name, wanted) in [("a", zstd(3)), ("b", NONE), ("c", LZ4)] {
        let dir = mkdir(&volume, ROOT, name).node;
        set(&volume, &format!("/{name}"), wanted);
        let files = if name == "b" { 1 } else { 12 };
        for number in 0..files {
            let (name, text) = (format!("{number}"), text(number, 4000));
            volume.create_with(dir, name.as_bytes(), &new_file(), &text).unwrap();
        }
    }
    volume.env().checkpoint().unwrap();
    let file = node(&volume, "/b/0");
    assert_eq!(recompress(&volume, file, Recompress::Own).written_bytes, 0);
    set(&volume, "/b", zstd(19));
    assert_eq!(recompress(&volume, file, Recompress::Own).written_bytes, 4000);
    volume.close().unwrap();
    let volume = disk.open();
    let commits = volume.env().stats().commits;
    assert_eq!(recompress(&volume, node(&volume, "/b/0"), Recompress::Own).written_bytes, 0);
    assert_eq!(volume.env().stats().commits, commits);
    assert_eq!(contents(&volume, "/b/0"), text(0, 4000));
}

#[test]
fn what_snapshots_and_clones_share_is_left_alone_unless_that_is_wanted() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    fill(&volume, dir);
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"monday", &new_dir()).unwrap();
    volume.clone_inode(dir, ROOT, b"twin").unwrap();
    // What was changed since is its own.
    let changed = node(&volume, "/d/1");
    volume.write(changed, 0, &text(1, 8192)).unwrap();
    volume.env().checkpoint().unwrap();
    set(&volume, "/d", zstd(9));
    let written = recompress_all(&volume, "/d", Recompress::Own);
    assert_eq!((written.own_bytes, written.written_bytes), (8192, 8192));
    assert_eq!(written.shared_bytes, filled_bytes() - 8192);
    let counted = recompress_all(&volume, "/d", Recompress::Count);
    assert_eq!((counted.own_bytes, counted.shared_bytes), (0, filled_bytes() - 8192));
    let used_before = volume.env().space().used_bytes;
    let written = recompress_all(&volume, "/d", Recompress::OwnAndShared);
    assert_eq!(written.written_bytes, filled_bytes() - 8192);
    volume.env().checkpoint().unwrap();
    assert!(volume.env().space().used_bytes > used_before, "it takes room a second time");
    volume.close().unwrap();
    let volume = disk.open();
    let again = recompress_all(&volume, "/d", Recompress::OwnAndShared);
    assert_eq!((again.own_bytes, again.shared_bytes, again.written_bytes), (0, 0, 0));
    for path in ["/d", "/twin", "/d/.betrfs-snapshots/monday"] {
        assert_filled(&volume, path);
    }
    let in_snapshot = node(&volume, "/d/.betrfs-snapshots/monday/3");
    for what in [Recompress::Count, Recompress::OwnAndShared] {
        assert_eq!(volume.recompress(in_snapshot, 0, what, None), Err(Error::InSnapshot));
    }
    assert_sound(&volume);
}

/// Holes within blocks, within pieces, and wider than what one call looks at.
#[test]
fn holes_stay_holes() {
    const MIB: u64 = 1 << 20;
    let disk = disk_with_zstd();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "sparse").node;
    for (at, len) in [(3 * 4096, 6000), (200 * 4096, 100), (5 * MIB, 300_000), (1 << 40, 5000)] {
        volume.write(file, at, &text(7, len)).unwrap();
    }
    volume.setattr(file, &SetAttr { size: Some(1 << 50), ..SetAttr::default() }).unwrap();
    volume.env().checkpoint().unwrap();
    let before = volume.getattr(file).unwrap();
    let ranges = |volume: &Volume| {
        let (mut all, mut at) = (Vec::new(), 0);
        while let Ok(data) = volume.seek(file, at, betrfs::SeekWhat::Data) {
            at = volume.seek(file, data, betrfs::SeekWhat::Hole).unwrap();
            all.push((data, at));
        }
        all
    };
    let holes = ranges(&volume);
    assert_eq!(holes.len(), 4);
    set(&volume, "/d", zstd(9));
    let calls = volume.counters().of(OpKind::Recompress).calls;
    // A block that a hole begins in has zeros up to the data in it.
    let written = recompress(&volume, file, Recompress::Own).written_bytes;
    assert!((311_100..325_000).contains(&written), "{written}");
    let calls = volume.counters().of(OpKind::Recompress).calls - calls;
    assert!(calls < 8, "{calls} calls: a hole takes none");
    assert_eq!((volume.getattr(file).unwrap(), ranges(&volume)), (before, holes));
    assert_eq!(recompress(&volume, file, Recompress::Own).written_bytes, 0);
    let mut out = Vec::new();
    volume.read(file, 5 * MIB, 300_000, &mut out).unwrap();
    assert!(out == text(7, 300_000));
    volume.read(file, 1 << 40, 6000, &mut out).unwrap();
    assert!(out == [text(7, 5000), vec![0; 1000]].concat());
    assert_sound(&volume);
}

#[test]
fn what_is_refused_changes_nothing() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = volume.create_with(dir, b"f", &new_file(), &text(1, 9000)).unwrap().node;
    let uid = volume.getattr(file).unwrap().uid;
    set(&volume, "/d", zstd(9));
    let commits = volume.env().stats().commits;
    let refused = |node, owner| volume.recompress(node, 0, Recompress::OwnAndShared, owner).unwrap_err();
    assert_eq!(refused(file, Some(uid + 1)), Error::NotPermitted);
    assert_eq!(refused(dir, None), Error::IsADirectory);
    assert_eq!(volume.env().stats().commits, commits);
    volume.set_inode_flags(file, InodeFlags::IMMUTABLE, FlagSetter::ROOT).unwrap();
    let commits = volume.env().stats().commits;
    assert_eq!(refused(file, Some(uid)), Error::Protected);
    assert_eq!(volume.env().stats().commits, commits);
    // What is there stays there.
    volume.set_inode_flags(file, InodeFlags::APPEND, FlagSetter::ROOT).unwrap();
    assert_eq!(volume.recompress(file, 0, Recompress::Own, Some(uid)).unwrap().written_bytes, 9000);
    volume.set_inode_flags(file, InodeFlags::NONE, FlagSetter::ROOT).unwrap();
    volume.unlink(dir, b"f").unwrap();
    volume.forget(file, 1);
    assert_eq!(refused(file, None), Error::Stale);
}

/// Under long keys a batch has room for few blocks.
#[test]
fn a_file_under_the_longest_path_is_written_anew_in_many_batches() {
    let disk = disk_with_zstd();
    let volume = disk.open();
    let mut dir = ROOT;
    for depth in 0..60 {
        dir = mkdir(&volume, dir, &format!("{depth:0250}")).node;
    }
    let file = volume.create(dir, b"f", &new_file()).unwrap().node;
    let bytes = text(3, 1_500_000);
    for (at, part) in bytes.chunks(100_000).enumerate() {
        assert_eq!(volume.write(file, at as u64 * 100_000, part).unwrap(), part.len());
    }
    volume.set_properties(ROOT, &compression(zstd(3)), None).unwrap();
    let commits = volume.counters().of(OpKind::Recompress).commits;
    assert_eq!(recompress(&volume, file, Recompress::Own).written_bytes, 1_500_000);
    assert!(volume.counters().of(OpKind::Recompress).commits > commits + 2);
    assert!(read_all(&volume, file) == bytes);
    assert_sound(&volume);
}

/// One thread writes counts that grow, one cuts and extends, one renames, one clones; a file that is written
/// anew all the while has what was written last.
#[test]
fn no_change_of_others_is_lost_while_files_are_written_anew() {
    const ROUNDS: u32 = 120;
    let disk = disk_with_zstd();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d0").node;
    let bytes = text(5, 300_000);
    let [written, cut] = ["written", "cut"].map(|name| mkfile(&volume, dir, name).node);
    for file in [written, cut] {
        assert_eq!(volume.write(file, 0, &bytes).unwrap(), bytes.len());
    }
    let (done, start) = (AtomicBool::new(false), Barrier::new(4));
    let mut rewritten = 0;
    let kept = thread::scope(|scope| {
        let (volume, done, start, bytes) = (&volume, &done, &start, &bytes);
        scope.spawn(move || {
            let _end = SetOnDrop(done);
            start.wait();
            let mut out = Vec::new();
            for round in 0..ROUNDS {
                // In each block a part, over borders of blocks, and whole blocks.
                for at in (0..72_u64).map(|block| block * 4096 + 4090) {
                    volume.write(written, at, &round.to_le_bytes().repeat(5)).unwrap();
                }
                volume.write(written, 8192, &[round as u8; 8192 - 6]).unwrap();
                volume.read(written, 4090, 20, &mut out).unwrap();
                assert_eq!(out, round.to_le_bytes().repeat(5));
            }
        });
        let cutter = scope.spawn(move || {
            start.wait();
            let mut round = 0;
            loop {
                let size = |size| SetAttr { size: Some(size as u64), ..SetAttr::default() };
                assert_eq!(volume.write(cut, 0, bytes).unwrap(), bytes.len());
                let kept = 1000 + round % 70 * 4096;
                volume.setattr(cut, &size(kept)).unwrap();
                volume.setattr(cut, &size(300_000)).unwrap();
                if done.load(SeqCst) {
                    return kept;
                }
                round += 1;
            }
        });
        scope.spawn(move || {
            start.wait();
            for round in 0_u32.. {
                let (from, to) = (format!("d{round}"), format!("d{}", round + 1));
                volume.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), RenameFlags::default()).unwrap();
                let copy = volume.clone_inode(dir, ROOT, b"copy").unwrap().node;
                volume.remove_below(copy, betrfs::SnapshotsBelow::Go).unwrap();
                volume.rmdir(ROOT, b"copy").unwrap();
                if done.load(SeqCst) {
                    break;
                }
            }
        });
        start.wait();
        for wanted in [NONE, zstd(1), LZ4].into_iter().cycle() {
            let properties =
                SetProperties { compression: PropertyChange::Set(wanted), ..SetProperties::default() };
            volume.set_properties(dir, &properties, None).unwrap();
            for file in [written, cut] {
                rewritten += recompress(volume, file, Recompress::OwnAndShared).written_bytes;
            }
            if done.load(SeqCst) {
                break;
            }
        }
        cutter.join().unwrap()
    });
    assert!(rewritten > 0);
    assert!(read_all(&volume, cut) == [&bytes[..kept], &vec![0; 300_000 - kept]].concat());
    let mut expected = bytes;
    let last = ROUNDS - 1;
    for at in (0..72).map(|block| block * 4096 + 4090) {
        expected[at..at + 20].copy_from_slice(&last.to_le_bytes().repeat(5));
    }
    expected[8192..8192 + 8192 - 6].fill(last as u8);
    assert!(read_all(&volume, written) == expected);
    assert_sound(&volume);
    volume.close().unwrap();
    let volume = disk.open();
    let dir = names(&volume, ROOT).into_iter().find(|name| name.starts_with('d')).unwrap();
    assert!(contents(&volume, &format!("/{dir}/written")) == expected);
}

/// Writes of some blocks meet all of them being written anew, again and again.
#[test]
fn blocks_that_are_written_and_written_anew_at_once_have_what_was_written() {
    const BLOCKS: usize = 64;
    const ROUNDS: usize = 300;
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f").node;
    volume.write(file, 0, &[0; BLOCKS * 4096]).unwrap();
    let (done, start) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        let (volume, done, start) = (&volume, &done, &start);
        scope.spawn(move || {
            let (mut out, mut last) = (Vec::new(), [0_u32; BLOCKS]);
            start.wait();
            for count in 1.. {
                // Not in their order.
                let block = count as usize * 29 % BLOCKS;
                volume.read(file, block as u64 * 4096, 4, &mut out).unwrap();
                assert_eq!(out, last[block].to_le_bytes(), "a write was lost");
                volume.write(file, block as u64 * 4096, &u32::to_le_bytes(count)).unwrap();
                last[block] = count;
                if done.load(SeqCst) {
                    break;
                }
            }
            for (block, last) in last.iter().enumerate() {
                volume.read(file, block as u64 * 4096, 4, &mut out).unwrap();
                assert_eq!(out, last.to_le_bytes(), "a write was lost");
            }
        });
        let _end = SetOnDrop(done);
        start.wait();
        let mut written = 0;
        for (round, wanted) in [NONE, LZ4].into_iter().cycle().enumerate() {
            // On a busy machine it may meet the writer in each of them.
            if round >= ROUNDS && written > 0 {
                break;
            }
            assert!(round < 100 * ROUNDS, "no block was ever written anew");
            volume.set_properties(ROOT, &compression(wanted), None).unwrap();
            written += recompress(volume, file, Recompress::Own).written_bytes;
        }
    });
}
