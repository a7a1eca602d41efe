//! What a repair has noted as lost: the files are named and give errors, everything else works, what is
//! written over it heals it, and deleting the files clears it.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree::debug::{Inspector, Owner};
use betree::{Batch, Cut, DictId, Env};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::{MemDevice, Rng};
use betrfs::{
    Error, FallocateMode, FileType, InodeId, Mended, Mending, Objects, OpKind, Repair, Report, SetAttr,
    SnapshotsBelow, Volume, XattrMode,
};

use crate::repair_changes::{leaves, repair_of, without};
use crate::support::*;

/// The dictionary of names.
const META: DictId = DictId(0);
/// That of contents and large attributes.
const DATA: DictId = DictId(1);
const FILES: usize = 60;
const FILE_BYTES: usize = 30_000;
/// Volumes that are damaged; in some, more than files is.
const SEEDS: u64 = 10;
const SUPERBLOCKS: u64 = 4 * BLOCK_BYTES as u64;

fn contents(file: usize) -> Vec<u8> {
    let mut rng = Rng::new(file as u64);
    (0..FILE_BYTES).map(|_| rng.below(256) as u8).collect()
}

fn path(file: usize) -> String {
    format!("/dir{}/file{file}", file % 4)
}

fn sample() -> Disk {
    let disk = Disk::of_tiny_nodes(64 << 20);
    let volume = disk.open();
    let dirs: Vec<InodeId> = (0..4).map(|dir| mkdir(&volume, ROOT, &format!("dir{dir}")).node).collect();
    for file in 0..FILES {
        let made = mkfile(&volume, dirs[file % 4], &format!("file{file}")).node;
        volume.write(made, 0, &contents(file)).unwrap();
    }
    volume.close().unwrap();
    disk
}

/// A copy of the volume in which some blocks that hold contents of files are noise.
fn damaged(disk: &Disk, seed: u64, blocks: usize) -> Arc<MemDevice> {
    let device = Arc::new(disk.device.copy());
    let mut rng = Rng::new(seed);
    let used: Vec<u64> = device.written_blocks().into_iter().filter(|at| *at >= SUPERBLOCKS).collect();
    for _ in 0..blocks {
        let noise: Vec<u8> = (0..BLOCK_BYTES).map(|_| rng.below(256) as u8).collect();
        device.write_at(*rng.pick(&used), &noise).unwrap();
    }
    device
}

fn examine(disk: &Disk, device: &Arc<MemDevice>) -> Report {
    Volume::examine(device.clone(), disk.options.clone(), &mut |_, _| ()).unwrap()
}

fn repair(disk: &Disk, device: &Arc<MemDevice>, mending: Mending) -> betrfs::Result<Repair> {
    Volume::repair(device.clone(), &disk.options, mending, &mut |_| true, &mut |_, _| ())
}

fn read(volume: &Volume, path: &str) -> Result<Vec<u8>, betrfs::Error> {
    let entry = volume.resolve(path.as_bytes())?;
    let mut bytes = Vec::new();
    volume.read(entry.node, 0, entry.attr.size as usize, &mut bytes)?;
    Ok(bytes)
}

/// The files that cannot be read; the others have their contents.
fn unreadable(volume: &Volume) -> BTreeSet<usize> {
    let is_lost = |file: &usize| match read(volume, &path(*file)) {
        Ok(bytes) => {
            assert!(bytes == contents(*file), "{} has other contents", path(*file));
            false
        }
        Err(_) => true,
    };
    (0..FILES).filter(is_lost).collect()
}

fn open(disk: &Disk, device: &Arc<MemDevice>) -> Volume {
    Volume::open(device.clone(), disk.options.clone()).unwrap()
}

/// Volumes with damage in the contents of some files alone, repaired, each with the files that are lost.
fn repaired(disk: &Disk) -> Vec<(Arc<MemDevice>, BTreeSet<usize>)> {
    let mut all = Vec::new();
    for seed in 0..SEEDS {
        let device = damaged(disk, seed, 3);
        let report = examine(disk, &device);
        let is_of_files = report.problems.iter().all(|problem| problem.what.contains("the data of /dir"))
            && !report.problems.is_empty()
            && report.refused.is_none();
        if !is_of_files {
            continue;
        }
        let named: BTreeSet<usize> = (0..FILES).filter(|file| report.files.contains(&path(*file))).collect();
        let safe = repair(disk, &device, Mending::Safe).unwrap();
        assert!(safe.generation.is_none(), "what is lost is noted only if the caller agrees");
        let mended = repair(disk, &device, Mending::All).unwrap();
        let goes_with_it = ["known-damage", "number-not-given"];
        let takes_away = |mended: &Mended| mended.loses || goes_with_it.contains(&mended.code);
        assert!(mended.mended.iter().all(takes_away), "{:#?}", mended.mended);
        for problem in &mended.before.problems {
            let is_listed = mended.mended.iter().any(|mended| mended.what.starts_with(&problem.what));
            assert!(is_listed, "{problem}: {:#?}", mended.mended);
        }
        assert_eq!(mended.after.problems, [], "{:#?}", mended.before.problems);
        assert!(mended.generation.is_some());
        let report = examine(disk, &device);
        let lost: BTreeSet<usize> = (0..FILES).filter(|file| report.files.contains(&path(*file))).collect();
        // Below an interior node that was lost, some are found again.
        match mended.mended.iter().any(|mended| mended.what.contains("found again")) {
            true => assert!(lost.is_subset(&named), "{lost:?} of {named:?}"),
            false => assert_eq!(lost, named),
        }
        if !lost.is_empty() {
            all.push((device, lost));
        }
    }
    assert!(all.len() > 1, "{} volumes have damage in files alone", all.len());
    all
}

#[test]
fn a_repaired_volume_lists_what_was_lost_by_its_files_and_reads_all_others() {
    let disk = sample();
    for (device, lost) in repaired(&disk) {
        let report = examine(&disk, &device);
        assert_eq!(report.problems, []);
        assert!(!report.known_damage.is_empty());
        assert!(report.known_damage.iter().all(|known| known.code == "known-damage"));
        let volume = open(&disk, &device);
        assert_eq!(volume.env().stats().known_damage_reads, 0);
        assert_eq!(unreadable(&volume), lost);
        // Each is met by one or two reads of the engine.
        let met = volume.env().stats().known_damage_reads as usize;
        assert!((lost.len()..=lost.len() * 2).contains(&met), "{met} reads came to {} files", lost.len());
        let in_use = volume.check_in_use(&mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!((in_use.problems.len(), in_use.files), (0, report.files));
        volume.close().unwrap();
    }
}

/// What nobody could read is refused. Blocks that are written whole, and such that were not there, are
/// healed.
#[test]
fn a_part_of_a_lost_block_cannot_be_written() {
    let disk = sample();
    let (mut refused, mut written) = (0, 0);
    for (device, lost) in repaired(&disk) {
        let volume = open(&disk, &device);
        for file in &lost {
            let node = volume.resolve(path(*file).as_bytes()).unwrap().node;
            let mut model = contents(*file);
            model.resize(FILE_BYTES + 12_000, 0);
            // Parts of each block, with those behind the end, and then what lies between two of them.
            for at in (100..FILE_BYTES as u64 + 8000).step_by(2048) {
                for (from, len) in [(at, 300), (at + 1500, 3000)] {
                    let range = from as usize..from as usize + len;
                    let mut bytes = Vec::new();
                    match volume.write(node, from, &vec![7; len]) {
                        Ok(done) => {
                            model[range.clone()].fill(7);
                            volume.read(node, from, len, &mut bytes).unwrap();
                            let wrong = bytes.iter().zip(&model[range]).position(|(is, was)| is != was);
                            assert_eq!((done, bytes.len(), wrong), (len, len, None), "{file} at {from}");
                            written += 1;
                        }
                        Err(error) => {
                            assert!(error.is_known_damage(), "{file} at {from}: {error}");
                            // It may begin behind the end of the file.
                            let block = from - from % BLOCK_BYTES as u64;
                            assert!(volume.read(node, block, 8192, &mut bytes).is_err(), "{file} at {from}");
                            refused += 1;
                        }
                    }
                    let zeroes = FallocateMode::Zero { keep_size: true };
                    let zero = if at % 4096 == 100 { zeroes } else { FallocateMode::PunchHole };
                    let punched = volume.fallocate(node, zero, from, len as u64);
                    match volume.read(node, from, len, &mut bytes) {
                        Ok(()) => {
                            punched.unwrap();
                            model[from as usize..from as usize + len].fill(0);
                        }
                        Err(_) => assert!(punched.is_err_and(|error| error.is_known_damage())),
                    }
                }
            }
            let whole = vec![9; FILE_BYTES + 12_000];
            volume.write(node, 0, &whole).unwrap();
            assert!(read(&volume, &path(*file)).unwrap() == whole);
        }
        volume.close().unwrap();
    }
    assert!(refused > 50 && written > 50, "{refused} {written}");
}

#[test]
fn what_is_written_over_known_damage_heals_it_and_removing_the_files_clears_it() {
    let disk = sample();
    for (number, (device, named)) in repaired(&disk).into_iter().enumerate() {
        let volume = open(&disk, &device);
        // A clone of the directories shows the same damage.
        let dir = volume.resolve(b"/dir0").unwrap().node;
        volume.clone_inode(dir, ROOT, b"copy").unwrap();
        for file in (0..FILES).filter(|file| file % 4 == 0) {
            let copy = read(&volume, &format!("/copy/file{file}"));
            assert_eq!(copy.is_err(), named.contains(&file), "{file}");
        }
        for (at, file) in named.iter().enumerate() {
            let entry = volume.resolve(path(*file).as_bytes()).unwrap();
            match (at + number) % 4 {
                // Block by block, over the old ones.
                0 => {
                    volume.write(entry.node, 0, &contents(*file)).unwrap();
                }
                // Whole blocks of zeros, in the middle of a file too.
                1 => {
                    let zero = FallocateMode::Zero { keep_size: true };
                    for block in (0..FILE_BYTES).step_by(BLOCK_BYTES).rev() {
                        volume.fallocate(entry.node, zero, block as u64, BLOCK_BYTES as u64).unwrap();
                    }
                    assert!(read(&volume, &path(*file)).unwrap() == vec![0; FILE_BYTES]);
                    volume.write(entry.node, 0, &contents(*file)).unwrap();
                }
                2 => {
                    volume.setattr(entry.node, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
                    volume.write(entry.node, 0, &contents(*file)).unwrap();
                }
                _ => {
                    let dir = volume.resolve(format!("/dir{}", file % 4).as_bytes()).unwrap().node;
                    volume.unlink(dir, format!("file{file}").as_bytes()).unwrap();
                    let made = mkfile(&volume, dir, &format!("file{file}")).node;
                    volume.write(made, 0, &contents(*file)).unwrap();
                }
            }
        }
        assert_eq!(unreadable(&volume), BTreeSet::new());
        volume.close().unwrap();
        let volume = open(&disk, &device);
        assert_eq!(unreadable(&volume), BTreeSet::new());
        let report = volume.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.problems, []);
        let damaged_copies = report.files.iter().filter(|name| name.starts_with("/copy/")).count();
        assert_eq!(report.files.len(), damaged_copies, "{:?}", report.files);
        assert_eq!(damaged_copies, named.iter().filter(|file| *file % 4 == 0).count());
        for name in ["copy", "dir0", "dir1", "dir2", "dir3"] {
            let node = volume.resolve(format!("/{name}").as_bytes()).unwrap();
            assert_eq!(node.attr.file_type, FileType::Directory);
            volume.remove_below(node.node, SnapshotsBelow::Hold).unwrap();
            volume.rmdir(ROOT, name.as_bytes()).unwrap();
        }
        volume.close().unwrap();
        let report = examine(&disk, &device);
        assert_eq!((report.problems, report.known_damage), (vec![], vec![]));
    }
}

/// Between the blocks of files nothing was lost, so nothing is left once all of them are written anew.
#[test]
fn no_known_damage_is_left_where_all_blocks_were_written_anew() {
    let disk = Disk::of_tiny_nodes(64 << 20);
    let volume = disk.open();
    let contents = |file: u64| -> Vec<u8> {
        let mut rng = Rng::new(file);
        (0..100_000).map(|_| rng.below(256) as u8).collect()
    };
    let files: Vec<InodeId> = (0..6).map(|file| mkfile(&volume, ROOT, &format!("f{file}")).node).collect();
    for (file, node) in (0..).zip(&files) {
        volume.write(*node, 0, &contents(file)).unwrap();
    }
    volume.close().unwrap();
    for block in leaves(&disk, DATA.0) {
        disk.device.write_at(block * BLOCK_BYTES as u64, &[7; BLOCK_BYTES]).unwrap();
    }
    assert!(repair(&disk, &disk.device, Mending::All).unwrap().generation.is_some());
    let volume = disk.open();
    for file in 0..6 {
        let node = volume.resolve(format!("/f{file}").as_bytes()).unwrap().node;
        volume.write(node, 0, &contents(file)).unwrap();
    }
    volume.close().unwrap();
    let before = examine(&disk, &disk.device);
    assert!(before.problems.is_empty() && before.files.is_empty() && !before.known_damage.is_empty());
    let done = repair(&disk, &disk.device, Mending::All).unwrap();
    assert!(done.generation.is_some(), "{done:#?}");
    assert!(done.mended.iter().all(|mended| mended.code == "known-damage" && !mended.loses), "{done:#?}");
    assert_eq!(examine(&disk, &disk.device).known_damage, []);
    assert_eq!(repair(&disk, &disk.device, Mending::All).unwrap().generation, None);
    let volume = disk.open();
    for file in 0..6 {
        assert!(read(&volume, &format!("/f{file}")).unwrap() == contents(file), "{file}");
    }
    volume.close().unwrap();
}

/// With all names lost, none can be made over them until they are removed; then the volume can be used.
#[test]
fn without_any_name_left_a_repaired_volume_is_none_until_it_is_emptied() {
    let disk = sample();
    let device = Arc::new(disk.device.copy());
    let options = Volume::engine_options(4 << 20);
    let inspector = Inspector::open(device.clone(), options, &mut |found| panic!("{found}")).unwrap();
    let is_of_names = |id| {
        let header = inspector.node(id, &mut |_| ()).and_then(|node| node.header);
        header.is_some_and(|header| header.origin.dict == META.0)
    };
    for owned in inspector.map() {
        if matches!(owned.owner, Owner::Node(id) if is_of_names(id)) {
            let offset = owned.blocks.start_block * BLOCK_BYTES as u64;
            device.write_at(offset, &[7; BLOCK_BYTES]).unwrap();
        }
    }
    let before = examine(&disk, &device);
    let repaired = repair(&disk, &device, Mending::All).unwrap();
    assert!(repaired.generation.is_some() && repaired.after.problems.is_empty(), "{repaired:#?}");
    assert!(before.refused.is_some() && repaired.after.refused.is_none(), "{repaired:#?}");
    let volume = Volume::open(device, disk.options.clone()).unwrap();
    assert!(volume.create(ROOT, b"new", &new_file()).is_err());
    volume.remove_below(ROOT, SnapshotsBelow::Go).unwrap();
    volume.write(mkfile(&volume, ROOT, "new").node, 0, b"text").unwrap();
    volume.close().unwrap();
}

/// A repair that takes nothing away leaves a volume without a root, whatever else it mends.
#[test]
fn a_repair_says_if_the_volume_cannot_be_opened_still() {
    let disk = sample();
    let device = Arc::new(disk.device.copy());
    let env = Env::open(device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    batch.delete(META, b"\x05");
    let mut dir = env.get(META, b"\0\0dir0").unwrap().unwrap();
    // The number of entries.
    dir[88] ^= 1;
    batch.put(META, b"\0\0dir0", &dir);
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);
    let repaired = repair(&disk, &device, Mending::Safe).unwrap();
    assert!(repaired.generation.is_some(), "{repaired:#?}");
    assert!(repaired.after.refused.is_some(), "{repaired:#?}");
    assert!(Volume::open(device, disk.options.clone()).is_err());
}

/// Whatever else could be mended: what a later version made may need it as it is.
#[test]
fn nothing_is_written_where_a_later_version_made_something() {
    let disk = sample();
    let device = Arc::new(disk.device.copy());
    let env = Env::open(device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    let mut root = env.get(META, b"\x05").unwrap().unwrap();
    // The version of the record.
    root[1] = 99;
    batch.put(META, b"\x05", &root);
    batch.put(META, b"\x02short", b"no marker has such a key");
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);
    let all = |device: &MemDevice| {
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let before = all(&device);
    for mending in [Mending::Safe, Mending::All] {
        let repaired = repair(&disk, &device, mending).unwrap();
        assert!(repaired.generation.is_none() && repaired.mended.is_empty(), "{repaired:#?}");
        assert!(repaired.before.is_of_later_version() && repaired.before.found() > 1, "{repaired:#?}");
        // Nothing was tried: what is lost beside it must not hide it.
        assert!(repaired.given_up == 0 && repaired.after == repaired.before, "{repaired:#?}");
        assert!(all(&device) == before, "something was written");
    }
}

/// What is open when its name goes lives on, without what was lost.
#[test]
fn open_files_of_which_a_part_was_lost_can_be_unlinked_and_removed_with_their_tree() {
    let disk = sample();
    let volume = disk.open();
    for file in 0..FILES {
        let node = volume.resolve(path(file).as_bytes()).unwrap().node;
        volume.set_xattr(node, b"user.large", &[file as u8; 3000], XattrMode::Any).unwrap();
    }
    volume.close().unwrap();
    let mut attributes_lost = 0;
    for (device, _) in repaired(&disk) {
        let volume = open(&disk, &device);
        let nodes: Vec<InodeId> =
            (0..FILES).map(|file| volume.resolve(path(file).as_bytes()).unwrap().node).collect();
        let lost = unreadable(&volume);
        let has_large = |file: usize| match volume.get_xattr(nodes[file], b"user.large") {
            Ok(value) => value == [file as u8; 3000],
            Err(_) => false,
        };
        let with_large: Vec<usize> = (0..FILES).filter(|file| has_large(*file)).collect();
        attributes_lost += FILES - with_large.len();
        nodes.iter().for_each(|node| volume.open_inode(*node).unwrap());
        for dir in 0..4 {
            let node = volume.resolve(format!("/dir{dir}").as_bytes()).unwrap().node;
            match dir % 2 {
                0 => drop(volume.remove_below(node, SnapshotsBelow::Hold).unwrap()),
                _ => (0..FILES).filter(|file| file % 4 == dir).for_each(|file| {
                    volume.unlink(node, format!("file{file}").as_bytes()).unwrap();
                }),
            }
            volume.rmdir(ROOT, format!("dir{dir}").as_bytes()).unwrap();
        }
        for (file, node) in nodes.iter().enumerate() {
            let mut bytes = Vec::new();
            let read = volume.read(*node, 0, FILE_BYTES, &mut bytes);
            assert_eq!(read.is_err(), lost.contains(&file), "{file}");
            assert!(read.is_err() || bytes == contents(file), "{file}");
            assert_eq!(has_large(file), with_large.contains(&file), "{file}");
            volume.release_node(*node);
            volume.forget(*node, u64::MAX);
        }
        // Deletes of the blocks may still be on their way to the damage.
        let rest = volume.env().cursor(DATA, Cut::LOW, Cut::HIGH).next().map(|pair| pair.is_some());
        assert_eq!(rest, Ok(false));
        volume.close().unwrap();
        let report = examine(&disk, &device);
        assert_eq!((report.problems, report.files), (vec![], BTreeSet::new()));
    }
    assert!(attributes_lost > 0);
}

/// Whoever lists it gets the names that are left, and an error behind them.
#[test]
fn a_directory_that_has_lost_names_lists_the_others_and_then_says_so() {
    const NAMES: usize = 300;
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let name = |file: usize| format!("file{file:03}");
    for file in 0..NAMES {
        mkfile(&volume, dir, &name(file));
    }
    volume.close().unwrap();
    drop(volume);
    let mut in_part = 0;
    for block in leaves(&disk, META.0) {
        let device = without(&disk, &[block]);
        assert_eq!(repair_of(&disk, &device).after.problems, []);
        let volume = open(&disk, &device);
        let Ok(dir) = volume.resolve(b"/dir") else { continue };
        // In pieces, as a kernel asks, and once more when they are in memory.
        for room in [7, usize::MAX] {
            let (mut listed, mut cookie) = (BTreeSet::new(), 0);
            let ended = loop {
                let before = listed.len();
                let got = volume.readdir(dir.node, cookie, Objects::None, &mut |entry| {
                    let has_room = listed.len() - before < room;
                    if has_room {
                        cookie = entry.cookie;
                        assert!(listed.insert(String::from_utf8(entry.name.to_vec()).unwrap()));
                    }
                    has_room
                });
                if got.is_err() || listed.len() == before {
                    break got;
                }
            };
            assert_eq!(ended.is_err(), listed.len() < NAMES, "{} names", listed.len());
            in_part += usize::from(ended.is_err() && !listed.is_empty());
            for file in 0..NAMES {
                let found = volume.lookup(dir.node, name(file).as_bytes());
                assert_eq!(found.is_ok(), listed.contains(&name(file)), "{file}");
                assert_ne!(found, Err(Error::NotFound), "{file}: it may be there");
            }
        }
        volume.close().unwrap();
    }
    assert!(in_part > 4, "{in_part} listings in part");
}

/// It never has all names that it counts, so that reading the others again tells nothing new.
#[test]
fn a_directory_that_has_lost_names_is_not_read_again_with_every_few_new_ones() {
    const NAMES: usize = 300;
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "dir").node;
    for file in 0..NAMES {
        mkfile(&volume, dir, &format!("file{file:03}"));
    }
    volume.close().unwrap();
    drop(volume);
    let mut in_part = 0;
    for block in leaves(&disk, META.0) {
        let device = without(&disk, &[block]);
        assert_eq!(repair_of(&disk, &device).after.problems, []);
        let volume = open(&disk, &device);
        let Ok(dir) = volume.resolve(b"/dir") else { continue };
        if volume.readdir(dir.node, 0, Objects::None, &mut |_| true).is_ok() {
            continue;
        }
        // A listing in many parts reads them once, and has the error behind the last of them.
        let listed = volume.counters().of(OpKind::Readdir).scans;
        let (mut cookie, mut names) = (0, 0);
        let error = loop {
            let mut room = 7;
            let part = volume.readdir(dir.node, cookie, Objects::None, &mut |entry| {
                if room > 0 {
                    (cookie, names) = (entry.cookie, names + 1);
                }
                room -= 1;
                room >= 0
            });
            if let Err(error) = part {
                break error;
            }
        };
        assert!(error.is_known_damage() && names < NAMES, "{error}, {names}");
        let listed = volume.counters().of(OpKind::Readdir).scans - listed;
        assert!(listed <= 3, "{listed} for {names} names");
        let scans = || volume.counters().of(OpKind::Create).scans;
        let before = scans();
        let made = (0..NAMES).filter(|file| {
            // Some come where names were lost.
            volume.create(dir.node, format!("file{file:03} too").as_bytes(), &new_file()).is_ok()
        });
        in_part += usize::from(made.count() > NAMES / 2);
        assert!(scans() - before <= 8, "{} of {NAMES}", scans() - before);
        volume.close().unwrap();
    }
    assert!(in_part > 2, "{in_part}");
}
