//! Snapshots on the mount, by the command and by mkdir and rmdir.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use rustix::io::Errno;

use crate::attributes::{as_nobody, open_to_all};
use crate::mounted::{Mounted, betrfs, ok, refused, told};
use crate::schemas::valid;

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
    fs::create_dir(dir.join(".betrfs-snapshots/two")).unwrap();
    fs::remove_dir_all(dir.join("inner")).unwrap();
    assert_eq!(list(&dir), "one\ntwo\n");
    assert_eq!(names(&dir), Vec::<String>::new());
    assert_eq!(names(&dir.join(".betrfs-snapshots/one")), ["inner"]);
    refused(&snapshot("create", &dir, &["one"]), &["a snapshot with that name exists"]);
    refused(&snapshot("delete", &dir, &["none"]), &["it has no snapshot of that name"]);
    let inside = dir.join(".betrfs-snapshots/one");
    refused(&snapshot("create", &inside, &["three"]), &["it is in a snapshot"]);
    refused(&snapshot("list", &inside, &[]), &["it is in a snapshot"]);
    // The snapshots stay when the directory is renamed, and after a remount.
    fs::rename(&dir, mounted.path("moved")).unwrap();
    let dir = mounted.path("moved");
    for _ in 0..2 {
        assert_eq!(fs::read(dir.join(".betrfs-snapshots/one/inner/file")).unwrap(), b"first");
        assert_eq!(fs::read(dir.join(".betrfs-snapshots/two/inner/file")).unwrap(), b"second");
        mounted.remount();
    }
    let full = fs::remove_dir(&dir).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
    let open = File::open(dir.join(".betrfs-snapshots/one/inner/file")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    ok(&snapshot("delete", &dir, &["one"]));
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert_eq!(std::io::read_to_string(open).unwrap(), "first");
    fs::remove_dir(dir.join(".betrfs-snapshots/two")).unwrap();
    assert_eq!(list(&dir), "");
    fs::remove_dir(&dir).unwrap();
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

/// The document of a subcommand.
fn json(subcommand: &str, dir: &Path, more: &[&str]) -> serde_json::Value {
    let output = snapshot(subcommand, dir, &[more, &["--format", "json"]].concat());
    ok(&output);
    let document = serde_json::from_slice(&output.stdout).unwrap();
    valid(&format!("snapshot-{subcommand}"), &document);
    document
}

#[test]
fn a_long_listing_tells_when_snapshots_were_made_and_what_only_they_hold() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), seeded::bytes(1, 0, 16 << 20)).unwrap();
    let before = jiff::Timestamp::now();
    ok(&snapshot("create", &dir, &["one"]));
    ok(&snapshot("create", &dir, &[]));
    fs::write(dir.join("file"), seeded::bytes(2, 0, 16 << 20)).unwrap();
    ok(&snapshot("create", &dir, &["three"]));
    // Not the time of the directory or of a mount.
    mounted.remount();
    let listed = json("list", &dir, &[]);
    assert_eq!(listed["schema_version"], 1);
    let snapshots = listed["snapshots"].as_array().unwrap();
    let names: Vec<&str> = snapshots.iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(matches!(names[..], [auto, "one", "three"] if auto.starts_with("auto-20")), "{names:?}");
    let made = |nth: usize| snapshots[nth]["made"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(
        before <= made(1) && made(1) <= made(0) && made(0) <= made(2) && made(2) <= jiff::Timestamp::now()
    );
    // Two share the first contents, which nothing else has.
    for snapshot in snapshots {
        assert!(snapshot["stored_bytes"].as_u64().unwrap() >= 16 << 20, "{listed}");
    }
    assert!(snapshots[1]["freed_bytes"].as_u64().unwrap() < 1 << 20, "{listed}");
    let auto = names[0].to_owned();
    ok(&snapshot("delete", &dir, &[&auto]));
    // The removal is a message: df(1) has it carried out, once it is durable.
    ok(&betrfs().arg("sync").arg(&mounted.dir).output().unwrap());
    rustix::fs::statvfs(&mounted.dir).unwrap();
    let listed = json("list", &dir, &[]);
    assert!(listed["snapshots"][0]["freed_bytes"].as_u64().unwrap() >= 16 << 20, "{listed}");
    let long = snapshot("list", &dir, &["-l"]);
    ok(&long);
    let text = String::from_utf8(long.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].ends_with("name") && lines[1].ends_with("  one") && lines[2].ends_with("  three"),
        "{text}"
    );
}

#[test]
fn prune_removes_what_no_rule_keeps_and_nothing_without_a_rule() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    for name in ["a1", "a2", "other", "a3"] {
        ok(&snapshot("create", &dir, &[name]));
    }
    for wrong in [&[][..], &["--keep-daily", "0"], &["--keep-last", "-1"], &["--keep-last", "some"]] {
        let output = snapshot("prune", &dir, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    let dry = snapshot("prune", &dir, &["-n", "--prefix", "a", "--keep-last", "1"]);
    ok(&dry);
    assert_eq!(String::from_utf8(dry.stdout).unwrap(), "would remove a2\nwould remove a1\n");
    assert_eq!(list(&dir), "a1\na2\na3\nother\n");
    let pruned = json("prune", &dir, &["--prefix", "a", "--keep-last", "1", "--keep-yearly", "3"]);
    assert_eq!(pruned["removed"], serde_json::json!(["a2", "a1"]));
    assert_eq!(pruned["kept"][0]["name"], "a3");
    assert_eq!(pruned["kept"][0]["rules"], serde_json::json!(["last", "yearly"]));
    assert_eq!(list(&dir), "a3\nother\n");
    open_to_all(&mounted);
    let script = format!("{} snapshot prune \"$1\" --keep-last 1", env!("CARGO_BIN_EXE_betrfs"));
    assert!(!as_nobody(&script, &dir));
    assert_eq!(list(&dir), "a3\nother\n");
}

#[test]
fn every_change_of_a_snapshot_is_refused() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), b"bytes").unwrap();
    fs::hard_link(dir.join("file"), dir.join("name")).unwrap();
    ok(&snapshot("create", &dir, &["s"]));
    let taken = dir.join(".betrfs-snapshots/s");
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
    is_refused(fs::write(dir.join(".betrfs-snapshots/new"), b""));
    let reserved = fs::create_dir(dir.join(".betrfs-snapshots")).unwrap_err();
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
fn the_command_refuses_paths_that_are_no_directories_of_a_mount() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), b"").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir_all(elsewhere.path().join(".betrfs-snapshots/s")).unwrap();
    for (action, name) in [("create", &["n"][..]), ("list", &[]), ("delete", &["s"])] {
        refused(&snapshot(action, elsewhere.path(), name), &["on no BetrFS mount"]);
        refused(&snapshot(action, &mounted.path("file"), name), &["no directory"]);
        refused(&snapshot(action, &mounted.path("none"), name), &["No such file"]);
    }
    refused(&snapshot("delete", &mounted.dir, &["none"]), &["it has no snapshot of that name"]);
    assert!(elsewhere.path().join(".betrfs-snapshots/s").is_dir());
}

#[test]
fn a_tree_with_a_directory_dot_snapshots_is_stored_like_any_other() {
    let mounted = Mounted::new();
    let source = tempfile::tempdir().unwrap();
    let inside = source.path().join(".snapshots/1/snapshot");
    fs::create_dir_all(&inside).unwrap();
    fs::write(inside.join("file"), b"bytes").unwrap();
    fs::write(source.path().join(".snapshots/1/info.xml"), b"<snapshot/>").unwrap();
    let run = |script: &str, to: &Path| {
        fs::create_dir(to).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-euc", script, "sh"]).arg(source.path()).arg(to);
        assert!(shell.status().unwrap().success(), "{script}");
        let mut diff = Command::new("diff");
        assert!(diff.arg("-r").arg(source.path()).arg(to).status().unwrap().success(), "{script}");
    };
    run("cp -a \"$1/.\" \"$2\"", &mounted.path("cp"));
    run("tar cf - -C \"$1\" . | tar xf - -C \"$2\"", &mounted.path("tar"));
    run("cp -a \"$1/.snapshots\" \"$2/a\"; mv \"$2/a\" \"$2/.snapshots\"", &mounted.path("mv"));
    for copy in ["cp", "tar", "mv"] {
        assert_eq!(names(&mounted.path(copy)), [".snapshots"]);
        assert_eq!(list(&mounted.path(copy)), "");
        fs::remove_dir_all(mounted.path(copy)).unwrap();
    }
    symlink("nowhere", mounted.path(".snapshots")).unwrap();
    fs::remove_file(mounted.path(".snapshots")).unwrap();
}

#[test]
fn the_entry_of_snapshots_cannot_be_made_moved_or_replaced() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    fs::create_dir(mounted.path("empty")).unwrap();
    fs::write(mounted.path("file"), b"").unwrap();
    let hidden = dir.join(".betrfs-snapshots");
    let number = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error()).unwrap();
    let exists = Errno::EXIST.raw_os_error();
    assert_eq!(number(fs::create_dir(&hidden)), exists);
    assert_eq!(number(symlink("x", &hidden)), exists);
    assert_eq!(number(fs::hard_link(mounted.path("file"), &hidden)), exists);
    assert_eq!(number(fs::write(&hidden, b"")), Errno::ISDIR.raw_os_error());
    assert_eq!(number(fs::rename(mounted.path("file"), &hidden)), Errno::ISDIR.raw_os_error());
    assert_eq!(number(fs::rename(mounted.path("empty"), &hidden)), Errno::BUSY.raw_os_error());
    assert_eq!(number(fs::rename(&hidden, mounted.path("out"))), Errno::BUSY.raw_os_error());
    assert_eq!(number(fs::remove_dir(&hidden)), Errno::BUSY.raw_os_error());
    let mut fifo = Command::new("mkfifo");
    assert!(!fifo.arg(&hidden).output().unwrap().status.success());
    assert_eq!(names(&dir), Vec::<String>::new());
    ok(&snapshot("create", &dir, &["s"]));
    fs::rename(hidden.join("s"), hidden.join("t")).unwrap_err();
    assert_eq!(list(&dir), "s\n");
    fs::remove_dir(hidden.join("s")).unwrap();
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn only_root_and_the_mounting_user_make_and_remove_snapshots() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let dir = mounted.path("shared");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    ok(&snapshot("create", &dir, &["roots"]));
    assert!(!as_nobody("mkdir \"$1/.betrfs-snapshots/theirs\"", &dir));
    assert!(!as_nobody("rmdir \"$1/.betrfs-snapshots/roots\"", &dir));
    assert!(!as_nobody("mv \"$1/.betrfs-snapshots/roots\" \"$1/.betrfs-snapshots/x\"", &dir));
    assert!(as_nobody("ls \"$1/.betrfs-snapshots/roots\"", &dir));
    assert!(as_nobody("mkdir \"$1/plain\" && rmdir \"$1/plain\"", &dir));
    assert_eq!(list(&dir), "roots\n");
}

#[test]
fn a_removal_names_the_snapshots_that_hold_a_tree_or_removes_them() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir_all(dir.join("inner")).unwrap();
    fs::write(dir.join("inner/file"), b"bytes").unwrap();
    let remove = |more: &[&str]| betrfs().arg("rm-tree").arg(&dir).args(more).output().unwrap();
    for number in 0..12 {
        ok(&snapshot("create", &dir.join("inner"), &[&format!("s{number:02}")]));
    }
    ok(&snapshot("create", &dir, &["own"]));
    let refusal = remove(&[]);
    refused(
        &refusal,
        &["13 snapshots hold it", "tree/.betrfs-snapshots/own", "inner/.betrfs-snapshots/s08", "..."],
    );
    assert!(!told(&refusal).contains("s09"), "{}", told(&refusal));
    assert_eq!(fs::read(dir.join("inner/file")).unwrap(), b"bytes");
    let open = File::open(dir.join("inner/.betrfs-snapshots/s03/file")).unwrap();
    ok(&remove(&["--snapshots"]));
    assert_eq!(names(&mounted.dir), Vec::<String>::new());
    assert_eq!(std::io::read_to_string(open).unwrap(), "bytes");
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

/// Whoever may make snapshots chooses their names, and root lists them.
#[test]
fn names_of_snapshots_are_whole_for_programs_and_not_obeyed_by_a_terminal() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    let names: [&[u8]; 3] = [b"a\xffb", b"lines\nof it", b"red\x1b[31m"];
    for name in names {
        fs::create_dir(dir.join(".betrfs-snapshots").join(OsStr::from_bytes(name))).unwrap();
    }
    let output = snapshot("list", &dir, &[]);
    ok(&output);
    assert_eq!(output.stdout, [names[0], names[1], names[2], b""].join(&b'\n'));
    // The same at a terminal, which script(1) makes.
    let listed = format!("{} snapshot list {}", env!("CARGO_BIN_EXE_betrfs"), dir.display());
    let output = Command::new("script").args(["-qec", &listed, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    assert_eq!(shown, "a\u{fffd}b\nlines\\nof it\nred\\u{1b}[31m\n");
    let output = snapshot("prune", &dir, &["-n", "--keep-last", "1"]);
    ok(&output);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.lines().all(|line| line.starts_with("would remove ")), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let refusal = betrfs().arg("rm-tree").arg(&dir).output().unwrap();
    refused(&refusal, &["/lines\\nof it", "red\\u{1b}[31m"]);
    let unknown = snapshot("delete", &dir, &["\u{1b}[2J"]);
    refused(&unknown, &["\\u{1b}[2J"]);
    assert!(!told(&refusal).contains('\u{1b}') && !told(&unknown).contains('\u{1b}'));
}
