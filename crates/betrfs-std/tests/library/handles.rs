//! Files and directories that are held while their names change.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};

use betrfs_std::{Errno, OpenOptions};

use crate::support::*;

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    let held = fs.volume().inodes_held();
    let mut file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "file").unwrap();
    file.write_all(&vec![7; 3 << 20]).unwrap();
    fs.sync().unwrap();
    fs.remove_file("file").unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), fs.exists("file").unwrap()), (0, false));
    // Another of the same name is another.
    fs.write("file", "other").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes == vec![7; 3 << 20]);
    file.write_all(b"more").unwrap();
    drop(file);
    assert_eq!(fs.volume().inodes_held(), held);
    assert_eq!(fs.read("file").unwrap(), b"other");
    assert_sound(&fs);
}

#[test]
fn what_a_removed_tree_holds_open_lives_on() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.create_dir_all("tree/deep").unwrap();
    fs.write("tree/deep/file", "text").unwrap();
    let (file, dir) = (fs.open_file("tree/deep/file").unwrap(), fs.open_dir("tree/deep").unwrap());
    fs.rm_tree("tree").unwrap();
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert_eq!(errno(dir.write("new", "1")), 2);
    assert_eq!((errno(dir.metadata("file")), errno(dir.path())), (2, 2));
    assert_eq!(dir.read_dir(".").unwrap().count(), 0);
    assert_eq!(errno(dir.read("/tree/deep/file")), 2);
    drop((file, dir));
    assert_eq!(fs.volume().inodes_held(), 1);
    assert_sound(&fs);
}

#[test]
fn a_directory_that_is_held_goes_along_with_its_renames() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.create_dir_all("one/dir").unwrap();
    fs.create_dir("two").unwrap();
    let dir = fs.open_dir("one/dir").unwrap();
    fs.rename("one/dir", "two/moved").unwrap();
    dir.write("file", "text").unwrap();
    assert_eq!(fs.read("two/moved/file").unwrap(), b"text");
    assert_eq!(dir.path().unwrap().to_str(), Some("/two/moved"));
    assert_eq!(dir.metadata("..").unwrap().ino(), fs.metadata("two").unwrap().ino());
    assert_eq!(dir.canonicalize("../../two/./moved/file").unwrap().to_str(), Some("/two/moved/file"));
    assert_eq!(dir.read("/two/moved/file").unwrap(), b"text", "a path that begins with / begins at the root");
    assert_eq!(errno(fs.open_dir("two/moved/file")), Errno::NOTDIR.raw_os_error());
}

#[test]
fn a_file_is_read_and_written_as_those_of_the_system() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&fs, "file").unwrap();
    for line in 0..1000 {
        writeln!(&file, "line {line}").unwrap();
    }
    (&file).seek(SeekFrom::Start(0)).unwrap();
    let lines: Vec<String> = BufReader::new(&file).lines().map(Result::unwrap).collect();
    assert_eq!((lines.len(), lines[999].as_str()), (1000, "line 999"));
    assert_eq!((&file).seek(SeekFrom::Current(-3)).unwrap(), file.metadata().unwrap().len() - 3);
    assert_eq!((&file).seek(SeekFrom::End(i64::MIN)).unwrap_err().raw_os_error(), Some(22));
    assert_eq!((&file).seek(SeekFrom::Start(u64::MAX)).unwrap_err().raw_os_error(), Some(22));
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "99\n");
    // Behind the end there is nothing to read.
    (&file).seek(SeekFrom::Start(1 << 60)).unwrap();
    assert_eq!((&file).read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(errno(file.write_at(b"x", u64::MAX)), Errno::FBIG.raw_os_error());
    assert_eq!(errno(file.set_len(u64::MAX)), Errno::FBIG.raw_os_error());
}

#[test]
fn a_write_of_nothing_moves_no_position() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("file", "0123456789").unwrap();
    let file = OpenOptions::new().append(true).read(true).open(&fs, "file").unwrap();
    assert_eq!((&file).write(b"").unwrap(), 0);
    assert_eq!((&file).stream_position().unwrap(), 0);
    (&file).write_all(b"x").unwrap();
    assert_eq!((&file).stream_position().unwrap(), 11);
}

#[test]
fn holes_are_made_and_found() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    let file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "file").unwrap();
    file.write_at(&[1; 4096], 1 << 20).unwrap();
    assert_eq!(
        (file.seek_data(0).unwrap(), file.seek_hole(1 << 20).unwrap()),
        (Some(1 << 20), Some((1 << 20) + 4096))
    );
    assert_eq!((file.seek_data(2 << 20).unwrap(), file.seek_hole(2 << 20).unwrap()), (None, None));
    file.allocate(2 << 20, 4096).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (2 << 20) + 4096);
    file.punch_hole(1 << 20, 4096).unwrap();
    let mut bytes = [9; 4096];
    assert_eq!(file.read_at(&mut bytes, 1 << 20).unwrap(), 4096);
    assert_eq!((bytes, file.metadata().unwrap().len()), ([0; 4096], (2 << 20) + 4096));
    assert_eq!(errno(file.allocate(0, 1 << 40)), Errno::NOSPC.raw_os_error());
    assert_eq!((errno(file.allocate(0, 0)), errno(file.punch_hole(0, 0))), (22, 22));
    let file = fs.open_file("file").unwrap();
    assert_eq!((errno(file.allocate(0, 1)), errno(file.write_at(b"x", 0))), (9, 9));
}

#[test]
fn links_at_the_end_are_not_followed_where_that_is_asked_for() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("file", "text").unwrap();
    fs.symlink("file", "link").unwrap();
    let mut open = OpenOptions::new();
    open.read(true).no_follow(true);
    assert_eq!(errno(open.open(&fs, "link")), Errno::LOOP.raw_os_error());
    assert_eq!(errno(open.open(&fs, "file")), 0);
    fs.lchown("link", Some(7), Some(8)).unwrap();
    let (link, file) = (fs.symlink_metadata("link").unwrap(), fs.metadata("link").unwrap());
    assert_eq!((link.uid(), link.gid(), link.is_symlink()), (7, 8, true));
    assert!(file.is_file() && file.uid() != 7);
}

#[test]
fn a_copy_takes_the_place_of_what_was_there() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("from", "text").unwrap();
    fs.set_permissions("from", 0o750).unwrap();
    fs.write("to", "something longer").unwrap();
    fs.set_permissions("to", 0o600).unwrap();
    assert_eq!(fs.copy("from", "to").unwrap(), 4);
    assert_eq!((fs.read("to").unwrap(), fs.metadata("to").unwrap().mode()), (b"text".to_vec(), 0o750));
    fs.hard_link("from", "same").unwrap();
    assert_eq!(errno(fs.copy("from", "same")), 22, "it would be emptied");
    assert_eq!(fs.read("from").unwrap(), b"text");
}

#[test]
fn text_that_is_none_is_told() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("file", b"\xff\xfe").unwrap();
    let error = fs.read_to_string("file").unwrap_err();
    assert_eq!(error.to_string(), "cannot read file: the contents are no UTF-8");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidData);
}
