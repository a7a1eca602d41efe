//! A fork of a process with an open volume: it is refused, and changes nothing for its parent.

use std::io::{Read, Write};

use betrfs_std::{Errno, Fs, OpenOptions};

use crate::child::in_a_fork;
use crate::support::*;

#[test]
fn a_fork_is_refused_and_what_its_parent_syncs_survives() {
    let Scratch { folder, fs } = Scratch::new();
    fs.write("base", vec![b'b'; 20_000]).unwrap();
    fs.sync().unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(&fs, "base").unwrap();
    let dir = fs.open_dir("/").unwrap();
    (0..50).for_each(|number| fs.write(format!("parent{number}"), vec![b'p'; 2000]).unwrap());
    fs.sync().unwrap();
    let mut inherited = Some((fs.clone(), dir));
    let code = in_a_fork(|| {
        let refused = [
            errno(fs.write("child", vec![b'c'; 2000])),
            errno(fs.read("base")),
            errno(fs.metadata("base")),
            errno(fs.read_dir("/").and_then(|mut listed| listed.next().unwrap())),
            errno(fs.sync()),
            errno(fs.remove_file("base")),
            errno(fs.clone().close()),
            errno(file.sync_all()),
            file.write_all(b"x").unwrap_err().raw_os_error().unwrap_or(0),
            file.read(&mut [0]).unwrap_err().raw_os_error().unwrap_or(0),
        ];
        let bad = refused.iter().position(|errno| *errno != Errno::BADF.raw_os_error());
        // The closing handle's drop, and that of the last one.
        drop(inherited.take());
        bad.map_or(0, |at| at as i32 + 1)
    });
    assert_eq!(code, 0, "the number of the call that was not refused");
    fs.write("after", "1").unwrap();
    fs.sync().unwrap();
    fs.volume().env().abandon();
    drop((file, inherited, fs));
    let fs = Fs::open(folder.path().join("volume")).unwrap();
    assert!((0..50).all(|number| fs.read(format!("parent{number}")).unwrap() == vec![b'p'; 2000]));
    assert_eq!(fs.read_to_string("after").unwrap(), "1");
    assert_sound(&fs);
}

/// Nothing waits for the parent's threads.
#[test]
fn a_fork_that_drops_all_ends() {
    let Scratch { folder, fs } = Scratch::new();
    fs.write("base", "1").unwrap();
    let file = fs.open_file("base").unwrap();
    let mut all = Some((fs, file));
    let code = in_a_fork(|| {
        let told = all.as_ref().map(|(fs, _)| fs.sync().unwrap_err().to_string());
        drop(all.take());
        match told {
            Some(told) if told.contains("of which this one is a fork") => 0,
            _ => 1,
        }
    });
    assert_eq!(code, 0);
    let (fs, file) = all.unwrap();
    drop(file);
    assert_sound(&fs);
    fs.close().unwrap();
    assert_eq!(Fs::open(folder.path().join("volume")).unwrap().read_to_string("base").unwrap(), "1");
}
