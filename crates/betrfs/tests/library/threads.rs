//! Many threads on one volume.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;
use betree::{Cut, DictId};
use betrfs::{DirEntry, Error, InodeId, Objects, RenameFlags, SetAttr, Volume};

#[test]
fn an_open_file_is_read_and_written_while_the_directories_above_are_renamed() {
    let (_disk, volume) = volume();
    let upper = mkdir(&volume, ROOT, "a0");
    let lower = mkdir(&volume, upper.node, "b0");
    let file = mkfile(&volume, lower.node, "f").node;
    volume.open_inode(file).unwrap();
    volume.write(file, 0, &[1; 12_000]).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _end = SetOnDrop(&done);
            for i in 0..150 {
                let (from, to) = (format!("a{i}"), format!("a{}", i + 1));
                volume.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), RenameFlags::default()).unwrap();
                let (from, to) = (format!("b{i}"), format!("b{}", i + 1));
                let dir = upper.node;
                volume.rename(dir, from.as_bytes(), dir, to.as_bytes(), RenameFlags::default()).unwrap();
            }
        });
        for writer in 0..2u64 {
            let (volume, done) = (&volume, &done);
            scope.spawn(move || {
                let mut out = Vec::new();
                let mut round = 0u8;
                while !done.load(Relaxed) {
                    round = round.wrapping_add(1).max(1);
                    let offset = 100 + writer * 5000;
                    volume.write(file, offset, &[round; 3000]).unwrap();
                    volume.read(file, offset, 3000, &mut out).unwrap();
                    assert_eq!(out, [round; 3000]);
                }
            });
        }
    });
    let path = "/a150/b150/f";
    assert_eq!(contents(&volume, path).len(), 12_000);
    assert!(contents(&volume, path).iter().all(|byte| *byte != 0));
    assert_sound(&volume);
}

/// Lists a directory with its objects. Checks that files that grow are in memory at least as large as after
/// the rounds that their threads have completed.
fn list(volume: &Volume, dir: InodeId, rounds: &[AtomicUsize]) -> Result<(), Error> {
    let (mut found, mut last) = (Vec::new(), 0);
    let mut read_from = |cookie| {
        volume.readdir(dir, cookie, Objects::All, &mut |entry| {
            found.extend(entry.entry.map(|object| (entry.name.to_vec(), object.node)));
            last = entry.cookie;
            true
        })?;
        Ok(last)
    };
    // The second call finds no more entries, after which the names may be evicted.
    let listed = read_from(0).and_then(&mut read_from).map(drop);
    for (name, node) in found {
        let thread = (0..rounds.len()).find(|thread| Own::names(*thread)[0].as_bytes() == name);
        if let Some(thread) = thread {
            let size_min = 10 * rounds[thread].load(SeqCst) as u64;
            assert!(volume.getattr(node).unwrap().size >= size_min);
        }
        volume.forget(node, 1);
    }
    listed
}

/// Each round writes a bit later, at any moment of the listing. Idle inodes are evicted before the listing
/// ends, the file first.
#[test]
fn a_file_that_is_written_while_its_directory_is_read_is_in_memory_as_it_was_written() {
    let mut disk = Disk::new();
    disk.options.inodes_max = 300;
    let volume = disk.open();
    let dirs = [("d", 200), ("o", 100)];
    for (dir, files) in dirs {
        let dir = mkdir(&volume, ROOT, dir).node;
        (0..files).for_each(|i| _ = mkfile(&volume, dir, &format!("f{i:03}")));
        mkfile(&volume, dir, "last");
    }
    volume.close().unwrap();
    let list = |volume: &Volume, dir: InodeId| {
        let mut found = Vec::new();
        let each = &mut |entry: &DirEntry<'_>| {
            found.extend(entry.entry.map(|entry| entry.node));
            true
        };
        volume.readdir(dir, 0, Objects::All, each).unwrap();
        found.into_iter().for_each(|node| volume.forget(node, 1));
    };
    for round in 0..400u64 {
        let volume = disk.open();
        let dir = volume.resolve(b"/d").unwrap().node;
        let file = volume.lookup(dir, b"last").unwrap().node;
        list(&volume, volume.resolve(b"/o").unwrap().node);
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                let time = Instant::now();
                while time.elapsed() < Duration::from_micros(2 * (round % 200)) {}
                volume.write(file, round, b"1").unwrap();
                volume.forget(file, 1);
            });
            begin.wait();
            list(&volume, dir);
        });
        assert_eq!(volume.lookup(dir, b"last").unwrap().attr.size, round + 1);
        volume.close().unwrap();
    }
}

/// A file that grows and a directory that fills: only one thread changes them, and others list the directory.
struct Own<'a> {
    volume: &'a Volume,
    dir: InodeId,
    thread: usize,
    rounds: &'a [AtomicUsize],
}

impl Own<'_> {
    fn names(thread: usize) -> [String; 2] {
        [format!("file{thread}"), format!("dir{thread}")]
    }

    fn make(&self) {
        let [file, inner] = Own::names(self.thread);
        self.volume.forget(mkfile(self.volume, self.dir, &file).node, 1);
        self.volume.forget(mkdir(self.volume, self.dir, &inner).node, 1);
    }

    fn bytes(rounds: usize) -> Vec<u8> {
        (0..rounds).flat_map(|i| [1 + (i % 250) as u8; 10]).collect()
    }

    fn name(round: usize) -> String {
        format!("n{round:03}")
    }

    /// Checks both after the given number of rounds, and makes one more round.
    fn go_on(&self, rounds: usize) {
        let volume = self.volume;
        let [file, inner] =
            Own::names(self.thread).map(|name| volume.lookup(self.dir, name.as_bytes()).unwrap());
        assert_eq!(file.attr.size, 10 * rounds as u64);
        assert!(read_all(volume, file.node) == Own::bytes(rounds));
        volume.write(file.node, file.attr.size, &Own::bytes(rounds + 1)[10 * rounds..]).unwrap();
        self.rounds[self.thread].store(rounds + 1, SeqCst);
        if let Some(last) = rounds.checked_sub(1) {
            let last = Own::name(last);
            let again = volume.create(inner.node, last.as_bytes(), &new_file());
            assert_eq!(again, Err(Error::Exists));
        }
        let new = mkfile(volume, inner.node, &Own::name(rounds));
        [new, inner, file].iter().for_each(|entry| volume.forget(entry.node, 1));
    }

    /// Checks that everything a thread made in its rounds exists in the directory at this path.
    fn compare(volume: &Volume, path: &str, thread: usize, rounds: usize) {
        let [file, inner] = Own::names(thread).map(|name| format!("{path}/{name}"));
        assert!(contents(volume, &file) == Own::bytes(rounds));
        let inner = volume.resolve(inner.as_bytes()).unwrap();
        assert_eq!(names(volume, inner.node), (0..rounds).map(Own::name).collect::<Vec<_>>());
    }
}

#[test]
fn everything_at_once_with_little_memory_stays_sound() {
    let mut disk = Disk::new();
    (disk.options.names_max, disk.options.inodes_max) = (8, 4);
    let volume = disk.open();
    let dirs: Vec<_> = (0..3).map(|i| mkdir(&volume, ROOT, &format!("d{i}")).node).collect();
    // A listing takes some time until it reaches the entries that the threads change.
    for dir in &dirs {
        for i in 0..60 {
            volume.forget(mkfile(&volume, *dir, &format!("a{i}")).node, 1);
        }
    }
    let (threads, rounds) = (4, 400);
    let done: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (volume, dirs, done) = (&volume, &dirs, &done);
            scope.spawn(move || {
                let own = Own { volume, dir: dirs[thread % 3], thread, rounds: done };
                own.make();
                let mut out = Vec::new();
                let ok = |result: Result<(), Error>| match result {
                    Ok(()) | Err(Error::NotFound | Error::Exists | Error::Stale) => {}
                    Err(error) => panic!("{error}"),
                };
                for i in 0..rounds {
                    own.go_on(i);
                    let name = format!("n{}", (i * 7 + thread) % 5);
                    let name = name.as_bytes();
                    let other = format!("n{}", (i * 3 + thread * 2) % 5);
                    let (dir, to) = (dirs[(i + thread) % 3], dirs[(i / 3) % 3]);
                    let entry = match i % 3 {
                        0 => volume.create(dir, name, &new_file()),
                        _ => volume.lookup(dir, name),
                    };
                    if let Ok(entry) = entry {
                        let opened = volume.open_inode(entry.node);
                        if opened.is_ok() {
                            ok(volume.write(entry.node, (i * 100) as u64, &[1; 200]).map(drop));
                            ok(volume.read(entry.node, 0, 1000, &mut out));
                            ok(volume
                                .setattr(entry.node, &SetAttr { size: Some(i as u64), ..SetAttr::default() })
                                .map(drop));
                            volume.release_node(entry.node);
                        }
                        if i % 5 == 0
                            && let Ok(linked) = volume.link(entry.node, to, other.as_bytes())
                        {
                            volume.forget(linked.node, 1);
                        }
                        volume.forget(entry.node, 1);
                    }
                    ok(match i % 4 {
                        0 => volume.rename(dir, name, to, other.as_bytes(), RenameFlags::default()),
                        1 => volume.unlink(to, other.as_bytes()),
                        _ => list(volume, dir, done),
                    });
                }
            });
        }
    });
    let compare = |volume: &Volume| {
        for thread in 0..threads {
            Own::compare(volume, &format!("/d{}", thread % 3), thread, rounds);
        }
        assert_sound(volume);
    };
    compare(&volume);
    volume.close().unwrap();
    drop(volume);
    compare(&disk.open());
}

/// The name is removed by an unlink, and by a rename over it.
#[test]
fn a_file_released_while_its_name_is_removed_leaves_nothing_behind() {
    let (_disk, volume) = volume();
    for round in 0..3000 {
        let file = mkfile(&volume, ROOT, "f").node;
        volume.open_inode(file).unwrap();
        volume.write(file, 0, &[7; 5000]).unwrap();
        let other = (round % 2 == 1).then(|| mkfile(&volume, ROOT, "other").node);
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                volume.release_node(file);
                volume.forget(file, 1);
            });
            together.wait();
            match other {
                None => volume.unlink(ROOT, b"f").unwrap(),
                Some(_) => volume.rename(ROOT, b"other", ROOT, b"f", RenameFlags::default()).unwrap(),
            }
        });
        if let Some(other) = other {
            volume.forget(other, 1);
            volume.unlink(ROOT, b"f").unwrap();
        }
        let mut blocks = volume.env().cursor(DictId(1), Cut::LOW, Cut::HIGH);
        assert!(blocks.next().unwrap().is_none(), "round {round}");
    }
    assert_sound(&volume);
}
