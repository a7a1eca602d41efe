//! What a directory with many names of files with several held before it went back to a snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use betree::{Batch, Cut};
use betree_platform::{Device, DeviceOp};
use betree_sim::{EIO, ENOSPC, Fault};

use crate::detached::{META, disk, farm, links, markers};
use crate::support::*;
use betrfs::{Error, InodeId, OpKind, SNAPSHOTS_NAME, SnapshotsBelow, Volume};

/// A tree of whose files some were changed since its snapshot `s`, and one was made.
fn changed_farm(volume: &Volume, files: u64) -> InodeId {
    let (tree, beside) = farm(volume, files);
    volume.create(volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node, b"s", &new_dir()).unwrap();
    for i in (0..files).step_by(3) {
        volume.write(volume.resolve(format!("/tree/{i}").as_bytes()).unwrap().node, 0, b"changed").unwrap();
    }
    let new = mkfile(volume, tree, "new").node;
    volume.link(new, beside, b"new").unwrap();
    volume.set_xattr(tree, b"user.large", &[5; 3000], betrfs::XattrMode::Any).unwrap();
    tree
}

/// What is in the file `i` of a [`changed_farm`] before it goes back, and in its snapshot.
fn changed(i: u64) -> Vec<u8> {
    if i.is_multiple_of(3) { b"changed".to_vec() } else { i.to_string().into_bytes() }
}

/// Asserts that a [`changed_farm`] of this directory has gone back to `s`, and its own state is kept as
/// `kept`.
fn assert_went_back(volume: &Volume, tree: &str, files: u64) {
    let kept = format!("{tree}/.betrfs-snapshots/kept");
    for i in 0..files {
        let text = i.to_string().into_bytes();
        // Files beside the tree are those that had names in it.
        let inside = if i.is_multiple_of(2) { 1 } else { 2 };
        for (path, bytes, names) in [
            (format!("{tree}/{i}"), text, inside),
            (format!("{kept}/{i}"), changed(i), inside),
            (format!("/beside/{i}"), changed(i), 1),
        ] {
            if i.is_multiple_of(2) || !path.starts_with("/beside") {
                assert_eq!((contents(volume, &path), links(volume, &path)), (bytes, names), "{path}");
            }
        }
        if !i.is_multiple_of(2) {
            let is_one = |dir: &str| {
                let ino = |path: String| volume.resolve(path.as_bytes()).unwrap().attr.ino;
                ino(format!("{dir}/{i}")) == ino(format!("{dir}/inner/{i}"))
            };
            assert!(is_one(tree) && is_one(&kept), "{i} has two names of one file");
        }
    }
    assert_eq!((links(volume, &format!("{kept}/new")), links(volume, "/beside/new")), (1, 1));
    assert_eq!(volume.resolve(format!("{tree}/new").as_bytes()), Err(Error::NotFound));
    let of_kept = volume.resolve(kept.as_bytes()).unwrap().node;
    assert_eq!(volume.get_xattr(of_kept, b"user.large").unwrap(), [5; 3000]);
    let in_kept = volume.resolve(format!("{kept}/0").as_bytes()).unwrap().node;
    assert_eq!(volume.write(in_kept, 0, b"x"), Err(Error::InSnapshot));
    let of_tree = volume.resolve(tree.as_bytes()).unwrap().node;
    assert_eq!(volume.snapshots_below(of_tree).unwrap().count, 2);
}

#[test]
fn a_tree_with_many_links_goes_back_to_a_snapshot_and_its_own_state_is_kept() {
    for links_alone_max in [0, 8, 1000] {
        let disk = disk(links_alone_max);
        let volume = disk.open();
        let tree = changed_farm(&volume, 100);
        let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
        let restored = volume.restore_snapshot(tree, b"s", b"kept").unwrap();
        assert_eq!(restored.made, [(snapshots, Arc::from(&b"kept"[..]))]);
        assert_went_back(&volume, "/tree", 100);
        assert_sound(&volume);
        volume.close().unwrap();
        let volume = disk.open();
        assert_went_back(&volume, "/tree", 100);
        assert_sound(&volume);
    }
}

/// In a quota too, of which its own contents are measured.
#[test]
fn a_tree_with_many_links_goes_back_to_a_snapshot_in_a_quota() {
    let disk = disk(8);
    let volume = disk.open();
    let home = mkdir(&volume, ROOT, "home").node;
    let tree = mkdir(&volume, home, "tree").node;
    volume.set_quota(home, betrfs::QuotaLimits { bytes: None, objects: Some(60) }).unwrap();
    volume.set_quota(tree, betrfs::QuotaLimits { bytes: None, objects: Some(50) }).unwrap();
    for i in 0..30 {
        let file = mkfile(&volume, tree, &format!("{i}")).node;
        volume.link(file, tree, format!("{i} too").as_bytes()).unwrap();
    }
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    (0..20).for_each(|i| volume.unlink(tree, format!("{i}").as_bytes()).unwrap());
    (0..20).for_each(|i| volume.unlink(tree, format!("{i} too").as_bytes()).unwrap());
    let objects = |dir| volume.quota(dir).unwrap().unwrap().used.objects;
    assert_eq!((objects(home), objects(tree)), (11, 10));
    volume.restore_snapshot(tree, b"s", b"kept").unwrap();
    assert_eq!((objects(home), objects(tree)), (31, 30));
    assert_eq!(links(&volume, "/home/tree/.betrfs-snapshots/kept/25 too"), 2);
    assert_sound(&volume);
    volume.restore_snapshot(tree, b"kept", b"again").unwrap();
    assert_eq!((objects(home), objects(tree)), (11, 10));
    assert_sound(&volume);
}

/// Whatever is durable when the power goes, the next opening completes the way back, wherever the directory
/// is then; before that, nothing has happened.
#[test]
fn a_crash_leaves_a_directory_as_it_was_or_back_at_its_snapshot_with_its_own_state_kept() {
    const FILES: u64 = 300;
    let mut met = BTreeSet::new();
    // Both are met at once, but for a very busy machine.
    for _ in 0..20 {
        let mut disk = Disk::of_bytes(32 << 20);
        disk.options.links_alone_max = 0;
        let volume = disk.open();
        let tree = changed_farm(&volume, FILES);
        let dir = mkdir(&volume, ROOT, "dir").node;
        volume.sync().unwrap();
        let is_over = AtomicBool::new(false);
        let images = thread::scope(|scope| {
            let over = SetOnDrop(&is_over);
            let watch = scope.spawn(|| {
                let commits = || volume.counters().of(OpKind::Clone).commits;
                let (mut images, mut last, mut is_moved) = (Vec::new(), commits(), false);
                while !is_over.load(SeqCst) {
                    if commits() > last + 2 {
                        last = commits();
                        if volume.resolve(b"/tree/new").is_err() && !is_moved {
                            let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
                            let taken = volume.create(snapshots, b"kept", &new_dir());
                            assert_eq!(taken, Err(Error::Exists));
                            is_moved = images.len().is_multiple_of(2);
                        }
                        if is_moved && volume.resolve(b"/tree").is_ok() {
                            let flags = betrfs::RenameFlags::default();
                            volume.rename(ROOT, b"tree", dir, b"moved", flags).unwrap();
                        }
                        volume.sync().unwrap();
                        images.push(disk.device.copy());
                    }
                }
                images
            });
            volume.restore_snapshot(tree, b"s", b"kept").unwrap();
            drop(over);
            watch.join().unwrap()
        });
        for image in images {
            let is_in_the_middle = markers(&image).contains(&3);
            // Also before an opening completes it.
            let image = Arc::new(image);
            let examined = Volume::examine(image.clone(), disk.options.clone(), &mut |_, _| ()).unwrap();
            assert_eq!(examined.problems, [], "{is_in_the_middle}");
            let image = Disk::holding(image, disk.options.clone());
            let volume = image.open();
            let is_moved = volume.resolve(b"/tree").is_err();
            let path = if is_moved { "/dir/moved" } else { "/tree" };
            if is_in_the_middle {
                met.insert(is_moved);
            }
            if is_in_the_middle || volume.resolve(format!("{path}/new").as_bytes()).is_err() {
                assert_went_back(&volume, path, FILES);
            } else {
                assert_eq!(contents(&volume, "/tree/0"), changed(0));
            }
            assert_sound(&volume);
            volume.close().unwrap();
            assert_eq!(markers(&image.device), BTreeSet::new());
        }
        if met.len() == 2 {
            return;
        }
    }
    panic!("of directories that are moved or not, a crash in the middle met only {met:?}");
}

/// One file that is lost does not take the others along.
#[test]
fn what_is_kept_of_a_tree_with_a_lost_file_has_all_others() {
    let disk = disk(4);
    let volume = disk.open();
    let (tree, _) = farm(&volume, 20);
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    for i in 0..20u64 {
        volume.write(volume.resolve(format!("/tree/{i}").as_bytes()).unwrap().node, 0, b"changed").unwrap();
    }
    let ino = volume.resolve(b"/tree/3").unwrap().attr.ino;
    volume.close().unwrap();
    let volume = disk.open();
    let objects = [1];
    let mut records = volume.env().cursor(META, Cut::before(objects), Cut::after(objects));
    let lost = loop {
        let (at, record) = records.next().unwrap().unwrap();
        if record.windows(8).any(|part| part == ino.to_le_bytes()) {
            break at.to_vec();
        }
    };
    drop(records);
    let mut batch = Batch::new();
    batch.delete(META, &lost);
    volume.env().commit(&batch).unwrap();
    volume.restore_snapshot(volume.resolve(b"/tree").unwrap().node, b"s", b"kept").unwrap();
    for i in 0..20 {
        let kept = format!("/tree/.betrfs-snapshots/kept/{i}");
        assert_eq!(contents(&volume, &format!("/tree/{i}")), i.to_string().into_bytes());
        if i == 3 {
            assert!(matches!(volume.resolve(kept.as_bytes()), Err(Error::Damaged { .. })));
        } else {
            assert!(contents(&volume, &kept).starts_with(b"changed"), "{i}");
        }
    }
}

/// The blocks read of each of the files of a directory, by number; `None` where the file cannot be had.
fn readable_blocks(volume: &Volume, dir: &str, files: u64) -> Vec<Option<Vec<bool>>> {
    let blocks = |i: u64| {
        let file = volume.resolve(format!("{dir}/{i}").as_bytes()).ok()?.node;
        let is_right = |number: u64| {
            let mut bytes = Vec::new();
            let read = volume.read(file, number * 4096, 4096, &mut bytes);
            assert!(read.is_err() || bytes == seeded::bytes(i, number * 4096, 4096), "{dir}/{i}");
            read.is_ok()
        };
        Some((0..8).map(is_right).collect())
    };
    (0..files).map(blocks).collect()
}

/// Of a small file with a block that cannot be read, the other blocks are kept, wherever it is.
#[test]
fn what_is_kept_of_a_file_with_an_unreadable_block_has_its_other_blocks() {
    const FILES: u64 = 20;
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    (disk.options.links_alone_max, disk.options.cache_bytes) = (2, 128 << 10);
    let volume = disk.open();
    let tree = mkdir(&volume, ROOT, "tree").node;
    volume.create(volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node, b"s", &new_dir()).unwrap();
    for i in 0..FILES {
        let file = mkfile(&volume, tree, &format!("{i}")).node;
        volume.write(file, 0, &seeded::bytes(i, 0, 8 * 4096)).unwrap();
        volume.set_xattr(file, b"user.large", &[i as u8; 3000], betrfs::XattrMode::Any).unwrap();
        volume.link(file, tree, format!("{i} too").as_bytes()).unwrap();
    }
    volume.close().unwrap();
    let mut met = 0;
    for place in (4096..64u64 << 20).step_by(4096) {
        let device = Arc::new(disk.device.copy());
        let mut bytes = [0; 4096];
        device.read_at(place, &mut bytes).unwrap();
        if bytes == [0; 4096] {
            continue;
        }
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        device.write_at(place, &bytes).unwrap();
        let Ok(volume) = Volume::open(device, disk.options.clone()) else { continue };
        let Ok(tree) = volume.resolve(b"/tree") else { continue };
        let before = readable_blocks(&volume, "/tree", FILES);
        if before.iter().any(Option::is_none) || before.iter().flatten().flatten().all(|is_read| *is_read) {
            continue;
        }
        match volume.restore_snapshot(tree.node, b"s", b"kept") {
            Ok(restored) if restored.made.len() == 1 => {}
            // The directory itself cannot be cloned, or not for the second time.
            Ok(_) | Err(Error::Engine(betree::Error::Corrupt { .. })) => continue,
            Err(error) => panic!("damaged at {place}: {error}"),
        }
        let kept = "/tree/.betrfs-snapshots/kept";
        assert_eq!(readable_blocks(&volume, kept, FILES), before, "damaged at {place}");
        for i in 0..FILES {
            let file = volume.resolve(format!("{kept}/{i} too").as_bytes()).unwrap();
            assert_eq!(file.attr.nlink, 2);
        }
        met += 1;
        if met == 8 {
            return;
        }
    }
    panic!("only {met} damaged places were in the files");
}

/// Whether what has failed did not end all changes.
fn takes_changes(volume: &Volume) -> bool {
    let probed = volume.create(ROOT, b"probe", &new_file()).and_then(|_| volume.unlink(ROOT, b"probe"));
    probed.is_ok() && volume.sync().is_ok()
}

/// A way back that a failing disk has put off: the volume, once the disk works again, and its directory.
pub fn put_off(disk: &Disk, path: &str) -> (Disk, Volume, InodeId) {
    for at_call in 1.. {
        let device = Arc::new(disk.device.copy());
        let disk = Disk::holding(device.clone(), disk.options.clone());
        let volume = disk.open();
        let dir = volume.resolve(path.as_bytes()).unwrap().node;
        device.set_fault(Some(Fault { at_call, op: Some(DeviceOp::Read), errno: EIO, lasting: true }));
        let failed = device.counts().failed;
        let restored = volume.restore_snapshot(dir, b"s", b"kept");
        assert!(device.counts().failed > failed, "it was not put off by any of {at_call} reads");
        device.set_fault(None);
        if restored.is_ok_and(|restored| restored.made.is_empty()) && takes_changes(&volume) {
            return (disk, volume, dir);
        }
    }
    unreachable!()
}

/// A disk with a cache that is too small for anything to stay in it.
pub fn disk_that_reads() -> Disk {
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    (disk.options.links_alone_max, disk.options.cache_bytes) = (8, 128 << 10);
    disk
}

/// A directory at `parent/tree`, with a snapshot `s` and more names of linked files than are gone through
/// while others wait.
pub fn linked_tree(volume: &Volume, parent: InodeId) -> InodeId {
    let tree = mkdir(volume, parent, "tree").node;
    volume.create(volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node, b"s", &new_dir()).unwrap();
    for i in 0..150 {
        let file = mkfile(volume, tree, &format!("{i}")).node;
        volume.write(file, 0, b"precious").unwrap();
        volume.write(file, 8, &[7; 3000]).unwrap();
        volume.link(file, tree, format!("{i} too").as_bytes()).unwrap();
    }
    tree
}

/// Makes a file below a directory, whose path has `path_bytes` bytes, with a key of `key_bytes` bytes.
pub fn mkfile_deep(volume: &Volume, mut dir: InodeId, path_bytes: usize, key_bytes: usize) -> InodeId {
    let mut rest = key_bytes - path_bytes;
    while rest > 2 + 255 {
        dir = mkdir(volume, dir, &"d".repeat(255.min(rest - 4))).node;
        rest -= 1 + 255.min(rest - 4);
    }
    mkfile(volume, dir, &"f".repeat(rest - 2)).node
}

/// The longest key of an object.
pub const KEY_BYTES_MAX: usize = betree::KEY_BYTES_MAX - 2 - 255;
/// By how much a key in a snapshot `kept` of `/dir/tree` is longer than that in the directory.
const KEPT_BYTES: usize = 3 + "kept".len();

/// What is there could never become a snapshot: then it stays as it is.
#[test]
fn a_way_back_is_refused_where_the_keys_of_what_is_kept_would_be_too_long() {
    for links_alone_max in [1000, 8] {
        for more in [0, 1] {
            let mut disk = Disk::of_bytes(128 << 20);
            disk.options.links_alone_max = links_alone_max;
            let volume = disk.open();
            let tree = linked_tree(&volume, mkdir(&volume, ROOT, "dir").node);
            mkfile_deep(&volume, tree, "/dir/tree".len(), KEY_BYTES_MAX - KEPT_BYTES + more);
            let before = names(&volume, tree);
            let restored = volume.restore_snapshot(tree, b"s", b"kept").map(|restored| restored.made.len());
            if more == 0 {
                assert_eq!((restored, names(&volume, tree)), (Ok(1), Vec::new()), "{links_alone_max}");
                assert!(contents(&volume, "/dir/tree/.betrfs-snapshots/kept/7 too").starts_with(b"precious"));
            } else {
                assert_eq!(restored, Err(Error::NameTooLong), "{links_alone_max}");
                assert_eq!(names(&volume, tree), before);
                assert_eq!(volume.finish_removals(), betrfs::Finished::default());
                let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
                assert_eq!(names(&volume, snapshots), ["s"]);
            }
            assert_sound(&volume);
        }
    }
}

/// Until what is kept has its name, its directory moves only to where it can get it.
#[test]
fn a_directory_does_not_move_to_where_the_keys_of_what_is_kept_would_be_too_long() {
    for is_opened_again in [false, true] {
        let disk = disk_that_reads();
        let volume = disk.open();
        let tree = linked_tree(&volume, mkdir(&volume, ROOT, "dir").node);
        mkfile_deep(&volume, tree, "/dir/tree".len(), KEY_BYTES_MAX - KEPT_BYTES);
        mkdir(&volume, ROOT, "other directory");
        volume.close().unwrap();
        drop(volume);
        let (disk, mut volume, _) = put_off(&disk, "/dir/tree");
        if is_opened_again {
            // It finds that the disk fails still.
            volume.env().abandon();
            drop(volume);
            volume = opened_without_kept(&disk);
        }
        let dir = volume.resolve(b"/dir").unwrap().node;
        let other = volume.resolve(b"/other directory").unwrap().node;
        let rename = |from: (InodeId, &str), to: (InodeId, &str), exchange| {
            let flags = betrfs::RenameFlags { exchange, ..Default::default() };
            volume.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
        };
        assert_eq!(rename((dir, "tree"), (dir, "trees"), false), Err(Error::NameTooLong));
        assert_eq!(rename((ROOT, "dir"), (ROOT, "dirs"), false), Err(Error::NameTooLong));
        for (one, two) in [("dir", "other directory"), ("other directory", "dir")] {
            assert_eq!(rename((ROOT, one), (ROOT, two), true), Err(Error::NameTooLong));
        }
        assert_eq!(names(&volume, other), Vec::<String>::new());
        // The others, and what is above and becomes shorter, go on.
        rename((ROOT, "other directory"), (ROOT, "another directory"), false).unwrap();
        rename((ROOT, "dir"), (ROOT, "d"), false).unwrap();
        rename((dir, "tree"), (dir, "a tree"), false).unwrap();
        assert_eq!(rename((dir, "a tree"), (dir, "the tree"), false), Err(Error::NameTooLong));
        assert_eq!(volume.finish_removals().snapshots.len(), 1);
        assert!(contents(&volume, "/d/a tree/.betrfs-snapshots/kept/7 too").starts_with(b"precious"));
        assert_sound(&volume);
    }
}

/// Until what is kept has its name, it holds its directory as the snapshot will.
#[test]
fn what_is_kept_holds_its_directory_before_it_has_its_name() {
    let disk = disk_that_reads();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"before", &new_dir()).unwrap();
    linked_tree(&volume, dir);
    mkdir(&volume, ROOT, "moved");
    mkdir(&volume, ROOT, "source");
    volume.close().unwrap();
    drop(volume);
    let (disk, mut volume, _) = put_off(&disk, "/dir/tree");
    for is_opened_again in [false, true] {
        if is_opened_again {
            volume.env().abandon();
            drop(volume);
            volume = opened_without_kept(&disk);
        }
        let dir = volume.resolve(b"/dir").unwrap().node;
        let tree = volume.resolve(b"/dir/tree").unwrap().node;
        let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
        let held = Err(Error::HeldBySnapshots);
        if !is_opened_again {
            assert_eq!(volume.may_restore_snapshot(dir, b"before", b"kept"), held);
            assert_eq!(volume.restore_snapshot(dir, b"before", b"kept").map(drop), held);
            // No other snapshot holds it.
            volume.rmdir(volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node, b"before").unwrap();
            volume.rmdir(snapshots, b"s").unwrap();
        }
        assert_eq!((names(&volume, tree), names(&volume, snapshots)), (Vec::new(), Vec::new()));
        let source = volume.resolve(b"/source").unwrap().node;
        assert_eq!(volume.rmdir(dir, b"tree").map(drop), held);
        for node in [tree, dir, ROOT] {
            assert_eq!(volume.remove_below(node, SnapshotsBelow::Hold).map(drop), held);
        }
        assert_eq!(volume.rename(ROOT, b"moved", dir, b"tree", betrfs::RenameFlags::default()), held);
        assert_eq!(volume.clone_onto(source, tree), held);
        assert_eq!(names(&volume, snapshots), Vec::<String>::new(), "it was finished meanwhile");
        volume.sync().unwrap();
    }
    let tree = volume.resolve(b"/dir/tree").unwrap().node;
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    assert_eq!(volume.finish_removals().snapshots, [(snapshots, Arc::from(&b"kept"[..]))]);
    assert!(contents(&volume, "/dir/tree/.betrfs-snapshots/kept/7 too").starts_with(b"precious"));
    assert_sound(&volume);
}

/// Who removes a directory with its snapshots gives up what is kept for it, and one above may go as well.
#[test]
fn what_is_kept_is_given_up_with_the_snapshots_of_its_directory() {
    let disk = disk_that_reads();
    let volume = disk.open();
    linked_tree(&volume, mkdir(&volume, ROOT, "dir").node);
    volume.close().unwrap();
    drop(volume);
    for emptied in ["/dir/tree", "/dir"] {
        for is_opened_again in [false, true] {
            let (disk, mut volume, _) = put_off(&disk, "/dir/tree");
            if is_opened_again {
                volume.env().abandon();
                drop(volume);
                volume = opened_without_kept(&disk);
            }
            let dir = volume.resolve(b"/dir").unwrap().node;
            volume
                .remove_below(volume.resolve(emptied.as_bytes()).unwrap().node, SnapshotsBelow::Go)
                .unwrap();
            if emptied == "/dir/tree" {
                let tree = volume.resolve(b"/dir/tree").unwrap().node;
                let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
                volume.create(snapshots, b"kept", &new_dir()).unwrap();
                volume.rmdir(snapshots, b"kept").unwrap();
                volume.rmdir(dir, b"tree").unwrap();
            }
            volume.rmdir(ROOT, b"dir").unwrap();
            assert_eq!(volume.finish_removals(), betrfs::Finished::default());
            assert_sound(&volume);
            volume.close().unwrap();
            assert_eq!(markers(&disk.device), BTreeSet::new());
        }
    }
}

/// Opens a volume whose disk fails until the opening has put off what it was to complete.
fn opened_without_kept(disk: &Disk) -> Volume {
    for at_call in 1.. {
        let device = disk.device.clone();
        device.set_fault(Some(Fault { at_call, op: Some(DeviceOp::Read), errno: EIO, lasting: true }));
        let failed = device.counts().failed;
        let opened = Volume::open(device.clone(), disk.options.clone());
        assert!(device.counts().failed > failed, "it was not put off by any of {at_call} reads");
        device.set_fault(None);
        match opened {
            Ok(volume) if takes_changes(&volume) => return volume,
            Ok(volume) => volume.env().abandon(),
            Err(_) => {}
        }
    }
    unreachable!()
}

/// What a full disk has stopped of it goes on once there is room.
#[test]
fn a_way_back_that_a_full_disk_has_stopped_is_finished_once_there_is_room() {
    const FILES: u64 = 1000;
    for at_call in (1..5000).step_by(23) {
        let mut disk = Disk::of_tiny_nodes(64 << 20);
        (disk.options.links_alone_max, disk.options.cache_bytes) = (2, 128 << 10);
        let volume = disk.open();
        let tree = changed_farm(&volume, FILES);
        let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
        volume.sync().unwrap();
        let write = Fault { at_call, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true };
        disk.device.set_fault(Some(write));
        let restored = volume.restore_snapshot(tree, b"s", b"kept");
        if restored.is_err() || !restored.unwrap().made.is_empty() {
            continue;
        }
        assert_eq!(volume.finish_removals().snapshots, []);
        assert_eq!(volume.lookup(snapshots, b"kept"), Err(Error::NotFound));
        assert!(volume.create(snapshots, b"kept", &new_dir()).is_err());
        disk.device.set_fault(None);
        if volume.sync().is_err() {
            // The disk was full at a superblock: nothing more is taken, and the next opening goes on.
            drop(volume);
            let volume = disk.open();
            assert_went_back(&volume, "/tree", FILES);
            continue;
        }
        assert_eq!(volume.finish_removals().snapshots, [(snapshots, Arc::from(&b"kept"[..]))]);
        assert_went_back(&volume, "/tree", FILES);
        assert_sound(&volume);
        return;
    }
    panic!("no way back was stopped");
}

/// A read that fails once takes nothing of what is kept away, whichever it is.
#[test]
fn what_is_kept_is_whole_where_reads_have_failed() {
    const FILES: u64 = 150;
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    (disk.options.links_alone_max, disk.options.cache_bytes) = (2, 128 << 10);
    let volume = disk.open();
    changed_farm(&volume, FILES);
    volume.close().unwrap();
    let (mut put_off, mut at_call) = (0, 1);
    loop {
        let device = Arc::new(disk.device.copy());
        let disk = Disk::holding(device.clone(), disk.options.clone());
        let volume = disk.open();
        let tree = volume.resolve(b"/tree").unwrap().node;
        device.set_fault(Some(Fault { at_call, op: Some(DeviceOp::Read), errno: EIO, lasting: false }));
        let failed = device.counts().failed;
        let restored = volume.restore_snapshot(tree, b"s", b"kept");
        let has_failed = device.counts().failed > failed;
        device.set_fault(None);
        if let Ok(restored) = restored {
            let mut volume = volume;
            if restored.made.is_empty() {
                put_off += 1;
                // What failed may have ended all changes: then the next opening goes on.
                if volume.finish_removals().snapshots.is_empty() {
                    drop(volume);
                    volume = disk.open();
                }
            }
            assert_went_back(&volume, "/tree", FILES);
            assert_sound(&volume);
        }
        if !has_failed {
            break;
        }
        at_call += 1;
    }
    assert!(put_off > 0, "no read failed after the way back");
}
