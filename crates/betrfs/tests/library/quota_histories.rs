//! Quotas of directories under change: their use stays that of what is below, in random histories with
//! crashes, and while others change a tree that is measured.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use betrfs::{Error, FallocateMode, FileType, InodeId, RenameFlags, Result, SetAttr, SnapshotsBelow, Volume};

use crate::dice::Dice;
use crate::quotas::{ANY, counted, limits, rename, snapshots_of, used, write_all};
use crate::support::*;

#[test]
fn what_changes_while_a_tree_is_counted_counts() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let dirs: Vec<InodeId> = (0..4).map(|i| mkdir(&volume, dir, &format!("d{i}")).node).collect();
    let linked = mkfile(&volume, dir, "linked").node;
    volume.link(linked, dirs[0], b"linked").unwrap();
    for i in 0..400 {
        let name = format!("f{i}");
        volume.create_with(dirs[i % 4], name.as_bytes(), &new_file(), &[1; 3000]).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&done);
        for thread in 0..2u64 {
            let (volume, dirs, done) = (&volume, &dirs, &done);
            scope.spawn(move || {
                let mut dice = Dice(thread);
                while !done.load(Relaxed) {
                    let (parent, other) = (dirs[dice.roll(4) as usize], dirs[dice.roll(4) as usize]);
                    let name = format!("t{thread}-{}", dice.roll(20));
                    let name = name.as_bytes();
                    match dice.roll(6) {
                        0 | 1 => drop(volume.create_with(parent, name, &new_file(), &[1; 700])),
                        2 => drop(volume.unlink(parent, name)),
                        3 => drop(rename(volume, parent, name, other, name)),
                        4 => drop(write_all(volume, linked, dice.roll(1 << 20), 3000)),
                        _ => {
                            if let Ok(file) = volume.lookup(parent, name) {
                                let _ = write_all(volume, file.node, dice.roll(100_000), 5000);
                                volume.forget(file.node, 1);
                            }
                        }
                    }
                    thread::yield_now();
                }
            });
        }
        let mut set = 0;
        for _ in 0..60 {
            match volume.set_quota(dir, ANY) {
                Ok(()) => set += 1,
                Err(Error::Uncounted) => continue,
                Err(error) => panic!("{error}"),
            }
            let copy = volume.clone_inode(dirs[1], dir, b"copy");
            assert!(matches!(copy, Ok(_) | Err(Error::Uncounted)), "{copy:?}");
            if let Ok(copy) = copy {
                let begun = Instant::now();
                while let Err(error) = volume.remove_below(copy.node, SnapshotsBelow::Hold) {
                    assert!(begun.elapsed().as_secs() < 60, "{error}");
                }
                volume.rmdir(dir, b"copy").unwrap();
            }
            assert_sound(&volume);
            volume.clear_quota(dir).unwrap();
        }
        assert!(set > 0);
        volume.set_quota(dir, ANY).ok();
        done.store(true, Relaxed);
    });
    if volume.quota(dir).unwrap().is_none() {
        volume.set_quota(dir, ANY).unwrap();
    }
    assert_eq!(used(&volume, dir), counted(&volume, dir));
    assert_sound(&volume);
}

/// What happens once in a tree, or at its border, while it is measured. Each changes the tree and, the next
/// time, changes it back.
type Happening = fn(&Volume, usize) -> Result<()>;

const HAPPENINGS: [Happening; 4] = [
    |volume, round| {
        let [tree, other] = ["/tree", "/other"].map(|path| volume.resolve(path.as_bytes()).unwrap().node);
        let (from, to) = if round % 2 == 0 { (other, tree) } else { (tree, other) };
        rename(volume, from, b"moved", to, b"moved")
    },
    |volume, round| {
        let file = volume.resolve(b"/tree/linked").unwrap().node;
        let size = Some(if round % 2 == 0 { 0 } else { 9000 });
        volume.setattr(file, &SetAttr { size, ..SetAttr::default() }).map(drop)
    },
    |volume, round| {
        let tree = volume.resolve(b"/tree").unwrap().node;
        if round % 2 == 0 {
            return volume.clone_inode(volume.resolve(b"/other").unwrap().node, tree, b"copy").map(drop);
        }
        volume.remove_below(volume.resolve(b"/tree/copy").unwrap().node, SnapshotsBelow::Hold)?;
        volume.rmdir(tree, b"copy").map(drop)
    },
    |volume, round| {
        let file = volume.resolve(b"/tree/plain").unwrap().node;
        let size = Some(if round % 2 == 0 { 0 } else { 9000 });
        volume.setattr(file, &SetAttr { size, ..SetAttr::default() }).map(drop)
    },
];

fn until_counted(attempt: impl Fn() -> Result<()>) {
    let begun = Instant::now();
    let is_over = |done: &Result<()>| *done != Err(Error::Uncounted) || begun.elapsed().as_secs() >= 60;
    let done = std::iter::repeat_with(attempt).find(is_over);
    done.unwrap().unwrap();
}

#[test]
fn what_a_measurement_cannot_follow_makes_it_start_again() {
    let (_disk, volume) = volume();
    let [tree, other, home] = ["tree", "other", "home"].map(|name| mkdir(&volume, ROOT, name).node);
    for i in 0..500 {
        mkfile(&volume, tree, &format!("f{i:03}"));
    }
    let bytes = [7; 9000];
    volume.create_with(other, b"moved", &new_file(), &bytes).unwrap();
    volume.create_with(tree, b"plain", &new_file(), &bytes).unwrap();
    let linked = volume.create_with(tree, b"linked", &new_file(), &bytes).unwrap().node;
    volume.link(linked, tree, b"again").unwrap();
    volume.set_quota(home, ANY).unwrap();
    for happening in HAPPENINGS {
        for round in 0..24 {
            let begun = std::sync::Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    begun.wait();
                    // At different moments of the measurement.
                    (0..round * 20).for_each(|_| thread::yield_now());
                    until_counted(|| happening(&volume, round));
                });
                begun.wait();
                until_counted(|| volume.clone_inode(tree, home, b"copy").map(drop));
            });
            assert_eq!(used(&volume, home), counted(&volume, home), "round {round}");
            volume.remove_below(home, SnapshotsBelow::Hold).unwrap();
        }
    }
    assert_sound(&volume);
}

/// At a taken name, where an unlinked file's blocks lie, a file gets an object id. A measurement under way
/// knows nothing of it.
#[test]
fn a_file_that_moves_to_a_taken_name_while_its_directory_is_measured_counts_as_it_grows() {
    let (_disk, volume) = volume();
    let tree = mkdir(&volume, ROOT, "tree").node;
    for i in 0..2000 {
        mkfile(&volume, tree, &format!("f{i:03}"));
    }
    for round in 0..100 {
        let unlinked = mkfile(&volume, tree, "taken").node;
        volume.open_inode(unlinked).unwrap();
        volume.unlink(tree, b"taken").unwrap();
        let file = mkfile(&volume, tree, "file").node;
        let begun = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                begun.wait();
                // At different moments of the measurement.
                (0..round * 20).for_each(|_| thread::yield_now());
                rename(&volume, tree, b"file", tree, b"taken").unwrap();
            });
            begun.wait();
            until_counted(|| volume.set_quota(tree, ANY));
        });
        write_all(&volume, file, 0, 5000).unwrap();
        assert_eq!(used(&volume, tree), counted(&volume, tree), "round {round}");
        volume.clear_quota(tree).unwrap();
        volume.release_node(unlinked);
        volume.unlink(tree, b"taken").unwrap();
    }
    assert_sound(&volume);
}

/// A step of a random history.
fn step(volume: &Volume, dice: &mut Dice) -> Result<()> {
    let dirs: Vec<InodeId> = ["", "/a", "/a/b", "/a/b/c", "/d", "/d/e", "/a/copy", "/a/b/copy"]
        .iter()
        .filter_map(|path| volume.resolve(path.as_bytes()).ok())
        .filter(|entry| entry.attr.file_type == FileType::Directory)
        .map(|entry| entry.node)
        .collect();
    let mut one = || dirs[dice.roll(dirs.len() as u64) as usize];
    let (dir, other) = (one(), one());
    let name = |dice: &mut Dice| -> &[u8] { [b"f", b"g", b"h", b"b", b"c", b"e"][dice.roll(6) as usize] };
    let (this, that) = (name(dice), name(dice));
    let file = || volume.lookup(dir, this).map(|entry| entry.node);
    match dice.roll(18) {
        0 => volume.create_with(dir, this, &new_file(), &vec![1; dice.roll(9000) as usize]).map(drop),
        1 => volume.create(dir, this, &new_dir()).map(drop),
        2 => volume.unlink(dir, this),
        3 => volume.rmdir(dir, this).map(drop),
        4 => rename(volume, dir, this, other, that),
        5 => {
            let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
            volume.rename(dir, this, other, that, exchange)
        }
        6 => volume.link(file()?, other, that).map(drop),
        7 | 8 => write_all(volume, file()?, dice.roll(40_000), dice.roll(9000) as usize).map(drop),
        9 => {
            let size = Some(dice.roll(30_000));
            volume.setattr(file()?, &SetAttr { size, ..SetAttr::default() }).map(drop)
        }
        10 => volume.fallocate(file()?, FallocateMode::PunchHole, dice.roll(8000), 8000),
        11 => volume.clone_inode(other, dir, b"copy").map(drop),
        12 => volume.remove_below(volume.lookup(dir, b"copy")?.node, SnapshotsBelow::Go).map(drop),
        13 => volume.set_quota(dir, limits(dice.roll(200_000), dice.roll(60))),
        14 => volume.clear_quota(dir),
        15 => volume.create(snapshots_of(volume, dir), this, &new_dir()).map(drop),
        16 => volume.restore_snapshot(dir, this, that).map(drop),
        _ => volume.rmdir(dir, b"copy").map(drop),
    }
}

fn count_all(volume: &Volume) -> usize {
    let mut found = 0;
    let mut last: Option<Vec<u8>> = None;
    loop {
        let more = volume.quotas_below(ROOT, last.as_deref(), 2).unwrap();
        let Some((path, _)) = more.last() else { return found };
        last = Some(path.clone());
        for (path, quota) in more {
            let dir = volume.resolve(&path).unwrap().node;
            assert_eq!(counted(volume, dir), quota.used, "{}", String::from_utf8_lossy(&path));
            assert_eq!(used(volume, dir), quota.used);
            found += 1;
            if path.is_empty() {
                assert_eq!(dir, ROOT);
            }
        }
    }
}

#[test]
fn random_histories_with_crashes_leave_each_quota_with_what_is_below_it() {
    let (mut done, mut refused, mut quotas) = (0, 0, 0);
    for seed in 0..8 {
        let disk = Disk::of_tiny_nodes(24 << 20);
        let mut volume = disk.open();
        let mut dice = Dice(seed);
        for path in ["a", "d"] {
            mkdir(&volume, ROOT, path);
        }
        for _ in 0..36 {
            for _ in 0..10 {
                match step(&volume, &mut dice) {
                    Ok(()) => done += 1,
                    Err(Error::QuotaExceeded) => refused += 1,
                    Err(Error::Engine(error)) => panic!("seed {seed}: {error}"),
                    Err(_) => {}
                }
            }
            quotas += count_all(&volume);
            assert_sound(&volume);
            if dice.roll(2) == 0 {
                volume.env().sync().unwrap();
                volume = disk.open();
                assert_sound(&volume);
            }
        }
    }
    assert!(done > 500 && refused > 20 && quotas > 200, "{done} done, {refused} refused, {quotas} quotas");
}

#[test]
fn a_crash_at_any_time_leaves_a_use_that_fits() {
    let disk = Disk::new();
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    volume.set_quota(dir, ANY).unwrap();
    volume.sync().unwrap();
    let file = mkfile(&volume, dir, "f").node;
    for round in 0..20u64 {
        write_all(&volume, file, round * 5000, 5000).unwrap();
        mkfile(&volume, dir, &format!("g{round}"));
        if round == 10 {
            // A log's segment is durable, and no checkpoint.
            volume.env().sync().unwrap();
        }
    }
    let volume = disk.open();
    let dir = volume.resolve(b"/d").unwrap().node;
    let left = used(&volume, dir);
    assert_eq!(left, counted(&volume, dir));
    assert!(left.objects >= 12, "{left:?}");
    assert_sound(&volume);
}
