//! Many threads on one volume.

use std::io::{Read, Write};
use std::thread;

use betrfs_std::{Dir, DirEntry, Error, File, Fs, OpenOptions, ReadDir, Walk};

use crate::support::*;

#[test]
fn all_can_be_sent_and_shared() {
    fn is<T: Send + Sync>() {}
    is::<Fs>();
    is::<Dir>();
    is::<File>();
    is::<ReadDir>();
    is::<DirEntry>();
    is::<Walk>();
    is::<Error>();
}

#[test]
fn threads_make_and_remove_the_same_names() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    let made: usize = thread::scope(|scope| {
        let spawn = |thread: u32| {
            let fs = &fs;
            scope.spawn(move || {
                let mut made = 0;
                for step in 0..300u32 {
                    let name = format!("dir/{}", (step * 7 + thread) % 5);
                    match (step + thread) % 6 {
                        0 => drop(fs.create_dir_all("dir")),
                        1 | 2 => made += usize::from(fs.write(&name, name.as_bytes()).is_ok()),
                        3 => drop(fs.remove_file(&name)),
                        4 => drop(fs.rename(&name, format!("dir/{thread}"))),
                        // Whole or not there.
                        _ => {
                            if let Ok(bytes) = fs.read(&name) {
                                assert!(bytes.is_empty() || bytes.starts_with(b"dir/"), "{bytes:?}");
                            }
                        }
                    }
                    if step % 100 == 99 {
                        drop(fs.rm_tree("dir"));
                    }
                }
                made
            })
        };
        let threads: Vec<_> = (0..4).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(made > 100, "{made} were written");
    assert_eq!(fs.volume().inodes_held(), 1);
    assert_sound(&fs);
}

#[test]
fn appends_through_handles_and_paths_keep_all_records() {
    const RECORDS: usize = 1000;
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("log", "").unwrap();
    thread::scope(|scope| {
        for thread in 0..4u8 {
            let fs = &fs;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(fs, "log").unwrap();
                for step in 0..RECORDS {
                    match step % 8 {
                        0 => fs.append("log", [thread; 64]).unwrap(),
                        1 => assert_eq!(file.write_at(&[thread; 64], 0).unwrap(), 64),
                        _ => file.write_all(&[thread; 64]).unwrap(),
                    }
                }
            });
        }
    });
    let bytes = fs.read("log").unwrap();
    assert_eq!(bytes.len(), 4 * RECORDS * 64);
    assert!(bytes.chunks(64).all(|record| record.iter().all(|byte| *byte == record[0])));
}

/// One position for all threads: each byte is read once.
#[test]
fn threads_share_the_position_of_a_file() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    let bytes: Vec<u8> = (0..64_000u32).map(|at| (at / 64) as u8).collect();
    fs.write("file", &bytes).unwrap();
    let file = fs.open_file("file").unwrap();
    let read: usize = thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(|| {
                let (mut buffer, mut count) = ([0; 64], 0);
                while (&file).read(&mut buffer).unwrap() == 64 {
                    assert!(buffer.iter().all(|byte| *byte == buffer[0]));
                    count += 1;
                }
                count
            })
        };
        let threads: Vec<_> = (0..4).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(read, 1000);
}
