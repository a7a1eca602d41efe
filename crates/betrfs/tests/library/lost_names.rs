//! Repairs where names are lost: what is left is clean, what can be read is there with its contents, and what
//! cannot be read is an error, never an absent name, an empty directory or a new file over the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use betree::debug::{Inspector, Owner};
use betree::{Cut, Env};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::{MemDevice, Rng};
use betrfs::{Error, FileType, Mending, Objects, Repair, Report, SnapshotsBelow, Volume};

use crate::repair::{DATA, META};
use crate::support::*;

const FILES: usize = 150;

/// `/a` and `/b` with files, `/a/below` with one, `/top`; and a snapshot of `/a`.
fn fill(disk: &Disk) {
    let volume = disk.open();
    let [a, b] = ["a", "b"].map(|name| mkdir(&volume, ROOT, name).node);
    let below = mkdir(&volume, a, "below").node;
    volume.write(mkfile(&volume, below, "deep").node, 0, b"deep").unwrap();
    volume.write(mkfile(&volume, ROOT, "top").node, 0, b"top").unwrap();
    for file in 0..FILES {
        for dir in [a, b] {
            let made = mkfile(&volume, dir, &format!("f{file}")).node;
            volume.write(made, 0, format!("hello {file}").as_bytes()).unwrap();
        }
    }
    let snapshots = volume.lookup(a, betrfs::SNAPSHOTS_NAME).unwrap().node;
    mkdir(&volume, snapshots, "s");
    volume.close().unwrap();
}

/// All files with their contents, and all directories.
fn tree() -> BTreeMap<String, Option<String>> {
    let mut all: BTreeMap<String, Option<String>> = BTreeMap::new();
    for dir in ["/a", "/b", "/a/.betrfs-snapshots/s"] {
        all.insert(dir.into(), None);
        all.extend((0..FILES).map(|file| (format!("{dir}/f{file}"), Some(format!("hello {file}")))));
    }
    for dir in ["/a", "/a/.betrfs-snapshots/s"] {
        all.insert(format!("{dir}/below"), None);
        all.insert(format!("{dir}/below/deep"), Some("deep".into()));
    }
    all.insert("/top".into(), Some("top".into()));
    all
}

/// The leaves of names, or all nodes of names: the bytes of each.
fn nodes_of_names(device: &Arc<MemDevice>, leaves_only: bool) -> Vec<(u64, u64)> {
    let options = Volume::engine_options(4 << 20);
    let inspector = Inspector::open(device.clone(), options, &mut |found| panic!("{found}")).unwrap();
    let is_one = |id| {
        let header = inspector.node(id, &mut |_| ()).and_then(|node| node.header);
        header.is_some_and(|header| header.origin.dict == META.0 && (header.height == 0 || !leaves_only))
    };
    let of_nodes =
        inspector.map().into_iter().filter(|owned| matches!(owned.owner, Owner::Node(id) if is_one(id)));
    let block = BLOCK_BYTES as u64;
    of_nodes.map(|owned| (owned.blocks.start_block * block, owned.blocks.len_blocks * block)).collect()
}

fn smash(device: &MemDevice, at: u64) {
    let (start, within) = (at - at % BLOCK_BYTES as u64, at as usize % BLOCK_BYTES);
    let mut block = [0; BLOCK_BYTES];
    device.read_at(start, &mut block).unwrap();
    block[within] ^= 0x5a;
    device.write_at(start, &block).unwrap();
}

fn repair(disk: &Disk, device: &Arc<MemDevice>) -> Repair {
    Volume::repair(device.clone(), &disk.options, Mending::All, &mut |_| true, &mut |_, _| ()).unwrap()
}

fn examine(disk: &Disk, device: &Arc<MemDevice>) -> Report {
    Volume::examine(device.clone(), disk.options.clone(), &mut |_, _| ()).unwrap()
}

/// Repairs once and for all; says what it did.
fn repaired_clean(disk: &Disk, device: &Arc<MemDevice>, what: &str) -> Repair {
    let done = repair(disk, device);
    assert!(done.generation.is_some() || done.before.problems.is_empty(), "{what}: {done:#?}");
    assert_eq!((&*done.after.problems, &*done.in_vain), (&[][..], &[][..]), "{what}: {done:#?}");
    assert_eq!(examine(disk, device).problems, [], "{what}");
    let again = repair(disk, device);
    assert!(again.generation.is_none(), "{what}: {again:#?}");
    done
}

/// What the volume says about each path is what was there, or that it is lost. Returns how many are lost.
fn assert_nothing_hidden(volume: &Volume, what: &str) -> usize {
    let mut lost = 0;
    let tree = tree();
    for (path, expected) in &tree {
        match volume.resolve(path.as_bytes()) {
            Ok(entry) if entry.attr.file_type == FileType::Directory => {
                assert_eq!(*expected, None, "{what}: {path}");
                let mut found = Vec::new();
                let listed = volume.readdir(entry.node, 0, Objects::None, &mut |entry| {
                    found.push(String::from_utf8_lossy(entry.name).into_owned());
                    true
                });
                let below = tree.keys().filter_map(|other| other.strip_prefix(path)?.strip_prefix('/'));
                let mut names: Vec<&str> =
                    below.filter(|name| !name.contains('/') && !name.starts_with(".betrfs")).collect();
                found.sort();
                names.sort_unstable();
                match listed {
                    Ok(()) => assert_eq!(found, names, "{what}: {path}"),
                    Err(error) => assert!(error.is_known_damage(), "{what}: {path}: {error}"),
                }
            }
            Ok(entry) => {
                assert_eq!(
                    Some(&read_all(volume, entry.node)[..]),
                    expected.as_deref().map(str::as_bytes),
                    "{what}: {path}"
                );
            }
            Err(error) => {
                assert!(error.is_known_damage(), "{what}: {path}: {error}");
                lost += 1;
            }
        }
    }
    // Nothing is made over what is lost.
    for path in tree.keys().filter(|path| !path.contains(".betrfs")) {
        let (dir, name) = path.rsplit_once('/').unwrap();
        if let Ok(dir) = volume.resolve(dir.as_bytes()) {
            let made = volume.create(dir.node, name.as_bytes(), &new_file());
            assert!(made.is_err(), "{what}: {path} was made anew");
        }
    }
    lost
}

/// Names may be lost.
fn data_of(device: &Arc<MemDevice>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut options = Volume::engine_options(4 << 20);
    options.mode = betrfs::OpenMode::ReadOnly;
    let env = Env::open(device.clone(), options).unwrap();
    let mut cursor = env.cursor(DATA, Cut::LOW, Cut::HIGH);
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

/// Also the data of snapshots, whose names a rescue may still find.
#[test]
fn whatever_of_the_names_is_lost_a_repair_ends_clean_hides_nothing_and_removes_no_data() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    fill(&disk);
    let data = data_of(&disk.device);
    let leaves = nodes_of_names(&disk.device, true);
    assert!(leaves.len() > 3, "{leaves:?}");
    let blocks: Vec<u64> = leaves.iter().flat_map(|(at, len)| (*at..at + len).step_by(BLOCK_BYTES)).collect();
    let mut rng = Rng::new(3);
    let alone = blocks.iter().map(|block| vec![block + rng.below(1500) as u64]);
    let mut cases: Vec<Vec<u64>> = alone.collect();
    cases.extend((0..30).map(|round| {
        (0..2 + round % 4).map(|_| rng.pick(&blocks) + rng.below(BLOCK_BYTES) as u64).collect()
    }));
    cases.push(leaves.iter().map(|(at, _)| *at).collect());
    let mut all_lost = 0;
    for case in cases {
        let device = Arc::new(disk.device.copy());
        case.iter().for_each(|at| smash(&device, *at));
        let what = format!("{case:?}");
        repaired_clean(&disk, &device, &what);
        assert!(data_of(&device) == data, "{what}: data went");
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        all_lost += assert_nothing_hidden(&volume, &what);
        volume.close().unwrap();
    }
    assert!(all_lost > 100, "{all_lost}");
}

/// What waited in such a node is lost.
#[test]
fn whatever_nodes_above_names_are_lost_a_repair_ends_clean() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    fill(&disk);
    for (at, _) in nodes_of_names(&disk.device, false) {
        let device = Arc::new(disk.device.copy());
        smash(&device, at);
        repaired_clean(&disk, &device, &format!("{at}"));
        Volume::open(device.clone(), disk.options.clone()).unwrap().close().unwrap();
        give_up(&disk, &device, &format!("{at}"));
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        names(&volume, ROOT);
        volume.close().unwrap();
    }
}

/// All names are in one node.
#[test]
fn a_root_that_is_lost_with_its_names_is_no_empty_directory() {
    let disk = Disk::new();
    fill(&disk);
    let data = data_of(&disk.device);
    let device = Arc::new(disk.device.copy());
    nodes_of_names(&device, false).iter().for_each(|(at, _)| smash(&device, *at));
    let done = repaired_clean(&disk, &device, "all");
    assert!(done.mended.iter().all(|mended| mended.code != "ownerless-data"), "{done:#?}");
    assert!(data_of(&device) == data, "data went");
    let volume = Volume::open(device.clone(), disk.options.clone()).unwrap();
    assert_eq!(assert_nothing_hidden(&volume, "all"), tree().len());
    let listed = volume.readdir(ROOT, 0, Objects::None, &mut |_| true);
    assert!(listed.as_ref().is_err_and(Error::is_known_damage), "{listed:?}");
    volume.close().unwrap();
    // Once that is given up, each file of which data are left is there again.
    let given_up = Arc::new(device.copy());
    give_up(&disk, &given_up, "all");
    let volume = Volume::open(given_up, disk.options.clone()).unwrap();
    for (path, expected) in tree().into_iter().filter(|(path, _)| !path.contains(".betrfs")) {
        let entry = volume.resolve(path.as_bytes()).unwrap();
        assert!(expected.is_none_or(|bytes| read_all(&volume, entry.node) == bytes.as_bytes()), "{path}");
    }
    volume.close().unwrap();
    // Once all that is lost was removed, the volume is empty, and as good as new.
    let volume = Volume::open(device.clone(), disk.options.clone()).unwrap();
    volume.remove_below(ROOT, SnapshotsBelow::Go).unwrap();
    assert_eq!(names(&volume, ROOT), [] as [String; 0]);
    let made = mkfile(&volume, mkdir(&volume, ROOT, "a").node, "f5").node;
    volume.write(made, 0, b"new").unwrap();
    assert_eq!(contents(&volume, "/a/f5"), b"new");
    volume.close().unwrap();
    assert_eq!(examine(&disk, &device).problems, []);
}

/// Gives up what was lost of the names, after a repair that has noted it.
fn give_up(disk: &Disk, device: &Arc<MemDevice>, what: &str) -> Repair {
    let mending = Mending::AllAndLostNames;
    let give_up =
        || Volume::repair(device.clone(), &disk.options, mending, &mut |_| true, &mut |_, _| ()).unwrap();
    let done = give_up();
    assert_eq!((&*done.after.problems, &*done.in_vain), (&[][..], &[][..]), "{what}: {done:#?}");
    assert_eq!(examine(disk, device).problems, [], "{what}: {done:#?}");
    assert!(give_up().generation.is_none(), "{what}");
    done
}

/// Each file with data has a name again, by which it is read; all names can be listed and made.
#[test]
fn names_that_were_lost_can_be_given_up_and_files_with_data_are_there_again() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    fill(&disk);
    let leaves = nodes_of_names(&disk.device, true);
    let mut rng = Rng::new(5);
    let mut cases: Vec<Vec<u64>> = leaves.iter().map(|(at, _)| vec![*at]).collect();
    cases.extend((0..20).map(|_| (0..3).map(|_| rng.pick(&leaves).0).collect()));
    cases.push(leaves.iter().map(|(at, _)| *at).collect());
    let (mut given_up, mut kept_in_snapshots) = (0, 0);
    for case in cases {
        let device = Arc::new(disk.device.copy());
        case.iter().for_each(|at| smash(&device, *at));
        let what = format!("{case:?}");
        if case.len() != 3 {
            repaired_clean(&disk, &device, &what);
        }
        let done = give_up(&disk, &device, &what);
        given_up += done.mended.iter().filter(|mended| mended.what.contains("given up")).count();
        let volume = Volume::open(device.clone(), disk.options.clone()).unwrap();
        for (path, expected) in tree() {
            let resolved = volume.resolve(path.as_bytes());
            match (&resolved, expected) {
                (Ok(entry), Some(bytes)) => {
                    assert_eq!(read_all(&volume, entry.node), bytes.as_bytes(), "{what}: {path}");
                }
                (Ok(entry), None) if !path.contains(".betrfs") => {
                    assert!(!names(&volume, entry.node).is_empty(), "{what}: {path}");
                }
                (Ok(_), None) => {}
                (Err(error), _) if path.contains(".betrfs") => {
                    assert!(error.is_known_damage() || matches!(error, Error::NotFound), "{what}: {path}");
                    kept_in_snapshots += usize::from(error.is_known_damage());
                }
                (Err(error), _) => panic!("{what}: {path}: {error}"),
            }
        }
        let a = volume.resolve(b"/a").unwrap().node;
        for dir in [ROOT, a] {
            for name in 0..50 {
                let name = format!("{name}n");
                mkfile(&volume, dir, &name);
                volume.unlink(dir, name.as_bytes()).unwrap();
            }
        }
        volume.close().unwrap();
        assert_eq!(examine(&disk, &device).problems, [], "{what}");
    }
    assert!(given_up > 20 && kept_in_snapshots > 0, "{given_up} {kept_in_snapshots}");
}
