//! Opening, closing, and what is held meanwhile.

use std::io::{Read, Write};

use betrfs_std::{Errno, ErrorKind, Fs, OpenError, OpenOptions, XattrMode};

use crate::support::*;

#[test]
fn a_volume_is_made_once_and_opened_by_one_at_a_time() {
    let Scratch { folder, fs } = Scratch::new();
    let path = folder.path().join("volume");
    let error = Fs::create(&path, VOLUME_BYTES).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Device(OpenError::Exists { .. })), "{error}");
    let error = Fs::open(&path).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Device(OpenError::InUse { .. })), "{error}");
    assert_eq!(
        (error.errno(), error.operation(), error.paths()),
        (Errno::BUSY, "open the volume", &[path.clone()][..])
    );
    drop(fs);
    drop(Fs::open(&path).unwrap());

    let missing = folder.path().join("missing");
    assert_eq!(errno(Fs::open(&missing)), 2);
    let error = Fs::create(folder.path().join("small"), 8192).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Volume(_)), "{error}");
    assert!(!folder.path().join("small").exists(), "what could not be made is in nobody's way");
    std::fs::write(&missing, vec![7; 1 << 20]).unwrap();
    let error = Fs::open(&missing).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Volume(betrfs::Error::NotAVolume { .. })), "{error}");
}

#[test]
fn what_was_written_is_there_after_a_close_and_after_a_drop() {
    let scratch = Scratch::new();
    scratch.fs.write("closed", "1").unwrap();
    let scratch = scratch.reopened();
    scratch.fs.write("dropped", "2").unwrap();
    // A handle keeps the volume open.
    let mut file = scratch.fs.create_file("handle").unwrap();
    let (path, Scratch { fs, folder }) = (scratch.path(), scratch);
    drop(fs);
    assert_eq!(errno(Fs::open(&path)), Errno::BUSY.raw_os_error());
    file.write_all(b"3").unwrap();
    drop(file);
    let fs = Fs::open(&path).unwrap();
    for (name, contents) in [("closed", b"1"), ("dropped", b"2"), ("handle", b"3")] {
        assert_eq!(fs.read(name).unwrap(), contents, "{name}");
    }
    assert_sound(&fs);
    drop(folder);
}

#[test]
fn after_a_crash_all_is_there_that_was_synced() {
    let Scratch { folder, fs } = Scratch::new();
    fs.write("synced", "1").unwrap();
    fs.sync().unwrap();
    let mut file = fs.create_file("file").unwrap();
    file.write_all(b"2").unwrap();
    file.sync_all().unwrap();
    fs.volume().env().abandon();
    drop((fs, file));
    let fs = Fs::open(folder.path().join("volume")).unwrap();
    assert_eq!((fs.read("synced").unwrap(), fs.read("file").unwrap()), (b"1".to_vec(), b"2".to_vec()));
}

#[test]
fn handles_of_a_closed_volume_fail_and_do_no_harm() {
    let scratch = Scratch::new();
    let fs = scratch.fs.clone();
    let mut file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "file").unwrap();
    file.write_all(b"kept").unwrap();
    let dir = fs.open_dir("/").unwrap();
    fs.close().unwrap();
    assert!(file.write_all(b"more").is_err() && dir.create_dir("dir").is_err());
    assert!(scratch.fs.clone().close().is_ok(), "closed again");
    let other = Fs::open(scratch.path()).unwrap();
    assert_eq!(other.read("file").unwrap(), b"kept");
    let mut bytes = Vec::new();
    assert!(file.read_to_end(&mut bytes).is_err() || bytes.is_empty(), "it stands at its end");
    other.write("file", "other").unwrap();
    drop((file, dir, scratch.fs));
    let other = Scratch { folder: scratch.folder, fs: other }.reopened();
    assert_eq!(other.fs.read("file").unwrap(), b"other");
    assert_sound(&other.fs);
}

#[test]
fn a_volume_opened_to_be_read_takes_no_change() {
    let scratch = Scratch::new();
    scratch.fs.create_dir("dir").unwrap();
    scratch.fs.write("dir/file", "text").unwrap();
    let before = scratch.fs.metadata("dir/file").unwrap();
    let path = scratch.path();
    scratch.fs.close().unwrap();
    let fs = Fs::options().read_only(true).open(path).unwrap();
    assert_eq!(fs.read_to_string("dir/file").unwrap(), "text");
    assert_eq!(fs.metadata("dir/file").unwrap(), before, "not even a time of access");
    let name = "user.a";
    for (what, refused) in [
        ("write", errno(fs.write("dir/file", "other"))),
        ("write of a new one", errno(fs.write("new", "other"))),
        ("append", errno(fs.append("dir/file", "other"))),
        ("create_dir", errno(fs.create_dir("new"))),
        ("remove_file", errno(fs.remove_file("dir/file"))),
        ("remove_dir", errno(fs.remove_dir("dir"))),
        ("rm_tree", errno(fs.rm_tree("dir"))),
        ("rename", errno(fs.rename("dir", "new"))),
        ("hard_link", errno(fs.hard_link("dir/file", "new"))),
        ("symlink", errno(fs.symlink("dir", "new"))),
        ("clone_tree", errno(fs.clone_tree("dir", "new"))),
        ("snapshot", errno(fs.snapshot("dir", "new"))),
        ("set_permissions", errno(fs.set_permissions("dir", 0o700))),
        ("chown", errno(fs.chown("dir", Some(0), None))),
        ("set_times", errno(fs.set_times("dir", None, None))),
        ("set_xattr", errno(fs.set_xattr("dir", name, "1", XattrMode::Any))),
        ("remove_xattr", errno(fs.remove_xattr("dir", name))),
        ("create_file", errno(fs.create_file("dir/file"))),
        ("copy", errno(fs.copy("dir/file", "new"))),
    ] {
        assert_eq!(refused, Errno::ROFS.raw_os_error(), "{what}");
    }
    fs.close().unwrap();
}

/// An operation.
type Step = (&'static str, fn(&Fs));

/// Each operation gives back what it looked up, whether it succeeds or fails.
#[test]
fn nothing_is_held_when_all_handles_are_gone() {
    let Scratch { fs, folder } = Scratch::new();
    fs.create_dir_all("dir/deep/er").unwrap();
    fs.write("dir/file", "text").unwrap();
    fs.symlink("deep/er", "dir/link").unwrap();
    let steps: [Step; 29] = [
        ("read", |fs| assert!(fs.read("dir/file").is_ok())),
        ("write", |fs| fs.write("dir/file", "more").unwrap()),
        ("write a new one", |fs| fs.write("new", "more").unwrap()),
        ("append", |fs| fs.append("dir/other", "more").unwrap()),
        ("copy", |fs| assert_eq!(fs.copy("dir/file", "copy").unwrap(), 4)),
        ("make directory", |fs| fs.create_dir("dir/new").unwrap()),
        ("make it again", |fs| assert!(fs.create_dir("dir/new").is_err())),
        ("make directories", |fs| fs.create_dir_all("x/y/z").unwrap()),
        ("rename", |fs| fs.rename("x", "w").unwrap()),
        ("rename what is not there", |fs| assert!(fs.rename("x", "w").is_err())),
        ("link", |fs| fs.hard_link("dir/file", "linked").unwrap()),
        ("symbolic link", |fs| fs.symlink("dir", "to-dir").unwrap()),
        ("through a link", |fs| assert!(fs.metadata("dir/link/../../file").is_ok())),
        ("a loop", |fs| {
            fs.symlink("loop", "loop").unwrap();
            assert_eq!(errno(fs.read("loop/x")), Errno::LOOP.raw_os_error());
        }),
        ("list", |fs| fs.read_dir("dir").unwrap().for_each(|entry| drop(entry.unwrap().metadata()))),
        ("walk", |fs| fs.walk("/").for_each(|entry| drop(entry.unwrap().metadata()))),
        ("half a walk", |fs| assert_eq!(fs.walk("/").take(3).count(), 3)),
        ("clone", |fs| fs.clone_tree("dir", "clone").unwrap()),
        ("snapshot", |fs| fs.snapshot("dir", "one").unwrap()),
        ("usage", |fs| assert!(fs.usage("dir").is_ok())),
        ("remove snapshot", |fs| fs.remove_snapshot("dir", "one").unwrap()),
        ("attributes", |fs| fs.set_permissions("dir/link", 0o700).unwrap()),
        ("extended attributes", |fs| fs.set_xattr("dir", "user.a", "1", XattrMode::Any).unwrap()),
        ("remove tree", |fs| fs.rm_tree("clone").unwrap()),
        ("remove", |fs| fs.remove_file("linked").unwrap()),
        ("remove directory", |fs| fs.remove_dir("dir/new").unwrap()),
        ("a path", |fs| assert!(fs.canonicalize("dir/link/..").is_ok())),
        ("open", |fs| assert!(fs.open_file("dir/file").is_ok())),
        ("open what is to be made", |fs| {
            assert!(OpenOptions::new().write(true).create_new(true).open(fs, "dir/file").is_err());
        }),
    ];
    for (what, run) in steps {
        run(&fs);
        assert_eq!(fs.volume().inodes_held(), 1, "{what}: the root alone is held");
    }
    let (file, dir) = (fs.open_file("dir/file").unwrap(), fs.open_dir("dir/deep").unwrap());
    assert_eq!(fs.volume().inodes_held(), 3);
    drop((file, dir));
    assert_eq!(fs.volume().inodes_held(), 1);
    assert_sound(&fs);
    drop(folder);
}
