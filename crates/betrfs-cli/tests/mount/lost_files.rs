//! Files with several names whose record is lost, through a mount: programs see an error for the file, and
//! can rename, copy and remove its names.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env};
use betree_std::FileDevice;
use betrfs::Volume;
use rustix::io::Errno;

use crate::mounted::{Mounted, betrfs, ok, run};

/// The dictionary of records, and the first byte of the keys of linked files in it.
const META: DictId = DictId(0);
const OBJECT: u8 = 1;

/// Deletes the records of all linked files.
fn lose_records(volume: &Path) {
    let device = Arc::new(FileDevice::open(volume).unwrap());
    let env = Env::open(device, Volume::engine_options(16 << 20)).unwrap();
    let mut batch = Batch::new();
    let mut objects = env.cursor(META, Cut::before([OBJECT]), Cut::before([OBJECT + 1]));
    while let Some((at, _)) = objects.next().unwrap() {
        batch.delete(META, at);
    }
    drop(objects);
    env.commit(&batch).unwrap();
    env.close().unwrap();
}

fn is_io_error<T: std::fmt::Debug>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))
}

#[test]
fn names_of_lost_files_can_be_removed_by_any_program() {
    let mounted = Mounted::new();
    for dir in ["a", "b", "c", "d"] {
        fs::create_dir(mounted.path(dir)).unwrap();
    }
    for file in 0..8 {
        let path = mounted.path(format!("a/{file}"));
        fs::write(&path, "text").unwrap();
        ["b", "c", "d"]
            .iter()
            .for_each(|dir| fs::hard_link(&path, mounted.path(format!("{dir}/{file}"))).unwrap());
    }
    fs::write(mounted.path("a/other"), "other").unwrap();
    mounted.umount();
    lose_records(&mounted.volume);
    mounted.mount();

    let lost = mounted.path("a/0");
    for _ in 0..2 {
        assert!(is_io_error(fs::symlink_metadata(&lost)));
        assert!(is_io_error(fs::read(&lost)));
        assert!(is_io_error(fs::write(&lost, "new")));
        assert!(is_io_error(fs::hard_link(&lost, mounted.path("a/link"))));
        assert_eq!(fs::read_dir(mounted.path("a")).unwrap().count(), 9);
    }
    assert!(mounted.log().contains("/a/0"), "{}", mounted.log());
    let listed = Command::new("ls").arg("-l").arg(mounted.path("a")).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().filter(|line| line.starts_with("-?????????")).count(), 8, "{listed}");

    fs::rename(mounted.path("a/1"), mounted.path("a/moved")).unwrap();
    assert!(is_io_error(fs::symlink_metadata(mounted.path("a/moved"))));
    fs::write(mounted.path("new"), "new").unwrap();
    fs::rename(mounted.path("new"), mounted.path("a/2")).unwrap();
    assert_eq!(fs::read(mounted.path("a/2")).unwrap(), b"new");
    fs::remove_file(&lost).unwrap();
    assert_eq!(fs::symlink_metadata(&lost).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    ok(&betrfs().arg("clone").args([mounted.path("a"), mounted.path("copy")]).output().unwrap());
    assert_eq!(fs::read(mounted.path("copy/other")).unwrap(), b"other");
    assert!(is_io_error(fs::symlink_metadata(mounted.path("copy/3"))));

    ok(&Command::new("rm").arg(mounted.path("a/3")).output().unwrap());
    for dir in ["a", "copy"] {
        ok(&Command::new("rm").arg("-r").arg(mounted.path(dir)).output().unwrap());
    }
    ok(&betrfs().arg("rm-tree").arg(mounted.path("b")).output().unwrap());
    ok(&Command::new("find").arg(mounted.path("c")).arg("-delete").output().unwrap());
    fs::remove_dir_all(mounted.path("d")).unwrap();
    assert_eq!(fs::read_dir(&mounted.dir).unwrap().count(), 0);
    mounted.umount();
    ok(&run(["check".as_ref(), mounted.volume.as_os_str()]));
}
