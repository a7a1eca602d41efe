//! Damage in the list of names of linked files: a repair makes the list anew from the names, so that nothing
//! of it is left.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree::{Batch, Env};
use betree_sim::MemDevice;
use betrfs::{Error, Mending, OpenMode, QuotaLimits, SnapshotsBelow, Volume};

use crate::detached::links;
use crate::repair::{LINKS, META, codes};
use crate::repair_changes::{leaves, nodes, repair_of, without};
use crate::repair_rounds::removal_under_way;
use crate::support::*;

/// More than the changes of one look.
const LINKED: usize = 1100;

/// Files with a name in `/a` and one in `/b`, and some with one name in `/c`.
fn sample(linked: usize) -> Disk {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let [a, b, c] = ["a", "b", "c"].map(|name| mkdir(&volume, ROOT, name).node);
    for file in 0..linked {
        let made = volume.create_with(a, name(file).as_bytes(), &new_file(), name(file).as_bytes());
        volume.link(made.unwrap().node, b, name(file).as_bytes()).unwrap();
    }
    for file in 0..50 {
        mkfile(&volume, c, &format!("plain{file}"));
    }
    volume.close().unwrap();
    drop(volume);
    disk
}

/// Blocks of the nodes of the list.
fn nodes_of_links(disk: &Disk) -> Vec<u64> {
    nodes(disk, LINKS.0, |_| true)
}

fn name(file: usize) -> String {
    format!("file{file:04}")
}

fn open(disk: &Disk, device: &Arc<MemDevice>) -> Volume {
    Volume::open(device.clone(), disk.options.clone()).unwrap()
}

/// All that reads the list works, and gives what it did before.
fn use_list(volume: &Volume, linked: usize) {
    let [a, b, c] = ["a", "b", "c"].map(|name| volume.resolve(format!("/{name}").as_bytes()).unwrap().node);
    assert_eq!(volume.open_files_in(ROOT).unwrap(), []);
    volume.freeze(|| ()).unwrap().unwrap();
    volume.usage(ROOT).unwrap();
    for (source, copy) in [(a, "copy of a"), (c, "copy of c")] {
        volume.clone_inode(source, ROOT, copy.as_bytes()).unwrap();
    }
    let new = mkdir(volume, ROOT, "new").node;
    mkfile(volume, new, "file");
    for dir in [b, c, new] {
        let snapshots = volume.lookup(dir, betrfs::SNAPSHOTS_NAME).unwrap().node;
        mkdir(volume, snapshots, "monday");
        let limited = volume.set_quota(dir, QuotaLimits::default());
        // Files in b have names in a.
        match limited {
            Err(Error::LinkedOutside { .. }) => assert!(dir == b && linked > 0),
            limited => assert_eq!((limited, dir == b && linked > 0), (Ok(()), false)),
        }
    }
    assert_sound(volume);
    volume.remove_below(a, SnapshotsBelow::Hold).unwrap();
    volume.remove_below(new, SnapshotsBelow::Go).unwrap();
    assert_sound(volume);
    for file in 0..linked {
        let other = volume.resolve(format!("/b/{}", name(file)).as_bytes()).unwrap();
        assert_eq!(other.attr.nlink, 1);
        assert_eq!(contents(volume, &format!("/copy of a/{}", name(file))), name(file).as_bytes());
    }
}

#[test]
fn a_lost_list_of_names_is_made_anew_and_all_that_reads_it_works() {
    for linked in [0, 3, LINKED] {
        let disk = sample(linked);
        let device = without(&disk, &nodes_of_links(&disk));
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        assert_eq!((repaired.after.known_damage.len(), repaired.in_vain.len()), (0, 0), "{repaired:#?}");
        let volume = open(&disk, &device);
        assert_sound(&volume);
        use_list(&volume, linked);
        volume.close().unwrap();
    }
}

/// Puts known damage in the place of what is lost, and does no more.
fn note_damage(device: &Arc<MemDevice>) {
    let mut options = Volume::engine_options(4 << 20);
    options.mode = OpenMode::Repair;
    let env = Env::open_for_repair(device.clone(), options, &mut |_| ()).unwrap();
    assert!(env.note_damage().unwrap().lost > 0);
    env.mend_references(&mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    env.write_repair().unwrap();
}

/// Earlier versions left known damage there.
#[test]
fn known_damage_in_the_list_is_a_problem_that_a_repair_mends() {
    let disk = sample(3);
    let device = without(&disk, &nodes_of_links(&disk));
    note_damage(&device);
    let volume = open(&disk, &device);
    let linked = volume.resolve(b"/a/file0001").unwrap().node;
    let other = volume.resolve(b"/c/plain1").unwrap().node;
    volume.open_inode(linked).unwrap();
    volume.open_inode(other).unwrap();
    let mut open_files = Vec::from([linked, other]);
    open_files.sort_unstable();
    assert_eq!(volume.open_files_in(ROOT).unwrap(), open_files, "whoever syncs need not know the list");
    volume.close().unwrap();
    drop(volume);
    let left = Volume::repair(device.clone(), &disk.options, Mending::Safe, &mut |_| true, &mut |_, _| ());
    assert_eq!(left.unwrap().generation, None);
    let repaired = repair_of(&disk, &device);
    assert_eq!(codes(&repaired.before), ["name-not-listed"].into(), "{repaired:#?}");
    assert!(repaired.generation.is_some() && repaired.after.known_damage.is_empty(), "{repaired:#?}");
    let volume = open(&disk, &device);
    use_list(&volume, 3);
}

/// Names that are lost too are not listed any more: what removes them takes nothing from the files.
#[test]
fn of_names_that_are_lost_too_the_files_keep_the_others() {
    let disk = sample(200);
    let (mut lost, mut removed) = (0, 0);
    for block in leaves(&disk, META.0) {
        let device = without(&disk, &[nodes_of_links(&disk), Vec::from([block])].concat());
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
        let volume = open(&disk, &device);
        let is_there = |dir: &str, file: usize| {
            let entry = volume.resolve(format!("/{dir}/{}", name(file)).as_bytes());
            let entry = entry.ok().filter(|entry| volume.getattr(entry.node).is_ok());
            entry.filter(|entry| read_all(&volume, entry.node) == name(file).as_bytes())
        };
        let of_b: Vec<usize> = (0..200).filter(|file| is_there("b", *file).is_some()).collect();
        lost += usize::from(of_b.len() < 200);
        if let Ok(a) = volume.resolve(b"/a") {
            volume.remove_below(a.node, SnapshotsBelow::Go).unwrap();
            removed += 1;
        }
        for file in of_b {
            let other = is_there("b", file).expect("its name in b was not removed");
            assert_eq!(other.attr.nlink, 1, "{file}");
        }
        let report = volume.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.problems, []);
    }
    assert!(lost > 1 && removed > 1, "{lost}, {removed}");
}

/// Where the list is lost and a file has lost all of its names, it gets one in a directory that is made in
/// the root, though the root has lost names too.
#[test]
fn files_that_have_lost_all_names_and_their_list_come_to_the_directory_of_lost_files() {
    const LINKED: usize = 200;
    let disk = sample(LINKED);
    let all = leaves(&disk, META.0);
    let mut named = 0;
    for kept in &all {
        let lost = all.iter().filter(|leaf| *leaf != kept).copied().collect();
        let device = without(&disk, &[nodes_of_links(&disk), lost].concat());
        let repaired = repair_of(&disk, &device);
        assert!(repaired.generation.is_some(), "{repaired:#?}");
        assert_eq!(repaired.after.problems, []);
        let volume = open(&disk, &device);
        if let Ok(lost) = volume.resolve(b"/lost+found") {
            for name in names(&volume, lost.node) {
                let contents = contents(&volume, &format!("/lost+found/{name}"));
                assert!((0..LINKED).any(|file| contents == self::name(file).as_bytes()), "{name}");
                named += 1;
            }
        }
        let report = volume.check(&mut |_, _| ()).unwrap();
        assert_eq!(report.problems, []);
        volume.close().unwrap();
    }
    assert!(named > LINKED / 2, "{named}");
}

/// The list has them.
#[test]
fn lost_names_of_linked_files_come_back() {
    const LINKED: usize = 200;
    let disk = sample(LINKED);
    let mut made_again = 0;
    for leaf in leaves(&disk, META.0) {
        let device = without(&disk, &[leaf]);
        let repaired = repair_of(&disk, &device);
        assert_eq!(repaired.after.problems, []);
        made_again += repaired.mended.iter().filter(|mended| mended.code == "lost-name").count();
        let volume = open(&disk, &device);
        let is_there = |path: String| volume.resolve(path.as_bytes()).is_ok();
        for file in 0..LINKED {
            let [a, b] = ["a", "b"].map(|dir| is_there(format!("/{dir}/{}", name(file))));
            let are_dirs_there = ["/a", "/b"].iter().all(|dir| is_there((*dir).into()));
            assert!(a == b || !are_dirs_there, "{file}: {a}, {b}");
            if a && b {
                let found = volume.resolve(format!("/b/{}", name(file)).as_bytes()).unwrap();
                assert_eq!((found.attr.nlink, read_all(&volume, found.node)), (2, name(file).into_bytes()));
            }
        }
        volume.close().unwrap();
    }
    assert!(made_again > LINKED, "{made_again}");
}

/// A name that goes needs no place in the new list.
#[test]
fn a_name_that_leads_to_nothing_is_not_listed_anew() {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let d = mkdir(&volume, ROOT, "d").node;
    for file in 0..3 {
        volume.link(mkfile(&volume, ROOT, &name(file)).node, d, name(file).as_bytes()).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let env = Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    batch.delete(META, &[1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(env.get(META, &[1, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap().is_some());
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);
    let device = without(&disk, &nodes_of_links(&disk));
    let repaired = repair_of(&disk, &device);
    assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
    let mended: BTreeSet<&str> = repaired.mended.iter().map(|mended| mended.code).collect();
    assert!(mended.contains("lost-file") && mended.contains("name-not-listed"), "{repaired:#?}");
    assert!(!mended.contains("wrongly-listed"), "it was listed, and taken off again: {repaired:#?}");
    let volume = open(&disk, &device);
    assert_eq!(names(&volume, volume.resolve(b"/d").unwrap().node).len(), 2);
    assert_sound(&volume);
}

/// The removal of a tree goes on after the repair, and takes the names from their files.
#[test]
fn names_in_a_tree_that_is_being_removed_are_listed_anew() {
    const FILES: u64 = 1000;
    let disk = removal_under_way(FILES);
    let device = without(&disk, &nodes_of_links(&disk));
    let repaired = repair_of(&disk, &device);
    assert!(repaired.generation.is_some() && repaired.after.found() == 0, "{repaired:#?}");
    let lost = repaired.mended.iter().find(|mended| mended.code == "nameless-file");
    assert_eq!(lost, None, "the removal is not over");
    let volume = open(&disk, &device);
    assert!(volume.resolve(b"/lost+found").is_err());
    for file in (0..FILES).step_by(2) {
        assert_eq!(links(&volume, &format!("/beside/{file}")), 1);
    }
    assert_sound(&volume);
}

/// Earlier versions left known damage there. Names that were taken from their files already are there still.
#[test]
fn names_in_a_tree_that_is_being_removed_are_not_counted_where_their_list_is_lost() {
    let disk = removal_under_way(1000);
    let device = without(&disk, &nodes_of_links(&disk));
    note_damage(&device);
    let report = Volume::examine(device, disk.options.clone(), &mut |_, _| ()).unwrap();
    assert_eq!(codes(&report), ["name-not-listed"].into(), "{report:#?}");
    let mut notes = report.notes.iter();
    assert!(notes.any(|note| note.contains("as many as counted")), "{report:#?}");
}
