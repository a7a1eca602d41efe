//! Objects found by their inode numbers, as by handles of files.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crate::support::*;
use betree::{Batch, Cut, DictId};
use betrfs::{
    Entry, Error, FileType, InodeId, NewNode, Objects, OpKind, RenameFlags, Result, SNAPSHOTS_NAME,
    SnapshotsBelow, Volume,
};

const META: DictId = DictId(0);
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, no_replace: false, whiteout: false };

fn rename(volume: &Volume, from: (InodeId, &str), to: (InodeId, &str), flags: RenameFlags) {
    volume.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags).unwrap();
}

fn snapshot(volume: &Volume, dir: InodeId, name: &str) -> InodeId {
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    mkdir(volume, snapshots, name).node
}

/// The objects of a volume by path, all given back: those of snapshots too.
fn all_objects(volume: &Volume) -> BTreeMap<String, Entry> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let node = volume.resolve(dir.as_bytes()).unwrap().node;
        let mut inside = names(volume, node);
        volume.forget(node, 1);
        if volume.resolve(format!("{dir}/.betrfs-snapshots").as_bytes()).is_ok() {
            let snapshots = format!("{dir}/.betrfs-snapshots");
            let node = volume.resolve(snapshots.as_bytes()).unwrap().node;
            inside.extend(names(volume, node).iter().map(|name| format!(".betrfs-snapshots/{name}")));
        }
        for name in inside {
            let path = format!("{dir}/{name}");
            let entry = volume.resolve(path.as_bytes()).unwrap();
            volume.forget(entry.node, 1);
            if entry.attr.file_type == FileType::Directory {
                dirs.push(path.clone());
            }
            all.insert(path, entry);
        }
    }
    all
}

/// Fails unless each object is found by its number, and is what its path leads to.
fn assert_all_found(volume: &Volume, all: &BTreeMap<String, Entry>) {
    for (path, entry) in all {
        let found = volume.find_inode(entry.node).unwrap_or_else(|error| panic!("{path}: {error}"));
        let at_path = volume.resolve(path.as_bytes()).unwrap();
        assert_eq!((found.node, found.generation), (entry.node, entry.generation), "{path}");
        assert_eq!(found, at_path, "{path}");
        volume.forget(found.node, 2);
    }
}

fn cost(volume: &Volume, run: impl FnOnce()) -> (u64, u64) {
    let before = volume.counters().of(OpKind::FindInode);
    run();
    let after = volume.counters().of(OpKind::FindInode);
    (after.queries - before.queries, after.scans - before.scans)
}

#[test]
fn every_kind_of_object_is_found_in_a_later_use_of_the_volume() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let inner = mkdir(&volume, dir, "inner").node;
    mkfile(&volume, inner, "file");
    volume.symlink(inner, b"symlink", b"target", 1, 1).unwrap();
    volume.create(inner, b"fifo", &NewNode { file_type: FileType::Fifo, ..new_file() }).unwrap();
    let linked = mkfile(&volume, inner, "linked").node;
    volume.link(linked, ROOT, b"other name").unwrap();
    snapshot(&volume, dir, "snapshot");
    volume.clone_inode(dir, ROOT, b"copy").unwrap();
    volume.clone_inode(linked, ROOT, b"file's copy").unwrap();
    let all = all_objects(&volume);
    assert_eq!(all.len(), 20, "{:?}", all.keys());
    volume.close().unwrap();
    assert_all_found(&disk.open(), &all);
    // One at a time.
    for (path, entry) in &all {
        let found = disk.open().find_inode(entry.node);
        assert_eq!(found.map(|found| found.attr.ino), Ok(entry.attr.ino), "{path}");
    }
}

#[test]
fn what_was_moved_is_found_where_it_is_now() {
    let (disk, volume) = volume();
    let (a, b) = (mkdir(&volume, ROOT, "a").node, mkdir(&volume, ROOT, "b").node);
    let deep = mkdir(&volume, mkdir(&volume, a, "deep").node, "deeper").node;
    let file = mkfile(&volume, deep, "file");
    let (one, two) = (mkfile(&volume, b, "one"), mkfile(&volume, b, "two"));
    let replaced = mkfile(&volume, ROOT, "replaced");
    let linked = mkfile(&volume, b, "linked");
    volume.link(linked.node, a, b"second").unwrap();
    volume.close().unwrap();

    // Found before the moves, so that the map of numbers is out of date.
    let volume = disk.open();
    let found = |entry: Entry| volume.find_inode(entry.node).map(|found| (found.node, found.generation));
    for entry in [file, one, two, replaced, linked] {
        assert_eq!(found(entry), Ok((entry.node, entry.generation)));
        volume.forget(entry.node, 1);
    }
    volume.close().unwrap();
    let volume = disk.open();
    let node = |path: &str| volume.resolve(path.as_bytes()).unwrap().node;
    rename(&volume, (node("/a"), "deep"), (node("/b"), "moved"), RenameFlags::default());
    rename(&volume, (ROOT, "a"), (node("/b/moved"), "a"), RenameFlags::default());
    rename(&volume, (node("/b"), "one"), (node("/b"), "two"), EXCHANGE);
    rename(&volume, (node("/b"), "one"), (ROOT, "replaced"), RenameFlags::default());
    volume.unlink(node("/b"), b"linked").unwrap();
    volume.close().unwrap();

    let volume = disk.open();
    for (entry, path) in
        [(file, "/b/moved/deeper/file"), (one, "/b/two"), (two, "/replaced"), (linked, "/b/moved/a/second")]
    {
        let found = volume.find_inode(entry.node).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!((found.node, found.generation), (entry.node, entry.generation), "{path}");
        assert_eq!(found, volume.resolve(path.as_bytes()).unwrap());
    }
    assert_eq!(volume.find_inode(replaced.node), Err(Error::Stale));
}

#[test]
fn what_moves_after_a_search_is_found_by_another_one() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let files: Vec<Entry> = (0..600).map(|i| mkfile(&volume, dir, &format!("file{i:03}"))).collect();
    volume.close().unwrap();

    let mut options = disk.options.clone();
    options.inodes_max = 4;
    let volume = Volume::open(disk.device.clone(), options).unwrap();
    let find = |at: usize| {
        let found = volume.find_inode(files[at].node).map(|found| (found.node, found.generation));
        volume.forget(files[at].node, 1);
        assert_eq!(found, Ok((files[at].node, files[at].generation)), "file {at}");
    };
    find(599);
    rename(&volume, (ROOT, "dir"), (ROOT, "a"), RenameFlags::default());
    let scans = |at| cost(&volume, || find(at)).1;
    // The name is not where the map says: one scan more for each of three groups of keys.
    assert_eq!((scans(500), scans(550), scans(1)), (4, 1, 1));
}

#[test]
fn removed_objects_are_stale_and_no_other_object_is_found_for_them() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let inner = mkdir(&volume, dir, "inner");
    let file = mkfile(&volume, inner.node, "file");
    let gone = mkfile(&volume, ROOT, "gone");
    let open = mkfile(&volume, ROOT, "open");
    let linked = mkfile(&volume, ROOT, "linked");
    volume.link(linked.node, dir, b"second").unwrap();
    let copy = volume.clone_inode(dir, ROOT, b"copy").unwrap();
    let in_copy = volume.resolve(b"/copy/inner/file").unwrap();
    volume.open_inode(open.node).unwrap();
    let unnamed = volume.create_unnamed(ROOT, &new_file()).unwrap();
    volume.open_inode(unnamed.node).unwrap();

    volume.unlink(ROOT, b"gone").unwrap();
    volume.unlink(ROOT, b"open").unwrap();
    volume.unlink(ROOT, b"linked").unwrap();
    volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
    volume.remove_below(copy.node, SnapshotsBelow::Hold).unwrap();
    volume.rmdir(ROOT, b"copy").unwrap();
    let all = [inner, file, gone, open, linked, copy, in_copy, unnamed];
    let assert_stale = |volume: &Volume| {
        for entry in all {
            assert_eq!(volume.find_inode(entry.node), Err(Error::Stale), "{entry:?}");
        }
    };
    assert_stale(&volume);
    // Others get the names.
    mkfile(&volume, mkdir(&volume, dir, "inner").node, "file");
    mkfile(&volume, ROOT, "gone");
    assert_stale(&volume);
    volume.close().unwrap();
    assert_stale(&disk.open());
    assert_eq!(disk.open().find_inode(InodeId(0)), Err(Error::Stale));
    assert_eq!(disk.open().find_inode(InodeId(u64::MAX)), Err(Error::Stale));
}

#[test]
fn a_number_that_is_given_again_after_a_crash_has_another_generation() {
    let (disk, volume) = volume();
    volume.sync().unwrap();
    let lost = mkfile(&volume, ROOT, "lost");
    volume.env().abandon();
    let volume = disk.open();
    assert_eq!(volume.resolve(b"/lost"), Err(Error::NotFound), "nothing was synced");
    let other = mkfile(&volume, ROOT, "other");
    let found = volume.find_inode(lost.node).unwrap();
    assert_eq!((found.node, found.node), (lost.node, other.node), "the number was given again");
    assert_eq!(found.generation, other.generation);
    assert_ne!(found.generation, lost.generation);
}

#[test]
fn a_filled_copy_is_the_object_that_it_was() {
    let (disk, volume) = volume();
    let (from, to) = (mkdir(&volume, ROOT, "from").node, mkdir(&volume, ROOT, "to"));
    mkfile(&volume, from, "file");
    volume.clone_onto(from, to.node).unwrap();
    let filled = volume.resolve(b"/to").unwrap();
    assert_eq!((filled.node, filled.generation), (to.node, to.generation));
    volume.close().unwrap();
    let found = disk.open().find_inode(to.node).unwrap();
    assert_eq!((found.node, found.generation), (to.node, to.generation));
}

/// Copies, copies of copies, snapshots of copies; objects made in them and moved between them.
fn salted(volume: &Volume) {
    let node = |path: &str| volume.resolve(path.as_bytes()).unwrap().node;
    let a = mkdir(volume, ROOT, "a").node;
    for name in ["x", "y", "z"] {
        mkfile(volume, mkdir(volume, a, name).node, "file");
    }
    volume.clone_inode(a, ROOT, b"b").unwrap();
    mkfile(volume, node("/b/x"), "made in b");
    volume.clone_inode(node("/b"), node("/a"), b"b2").unwrap();
    volume.clone_inode(a, ROOT, b"c").unwrap();
    snapshot(volume, node("/c"), "s");
    snapshot(volume, node("/c/b2/x"), "s");
    rename(volume, (node("/c"), "b2"), (ROOT, "out of c"), RenameFlags::default());
    rename(volume, (node("/b"), "y"), (node("/a"), "from b"), RenameFlags::default());
    rename(volume, (node("/a"), "z"), (node("/b"), "y"), RenameFlags::default());
    rename(volume, (node("/out of c/x"), "file"), (node("/b/z"), "file"), EXCHANGE);
    volume.clone_inode(node("/b"), node("/out of c"), b"b3").unwrap();
    snapshot(volume, ROOT, "all");
    // Back below its own salts.
    rename(volume, (node("/a"), "from b"), (node("/b"), "back"), RenameFlags::default());
}

#[test]
fn objects_in_copies_of_copies_are_found() {
    let (disk, volume) = volume();
    salted(&volume);
    let all = all_objects(&volume);
    assert!(all.len() > 80, "{}", all.len());
    let numbers: std::collections::BTreeSet<InodeId> = all.values().map(|entry| entry.node).collect();
    assert_eq!(numbers.len(), all.len(), "no two have one number");
    volume.close().unwrap();
    // All in one use, so that most are found by the map of the first search.
    let volume = disk.open();
    let (_, scans) = cost(&volume, || assert_all_found(&volume, &all));
    assert!(scans < 2 * all.len() as u64, "{scans} scans for {} objects", all.len());
    // Each by a search of all names.
    for (path, entry) in &all {
        let found = disk.open().find_inode(entry.node);
        assert_eq!(found.map(|found| found.attr.ino), Ok(entry.attr.ino), "{path}");
    }
}

#[test]
fn an_object_in_memory_takes_no_query_and_a_search_spares_the_next_one() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let files: Vec<Entry> = (0..1000).map(|i| mkfile(&volume, dir, &format!("file{i:03}"))).collect();
    let gone = mkfile(&volume, ROOT, "gone").node;
    volume.unlink(ROOT, b"gone").unwrap();
    let find = |volume: &Volume, at: usize| {
        assert_eq!(volume.find_inode(files[at].node).unwrap().node, files[at].node);
        volume.forget(files[at].node, 1);
    };
    assert_eq!(cost(&volume, || find(&volume, 5)), (0, 0));
    volume.close().unwrap();

    let volume = disk.open();
    // One scan for each of three groups of keys; then the way down.
    assert_eq!(cost(&volume, || find(&volume, 700)), (2, 3));
    // One scan of some hundred names; the directory is in memory.
    assert_eq!(cost(&volume, || find(&volume, 300)), (1, 1));
    assert_eq!(cost(&volume, || find(&volume, 300)), (0, 0));
    assert_eq!(cost(&volume, || assert_eq!(volume.find_inode(gone), Err(Error::Stale))), (0, 3));
    // An absent number is remembered.
    assert_eq!(cost(&volume, || assert_eq!(volume.find_inode(gone), Err(Error::Stale))), (0, 0));
    assert_eq!(volume.inodes_held(), 0);
}

#[test]
fn objects_that_a_forged_volume_gives_one_number_are_kept_apart() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "dir").node;
    let one = mkfile(&volume, dir, "one").node;
    volume.write(one, 0, b"first").unwrap();
    volume.close().unwrap();
    let key = |name: &str| [b"\0dir\0\0", name.as_bytes()].concat();
    let env = betree::Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let record = env.get(META, &key("one")).unwrap().unwrap();
    let block = |name: &str| [key(name).as_slice(), b"\0\0\0\0\0\0\0\0\0"].concat();
    let mut batch = Batch::new();
    let mut dir_record = env.get(META, b"\0\0dir").unwrap().unwrap();
    dir_record[88] = 3;
    batch.put(META, b"\0\0dir", &dir_record);
    for (name, text) in [("two", b"other"), ("three", b"third")] {
        batch.put(META, &key(name), &record);
        batch.put(DictId(1), &block(name), text);
    }
    env.commit(&batch).unwrap();
    env.close().unwrap();

    let mut options = disk.options.clone();
    options.inodes_max = 1;
    let volume = Volume::open(disk.device.clone(), options).unwrap();
    let look = |name: &str| volume.resolve(format!("/dir/{name}").as_bytes()).unwrap();
    let (first, second) = (look("one"), look("two"));
    assert_eq!((first.node, first.attr.ino, second.attr.ino), (one, one.0, one.0));
    assert_ne!(second.node, one);
    assert_ne!(second.generation, first.generation);
    assert_eq!(
        (read_all(&volume, first.node), read_all(&volume, second.node)),
        (b"first".into(), b"other".into())
    );
    // The number goes to another object when the first one has left memory; its name does not lead there.
    volume.forget(first.node, 1);
    volume.forget(second.node, 1);
    mkfile(&volume, ROOT, "evicts");
    mkfile(&volume, ROOT, "evicts too");
    let third = look("three");
    assert_eq!(third.node, one, "it came into memory first");
    assert_eq!(contents(&volume, "/dir/one"), b"first");
    assert_eq!(contents(&volume, "/dir/two"), b"other");
    assert_eq!(read_all(&volume, third.node), b"third");
    let mut listed = Vec::new();
    let list = |entry: &betrfs::DirEntry<'_>| {
        listed.push((entry.name.to_vec(), entry.entry.unwrap().node));
        true
    };
    let mut list = list;
    volume.readdir(dir, 0, Objects::All, &mut list).unwrap();
    let mut nodes: Vec<InodeId> = listed.iter().map(|(_, node)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!((listed.len(), nodes.len()), (3, 3), "{listed:?}");
}

#[test]
fn a_search_passes_what_cannot_be_read_and_reports_it_only_if_the_object_may_be_there() {
    let (disk, volume) = volume();
    let before = mkfile(&volume, ROOT, "a");
    let bad = mkfile(&volume, ROOT, "b");
    let behind = mkfile(&volume, ROOT, "c");
    volume.close().unwrap();
    let env = betree::Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    batch.put(META, b"\0\0b", b"\x01\x01 no record");
    env.commit(&batch).unwrap();
    assert_eq!(
        env.cursor(META, Cut::before(*b"\0\0"), Cut::before(*b"\x01")).next().unwrap().unwrap().0,
        b"\0\0a"
    );
    env.close().unwrap();
    let volume = disk.open();
    let found = |entry: Entry| -> Result<InodeId> { Ok(volume.find_inode(entry.node)?.node) };
    assert_eq!((found(before), found(behind)), (Ok(before.node), Ok(behind.node)));
    let Err(Error::Damaged { what, .. }) = found(bad) else { panic!("{:?}", found(bad)) };
    assert_eq!(what, "/b");
}

#[test]
fn an_object_is_never_stale_while_directories_above_it_move() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, mkdir(&volume, ROOT, "dir").node, "inner").node;
    let files: Vec<Entry> = (0..50).map(|i| mkfile(&volume, dir, &format!("file{i}"))).collect();
    volume.close().unwrap();
    let mut options = disk.options.clone();
    options.inodes_max = 4;
    let volume = Volume::open(disk.device.clone(), options).unwrap();
    let (mut found, moves) = (0, AtomicU32::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                rename(&volume, (ROOT, "dir"), (ROOT, "moved"), RenameFlags::default());
                rename(&volume, (ROOT, "moved"), (ROOT, "dir"), RenameFlags::default());
                moves.fetch_add(2, Relaxed);
            }
        });
        let _over = SetOnDrop(&is_over);
        let begun = Instant::now();
        for round in 0.. {
            // The machine may leave one of the threads without a turn for long.
            let is_met = found > 100 && moves.load(Relaxed) > 100;
            if round >= 2000 && (is_met || begun.elapsed().as_secs() >= 60) {
                break;
            }
            let file = files[round % files.len()];
            match volume.find_inode(file.node) {
                Ok(entry) => {
                    assert_eq!((entry.node, entry.generation), (file.node, file.generation));
                    volume.forget(file.node, 1);
                    found += 1;
                }
                Err(error) => assert_eq!(error, Error::Busy),
            }
        }
    });
    let moves = moves.into_inner();
    assert!(found > 100 && moves > 100, "{found} found, {moves} moves");
}
