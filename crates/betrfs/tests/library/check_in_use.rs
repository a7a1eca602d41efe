//! Checks of a volume while it is used.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use betree::Stats;
use betree_platform::Device;
use betrfs::{Error, RenameFlags, Report, SnapshotsBelow, Volume};

use crate::support::*;

fn check(volume: &Volume) -> Report {
    volume.check_in_use(&mut |_, _| ControlFlow::Continue(())).unwrap()
}

/// The report of a volume without a problem: whether blocks are free is left out.
fn assert_nothing_found(report: &Report) {
    assert_eq!((&report.problems, report.problems_more, report.files.len()), (&Vec::new(), 0, 0));
    let [note] = &report.notes[..] else { panic!("{:?}", report.notes) };
    assert!(note.contains("because the volume is in use"), "{note}");
}

/// A tree with a bit of everything, which is made, copied, changed and removed again.
fn busy_round(volume: &Volume, round: u32) {
    let dir = mkdir(volume, ROOT, &format!("dir{round}")).node;
    for number in 0..12 {
        let file = mkfile(volume, dir, &format!("file{number}")).node;
        volume.write(file, 0, &seeded::bytes(u64::from(round), 0, 9000 * number)).unwrap();
        if number % 4 == 0 {
            volume.link(file, ROOT, format!("link{round}.{number}").as_bytes()).unwrap();
        }
    }
    let copy = volume.clone_inode(dir, ROOT, format!("copy{round}").as_bytes()).unwrap().node;
    let changed = volume.lookup(copy, b"file7").unwrap().node;
    volume.write(changed, 20_000, &[round as u8; 50_000]).unwrap();
    volume.unlink(copy, b"file1").unwrap();
    let (from, to) = (format!("dir{round}"), format!("moved{round}"));
    volume.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), RenameFlags::default()).unwrap();
    if round >= 3 {
        let old = volume.resolve(format!("/moved{}", round - 3).as_bytes()).unwrap().node;
        volume.remove_below(old, SnapshotsBelow::Hold).unwrap();
        volume.rmdir(ROOT, format!("moved{}", round - 3).as_bytes()).unwrap();
    }
}

#[test]
fn a_check_beside_writers_with_clones_and_removals_finds_nothing() {
    let disk = Disk::of_tiny_nodes(96 << 20);
    let volume = disk.open();
    (0..4).for_each(|round| busy_round(&volume, round));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 4;
            while !is_over.load(Relaxed) && round < 60 {
                busy_round(&volume, round);
                round += 1;
            }
            round
        });
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                if !volume.env().run_due_work().unwrap() {
                    thread::yield_now();
                }
            }
        });
        let until = SetOnDrop(&is_over);
        let mut checks = 0;
        while checks < 6 || !writer.is_finished() && checks < 20 {
            let mut last = (0, 0);
            let mut progress = |done, all| {
                assert!(done <= all && done >= last.0, "{done} of {all} after {last:?}");
                last = (done, all);
                ControlFlow::Continue(())
            };
            assert_nothing_found(&volume.check_in_use(&mut progress).unwrap());
            assert!(last.0 > 10, "{last:?}");
            checks += 1;
        }
        drop(until);
        assert!(writer.join().unwrap() > 5);
    });
    assert_sound(&volume);
}

#[test]
fn a_check_in_use_writes_nothing_and_ends_when_it_is_told_to() {
    let (_disk, volume) = volume();
    (0..5).for_each(|round| busy_round(&volume, round));
    let counts = || {
        let Stats { device_writes, device_syncs, checkpoints, flushes, commits, .. } = volume.env().stats();
        [device_writes, device_syncs, checkpoints, flushes, commits]
    };
    let before = counts();
    assert_nothing_found(&check(&volume));
    assert_eq!(counts(), before);
    // At each step: in the walk through the nodes, and in the scans.
    for steps in [0, 1, 5, 20, u64::MAX] {
        let mut left = steps;
        let ended = volume.check_in_use(&mut |done, all| {
            if left == 0 || steps == u64::MAX && done == all {
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        });
        assert_eq!(ended, Err(betree::Error::Interrupted.into()), "after {steps} steps");
    }
}

/// Changes come first: what the check reads is given up for them. No error of the device, and none to count.
#[test]
fn a_check_whose_space_is_needed_ends_by_that_name() {
    let disk = Disk::of_tiny_nodes(48 << 20);
    let volume = disk.open();
    (0..3).for_each(|round| busy_round(&volume, round));
    let (changing, filling) = (mkfile(&volume, ROOT, "changing").node, mkfile(&volume, ROOT, "filling").node);
    let write = |file, seed, piece: u64| {
        volume.write(file, piece << 20, &seeded::bytes(seed, piece, 1 << 20)).map(|_| ())
    };
    (0..4).for_each(|piece| write(changing, 0, piece).unwrap());
    volume.sync().unwrap();
    let mut refused = None;
    let ended = volume.check_in_use(&mut |done, all| {
        // The walk through the nodes is over: the state that is read is held.
        if done == all && refused.is_none() {
            (0..4).for_each(|piece| write(changing, 1, piece).unwrap());
            refused = (0..48).find_map(|piece| write(filling, 2, piece).err());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(refused, Some(Error::NoSpace), "only once there is no room at all");
    assert_eq!(ended, Err(Error::StateGivenUp));
    assert_nothing_found(&check(&volume));
}

/// The offset on the device of some bytes, which stand there once.
fn find(disk: &Disk, wanted: &[u8]) -> u64 {
    let mut all = vec![0; disk.device.len() as usize];
    disk.device.read_at(0, &mut all).unwrap();
    let mut found = all.windows(wanted.len()).enumerate().filter(|(_, bytes)| *bytes == wanted);
    let (at, _) = found.next().unwrap();
    assert!(found.next().is_none());
    at as u64
}

#[test]
fn damage_on_the_device_is_found_and_its_file_named_though_memory_has_the_contents() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let contents = |number: u64| seeded::bytes(number, 0, 300_000);
    for number in 0..8 {
        let file = mkfile(&volume, dir, &format!("file{number}")).node;
        volume.write(file, 0, &contents(number)).unwrap();
    }
    let linked = volume.resolve(b"/dir/file6").unwrap().node;
    volume.link(linked, ROOT, b"other").unwrap();
    while volume.env().run_due_work().unwrap() {}
    volume.env().checkpoint().unwrap();
    assert_nothing_found(&check(&volume));
    for number in [2, 6] {
        disk.device.rot(find(&disk, &contents(number)[150_000..150_040]), 3);
    }
    for number in 0..8 {
        let file = volume.resolve(format!("/dir/file{number}").as_bytes()).unwrap().node;
        assert!(read_all(&volume, file) == contents(number), "memory has it");
    }
    let report = check(&volume);
    let of = |number: u64| {
        let name = format!("/dir/file{number}");
        report.problems.iter().any(|problem| problem.files.contains(&name) && problem.what.contains(&name))
    };
    assert!(of(2) && of(6) && !of(0), "{report:?}");
    assert!(report.files.contains("/dir/file2") && report.files.contains("/other"), "{report:?}");
    assert!(report.problems.iter().all(|problem| problem.code == "bad-piece"), "{report:?}");
    // As of a volume that is opened for it, whose memory has nothing.
    volume.close().unwrap();
    drop(volume);
    let options = disk.options.clone();
    let offline = Volume::examine(disk.device.clone(), options, &mut |_, _| ()).unwrap();
    let whats = |report: &Report| -> Vec<_> { report.problems.iter().map(|p| (p.code, p.place)).collect() };
    assert_eq!(whats(&offline), whats(&report));
    assert!(offline.files.is_subset(&report.files), "{offline:?}, in use {report:?}");
}
