//! What survives a power cut, for each way to ask for it, and what is whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use betree_platform::AlignedBuf;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use crate::bed::Bed;
use crate::judge::Plan;
use crate::mapping::Mapping;
use crate::mounted::{ok, run};
use crate::tree::Tree;

/// Each call, with several fates of what is not synced.
const ALL: Plan = Plan { every: 1, fates: 6 };
const MIB: usize = 1 << 20;
/// The kernel's O_DSYNC; in `OFlags` this name has the bits of O_SYNC.
const O_DSYNC: OFlags = OFlags::from_bits_retain(0o10_000);

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    seeded::bytes(seed, 0, len)
}

fn fsync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn syncfs(dir: &Path) {
    rustix::fs::syncfs(File::open(dir).unwrap()).unwrap();
}

fn betrfs(words: &[&str], paths: &[&Path]) {
    let words = words.iter().map(|word| word.as_ref());
    ok(&run(words.chain(paths.iter().map(|path| path.as_os_str()))));
}

#[test]
fn an_fsync_keeps_its_file_with_its_name_and_all_that_was_done_before_to_any_file() {
    let mut bed = Bed::new();
    bed.sets_up(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("old"), bytes(1, 9000)).unwrap();
    });
    for round in 0..3 {
        bed.does(|dir| fs::write(dir.join(format!("other {round}")), "").unwrap());
        bed.does(|dir| fs::set_permissions(dir.join("old"), Permissions::from_mode(0o600 + round)).unwrap());
        let path = bed.path(&format!("d/f{round}"));
        bed.does(|_| drop(File::create(&path).unwrap()));
        bed.does(|_| {
            OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes(2, 5000)).unwrap()
        });
        bed.syncs(|_| match round {
            0 => fsync(&path),
            1 => File::open(&path).unwrap().sync_data().unwrap(),
            // By another descriptor than the one that wrote, and one that only reads.
            _ => OpenOptions::new().read(true).open(&path).unwrap().sync_all().unwrap(),
        });
        bed.does(|dir| fs::write(dir.join("old"), "").unwrap());
        bed.does(|dir| fs::rename(dir.join("old"), dir.join(format!("older {round}"))).unwrap());
        bed.does(|dir| fs::write(dir.join("old"), "").unwrap());
    }
    let seen = bed.survives(ALL);
    assert!(seen.older >= 3 && seen.unsynced >= 10 && seen.states.len() >= 4, "{seen:?}");
}

#[test]
fn an_fsync_of_a_directory_keeps_its_entries_and_all_that_was_done_before() {
    let mut bed = Bed::new();
    bed.sets_up(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/a"), "a").unwrap();
    });
    bed.does(|dir| fs::hard_link(dir.join("d/a"), dir.join("d/b")).unwrap());
    bed.does(|dir| fs::rename(dir.join("d/a"), dir.join("moved")).unwrap());
    bed.does(|dir| std::os::unix::fs::symlink("b", dir.join("d/link")).unwrap());
    bed.does(|dir| fs::create_dir(dir.join("d/inner")).unwrap());
    bed.does(|dir| drop(File::create(dir.join("d/inner/f")).unwrap()));
    bed.syncs(|dir| fsync(&dir.join("d")));
    bed.does(|dir| fs::remove_file(dir.join("d/b")).unwrap());
    bed.does(|dir| fs::remove_file(dir.join("d/inner/f")).unwrap());
    bed.does(|dir| fs::remove_dir(dir.join("d/inner")).unwrap());
    bed.does(|dir| fs::rename(dir.join("d"), dir.join("e")).unwrap());
    // Of another directory.
    bed.syncs(fsync);
    let seen = bed.survives(ALL);
    assert!(seen.older >= 2 && seen.states.len() >= 3, "{seen:?}");
}

#[test]
fn a_synchronous_write_is_durable_when_it_returns() {
    let mut bed = Bed::new();
    bed.sets_up(|dir| fs::write(dir.join("f"), bytes(1, 10_000)).unwrap());
    let (none, usual) = (OFlags::empty(), ReadWriteFlags::empty());
    let ways = [
        (O_DSYNC, usual),
        (OFlags::SYNC, usual),
        (none, ReadWriteFlags::DSYNC),
        (none, ReadWriteFlags::SYNC),
    ];
    for (number, (flags, way)) in (0..).zip(ways) {
        for name in ["f".to_owned(), format!("new {number}")] {
            bed.does(|dir| fs::write(dir.join("before"), "").unwrap());
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).custom_flags(flags.bits().cast_signed());
            let path = bed.path(&name);
            let mut opened = None;
            bed.does(|_| opened = Some(options.open(&path).unwrap()));
            let file = opened.unwrap();
            let data = bytes(number, 3000);
            bed.syncs(|_| {
                let written = rustix::io::pwritev2(&file, &[IoSlice::new(&data)], 100, way);
                assert_eq!(written, Ok(data.len()));
            });
            drop(file);
        }
    }
    let seen = bed.survives(ALL);
    assert!(seen.states.len() >= 9, "{seen:?}");
}

#[test]
fn syncfs_and_the_command_keep_everything() {
    let mut bed = Bed::new();
    for round in 0..4 {
        bed.does(|dir| fs::create_dir(dir.join(format!("d{round}"))).unwrap());
        bed.does(|dir| drop(File::create(dir.join(format!("d{round}/f"))).unwrap()));
        let path = bed.path(&format!("d{round}/f"));
        bed.does(|_| {
            OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes(round, 70_000)).unwrap()
        });
        bed.syncs(|dir| match round % 2 {
            0 => syncfs(dir),
            _ => betrfs(&["sync"], &[dir]),
        });
    }
    let seen = bed.survives(ALL);
    assert!(seen.older >= 1 && seen.states.len() >= 5, "{seen:?}");
}

#[test]
fn what_nobody_syncs_is_durable_after_a_while() {
    let mut bed = Bed::new();
    let before = bed.disk.syncs();
    bed.does(|dir| drop(File::create(dir.join("f")).unwrap()));
    let begun = Instant::now();
    while bed.disk.syncs() == before {
        assert!(begun.elapsed() < Duration::from_secs(60), "the server syncs nothing by itself");
        std::thread::sleep(Duration::from_millis(50));
    }
    bed.is_durable();
    bed.survives(ALL);
}

/// As editors and package managers save a file, without any sync.
#[test]
fn a_file_replaced_by_a_rename_without_a_sync_is_the_old_one_or_the_new_one() {
    let mut bed = Bed::new();
    let (config, new) = (bed.path("config"), bed.path("config.new"));
    bed.sets_up(|_| fs::write(&config, bytes(0, 20_000)).unwrap());
    for version in 1..=12 {
        let mut file = None;
        bed.does(|_| file = Some(File::create(&new).unwrap()));
        let mut file = file.unwrap();
        bed.does(|_| file.write_all(&bytes(version, 20_000 + version as usize)).unwrap());
        drop(file);
        bed.does(|_| fs::rename(&new, &config).unwrap());
        // Somebody else's.
        if version % 3 == 0 {
            bed.does(|dir| drop(File::create(dir.join(format!("other {version}"))).unwrap()));
            bed.syncs(|dir| fsync(&dir.join(format!("other {version}"))));
        }
    }
    let (log, states) = bed.end();
    let is_whole = |state: &Tree| state.file_bytes("/config").is_some_and(|len| len >= 20_000);
    assert!(states.iter().skip(1).all(is_whole), "the mount itself has shown another file");
    let seen = crate::judge::judge(&log, &states, ALL).unwrap();
    assert!(seen.older >= 3 && seen.states.len() >= 5, "{seen:?}");
}

#[test]
fn clones_snapshots_and_removals_of_trees_are_whole() {
    let mut bed = Bed::new();
    bed.sets_up(|dir| {
        fs::create_dir_all(dir.join("tree/inner")).unwrap();
        for file in 0..30 {
            fs::write(dir.join(format!("tree/inner/{file}")), bytes(file, 1000 * file as usize)).unwrap();
        }
        fs::hard_link(dir.join("tree/inner/7"), dir.join("tree/seven")).unwrap();
        fs::write(dir.join("tree/large"), bytes(99, 2 * MIB)).unwrap();
    });
    let (tree, copy, file) = (bed.path("tree"), bed.path("copy"), bed.path("file"));
    bed.does(|_| betrfs(&["clone"], &[&tree, &copy]));
    bed.does(|dir| fs::write(dir.join("copy/inner/1"), "").unwrap());
    bed.syncs(|dir| fsync(&dir.join("tree")));
    bed.does(|_| betrfs(&["clone"], &[&tree.join("large"), &file]));
    bed.does(|_| betrfs(&["snapshot", "create"], &[&tree, Path::new("monday")]));
    bed.does(|_| fs::remove_file(tree.join("inner/3")).unwrap());
    bed.syncs(|_| fsync(&file));
    bed.does(|dir| fs::rename(&copy, dir.join("moved")).unwrap());
    bed.syncs(syncfs);
    let emptied = bed.latest().without_below("/moved");
    bed.does_in_steps(vec![emptied], |dir| betrfs(&["rm-tree"], &[&dir.join("moved")]));
    bed.does(|_| betrfs(&["snapshot", "delete"], &[&tree, Path::new("monday")]));
    bed.syncs(fsync);
    let seen = bed.survives(ALL);
    assert!(seen.older >= 3 && seen.states.len() >= 5, "{seen:?}");
}

#[test]
fn what_msync_has_written_is_durable_with_all_before() {
    let mut bed = Bed::new();
    bed.sets_up(|dir| fs::write(dir.join("f"), bytes(1, 16 << 10)).unwrap());
    let file = OpenOptions::new().read(true).write(true).open(bed.path("f")).unwrap();
    let mut mapping = Mapping::of(&file, 16 << 10);
    for round in 0..4 {
        bed.does(|dir| drop(File::create(dir.join(format!("before {round}"))).unwrap()));
        bed.syncs(|_| {
            mapping[5000..5100].copy_from_slice(&bytes(round, 100));
            mapping.sync().unwrap();
        });
    }
    drop((mapping, file));
    let seen = bed.survives(ALL);
    assert!(seen.states.len() >= 5, "{seen:?}");
}

/// One call of at most 1 MiB between two multiples of 1 MiB, through the kernel's pages and past them; and a
/// longer one, which is cut at these multiples, and where the kernel begins another request.
#[test]
fn a_write_of_up_to_one_mib_is_there_as_a_whole_or_not_at_all() {
    let mut bed = Bed::new();
    let path = bed.path("f");
    bed.sets_up(|_| fs::write(&path, bytes(0, 3 * MIB)).unwrap());
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let direct = OFlags::DIRECT.bits().cast_signed();
    let past_pages = OpenOptions::new().write(true).custom_flags(direct).open(&path).unwrap();
    let mut version = 1;
    let mut data = AlignedBuf::of_bytes(MIB).unwrap();
    for (at, len) in [(0, MIB), (MIB, MIB), (MIB + 1, MIB - 1), (2 * MIB + 4096, MIB / 2), (4096, 100)] {
        version += 1;
        bed.does(|_| file.write_all_at(&bytes(version, len), at as u64).unwrap());
        // Something of another file, so that a part of the log may be gone.
        bed.does(|dir| drop(File::create(dir.join(format!("mark {version}"))).unwrap()));
        if at % 4096 == 0 && len % 4096 == 0 {
            version += 1;
            data.bytes_mut().copy_from_slice(&bytes(version, MIB));
            bed.does(|_| past_pages.write_all_at(&data.bytes()[..len], at as u64).unwrap());
        }
        bed.syncs(|_| file.sync_data().unwrap());
    }
    // Up to the pieces' ends. A request has 256 pages at most, the one in which it begins among them.
    let long = bytes(100, 2 * MIB + 1000);
    let mut contents = fs::read(&path).unwrap();
    let mut between = Vec::new();
    let from = 500_000;
    let requests_end = from / 4096 * 4096 + MIB;
    for end in [MIB, requests_end, 2 * MIB, requests_end + MIB] {
        contents[from..end].copy_from_slice(&long[..end - from]);
        between.push(bed.latest().with("/f", &contents));
    }
    bed.does_in_steps(between, |_| file.write_all_at(&long, from as u64).unwrap());
    bed.syncs(|_| file.sync_all().unwrap());
    drop((file, past_pages));
    let seen = bed.survives(ALL);
    assert!(seen.older >= 5 && seen.states.len() >= 8, "{seen:?}");
}
