//! Many threads on one volume.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::support::*;
use betrfs::{Error, Objects, RenameFlags, SetAttr};

#[test]
fn an_open_file_is_read_and_written_while_the_directories_above_are_renamed() {
    let (_disk, volume) = volume();
    let upper = mkdir(&volume, ROOT, "a0");
    let lower = mkdir(&volume, upper.node, "b0");
    let file = mkfile(&volume, lower.node, "f").node;
    volume.open_node(file).unwrap();
    volume.write(file, 0, &[1; 12_000], false).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let renamer = scope.spawn(|| {
            for i in 0..150 {
                let (from, to) = (format!("a{i}"), format!("a{}", i + 1));
                volume.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), RenameFlags::default()).unwrap();
                let (from, to) = (format!("b{i}"), format!("b{}", i + 1));
                let dir = upper.node;
                volume.rename(dir, from.as_bytes(), dir, to.as_bytes(), RenameFlags::default()).unwrap();
            }
            done.store(true, Relaxed);
        });
        for writer in 0..2u64 {
            let (volume, done) = (&volume, &done);
            scope.spawn(move || {
                let mut out = Vec::new();
                let mut round = 0u8;
                while !done.load(Relaxed) {
                    round = round.wrapping_add(1).max(1);
                    let offset = 100 + writer * 5000;
                    volume.write(file, offset, &[round; 3000], false).unwrap();
                    volume.read(file, offset, 3000, &mut out).unwrap();
                    assert_eq!(out, [round; 3000]);
                }
            });
        }
        renamer.join().unwrap();
    });
    let path = "/a150/b150/f";
    assert_eq!(contents(&volume, path).len(), 12_000);
    assert!(contents(&volume, path).iter().all(|byte| *byte != 0));
    assert_sound(&volume);
}

#[test]
fn everything_at_once_with_little_memory_stays_sound() {
    let mut disk = Disk::new();
    (disk.options.names_max, disk.options.inodes_max) = (8, 4);
    let volume = disk.open();
    let dirs: Vec<_> = (0..3).map(|i| mkdir(&volume, ROOT, &format!("d{i}")).node).collect();
    thread::scope(|scope| {
        for thread in 0..4usize {
            let (volume, dirs) = (&volume, &dirs);
            scope.spawn(move || {
                let mut out = Vec::new();
                let ok = |result: Result<(), Error>| match result {
                    Ok(()) | Err(Error::NotFound | Error::Exists | Error::Stale) => {}
                    Err(error) => panic!("{error}"),
                };
                for i in 0..400usize {
                    let name = format!("n{}", (i * 7 + thread) % 5);
                    let name = name.as_bytes();
                    let other = format!("n{}", (i * 3 + thread * 2) % 5);
                    let (dir, to) = (dirs[(i + thread) % 3], dirs[(i / 3) % 3]);
                    let entry = match i % 3 {
                        0 => volume.create(dir, name, &new_file()),
                        _ => volume.lookup(dir, name),
                    };
                    if let Ok(entry) = entry {
                        let opened = volume.open_node(entry.node);
                        if opened.is_ok() {
                            ok(volume.write(entry.node, (i * 100) as u64, &[1; 200], false));
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
                        _ => volume.readdir(dir, 0, Objects::None, &mut |_| true),
                    });
                }
            });
        }
    });
    assert_sound(&volume);
    volume.close().unwrap();
    assert_sound(&disk.open());
}
