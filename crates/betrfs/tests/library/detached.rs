//! Trees with many names of files with several: copies and removals go through these while others go on.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use betree::{Cut, DictId, Env};
use betree_platform::DeviceOp;
use betree_sim::{ENOSPC, Fault, MemDevice};

use crate::kept::{KEY_BYTES_MAX, mkfile_deep};
use crate::support::*;
use crate::waiting::{Act, OnRead};
use betrfs::{Error, InodeId, OpKind, SNAPSHOTS_NAME, SnapshotsBelow, Volume};

pub const META: DictId = DictId(0);
/// The first byte of the keys of markers.
const MARKERS: [u8; 1] = [2];

/// A directory `tree` with this many files of two names each, in it and beside it in turn; and one with all
/// of its names in the tree.
pub fn farm(volume: &Volume, files: u64) -> (InodeId, InodeId) {
    let (tree, beside) = (mkdir(volume, ROOT, "tree").node, mkdir(volume, ROOT, "beside").node);
    let inner = mkdir(volume, tree, "inner").node;
    for i in 0..files {
        let name = format!("{i}");
        let file = mkfile(volume, tree, &name).node;
        volume.write(file, 0, name.as_bytes()).unwrap();
        volume.link(file, if i.is_multiple_of(2) { beside } else { inner }, name.as_bytes()).unwrap();
        volume.forget(file, 1);
    }
    let large = mkfile(volume, tree, "large").node;
    volume.write(large, 0, &[7; 200_000]).unwrap();
    volume.link(large, inner, b"large").unwrap();
    (tree, beside)
}

pub fn links(volume: &Volume, path: &str) -> u32 {
    volume.resolve(path.as_bytes()).unwrap().attr.nlink
}

pub fn disk(links_alone_max: usize) -> Disk {
    let mut disk = Disk::of_bytes(64 << 20);
    disk.options.links_alone_max = links_alone_max;
    disk
}

#[test]
fn a_copy_with_many_links_has_files_of_its_own() {
    let disk = disk(8);
    let volume = disk.open();
    let (tree, _) = farm(&volume, 100);
    volume.set_xattr(tree, b"user.large", &[5; 3000], betrfs::XattrMode::Any).unwrap();
    volume.clone_inode(tree, ROOT, b"copy").unwrap();
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    for i in 0..100u64 {
        let file = volume.resolve(format!("/tree/{i}").as_bytes()).unwrap().node;
        volume.write(file, 0, b"changed").unwrap();
    }
    let assert_copied = |volume: &Volume| {
        for i in 0..100u64 {
            for copy in ["copy", "tree/.betrfs-snapshots/s"] {
                let path = format!("/{copy}/{i}");
                assert_eq!(contents(volume, &path), i.to_string().into_bytes(), "{path}");
                // A name beside the tree is none of the copy.
                let inside = if i.is_multiple_of(2) { 1 } else { 2 };
                assert_eq!(links(volume, &path), inside, "{path}");
            }
            assert_eq!(links(volume, &format!("/tree/{i}")), 2);
        }
        assert!(contents(volume, "/copy/inner/large") == [7; 200_000]);
        let copy = volume.resolve(b"/copy").unwrap().node;
        assert_eq!(volume.get_xattr(copy, b"user.large").unwrap(), [5; 3000]);
    };
    assert_copied(&volume);
    let in_snapshot = volume.resolve(b"/tree/.betrfs-snapshots/s/inner/large").unwrap().node;
    assert_eq!(volume.write(in_snapshot, 0, b"x"), Err(Error::InSnapshot));
    assert_sound(&volume);
    volume.close().unwrap();
    assert_copied(&disk.open());
}

#[test]
fn a_removed_tree_with_many_links_leaves_files_with_their_other_names() {
    let disk = disk(8);
    let volume = disk.open();
    let (tree, beside) = farm(&volume, 100);
    let held = volume.resolve(b"/beside/0").unwrap().node;
    let open = volume.resolve(b"/tree/1").unwrap().node;
    volume.open_inode(open).unwrap();
    let changed = volume.remove_below(tree, SnapshotsBelow::Hold).unwrap().changed;
    assert!(changed.contains(&held) && changed.contains(&open), "{changed:?}");
    assert_eq!(names(&volume, tree), Vec::<String>::new());
    for i in (0..100).step_by(2) {
        let path = format!("/beside/{i}");
        assert_eq!((links(&volume, &path), contents(&volume, &path)), (1, i.to_string().into_bytes()));
    }
    // Open, without a name.
    assert_eq!((volume.getattr(open).unwrap().nlink, read_all(&volume, open)), (0, b"1".to_vec()));
    assert_eq!(names(&volume, beside).len(), 50);
    volume.rmdir(ROOT, b"tree").unwrap();
    assert_sound(&volume);
    volume.release_node(open);
    volume.close().unwrap();
    assert_sound(&disk.open());
}

#[test]
fn snapshots_with_many_links_go_with_their_directory() {
    let disk = disk(2);
    let volume = disk.open();
    let (tree, _) = farm(&volume, 10);
    let free = volume.env().space().unused_bytes;
    for name in ["s", "t"] {
        let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
        volume.create(snapshots, name.as_bytes(), &new_dir()).unwrap();
    }
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.rmdir(snapshots, b"t").unwrap();
    assert_eq!(volume.remove_below(tree, SnapshotsBelow::Hold), Err(Error::HeldBySnapshots));
    volume.remove_below(tree, SnapshotsBelow::Go).unwrap();
    assert_eq!((names(&volume, tree), names(&volume, snapshots)), (Vec::new(), Vec::new()));
    assert_sound(&volume);
    volume.statfs().unwrap();
    let now = volume.env().space().unused_bytes;
    assert!(now + (1 << 20) > free, "{now} bytes are free, {free} before the snapshots");
}

/// The most objects that an operation of any kind has looked at while others waited for it.
fn looked_at_once(volume: &Volume) -> u64 {
    let counters = volume.counters();
    OpKind::ALL.iter().map(|kind| counters.of(*kind).visited_at_once_max).max().unwrap()
}

/// Files of one batch, and what the operation itself needs.
const AT_ONCE_MAX: u64 = 64 + 16 + 12;

#[test]
fn others_wait_for_few_links_of_a_tree_at_a_time() {
    let disk = disk(64);
    let volume = disk.open();
    let (tree, _) = farm(&volume, 1000);
    volume.clone_inode(tree, ROOT, b"copy").unwrap();
    let target = mkdir(&volume, ROOT, "target").node;
    volume.clone_onto(tree, target).unwrap();
    volume.create(volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node, b"s", &new_dir()).unwrap();
    volume.remove_below(target, SnapshotsBelow::Hold).unwrap();
    volume.restore_snapshot(tree, b"s", b"kept").unwrap();
    volume.remove_below(tree, SnapshotsBelow::Go).unwrap();
    let most = looked_at_once(&volume);
    assert!(most <= AT_ONCE_MAX, "{most}");
    assert_sound(&volume);
}

/// So with files that are open, or were unlinked while they were.
#[test]
fn others_wait_for_few_open_files_of_a_tree_at_a_time() {
    let disk = disk(64);
    let volume = disk.open();
    let tree = mkdir(&volume, ROOT, "tree").node;
    let open = |text: &str| -> Vec<InodeId> {
        let make = |i: u64| {
            let file = mkfile(&volume, tree, &format!("{text}{i}")).node;
            volume.write(file, 0, text.as_bytes()).unwrap();
            volume.open_inode(file).unwrap();
            file
        };
        (0..500).map(make).collect()
    };
    for (turn, text) in ["moved", "cloned", "snapshot", "removed"].into_iter().enumerate() {
        let unlinked = open(text);
        (0..500).for_each(|i| volume.unlink(tree, format!("{text}{i}").as_bytes()).unwrap());
        let mut files = unlinked;
        match turn {
            0 => volume.rename(ROOT, b"tree", ROOT, b"moved", betrfs::RenameFlags::default()).unwrap(),
            1 => drop(volume.clone_inode(tree, ROOT, b"copy").unwrap()),
            2 => drop(
                volume.create(volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node, b"s", &new_dir()).unwrap(),
            ),
            _ => {
                files.extend(open(text));
                drop(volume.remove_below(tree, SnapshotsBelow::Go).unwrap());
            }
        }
        for file in &files {
            assert_eq!((read_all(&volume, *file), volume.getattr(*file).unwrap().nlink), (text.into(), 0));
        }
        assert_sound(&volume);
        files.into_iter().for_each(|file| volume.release_node(file));
        let most = looked_at_once(&volume);
        assert!(most <= AT_ONCE_MAX, "{text}: {most}");
    }
    assert_sound(&volume);
}

/// Files that are open live on when their directory goes back to a snapshot, however many.
#[test]
fn many_open_files_outlive_the_way_back_to_a_snapshot() {
    let disk = disk(8);
    let volume = disk.open();
    let (tree, _) = farm(&volume, 50);
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    let open = |i: u64| {
        let file = mkfile(&volume, tree, &format!("open{i}")).node;
        volume.write(file, 0, &[i as u8; 5000]).unwrap();
        volume.open_inode(file).unwrap();
        if i.is_multiple_of(2) {
            volume.unlink(tree, format!("open{i}").as_bytes()).unwrap();
        }
        file
    };
    let open: Vec<InodeId> = (0..100).map(open).collect();
    volume.restore_snapshot(tree, b"s", b"kept").unwrap();
    for (i, file) in open.iter().enumerate() {
        assert!(read_all(&volume, *file) == [i as u8; 5000]);
        assert_eq!(volume.getattr(*file).unwrap().nlink, 0);
        let kept = format!("/tree/.betrfs-snapshots/kept/open{i}");
        let is_kept = volume.resolve(kept.as_bytes()).is_ok_and(|kept| kept.attr.size == 5000);
        assert_eq!(is_kept, !i.is_multiple_of(2), "{kept}");
    }
    for i in 0..50u64 {
        assert_eq!(contents(&volume, &format!("/tree/{i}")), i.to_string().into_bytes());
    }
    assert_sound(&volume);
    open.into_iter().for_each(|file| volume.release_node(file));
    assert_sound(&volume);
}

/// In a quota the tree is measured: that must not begin again with each turn of others.
#[test]
fn a_tree_with_many_open_files_is_removed_and_brought_back_in_a_quota() {
    let disk = disk(64);
    let volume = disk.open();
    let home = mkdir(&volume, ROOT, "home").node;
    volume.set_quota(home, betrfs::QuotaLimits { bytes: None, objects: Some(1000) }).unwrap();
    let tree = mkdir(&volume, home, "tree").node;
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    for is_restored in [false, true] {
        for i in 0..300 {
            volume.open_inode(mkfile(&volume, tree, &format!("{i}")).node).unwrap();
        }
        if is_restored {
            drop(volume.restore_snapshot(tree, b"s", b"kept").unwrap());
        } else {
            drop(volume.remove_below(tree, SnapshotsBelow::Go).unwrap());
            let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
            volume.create(snapshots, b"s", &new_dir()).unwrap();
        }
        assert_eq!(volume.quota(home).unwrap().unwrap().used.objects, 1);
    }
    assert_sound(&volume);
}

/// The same with files of several names: others wait for few of them, and what changes between the removal
/// and its end counts where it belongs.
#[test]
fn a_tree_with_many_links_is_removed_in_a_quota_a_part_at_a_time() {
    const FILES: u64 = 1000;
    // The quota is the tree's own, or that of a directory above it; one below it goes with the tree.
    for is_own in [false, true] {
        let mut disk = Disk::of_tiny_nodes(64 << 20);
        (disk.options.links_alone_max, disk.options.cache_bytes) = (64, 128 << 10);
        let volume = disk.open();
        let home = mkdir(&volume, ROOT, "home").node;
        let tree = mkdir(&volume, home, "tree").node;
        let (inner, nested) = (mkdir(&volume, tree, "inner").node, mkdir(&volume, tree, "nested").node);
        let any = betrfs::QuotaLimits { bytes: None, objects: None };
        [home, nested]
            .into_iter()
            .chain(is_own.then_some(tree))
            .for_each(|dir| volume.set_quota(dir, any).unwrap());
        let mut files = Vec::new();
        for i in 0..FILES {
            let name = format!("{i}");
            let (one, other) = if i % 10 == 3 { (nested, nested) } else { (tree, inner) };
            let file = mkfile(&volume, one, &name).node;
            volume.write(file, 0, &[7; 5000]).unwrap();
            volume.link(file, other, format!("{i} too").as_bytes()).unwrap();
            if i % 10 == 5 && !is_own {
                volume.link(file, home, name.as_bytes()).unwrap();
            }
            files.push(file);
        }
        let write = Fault { at_call: 1, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true };
        volume.sync().unwrap();
        // So that there is time between the two.
        disk.device.set_fault(Some(write));
        mkfile(&volume, home, "new");
        assert!(volume.sync().is_err());
        volume.remove_below(tree, SnapshotsBelow::Hold).unwrap();
        disk.device.set_fault(None);
        volume.sync().unwrap();
        let counted = |volume: &Volume| {
            let (used, right) = (crate::quotas::used(volume, home), crate::quotas::counted(volume, home));
            assert_eq!(used, right);
        };
        counted(&volume);
        assert!(volume.getattr(files[FILES as usize - 1]).unwrap().nlink > 0, "it was not stopped");
        // The last ones that it will come to: names of one and two digits less.
        for (file, what) in
            files.iter().rev().filter(|file| volume.getattr(**file).is_ok()).zip((0..5).cycle()).take(200)
        {
            let name = format!("back{}", file.0);
            match what {
                0 => drop(volume.write(*file, 5000, &[7; 100_000]).unwrap()),
                1 => drop(
                    volume.link(*file, home, name.as_bytes()).map(|_| volume.write(*file, 0, &[8; 50_000])),
                ),
                2 => drop(volume.link(*file, tree, name.as_bytes())),
                3 => drop(volume.link(*file, ROOT, name.as_bytes())),
                _ => {
                    if volume.link(*file, home, name.as_bytes()).is_ok() {
                        volume.unlink(home, name.as_bytes()).unwrap();
                    }
                }
            }
        }
        volume.finish_removals();
        counted(&volume);
        assert_sound(&volume);
        let most = looked_at_once(&volume);
        assert!(most <= AT_ONCE_MAX, "{most}");
        volume.close().unwrap();
        let volume = disk.open();
        assert_sound(&volume);
    }
}

/// What cannot be attached leaves nothing behind.
#[test]
fn a_copy_with_many_links_that_is_refused_at_its_end_is_cleared() {
    let disk = disk(4);
    let volume = disk.open();
    let (tree, _) = farm(&volume, 20);
    let limits = betrfs::QuotaLimits { bytes: None, objects: Some(15) };
    let home = mkdir(&volume, ROOT, "home").node;
    volume.set_quota(home, limits).unwrap();
    assert_eq!(volume.clone_inode(tree, home, b"copy"), Err(Error::QuotaExceeded));
    assert_eq!(names(&volume, home), Vec::<String>::new());
    assert_sound(&volume);
    volume.set_quota(home, betrfs::QuotaLimits { bytes: None, objects: Some(60) }).unwrap();
    volume.clone_inode(tree, home, b"copy").unwrap();
    assert_eq!(volume.quota(home).unwrap().unwrap().used.objects, 23);
    assert_sound(&volume);
}

/// A short path is shorter than that of a detached tree: there the longest keys would be too long.
#[test]
fn a_tree_with_many_links_and_the_longest_keys_is_removed() {
    for (name, links_alone_max) in [("t", 1000), ("t", 8), ("a long name", 8)] {
        let disk = disk(links_alone_max);
        let volume = disk.open();
        let (tree, beside) = (mkdir(&volume, ROOT, name).node, mkdir(&volume, ROOT, "beside").node);
        for i in 0..20 {
            let file = mkfile(&volume, tree, &format!("{i}")).node;
            volume.link(file, tree, format!("{i} too").as_bytes()).unwrap();
            volume.link(file, beside, format!("{i}").as_bytes()).unwrap();
        }
        let file = mkfile_deep(&volume, tree, 1 + name.len(), KEY_BYTES_MAX);
        let attribute = format!("user.{}", "x".repeat(250));
        volume.set_xattr(file, attribute.as_bytes(), &[5; 3000], betrfs::XattrMode::Any).unwrap();
        volume.remove_below(tree, SnapshotsBelow::Hold).unwrap();
        assert_eq!((names(&volume, tree), links(&volume, "/beside/7")), (Vec::new(), 1));
        assert_sound(&volume);
    }
}

/// A target below its source is left out of the copy. What comes into it after it was found empty, while the
/// copy waits for the device, would come along without its directory, even if it goes again.
#[test]
fn a_target_that_has_contents_when_its_source_is_copied_is_refused() {
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    disk.options.links_alone_max = 8;
    let volume = disk.open();
    let source = mkdir(&volume, ROOT, "source").node;
    for i in 0..300 {
        let file = mkfile(&volume, source, &format!("{i}")).node;
        volume.link(file, source, format!("{i} too").as_bytes()).unwrap();
    }
    mkdir(&volume, source, "target");
    volume.close().unwrap();

    let device = OnRead::new(disk.device.copy());
    let volume = Arc::new(Volume::open(device.clone(), disk.options.clone()).unwrap());
    let (source, target) =
        (volume.resolve(b"/source").unwrap().node, volume.resolve(b"/source/target").unwrap().node);
    // What the creation needs is in memory from now on.
    mkfile(&volume, target, "x");
    volume.unlink(target, b"x").unwrap();
    let is_made = Arc::new(AtomicBool::new(false));
    let act: Act = {
        let (volume, is_made) = (volume.clone(), is_made.clone());
        Arc::new(move || match volume.counters().of(OpKind::Clone).calls {
            // It finds that it has many links,
            0 | 1 => {}
            // begins the copy,
            2 => {
                if !is_made.swap(true, SeqCst) {
                    mkfile(&volume, target, "x");
                }
            }
            // and leads its names to new files.
            _ => drop(volume.unlink(target, b"x")),
        })
    };
    device.set(Some(act));
    let copied = volume.clone_onto(source, target);
    device.set(None);
    assert!(is_made.load(SeqCst), "the copy has read nothing once it had begun");
    assert_sound(&volume);
    assert_eq!((copied, names(&volume, target)), (Err(Error::NotEmpty), vec!["x".into()]));
    volume.unlink(target, b"x").unwrap();
    volume.clone_onto(source, target).unwrap();
    assert_eq!(names(&volume, target).len(), 600);
    assert_sound(&volume);
}

/// On a full volume, too, however many names outside they leave.
#[test]
fn trees_with_many_links_or_open_files_are_removed_from_a_full_volume() {
    let mut disk = Disk::of_bytes(48 << 20);
    disk.options.links_alone_max = 64;
    let volume = disk.open();
    let (tree, _) = farm(&volume, 3000);
    let fill = mkfile(&volume, ROOT, "fill").node;
    let mut written = 0;
    while let Ok(count) = volume.write(fill, written, &seeded::bytes(written, 0, 64 << 10)) {
        written += count as u64;
    }
    let open: Vec<InodeId> =
        (0..200).map(|i| volume.resolve(format!("/tree/{i}").as_bytes()).unwrap().node).collect();
    open.iter().for_each(|file| volume.open_inode(*file).unwrap());
    assert_eq!(volume.clone_inode(tree, ROOT, b"copy"), Err(Error::NoSpace));
    volume.remove_below(tree, SnapshotsBelow::Hold).unwrap();
    assert_eq!(names(&volume, tree), Vec::<String>::new());
    assert_sound(&volume);
    open.into_iter().for_each(|file| volume.release_node(file));
    assert_sound(&volume);
}

/// A check of a volume in use finds nothing wrong in a tree that is being gone through.
#[test]
fn checks_meanwhile_find_a_detached_tree_right() {
    let disk = disk(0);
    let volume = disk.open();
    let (tree, _) = farm(&volume, 300);
    let snapshots = volume.lookup(tree, SNAPSHOTS_NAME).unwrap().node;
    volume.create(snapshots, b"s", &new_dir()).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                volume.restore_snapshot(tree, b"s", b"kept").unwrap();
                volume.rmdir(snapshots, b"kept").unwrap();
                let copy = volume.clone_inode(tree, ROOT, b"copy").unwrap().node;
                volume.remove_below(copy, SnapshotsBelow::Hold).unwrap();
                volume.rmdir(ROOT, b"copy").unwrap();
            }
        });
        let mut detached = BTreeSet::new();
        // All kinds are met at once, but for a very busy machine.
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            let mut markers = volume.env().cursor(META, Cut::before(MARKERS), Cut::after(MARKERS));
            if let Some((_, marker)) = markers.next().unwrap() {
                detached.insert(marker[1]);
                let report = volume.check_in_use(&mut |_, _| ControlFlow::Continue(())).unwrap();
                assert!(report.problems.is_empty(), "{:?}", report.problems);
            }
            if detached.len() == 3 {
                return;
            }
        }
        panic!("only the kinds {detached:?} were met");
    });
}

/// The kinds of markers on a volume that was not opened since a crash.
pub fn markers(image: &MemDevice) -> BTreeSet<u8> {
    let env = Env::open(Arc::new(image.copy()), Volume::engine_options(8 << 20)).unwrap();
    let mut markers = env.cursor(META, Cut::before(MARKERS), Cut::after(MARKERS));
    let mut kinds = BTreeSet::new();
    while let Some((_, marker)) = markers.next().unwrap() {
        kinds.insert(marker[1]);
    }
    env.abandon();
    kinds
}

/// Whatever is durable of a removal or a copy when the power goes, the next opening completes the removal and
/// takes the copy back.
#[test]
fn a_crash_leaves_no_part_of_a_tree_with_many_links() {
    const FILES: u64 = 1000;
    let mut met = BTreeSet::new();
    // A crash in the middle of both is met at once, but for a very busy machine.
    for _ in 0..20 {
        let mut disk = Disk::of_bytes(32 << 20);
        disk.options.links_alone_max = 0;
        let volume = disk.open();
        let (tree, _) = farm(&volume, FILES);
        volume.sync().unwrap();
        let is_over = AtomicBool::new(false);
        let images = thread::scope(|scope| {
            let over = SetOnDrop(&is_over);
            let watch = scope.spawn(|| {
                let commits = || {
                    let counters = volume.counters();
                    OpKind::ALL.iter().map(|kind| counters.of(*kind).commits).sum::<u64>()
                };
                let (mut images, mut last) = (Vec::new(), commits());
                while !is_over.load(SeqCst) {
                    if commits() > last + 2 {
                        last = commits();
                        volume.sync().unwrap();
                        images.push(disk.device.copy());
                    }
                }
                images
            });
            volume.clone_inode(tree, ROOT, b"copy").unwrap();
            volume.remove_below(tree, SnapshotsBelow::Hold).unwrap();
            drop(over);
            watch.join().unwrap()
        });
        for image in images {
            met.extend(markers(&image));
            let image = Disk::holding(Arc::new(image), disk.options.clone());
            let volume = image.open();
            let is_there = volume.resolve(b"/tree/0").is_ok();
            let left = volume.resolve(b"/tree/inner/1").is_ok();
            assert_eq!(is_there, left);
            for i in 0..FILES {
                if i.is_multiple_of(2) {
                    assert_eq!(links(&volume, &format!("/beside/{i}")), 1 + u32::from(is_there));
                }
                match volume.resolve(format!("/copy/{i}").as_bytes()) {
                    Ok(copied) => assert_eq!(copied.attr.nlink, if i.is_multiple_of(2) { 1 } else { 2 }),
                    // The copy came first.
                    Err(error) => assert_eq!((error, is_there), (Error::NotFound, true)),
                }
            }
            assert_sound(&volume);
            volume.close().unwrap();
            assert_eq!(markers(&image.device), BTreeSet::new());
        }
        if met.len() == 2 {
            return;
        }
    }
    panic!("no crash in the middle was met but of the kinds {met:?}");
}

/// A removal that a full disk has stopped goes on once there is room, and the caller hears of it.
#[test]
fn a_removal_that_a_full_disk_has_stopped_is_finished_once_there_is_room() {
    const FILES: u64 = 1000;
    let mut disk = Disk::of_tiny_nodes(64 << 20);
    (disk.options.links_alone_max, disk.options.cache_bytes) = (2, 128 << 10);
    let volume = disk.open();
    let (tree, beside) = farm(&volume, FILES);
    let with_two_names = |volume: &Volume| {
        let names = (0..FILES).step_by(2).map(|i| links(volume, &format!("/beside/{i}")));
        names.filter(|links| *links == 2).count()
    };
    let beside_it = (0..FILES).step_by(2).map(|i| format!("/beside/{i}"));
    let held: Vec<InodeId> = beside_it.map(|path| volume.resolve(path.as_bytes()).unwrap().node).collect();
    volume.sync().unwrap();
    let write = Fault { at_call: 1, op: Some(DeviceOp::Write), errno: ENOSPC, lasting: true };
    disk.device.set_fault(Some(write));
    mkfile(&volume, beside, "new");
    assert!(matches!(volume.sync(), Err(Error::Engine(betree::Error::DeviceFull(_)))));
    let mut told = volume.remove_below(tree, SnapshotsBelow::Hold).unwrap().changed;
    assert_eq!(names(&volume, tree), Vec::<String>::new());
    let left = with_two_names(&volume);
    assert!((1..FILES as usize / 2).contains(&left), "it was stopped with {left} names left");
    disk.device.set_fault(None);
    volume.sync().unwrap();
    told.extend(volume.finish_removals().changed);
    assert!(held.iter().all(|node| told.contains(node)));
    assert_eq!((with_two_names(&volume), volume.finish_removals()), (0, betrfs::Finished::default()));
    assert_sound(&volume);
}
