//! Scrubs of a volume while it is used.

use std::ops::ControlFlow;
use std::sync::Arc;

use betree::debug::{Inspector, Owner};
use betree::{ScrubOptions, ScrubState};
use betree_platform::Device;
use betrfs::{Mending, Report, Scrubbed, Volume, XattrMode};

use crate::repair::{DATA, repair};
use crate::repair_changes::{leaves, without};
use crate::support::*;

fn scrub(volume: &Volume) -> Scrubbed {
    volume.scrub(ScrubOptions::READ_ALL, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn contents(number: u64) -> Vec<u8> {
    seeded::bytes(number, 0, 300_000)
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

/// A volume with eight files on the device, of which one has two names.
fn with_files() -> (Disk, Volume) {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    for number in 0..8 {
        let file = mkfile(&volume, dir, &format!("file{number}")).node;
        volume.write(file, 0, &contents(number)).unwrap();
        volume
            .set_xattr(file, b"user.large", &seeded::bytes(100 + number, 0, 5000), XattrMode::Create)
            .unwrap();
    }
    let linked = volume.resolve(b"/dir/file6").unwrap().node;
    volume.link(linked, ROOT, b"other").unwrap();
    while volume.env().run_due_work().unwrap() {}
    volume.env().checkpoint().unwrap();
    (disk, volume)
}

fn read_all_files(volume: &Volume) {
    for number in 0..8 {
        let file = volume.resolve(format!("/dir/file{number}").as_bytes()).unwrap().node;
        assert!(read_all(volume, file) == contents(number), "memory has it");
    }
}

/// Codes, places and files of the problems, in the order of these.
fn told(report: &Report) -> Vec<(&'static str, Option<betree::Place>, Vec<String>)> {
    let mut told: Vec<_> = report.problems.iter().map(|p| (p.code, p.place, p.files.clone())).collect();
    told.sort();
    told
}

/// Rots contents of files 2 and 6, and an attribute of file 3.
fn rot(disk: &Disk) {
    for number in [2, 6] {
        disk.device.rot(find(disk, &contents(number)[150_000..150_040]), 3);
    }
    disk.device.rot(find(disk, &seeded::bytes(103, 0, 5000)[1000..1040]), 3);
}

fn assert_named(scrubbed: &Scrubbed) {
    let Scrubbed { report, record } = scrubbed;
    assert_eq!((record.state, record.problems), (ScrubState::Complete, report.found()));
    for name in ["/dir/file2", "/dir/file3", "/other"] {
        assert!(report.files.contains(name), "{name} of {report:?}");
    }
    assert!(!report.files.contains("/dir/file0") && !report.files.contains("/dir/file7"), "{report:?}");
    assert!(report.problems.iter().all(|problem| problem.code == "bad-piece"), "{report:?}");
}

#[test]
fn damaged_files_are_named_though_memory_has_their_contents() {
    let (disk, volume) = with_files();
    let clean = scrub(&volume);
    assert_eq!((clean.report, clean.record.problems), (Report::default(), 0));
    read_all_files(&volume);
    rot(&disk);
    let scrubbed = scrub(&volume);
    assert_named(&scrubbed);
    let checked = volume.check_in_use(&mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(told(&scrubbed.report), told(&checked));
    read_all_files(&volume);
    volume.close().unwrap();
}

#[test]
fn damaged_files_are_named_though_nothing_can_be_read_of_them() {
    let (disk, volume) = with_files();
    volume.close().unwrap();
    drop(volume);
    rot(&disk);
    let volume = disk.open();
    let scrubbed = scrub(&volume);
    assert_named(&scrubbed);
    let checked = volume.check_in_use(&mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(told(&scrubbed.report), told(&checked));
}

/// Files in tiny nodes, some with several names, some cloned, and a snapshot of them.
fn with_shared_files() -> Disk {
    let disk = Disk::of_tiny_nodes(64 << 20);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let linked = mkdir(&volume, ROOT, "linked").node;
    for number in 0..4 {
        let file = mkfile(&volume, dir, &format!("file{number}")).node;
        volume.write(file, 0, &contents(number)[..100_000]).unwrap();
        volume.set_xattr(file, b"user.large", &contents(100 + number)[..3000], XattrMode::Create).unwrap();
        if number % 2 == 0 {
            volume.link(file, linked, format!("link{number}").as_bytes()).unwrap();
        }
    }
    volume.close().unwrap();
    drop(volume);
    let volume = disk.open();
    let dir = volume.resolve(b"/dir").unwrap().node;
    volume.clone_inode(dir, ROOT, b"copy").unwrap();
    let snapshots = volume.lookup(dir, betrfs::SNAPSHOTS_NAME).unwrap().node;
    mkdir(&volume, snapshots, "monday");
    volume.close().unwrap();
    drop(volume);
    disk
}

/// Whichever node of the data is lost, interior ones too.
#[test]
fn a_scrub_names_the_files_that_a_check_names() {
    let disk = with_shared_files();
    let options = Volume::engine_options(4 << 20);
    let inspector = Inspector::open(disk.device.clone(), options, &mut |found| panic!("{found}")).unwrap();
    let height_of = |id| {
        let header = inspector.node(id, &mut |_| ()).and_then(|node| node.header);
        header.filter(|header| header.origin.dict == DATA.0).map(|header| header.height)
    };
    let (mut heights, mut more) = ([0; 2], 0);
    for owned in inspector.map() {
        let Owner::Node(id) = owned.owner else { continue };
        let Some(height) = height_of(id) else { continue };
        let damaged = Disk::holding(without(&disk, &[owned.blocks.start_block]), disk.options.clone());
        let Ok(volume) = Volume::open(damaged.device.clone(), disk.options.clone()) else { continue };
        let scrubbed = scrub(&volume);
        let checked = volume.check_in_use(&mut |_, _| ControlFlow::Continue(())).unwrap();
        let (told, named) = (scrubbed.report.files, checked.files);
        assert!(told.is_superset(&named), "height {height}: {told:?}, {named:?}");
        // It may name a file for keys that newer messages hide.
        more += usize::from(told != named);
        heights[usize::from(height.min(1))] += 1;
    }
    assert!(heights[0] > 20 && heights[1] > 5 && more * 10 < heights[0], "{heights:?}, {more} more");
}

/// A volume with files of which all contents are lost, and the number of leaves that had them.
fn without_contents() -> (Disk, u64) {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "dir").node;
    for number in 0..100 {
        let file = mkfile(&volume, dir, &format!("file{number:02}")).node;
        volume.write(file, 0, &contents(number)[..9000]).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let lost = leaves(&disk, DATA.0);
    let device = without(&disk, &lost);
    (Disk::holding(device, disk.options.clone()), lost.len() as u64)
}

/// Writes files beside those that lost their contents.
fn write_more(volume: &Volume, round: u64) {
    let dir = volume.resolve(b"/dir").unwrap().node;
    for number in 0..30 {
        let file = mkfile(volume, dir, &format!("file{number:02}-{round}")).node;
        volume.write(file, 0, &contents(200 + number)[..9000]).unwrap();
    }
}

#[test]
fn what_is_written_over_lost_leaves_is_durable_and_a_scrub_tells_of_them() {
    let (disk, lost) = without_contents();
    let mut volume = disk.open();
    for round in 0..3 {
        write_more(&volume, round);
        // A sync is one where the log has given up.
        volume.env().checkpoint().unwrap();
        let dir = volume.resolve(b"/dir").unwrap().node;
        let name = format!("copy{round}");
        // It is refused if it needs a lost leaf.
        let is_cloned = volume.clone_inode(dir, ROOT, name.as_bytes()).is_ok();
        volume.env().checkpoint().unwrap();
        assert_eq!(volume.env().state(), betree::State::Writable);
        let scrubbed = scrub(&volume);
        assert!(scrubbed.record.problems >= lost / 2, "{round}: {scrubbed:?}");
        assert!(scrubbed.report.files.contains("/dir/file99"), "{:?}", scrubbed.report);
        volume = disk.open();
        for number in 0..30 {
            for dir in ["dir", &name].into_iter().take(1 + usize::from(is_cloned)) {
                let path = format!("/{dir}/file{number:02}-{round}");
                let file = volume.resolve(path.as_bytes()).unwrap().node;
                assert_eq!(volume.getattr(file).unwrap().size, 9000, "{path}");
            }
        }
    }
    volume.close().unwrap();
}

#[test]
fn what_was_written_over_lost_leaves_is_read_after_a_repair() {
    let (disk, _) = without_contents();
    let volume = disk.open();
    write_more(&volume, 0);
    volume.env().checkpoint().unwrap();
    drop(disk.open());
    let device: Arc<dyn Device> = disk.device.clone();
    repair(&device, Mending::All);
    let volume = disk.open();
    for number in 0..30 {
        let file = volume.resolve(format!("/dir/file{number:02}-0").as_bytes()).unwrap().node;
        assert!(read_all(&volume, file) == contents(200 + number)[..9000], "{number}");
    }
}
