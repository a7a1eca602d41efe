//! Lost leaves of names that held nobody's name any more: no directory misses a name, and none is kept from
//! being listed and changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree::{Batch, Env};
use betree_sim::MemDevice;
use betrfs::{Error, Objects, Volume};

use crate::repair::{DATA, ENTRIES_AT, LINKS, META, codes};
use crate::repair_changes::{leaves, nodes, repair_of, without};
use crate::support::*;

const FILES: usize = 300;

fn name(file: usize) -> String {
    format!("file with a name that is not short {file:04}")
}

/// Whether the sample has kept the file of this number.
fn is_kept(file: usize) -> bool {
    !(60..240).contains(&file)
}

const DIRS: [&str; 5] = ["", "/d", "/d/below", "/e", "/e/.betrfs-snapshots/s"];

/// Directories of whose names most were removed, in each other and in a snapshot, and of one all.
fn sample() -> Disk {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let d = mkdir(&volume, ROOT, "d").node;
    let dirs = [ROOT, d, mkdir(&volume, d, "below").node, mkdir(&volume, ROOT, "e").node];
    for file in 0..FILES {
        for dir in dirs {
            mkfile(&volume, dir, &name(file));
        }
    }
    volume.close().unwrap();
    drop(volume);
    let volume = disk.open();
    for path in &DIRS[..4] {
        let dir = volume.resolve(format!("{path}/").as_bytes()).unwrap().node;
        for file in (0..FILES).filter(|file| !is_kept(*file)) {
            volume.unlink(dir, name(file).as_bytes()).unwrap();
        }
    }
    let e = volume.resolve(b"/e").unwrap().node;
    let snapshots = volume.lookup(e, betrfs::SNAPSHOTS_NAME).unwrap().node;
    mkdir(&volume, snapshots, "s");
    volume.close().unwrap();
    drop(volume);
    disk
}

/// The paths of the directory that are there.
fn found_in(volume: &Volume, dir: &str) -> BTreeSet<String> {
    let subdirs = match dir {
        "" => &["/d", "/e"][..],
        "/d" => &["/d/below"],
        _ => &[],
    };
    let files = (0..FILES).map(|file| format!("{dir}/{}", name(file)));
    let all = files.chain(subdirs.iter().map(|path| (*path).into()));
    all.filter(|path: &String| volume.resolve(path.as_bytes()).is_ok()).collect()
}

fn all_in(dir: &str) -> usize {
    let files = (0..FILES).filter(|file| is_kept(*file)).count();
    files + [("", 2), ("/d", 1)].into_iter().find(|(path, _)| *path == dir).map_or(0, |(_, dirs)| dirs)
}

fn examine(disk: &Disk, device: &Arc<MemDevice>) -> betrfs::Report {
    Volume::examine(device.clone(), disk.options.clone(), &mut |_, _| ()).unwrap()
}

/// Lists a directory: the number of its entries.
fn listed(volume: &Volume, dir: &str) -> Result<usize, Error> {
    let dir = volume.resolve(format!("{dir}/").as_bytes())?;
    let mut count = 0;
    volume.readdir(dir.node, 0, Objects::None, &mut |_| {
        count += 1;
        true
    })?;
    Ok(count)
}

#[test]
fn a_lost_leaf_of_names_that_are_all_removed_leaves_no_damage() {
    let disk = sample();
    let (mut whole, mut in_part) = (0, 0);
    for block in leaves(&disk, META.0) {
        let device = without(&disk, &[block]);
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        assert_eq!(repaired.in_vain, []);
        let report = examine(&disk, &device);
        let volume = Volume::open(device.clone(), disk.options.clone()).unwrap();
        let are_whole = DIRS.iter().all(|dir| found_in(&volume, dir).len() == all_in(dir));
        if are_whole {
            whole += 1;
            assert_eq!((report.problems, report.known_damage), (vec![], vec![]), "{block}");
            for dir in DIRS {
                assert_eq!(listed(&volume, dir).unwrap(), all_in(dir), "{dir}");
            }
            mkfile(&volume, ROOT, &name(100));
            assert_sound(&volume);
        } else {
            in_part += 1;
            assert_ne!(report.known_damage, [], "{block}");
            for dir in DIRS {
                let found = found_in(&volume, dir).len();
                match listed(&volume, dir) {
                    Ok(count) => assert_eq!((count, found), (all_in(dir), all_in(dir)), "{block}: {dir}"),
                    Err(Error::Engine(betree::Error::KnownDamage { .. })) => {}
                    Err(error) => panic!("{block}: {dir}: {error}"),
                }
                // No name is made where one was lost.
                if let Ok(node) = volume.resolve(format!("{dir}/").as_bytes())
                    && found < all_in(dir)
                    && !dir.contains(".betrfs")
                {
                    let lost = (0..FILES).find(|file| {
                        is_kept(*file) && volume.resolve(format!("{dir}/{}", name(*file)).as_bytes()).is_err()
                    });
                    if let Some(lost) = lost {
                        assert!(volume.create(node.node, name(lost).as_bytes(), &new_file()).is_err());
                    }
                }
            }
        }
        volume.close().unwrap();
    }
    assert!(whole > 2 && in_part > 5, "{whole}, {in_part}");
}

/// Without what waited in a node that was found again, a directory may count as many names as are found
/// though one was lost: it counts one more from then on.
#[test]
fn damage_stays_where_records_may_be_older_than_names() {
    let disk = sample();
    let parents = nodes(&disk, META.0, |height| height == 1);
    let mut stayed = 0;
    for leaf in leaves(&disk, META.0) {
        let device = without(&disk, &[leaf]);
        repair_of(&disk, &device);
        if !examine(&disk, &device).known_damage.is_empty() {
            continue;
        }
        for parent in &parents {
            let device = without(&disk, &[leaf, *parent]);
            let repaired = repair_of(&disk, &device);
            assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
            if !repaired.mended.iter().any(|mended| mended.what.contains("found again")) {
                continue;
            }
            stayed += 1;
            assert_ne!(examine(&disk, &device).known_damage, []);
            // So too if a later repair looks at it.
            device.rot(100, 3);
            let again = repair_of(&disk, &device);
            assert!(again.generation.is_some() && again.after.found() == 0, "{again:#?}");
            assert_ne!(examine(&disk, &device).known_damage, []);
        }
    }
    assert!(stayed > 1, "{stayed}");
}

/// Their data, or the list of the names of linked files, tell of them.
#[test]
fn a_count_that_is_too_small_hides_no_lost_name() {
    for are_linked in [false, true] {
        let disk = Disk::of_tiny_nodes(32 << 20);
        let volume = disk.open();
        let d = mkdir(&volume, ROOT, "d").node;
        let file = mkfile(&volume, ROOT, "file").node;
        for number in 0..FILES {
            match are_linked {
                true => drop(volume.link(file, d, name(number).as_bytes()).unwrap()),
                false => drop(volume.write(mkfile(&volume, d, &name(number)).node, 0, b"text").unwrap()),
            }
        }
        volume.close().unwrap();
        drop(volume);
        let mut all_lost = 0;
        for leaf in leaves(&disk, META.0) {
            let device = without(&disk, &[leaf]);
            let repaired = repair_of(&disk, &device);
            let lost: Vec<String> = {
                let volume = Volume::open(device, disk.options.clone()).unwrap();
                let names = (0..FILES).map(|file| format!("/d/{}", name(file)));
                let comes_back =
                    |path: &String| repaired.mended.iter().any(|mended| mended.what.starts_with(path));
                names.filter(|path| volume.resolve(path.as_bytes()).is_err() || comes_back(path)).collect()
            };
            let changed = Disk::holding(Arc::new(disk.device.copy()), disk.options.clone());
            let env = Env::open(changed.device.clone(), Volume::engine_options(4 << 20)).unwrap();
            let mut record = env.get(META, b"\0\0d").unwrap().unwrap();
            let count = (FILES - lost.len()) as u64;
            record[ENTRIES_AT..ENTRIES_AT + 8].copy_from_slice(&count.to_le_bytes());
            let mut batch = Batch::new();
            batch.put(META, b"\0\0d", &record);
            env.commit(&batch).unwrap();
            env.close().unwrap();
            drop(env);
            if lost.is_empty() || lost.len() == FILES || !leaves(&changed, META.0).contains(&leaf) {
                continue;
            }
            let device = without(&changed, &[leaf]);
            assert_eq!(repair_of(&changed, &device).after.found(), 0);
            let volume = Volume::open(device, disk.options.clone()).unwrap();
            for path in &lost {
                let found = volume.resolve(path.as_bytes());
                let is_lost = matches!(found, Err(Error::Engine(betree::Error::KnownDamage { .. })));
                // Names of linked files come back by their list.
                assert!(if are_linked { found.is_ok() } else { is_lost }, "{path}: {found:?}");
            }
            all_lost += lost.len();
        }
        assert!(all_lost > FILES / 2, "{all_lost}");
    }
}

fn entries_of(record: &[u8]) -> u64 {
    u64::from_le_bytes(*record[ENTRIES_AT..].first_chunk().unwrap())
}

/// The root gets a directory for a file that has lost its names, and `/d` the file of blocks without a
/// record: both had as many names as they counted, but for those in the lost leaf.
#[test]
fn directories_that_get_names_beside_lost_ones_count_these_and_no_more() {
    let disk = sample();
    let volume = disk.open();
    let a = mkdir(&volume, ROOT, "a").node;
    volume.link(mkfile(&volume, a, "one").node, a, b"two").unwrap();
    let d = volume.resolve(b"/d").unwrap().node;
    volume.write(mkfile(&volume, d, "extra").node, 0, b"text").unwrap();
    volume.close().unwrap();
    drop(volume);
    let env = Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    for name in [b"\0a\0\0one", b"\0a\0\0two"] {
        batch.delete(META, name);
        batch.delete(LINKS, name);
    }
    assert!(env.get(DATA, b"\0d\0\0extra\0\0\0\0\0\0\0\0\0").unwrap().is_some());
    batch.delete(META, b"\0d\0\0extra");
    for (dir, fewer) in [(&b"\0\0d"[..], 1), (b"\0\0a", 2)] {
        let mut record = env.get(META, dir).unwrap().unwrap();
        let entries = entries_of(&record) - fewer;
        record[ENTRIES_AT..ENTRIES_AT + 8].copy_from_slice(&entries.to_le_bytes());
        batch.put(META, dir, &record);
    }
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);
    let (mut whole, mut in_part) = (0, 0);
    for block in leaves(&disk, META.0) {
        let device = without(&disk, &[block]);
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some() && repaired.in_vain.is_empty(), "{repaired:#?}");
        // The name of the directory for lost files may be lost: nobody may make that anew.
        if codes(&repaired.after) == ["nameless-file"].into() {
            continue;
        }
        assert_eq!(repaired.after.found(), 0, "{repaired:#?}");
        let report = examine(&disk, &device);
        let env = Env::open(device.clone(), Volume::engine_options(4 << 20)).unwrap();
        let counted = [&b"\x05"[..], b"\0\0d"].map(|own| env.get(META, own).map(|record| record.unwrap()));
        env.close().unwrap();
        drop(env);
        let volume = Volume::open(device.clone(), disk.options.clone()).unwrap();
        let are_made = ["/lost+found/#1", "/d/extra"].map(|path| volume.resolve(path.as_bytes()).is_ok());
        let is_root_new = repaired.mended.iter().any(|mended| mended.code == "no-root");
        if is_root_new || are_made != [true; 2] {
            continue;
        }
        for (record, all) in counted.iter().zip([all_in("") + 2, all_in("/d") + 1]) {
            assert_eq!(record.as_ref().map(|record| entries_of(record)).ok(), Some(all as u64), "{block}");
        }
        let are_whole = DIRS.iter().all(|dir| found_in(&volume, dir).len() == all_in(dir));
        assert_eq!(report.known_damage.is_empty(), are_whole, "{block}");
        whole += usize::from(are_whole);
        in_part += usize::from(!are_whole);
        volume.close().unwrap();
    }
    assert!(whole > 2 && in_part > 3, "{whole}, {in_part}");
}

/// No lost name is taken for one that was never there, whichever two leaves are lost: that of a directory and
/// one of its names too.
#[test]
fn of_two_lost_leaves_no_name_becomes_absent() {
    let disk = sample();
    let leaves = leaves(&disk, META.0);
    let files = (0..FILES).filter(|file| is_kept(*file)).map(name);
    let dirs = [&b""[..], b"\0d", b"\0d\0below", b"\0e"];
    let names: Vec<Vec<u8>> = files
        .flat_map(|name| dirs.map(|dir| [dir, b"\0\0", name.as_bytes()].concat()))
        .chain([&b"\0\0d"[..], b"\0\0e", b"\0d\0\0below"].map(Vec::from))
        .collect();
    let mut lost = 0;
    for (at, first) in leaves.iter().enumerate() {
        for second in &leaves[at + 1..] {
            let device = without(&disk, &[*first, *second]);
            assert!(repair_of(&disk, &device).generation.is_some());
            let env = Env::open(device, Volume::engine_options(4 << 20)).unwrap();
            for name in &names {
                match env.get(META, name) {
                    Ok(found) => assert!(found.is_some(), "{}", name.escape_ascii()),
                    Err(error) => {
                        assert!(matches!(error, betree::Error::KnownDamage { .. }), "{error}");
                        lost += 1;
                    }
                }
            }
            env.close().unwrap();
        }
    }
    assert!(lost > 1000, "{lost}");
}

/// Records of linked files, which stand apart from the names.
#[test]
fn a_lost_leaf_of_linked_files_that_are_all_removed_leaves_no_damage() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let d = mkdir(&volume, ROOT, "d").node;
    for file in 0..FILES {
        let made = volume.create_with(ROOT, name(file).as_bytes(), &new_file(), b"text").unwrap();
        volume.link(made.node, d, name(file).as_bytes()).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let volume = disk.open();
    let d = volume.resolve(b"/d").unwrap().node;
    for file in (0..FILES).filter(|file| !is_kept(*file)) {
        [ROOT, d].iter().for_each(|dir| volume.unlink(*dir, name(file).as_bytes()).unwrap());
    }
    volume.close().unwrap();
    drop(volume);
    let (mut whole, mut in_part) = (0, 0);
    for block in leaves(&disk, META.0) {
        let device = without(&disk, &[block]);
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        let report = examine(&disk, &device);
        let volume = Volume::open(device, disk.options.clone()).unwrap();
        let all = ["", "/d"].into_iter().flat_map(|dir| {
            (0..FILES).filter(|file| is_kept(*file)).map(move |file| format!("{dir}/{}", name(file)))
        });
        let found: Vec<bool> = all.map(|path| volume.resolve(path.as_bytes()).is_ok()).collect();
        volume.close().unwrap();
        let are_whole = !found.contains(&false);
        // Of a leaf in which some are kept, what lies between these goes.
        if are_whole {
            assert_eq!((report.problems, report.known_damage), (vec![], vec![]), "{block}");
        } else {
            assert_ne!(report.known_damage, [], "{block}");
        }
        whole += usize::from(are_whole);
        in_part += usize::from(!are_whole);
    }
    assert!(whole > 2 && in_part > 2, "{whole}, {in_part}");
}
