//! Snapshots on the mount, by the command and by mkdir and rmdir.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;

use rustix::io::Errno;

use crate::mounted::{Mounted, betrfs, ok, refused};

fn snapshot(action: &str, dir: &Path, name: &[&str]) -> Output {
    betrfs().args(["snapshot", action]).arg(dir).args(name).output().unwrap()
}

fn list(dir: &Path) -> String {
    let output = snapshot("list", dir, &[]);
    ok(&output);
    String::from_utf8(output.stdout).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_refused<T>(result: io::Result<T>) {
    assert_eq!(result.err().and_then(|error| error.raw_os_error()), Some(Errno::ROFS.raw_os_error()));
}

#[test]
fn snapshots_are_taken_listed_read_and_deleted() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir_all(dir.join("inner")).unwrap();
    fs::write(dir.join("inner/file"), b"first").unwrap();
    assert_eq!(list(&dir), "");
    ok(&snapshot("create", &dir, &["one"]));
    fs::write(dir.join("inner/file"), b"second").unwrap();
    fs::create_dir(dir.join(".snapshots/two")).unwrap();
    fs::remove_dir_all(dir.join("inner")).unwrap();
    assert_eq!(list(&dir), "one\ntwo\n");
    assert_eq!(names(&dir), Vec::<String>::new());
    assert_eq!(names(&dir.join(".snapshots/one")), ["inner"]);
    refused(&snapshot("create", &dir, &["one"]), &["there is one of that name"]);
    // Under another name of the directory, and after a remount, they are the same.
    fs::rename(&dir, mounted.path("moved")).unwrap();
    let dir = mounted.path("moved");
    for _ in 0..2 {
        assert_eq!(fs::read(dir.join(".snapshots/one/inner/file")).unwrap(), b"first");
        assert_eq!(fs::read(dir.join(".snapshots/two/inner/file")).unwrap(), b"second");
        mounted.remount();
    }
    let full = fs::remove_dir(&dir).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
    let open = File::open(dir.join(".snapshots/one/inner/file")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    ok(&snapshot("delete", &dir, &["one"]));
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert_eq!(std::io::read_to_string(open).unwrap(), "first");
    fs::remove_dir(dir.join(".snapshots/two")).unwrap();
    assert_eq!(list(&dir), "");
    fs::remove_dir(&dir).unwrap();
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn every_change_of_a_snapshot_is_refused() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), b"bytes").unwrap();
    fs::hard_link(dir.join("file"), dir.join("name")).unwrap();
    ok(&snapshot("create", &dir, &["s"]));
    let taken = dir.join(".snapshots/s");
    for file in [taken.join("file"), taken.join("name")] {
        is_refused(OpenOptions::new().write(true).open(&file));
        is_refused(OpenOptions::new().write(true).truncate(true).open(&file));
        is_refused(fs::set_permissions(&file, Permissions::from_mode(0o600)));
        is_refused(fs::remove_file(&file));
        is_refused(fs::rename(&file, mounted.path("out")));
        is_refused(fs::hard_link(&file, mounted.path("out")));
        assert_eq!(fs::read(&file).unwrap(), b"bytes");
    }
    is_refused(fs::write(taken.join("new"), b""));
    is_refused(fs::create_dir(taken.join("new")));
    is_refused(fs::write(dir.join(".snapshots/new"), b""));
    let reserved = fs::create_dir(dir.join(".snapshots")).unwrap_err();
    assert_eq!(reserved.kind(), io::ErrorKind::AlreadyExists);
    // A clone of it can be changed.
    ok(&betrfs().arg("clone").arg(&taken).arg(mounted.path("copy")).output().unwrap());
    fs::write(mounted.path("copy/name"), b"changed").unwrap();
    assert_eq!(fs::read(mounted.path("copy/file")).unwrap(), b"changed");
    assert_eq!(fs::read(taken.join("file")).unwrap(), b"bytes");
    ok(&betrfs().arg("rm-tree").arg(mounted.path("copy")).output().unwrap());
}

#[test]
fn a_path_is_not_the_name_of_a_snapshot() {
    let mounted = Mounted::new();
    let (dir, beyond) = (mounted.path("tree"), mounted.path("beyond"));
    fs::create_dir(&dir).unwrap();
    let names = [beyond.to_str().unwrap(), "../../beyond", "../beyond", "a/b", "./a", "..", ".", "/", ""];
    for name in names {
        refused(&snapshot("create", &dir, &[name]), &["is not the name of a snapshot"]);
        assert!(!beyond.exists() && !dir.join("beyond").exists(), "{name}");
    }
    assert_eq!(list(&dir), "");
    fs::create_dir(&beyond).unwrap();
    fs::create_dir(dir.join("beyond")).unwrap();
    for name in names {
        refused(&snapshot("delete", &dir, &[name]), &["is not the name of a snapshot"]);
        assert!(beyond.exists() && dir.join("beyond").exists(), "{name}");
    }
}

#[test]
fn the_command_refuses_what_is_no_directory_of_a_mount() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), b"").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir_all(elsewhere.path().join(".snapshots/s")).unwrap();
    for (action, name) in [("create", &["n"][..]), ("list", &[]), ("delete", &["s"])] {
        refused(&snapshot(action, elsewhere.path(), name), &["on no BetrFS mount"]);
        refused(&snapshot(action, &mounted.path("file"), name), &["no directory"]);
        refused(&snapshot(action, &mounted.path("none"), name), &["No such file"]);
    }
    refused(&snapshot("delete", &mounted.dir, &["none"]), &["No such file"]);
    assert!(elsewhere.path().join(".snapshots/s").is_dir());
}
