//! Making, linking, renaming and removing names.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use crate::mounted::{Mounted, SetOnDrop, betrfs, ok};

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn names_have_up_to_255_bytes() {
    let mounted = Mounted::new();
    let longest = mounted.path("n".repeat(255));
    fs::write(&longest, b"x").unwrap();
    assert_eq!(fs::read(&longest).unwrap(), b"x");
    let too_long = mounted.path("n".repeat(256));
    let expected = Errno::NAMETOOLONG.raw_os_error();
    assert_eq!(errno(fs::write(&too_long, b"x")), expected);
    assert_eq!(errno(fs::metadata(&too_long)), expected);
    assert_eq!(errno(fs::create_dir(&too_long)), expected);
    assert_eq!(errno(symlink("x", &too_long)), expected);
    assert_eq!(errno(fs::rename(&longest, &too_long)), expected);
    assert_eq!(errno(fs::hard_link(&longest, &too_long)), expected);
    assert_eq!(errno(fs::remove_file(&too_long)), expected);
}

#[test]
fn names_may_hold_any_byte_but_0_and_the_slash() {
    use std::os::unix::ffi::OsStrExt;
    let mounted = Mounted::new();
    let bytes: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
    for name in [&bytes[..127], &bytes[127..], b" ", b"...", b"\xff\xfe"] {
        let path = mounted.path(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        assert_eq!(fs::read(&path).unwrap(), name);
    }
    assert_eq!(fs::read_dir(&mounted.dir).unwrap().count(), 5);
}

#[test]
fn every_type_can_be_made_and_is_what_it_is() {
    let mounted = Mounted::new();
    let node = |name: &str, file_type, dev| {
        rustix::fs::mknodat(CWD, mounted.path(name), file_type, Mode::from_raw_mode(0o640), dev).unwrap();
        fs::symlink_metadata(mounted.path(name)).unwrap()
    };
    assert!(node("fifo", FileType::Fifo, 0).file_type().is_fifo());
    assert!(node("socket", FileType::Socket, 0).file_type().is_socket());
    let device = node("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    assert!(device.file_type().is_char_device());
    assert_eq!(device.rdev(), rustix::fs::makedev(1, 3));
    assert!(node("block", FileType::BlockDevice, rustix::fs::makedev(7, 9)).file_type().is_block_device());
    assert!(node("plain", FileType::RegularFile, 0).is_file());
    fs::create_dir(mounted.path("dir")).unwrap();
    symlink("dir/no such", mounted.path("link")).unwrap();
    assert_eq!(fs::read_link(mounted.path("link")).unwrap(), Path::new("dir/no such"));
    for (name, letter) in [
        ("fifo", 'p'),
        ("socket", 's'),
        ("char", 'c'),
        ("block", 'b'),
        ("plain", '-'),
        ("dir", 'd'),
        ("link", 'l'),
    ] {
        let listed =
            fs::read_dir(&mounted.dir).unwrap().map(Result::unwrap).find(|e| e.file_name() == name).unwrap();
        let listed = listed.file_type().unwrap();
        let seen = fs::symlink_metadata(mounted.path(name)).unwrap().file_type();
        assert_eq!(listed, seen, "{name} ({letter})");
    }
}

#[test]
fn hard_links_are_one_file() {
    let mounted = Mounted::new();
    let (a, b) = (mounted.path("a"), mounted.path("b"));
    fs::write(&a, b"one").unwrap();
    let ino = fs::metadata(&a).unwrap().ino();
    fs::hard_link(&a, &b).unwrap();
    for path in [&a, &b] {
        let seen = fs::metadata(path).unwrap();
        assert_eq!((seen.nlink(), seen.ino()), (2, ino));
    }
    fs::write(&b, b"two").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"two");
    // Renaming one name of a file onto another of the same file does nothing.
    fs::rename(&a, &b).unwrap();
    assert!(a.exists() && b.exists());
    fs::remove_file(&a).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 1);
    mounted.remount();
    let seen = fs::metadata(&b).unwrap();
    assert_eq!((fs::read(&b).unwrap(), seen.nlink(), seen.ino()), (b"two".to_vec(), 1, ino));
    fs::create_dir(mounted.path("d")).unwrap();
    assert_eq!(errno(fs::hard_link(mounted.path("d"), mounted.path("e"))), Errno::PERM.raw_os_error());
}

#[test]
fn rename_replaces_moves_and_keeps_identity() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("from/sub")).unwrap();
    fs::create_dir(mounted.path("to")).unwrap();
    fs::write(mounted.path("from/sub/f"), b"deep").unwrap();
    let ino = fs::metadata(mounted.path("from/sub/f")).unwrap().ino();
    fs::rename(mounted.path("from"), mounted.path("to/moved")).unwrap();
    assert!(!mounted.path("from").exists());
    let seen = mounted.path("to/moved/sub/f");
    assert_eq!((fs::read(&seen).unwrap(), fs::metadata(&seen).unwrap().ino()), (b"deep".to_vec(), ino));
    assert_eq!(fs::metadata(mounted.path("to")).unwrap().nlink(), 3);
    fs::write(mounted.path("x"), b"x").unwrap();
    fs::write(mounted.path("y"), b"y").unwrap();
    fs::rename(mounted.path("x"), mounted.path("y")).unwrap();
    assert_eq!(fs::read(mounted.path("y")).unwrap(), b"x");
    let code = |from: &str, to: &str| errno(fs::rename(mounted.path(from), mounted.path(to)));
    fs::create_dir(mounted.path("empty")).unwrap();
    assert_eq!(code("empty", "to"), Errno::NOTEMPTY.raw_os_error());
    assert_eq!(code("y", "empty"), Errno::ISDIR.raw_os_error());
    assert_eq!(code("empty", "y"), Errno::NOTDIR.raw_os_error());
    assert_eq!(code("to", "to/moved/in"), Errno::INVAL.raw_os_error());
    assert_eq!(code("nothing", "y"), Errno::NOENT.raw_os_error());
    fs::rename(mounted.path("to/moved"), mounted.path("empty")).unwrap();
    assert_eq!(fs::read(mounted.path("empty/sub/f")).unwrap(), b"deep");
}

#[test]
fn the_flags_of_renameat2_are_obeyed() {
    let mounted = Mounted::new();
    let (a, b) = (mounted.path("a"), mounted.path("b"));
    fs::write(&a, b"file").unwrap();
    fs::create_dir(&b).unwrap();
    fs::write(b.join("in"), b"inside").unwrap();
    assert_eq!(rename(&a, &b, RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(&a, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"file");
    assert_eq!(fs::read(a.join("in")).unwrap(), b"inside");
    assert_eq!(rename(&a, &mounted.path("none"), RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename(&b, &mounted.path("c"), RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::symlink_metadata(&b).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert_eq!(fs::read(mounted.path("c")).unwrap(), b"file");
    rename(&mounted.path("c"), &mounted.path("d"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(rename(&a, &mounted.path("d"), RenameFlags::from_bits_retain(8)), Err(Errno::INVAL));
}

#[test]
fn unlink_and_rmdir_distinguish_files_and_directories() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("d/e")).unwrap();
    fs::write(mounted.path("f"), b"").unwrap();
    assert_eq!(errno(fs::remove_dir(mounted.path("d"))), Errno::NOTEMPTY.raw_os_error());
    assert_eq!(errno(fs::remove_dir(mounted.path("f"))), Errno::NOTDIR.raw_os_error());
    assert_eq!(errno(fs::remove_file(mounted.path("d"))), Errno::ISDIR.raw_os_error());
    assert_eq!(errno(fs::remove_file(mounted.path("g"))), Errno::NOENT.raw_os_error());
    assert_eq!(errno(fs::create_dir(mounted.path("d"))), Errno::EXIST.raw_os_error());
    fs::remove_dir_all(mounted.path("d")).unwrap();
    fs::remove_file(mounted.path("f")).unwrap();
    assert_eq!(fs::read_dir(&mounted.dir).unwrap().count(), 0);
}

#[test]
fn a_deep_tree_is_reached_step_by_step() {
    let mounted = Mounted::new();
    let name = "d".repeat(200);
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mut at = rustix::fs::open(&mounted.dir, flags, Mode::empty()).unwrap();
    // Longer than PATH_MAX, within the limit of a key.
    for _ in 0..100 {
        rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    // Far beyond it.
    let refused = (0..400).find_map(|_| {
        let made = rustix::fs::mkdirat(&at, &name, Mode::RWXU);
        if made.is_ok() {
            at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
        }
        made.err()
    });
    assert_eq!(refused, Some(Errno::NAMETOOLONG));
}

#[test]
fn a_file_without_a_name_gets_one_or_is_gone() {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        fs::File::from(rustix::fs::open(mounted.path("d"), flags, Mode::from_raw_mode(0o600)).unwrap())
    };
    let mut files = [unnamed(), unnamed()];
    files.iter_mut().for_each(|file| std::io::Write::write_all(file, b"contents").unwrap());
    assert!(fs::read_dir(mounted.path("d")).unwrap().next().is_none());
    let [kept, lost] = files;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&kept));
    rustix::fs::linkat(CWD, path, CWD, mounted.path("d/name"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop((kept, lost));
    assert_eq!(fs::read(mounted.path("d/name")).unwrap(), b"contents");
    mounted.remount();
    assert_eq!(fs::read(mounted.path("d/name")).unwrap(), b"contents");
    assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), 1);
}

/// Between the lookup of a name and the open, another file may take its place, again and again.
#[test]
fn a_name_that_is_replaced_all_the_time_can_be_opened_at_any_time() {
    const ROUNDS: usize = 3000;
    let mounted = Mounted::new();
    let name = mounted.path("name");
    fs::write(&name, b"whole").unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let opens = std::thread::scope(|scope| {
        let over = SetOnDrop(&is_over);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut opens = 0usize;
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        assert_eq!(fs::read(&name).unwrap(), b"whole");
                        opens += 1;
                    }
                    opens
                })
            })
            .collect();
        for round in 0..ROUNDS {
            let new = mounted.path(format!("new{}", round % 2));
            fs::write(&new, b"whole").unwrap();
            fs::rename(&new, &name).unwrap();
        }
        drop(over);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>()
    });
    assert!(opens > 0);
    // Nothing is left of the replaced files.
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}
