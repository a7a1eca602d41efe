//! Quotas while trees with many linked files are removed: a file counts as long as a name of it can be seen.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use betree_platform::DeviceOp;
use betree_sim::{ENOSPC, Fault};
use betrfs::{Error, InodeId, RenameFlags, SNAPSHOTS_NAME, SetAttr, SnapshotsBelow, Volume};

use crate::quotas::{ANY, counted, used};
use crate::support::*;

const FILES: u64 = 1000;

fn small_disk() -> Disk {
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    (disk.options.links_alone_max, disk.options.cache_bytes) = (64, 128 << 10);
    disk
}

/// Files with a name in one directory, and one in another.
fn link_files(volume: &Volume, dir: InodeId, other: InodeId, files: u64) -> Vec<InodeId> {
    let name = |i: u64| (format!("{i}"), format!("{i} too"));
    let link = |i| {
        let file = mkfile(volume, dir, &name(i).0).node;
        volume.write(file, 0, &[7; 5000]).unwrap();
        volume.link(file, other, name(i).1.as_bytes()).unwrap();
        file
    };
    (0..files).map(link).collect()
}

/// Removes what is below a directory; a full disk stops that in the middle.
fn remove_in_part(disk: &Disk, volume: &Volume, dir: InodeId) {
    volume.sync().unwrap();
    let write = Fault { at_call: 1, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true };
    disk.device.set_fault(Some(write));
    mkfile(volume, ROOT, "new");
    assert!(volume.sync().is_err());
    volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
    disk.device.set_fault(None);
    volume.sync().unwrap();
}

fn assert_counted(volume: &Volume, dir: InodeId) {
    assert_eq!(used(volume, dir), counted(volume, dir));
}

#[test]
fn a_file_counts_until_its_last_name_goes_that_can_be_seen() {
    for way in 0..3 {
        let disk = small_disk();
        let volume = disk.open();
        let home = mkdir(&volume, ROOT, "home").node;
        let (tree, rest) = (mkdir(&volume, home, "tree").node, mkdir(&volume, home, "rest").node);
        volume.set_quota(home, ANY).unwrap();
        let files = link_files(&volume, tree, rest, FILES);
        remove_in_part(&disk, &volume, tree);
        assert_counted(&volume, home);
        let both: Vec<u64> =
            (0..FILES).filter(|i| volume.getattr(files[*i as usize]).unwrap().nlink == 2).collect();
        assert!(both.len() > 8, "it was not stopped");
        // One by one, by a rename over it, and with a tree that is small, large, or the quota's own.
        let name = |at: usize| format!("{} too", both[at]).into_bytes();
        volume.unlink(rest, &name(0)).unwrap();
        assert_counted(&volume, home);
        mkfile(&volume, rest, "other");
        volume.rename(rest, b"other", rest, &name(1), RenameFlags::default()).unwrap();
        assert_counted(&volume, home);
        // It counts again with a name, and once; what is written then counts.
        let file = files[both[0] as usize];
        volume.link(file, home, b"back").unwrap();
        volume.link(file, home, b"again").unwrap();
        volume.write(file, 5000, &[7; 50_000]).unwrap();
        assert_counted(&volume, home);
        volume.unlink(home, b"back").unwrap();
        volume.write(file, 55_000, &[7; 50_000]).unwrap();
        assert_counted(&volume, home);
        // Each removal of a tree ends the others.
        let small = mkdir(&volume, home, "small").node;
        for at in [2, 3] {
            volume.rename(rest, &name(at), small, &name(at), RenameFlags::default()).unwrap();
        }
        let last = [small, rest, home][way];
        volume.remove_below(last, SnapshotsBelow::Hold).unwrap();
        assert_counted(&volume, home);
        volume.finish_removals();
        assert_counted(&volume, home);
        assert_sound(&volume);
    }
}

#[test]
fn two_trees_with_names_of_the_same_files_are_removed_at_once() {
    for is_stopped in [true, false] {
        let mut disk = small_disk();
        disk.options.cache_bytes = if is_stopped { disk.options.cache_bytes } else { 8 << 20 };
        let volume = disk.open();
        let home = mkdir(&volume, ROOT, "home").node;
        let (tree, other) = (mkdir(&volume, home, "tree").node, mkdir(&volume, home, "other").node);
        volume.set_quota(home, ANY).unwrap();
        link_files(&volume, tree, other, FILES).into_iter().for_each(|file| volume.forget(file, 1));
        if is_stopped {
            remove_in_part(&disk, &volume, tree);
            volume.remove_below(other, SnapshotsBelow::Hold).unwrap();
        } else {
            std::thread::scope(|scope| {
                for dir in [tree, other] {
                    let volume = &volume;
                    scope.spawn(move || volume.remove_below(dir, SnapshotsBelow::Hold).unwrap());
                }
            });
        }
        volume.finish_removals();
        assert_counted(&volume, home);
        assert_eq!(used(&volume, home).objects, 2);
        assert_sound(&volume);
    }
}

/// A file gets another name and loses it again, and the next opening goes on.
#[test]
fn the_next_opening_leaves_a_quota_what_can_be_seen() {
    for is_linked in [false, true] {
        let disk = small_disk();
        let volume = disk.open();
        let home = mkdir(&volume, ROOT, "home").node;
        let tree = mkdir(&volume, home, "tree").node;
        volume.set_quota(home, ANY).unwrap();
        let files = link_files(&volume, tree, tree, 5 * FILES);
        remove_in_part(&disk, &volume, tree);
        let is_left = |file: &&InodeId| volume.getattr(**file).is_ok_and(|attr| attr.nlink == 2);
        let file = *files.iter().find(is_left).expect("it was not stopped");
        volume.link(file, home, b"back").unwrap();
        if !is_linked {
            volume.unlink(home, b"back").unwrap();
        }
        volume.close().unwrap();
        drop(volume);
        let volume = disk.open();
        let home = volume.resolve(b"/home").unwrap().node;
        assert_counted(&volume, home);
        assert_eq!(used(&volume, home).objects, 1 + u64::from(is_linked));
        assert_sound(&volume);
    }
}

/// An opening that the disk stops too: what is left there goes while others work.
#[test]
fn an_opening_knows_the_names_that_it_could_not_take() {
    let disk = small_disk();
    let volume = disk.open();
    let home = mkdir(&volume, ROOT, "home").node;
    let (tree, rest) = (mkdir(&volume, home, "tree").node, mkdir(&volume, home, "rest").node);
    volume.set_quota(home, ANY).unwrap();
    link_files(&volume, tree, rest, 5 * FILES);
    remove_in_part(&disk, &volume, tree);
    volume.close().unwrap();
    drop(volume);
    let mut was_stopped = false;
    for at_call in 1..200 {
        let device = std::sync::Arc::new(disk.device.copy());
        let disk = Disk::holding(device.clone(), disk.options.clone());
        device.set_fault(Some(Fault { at_call, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true }));
        let opened = Volume::open(device.clone(), disk.options.clone());
        device.set_fault(None);
        let Ok(volume) = opened else { continue };
        if volume.sync().is_err() {
            continue;
        }
        let (home, rest) =
            (volume.resolve(b"/home").unwrap().node, volume.resolve(b"/home/rest").unwrap().node);
        let last = names(&volume, rest).last().unwrap().clone();
        was_stopped |= volume.lookup(rest, last.as_bytes()).unwrap().attr.nlink == 2;
        volume.remove_below(rest, SnapshotsBelow::Hold).unwrap();
        volume.finish_removals();
        assert_counted(&volume, home);
    }
    assert!(was_stopped);
}

#[test]
fn an_open_file_of_an_emptied_directory_counts_once_again() {
    let disk = small_disk();
    let volume = disk.open();
    let home = mkdir(&volume, ROOT, "home").node;
    volume.set_quota(home, ANY).unwrap();
    link_files(&volume, home, home, FILES);
    let open = mkfile(&volume, home, "open").node;
    volume.write(open, 0, &[7; 5000]).unwrap();
    volume.open_inode(open).unwrap();
    remove_in_part(&disk, &volume, home);
    for name in [&b"back"[..], b"again"] {
        volume.link(open, home, name).unwrap();
        assert_counted(&volume, home);
    }
    volume.write(open, 0, &[7; 100_000]).unwrap();
    assert_counted(&volume, home);
    volume.finish_removals();
    assert_counted(&volume, home);
}

/// What was brought back is not what is removed.
#[test]
fn files_that_were_brought_back_count_while_the_others_go() {
    for at_call in (1..4000).step_by(17) {
        let disk = small_disk();
        let volume = disk.open();
        let home = mkdir(&volume, ROOT, "home").node;
        volume.set_quota(home, ANY).unwrap();
        link_files(&volume, home, home, FILES).into_iter().for_each(|file| volume.forget(file, 1));
        let snapshots = volume.lookup(home, SNAPSHOTS_NAME).unwrap().node;
        volume.create(snapshots, b"s", &new_dir()).unwrap();
        volume.sync().unwrap();
        let write = Fault { at_call, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true };
        disk.device.set_fault(Some(write));
        let restored = volume.restore_snapshot(home, b"s", b"kept");
        disk.device.set_fault(None);
        if !restored.is_ok_and(|restored| restored.made.is_empty()) || volume.sync().is_err() {
            continue;
        }
        assert_counted(&volume, home);
        let file = volume.resolve(b"/home/999").unwrap().node;
        volume.write(file, 0, &[7; 50_000]).unwrap();
        assert_counted(&volume, home);
        assert_eq!(volume.link(file, ROOT, b"outside"), Err(Error::OtherQuota));
        volume.finish_removals();
        assert_counted(&volume, home);
        assert_sound(&volume);
        return;
    }
    panic!("none was stopped");
}

/// A file that was going gets a name in another quota, whose directory is emptied, or goes with one above it.
#[test]
fn a_file_counts_in_the_quota_of_its_new_name_as_long_as_that_is_there() {
    for is_nested in [false, true] {
        let disk = small_disk();
        let volume = disk.open();
        let home = mkdir(&volume, ROOT, "home").node;
        let tree = mkdir(&volume, home, "tree").node;
        let above = mkdir(&volume, home, "above").node;
        let other = mkdir(&volume, above, "other").node;
        volume.set_quota(home, ANY).unwrap();
        volume.set_quota(other, ANY).unwrap();
        let files = link_files(&volume, tree, tree, 5 * FILES);
        remove_in_part(&disk, &volume, tree);
        let is_left = |file: &&InodeId| volume.getattr(**file).is_ok_and(|attr| attr.nlink == 2);
        let file = *files.iter().find(is_left).expect("it was not stopped");
        volume.link(file, other, b"back").unwrap();
        assert_counted(&volume, home);
        assert_counted(&volume, other);
        volume.remove_below(if is_nested { above } else { other }, SnapshotsBelow::Hold).unwrap();
        volume.finish_removals();
        assert_counted(&volume, home);
        if !is_nested {
            mkfile(&volume, other, "more");
            assert_counted(&volume, other);
        }
        assert_sound(&volume);
    }
}

/// A quota for a directory that shares files with a tree that is being removed.
#[test]
fn a_quota_is_set_once_the_names_elsewhere_are_gone() {
    let disk = small_disk();
    let volume = disk.open();
    let (tree, rest) = (mkdir(&volume, ROOT, "tree").node, mkdir(&volume, ROOT, "rest").node);
    link_files(&volume, tree, rest, FILES);
    remove_in_part(&disk, &volume, tree);
    assert_eq!(volume.set_quota(rest, ANY), Err(Error::Uncounted));
    let other = mkdir(&volume, ROOT, "other").node;
    volume.set_quota(other, ANY).unwrap();
    volume.finish_removals();
    volume.set_quota(rest, ANY).unwrap();
    assert_counted(&volume, rest);
    volume.unlink(rest, b"999 too").unwrap();
    assert_counted(&volume, rest);
}

/// A copy that counts nowhere need not be counted, whatever its source does meanwhile.
#[test]
fn a_busy_tree_outside_of_all_quotas_is_copied() {
    let mut disk = Disk::of_bytes(128 << 20);
    disk.options.links_alone_max = 64;
    let volume = disk.open();
    let elsewhere = mkdir(&volume, ROOT, "elsewhere").node;
    volume.set_quota(elsewhere, ANY).unwrap();
    let source = mkdir(&volume, ROOT, "source").node;
    let file = link_files(&volume, source, source, FILES)[7];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        scope.spawn(|| {
            for i in 0.. {
                if is_over.load(SeqCst) {
                    return;
                }
                volume.write(file, i % 1000 * 4096, &[7; 4096]).unwrap();
                volume.setattr(file, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            }
        });
        assert_eq!(volume.clone_inode(source, ROOT, b"copy").map(drop), Ok(()));
    });
}

/// What an operation tells of the files that it takes names from does not spoil what was measured for itself,
/// when it has to be attempted again because its nodes are not in memory.
#[test]
fn few_links_are_removed_in_a_quota_also_at_the_second_attempt() {
    let mut disk = small_disk();
    disk.options.cache_bytes = 512 << 10;
    let volume = disk.open();
    volume.set_quota(ROOT, ANY).unwrap();
    let (tree, rest) = (mkdir(&volume, ROOT, "tree").node, mkdir(&volume, ROOT, "rest").node);
    link_files(&volume, tree, rest, 8);
    for i in 0..500 {
        let file = mkfile(&volume, tree, &format!("plain {i}")).node;
        volume.write(file, 0, &[7; 5000]).unwrap();
    }
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    volume.close().unwrap();
    drop(volume);
    let volume = disk.open();
    let tree = volume.resolve(b"/tree").unwrap().node;
    volume.restore_snapshot(tree, b"s", b"kept").unwrap();
    assert_counted(&volume, ROOT);
    volume.remove_below(tree, SnapshotsBelow::Go).unwrap();
    assert_counted(&volume, ROOT);
}
