//! `betrfs snapshot restore`: what programs and the kernel see of it, and what it refuses.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::attributes::{as_nobody, open_to_all};
use crate::mapping::Mapping;
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused, told};
use crate::schemas::valid;

fn snapshot(action: &str, dir: &Path, more: &[&str]) -> Output {
    betrfs().args(["snapshot", action]).arg(dir).args(more).output().unwrap()
}

fn listed(dir: &Path) -> Vec<String> {
    let output = snapshot("list", dir, &[]);
    ok(&output);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The kernel has names, absent names, attributes, pages and listings of what is replaced, and processes are
/// in it: at the mount's root too.
#[test]
fn everybody_sees_the_old_state_at_once_and_the_present_one_is_kept() {
    let mounted = Mounted::new();
    for dir in [mounted.path("tree"), mounted.dir.clone()] {
        fs::create_dir_all(dir.join("sub/deep")).unwrap();
        fs::write(dir.join("sub/file"), b"first").unwrap();
        fs::write(dir.join("gone"), b"gone").unwrap();
        fs::hard_link(dir.join("gone"), dir.join("sub/link")).unwrap();
        ok(&snapshot("create", &dir, &["old"]));
        fs::write(dir.join("sub/file"), b"second").unwrap();
        fs::remove_file(dir.join("gone")).unwrap();
        fs::write(dir.join("new"), b"new").unwrap();
        // What the kernel now remembers: that `gone` is absent, what `new` and `sub` are, the listings.
        assert!(!dir.join("gone").exists() && !dir.join("gone").exists());
        assert!(names(&dir).contains(&"new".to_owned()) && !names(&dir).contains(&"gone".to_owned()));
        assert_eq!(names(&dir.join("sub")), ["deep", "file", "link"]);
        assert_eq!(fs::read(dir.join("sub/file")).unwrap(), b"second");
        let absent = dir.join(".betrfs-snapshots/kept");
        assert!(!absent.exists() && !absent.exists());
        let mut open = OpenOptions::new().append(true).open(dir.join("new")).unwrap();
        let mut inside = Command::new("sh");
        inside.args(["-c", "read line; test ! -e ../file && test -z \"$(ls .)\" && ! touch x"]);
        let mut inside = inside
            .current_dir(dir.join("sub/deep"))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let number = fs::metadata(&dir).unwrap().ino();

        let restored = snapshot("restore", &dir, &["old", "--keep-as", "kept"]);
        ok(&restored);
        let expected = format!("restored {} to old; the state before is its snapshot kept\n", dir.display());
        assert_eq!(String::from_utf8(restored.stdout).unwrap(), expected);
        assert_eq!(fs::read(dir.join("gone")).unwrap(), b"gone");
        assert!(!dir.join("new").exists());
        assert_eq!(fs::read(dir.join("sub/file")).unwrap(), b"first");
        assert!(names(&dir).contains(&"gone".to_owned()) && !names(&dir).contains(&"new".to_owned()));
        assert_eq!(fs::metadata(dir.join("gone")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(&dir).unwrap().ino(), number);
        // An open file has no name any more, and is written without effect on others.
        open.write_all(b"er").unwrap();
        assert_eq!((open.metadata().unwrap().nlink(), open.metadata().unwrap().len()), (0, 5));
        inside.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(inside.wait().unwrap().success(), "the working directory is a removed one");
        // `kept` was absent a moment ago.
        assert_eq!(fs::read(absent.join("new")).unwrap(), b"new");
        assert_eq!(fs::read(absent.join("sub/file")).unwrap(), b"second");
        assert_eq!(listed(&dir), ["kept", "old"]);
        fs::write(dir.join("sub/file"), b"third").unwrap();
        drop(open);
        // Back, with a name by the clock.
        ok(&snapshot("restore", &dir, &["kept"]));
        assert_eq!(fs::read(dir.join("sub/file")).unwrap(), b"second");
        let by_time = listed(&dir).remove(0);
        assert!(by_time.starts_with("before-restore-20"), "{by_time}");
        let before = dir.join(".betrfs-snapshots").join(by_time).join("sub/file");
        assert_eq!(fs::read(before).unwrap(), b"third");
        mounted.remount();
        assert_eq!(fs::read(dir.join("sub/file")).unwrap(), b"second");
        // The root could not be brought back to a snapshot while a directory below it has some.
        listed(&dir).iter().for_each(|name| ok(&snapshot("delete", &dir, &[name])));
    }
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn what_was_written_to_a_mapping_is_in_the_state_that_is_kept() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), [1; 5000]).unwrap();
    ok(&snapshot("create", &dir, &["old"]));
    let file = OpenOptions::new().read(true).write(true).open(dir.join("file")).unwrap();
    let mut mapping = Mapping::of(&file, 5000);
    mapping.fill(2);
    ok(&snapshot("restore", &dir, &["old", "--keep-as", "kept"]));
    assert!(fs::read(dir.join("file")).unwrap() == [1; 5000]);
    assert!(fs::read(dir.join(".betrfs-snapshots/kept/file")).unwrap() == [2; 5000]);
    mapping.fill(3);
    mapping.sync().unwrap();
    assert!(fs::read(dir.join("file")).unwrap() == [1; 5000]);
}

#[test]
fn refusals_and_dry_runs_change_nothing_and_say_why() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let dir = mounted.path("tree");
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(mounted.path("file"), b"").unwrap();
    ok(&snapshot("create", &dir, &["old"]));
    fs::write(dir.join("new"), b"new").unwrap();
    let unchanged = || {
        assert_eq!(names(&dir), ["new", "sub"]);
        assert_eq!(listed(&dir), ["old"]);
    };
    let restore = |dir: &Path, more: &[&str]| snapshot("restore", dir, more);
    for dry_run in [&["-n"][..], &[]] {
        let with = |more: &[&'static str]| [more, dry_run].concat();
        refused(&restore(&dir, &with(&["none"])), &["snapshot none", "no snapshot of that name"]);
        refused(&restore(&dir, &with(&["../old"])), &["is not the name of a snapshot"]);
        refused(&restore(&dir, &with(&["old", "--keep-as", "a/b"])), &["is not the name of a snapshot"]);
        refused(&restore(&dir, &with(&["old", "--keep-as", "old"])), &["a snapshot old exists", "--keep-as"]);
        refused(&restore(&mounted.path("file"), &with(&["old"])), &["no directory"]);
        refused(&restore(&mounted.path("none"), &with(&["old"])), &["No such file"]);
        refused(&restore(&std::env::temp_dir(), &with(&["old"])), &["on no BetrFS mount"]);
        let taken = dir.join(".betrfs-snapshots/old");
        refused(&restore(&taken, &with(&["old"])), &["Read-only file system"]);

        ok(&snapshot("create", &dir.join("sub"), &["below"]));
        let held = restore(&dir, &with(&["old"]));
        refused(&held, &["directories below it have snapshots", "tree/sub/.betrfs-snapshots/below"]);
        assert!(!told(&held).contains("snapshots/old"), "{}", told(&held));
        ok(&snapshot("delete", &dir.join("sub"), &["below"]));

        rustix::mount::mount("none", dir.join("sub"), "tmpfs", MountFlags::empty(), None).unwrap();
        refused(&restore(&dir, &with(&["old"])), &["something is mounted below it"]);
        rustix::mount::unmount(dir.join("sub"), UnmountFlags::empty()).unwrap();

        let dry = dry_run.join(" ");
        let script = format!("{} snapshot restore \"$1\" old {dry}", env!("CARGO_BIN_EXE_betrfs"));
        assert!(!as_nobody(&script, &dir));
        unchanged();
    }
    ended_with(&restore(&dir, &[]), 2, &["NAME"]);
    let dry = restore(&dir, &["-n", "old", "--format", "json"]);
    ok(&dry);
    let dry: serde_json::Value = serde_json::from_slice(&dry.stdout).unwrap();
    valid("snapshot-restore", &dry);
    assert_eq!((&dry["schema_version"], &dry["dry_run"]), (&1.into(), &true.into()));
    assert!(dry["kept_as"].as_str().unwrap().starts_with("before-restore-20"), "{dry}");
    unchanged();
    let flags = File::open(&dir).unwrap();
    rustix::fs::ioctl_setflags(&flags, rustix::fs::IFlags::IMMUTABLE).unwrap();
    refused(&restore(&dir, &["old"]), &["immutable"]);
    rustix::fs::ioctl_setflags(&flags, rustix::fs::IFlags::empty()).unwrap();
    unchanged();
    ok(&restore(&dir, &["old"]));
    assert_eq!(names(&dir), ["sub"]);
}

/// A script makes several in a second.
#[test]
fn snapshots_of_one_second_have_names_of_their_own() {
    let mounted = Mounted::new();
    let dir = mounted.path("tree");
    fs::create_dir(&dir).unwrap();
    for _ in 0..8 {
        ok(&snapshot("create", &dir, &[]));
    }
    let made = listed(&dir);
    assert!(made.len() == 8 && made.iter().all(|name| name.starts_with("auto-")), "{made:?}");
    for _ in 0..8 {
        ok(&snapshot("restore", &dir, &[&made[0]]));
    }
    let kept = listed(&dir).into_iter().filter(|name| name.starts_with("before-restore-")).count();
    assert_eq!(kept, 8);
    // A name that was given is not changed.
    refused(&snapshot("create", &dir, &[&made[0]]), &["a snapshot with that name exists"]);
    refused(&snapshot("restore", &dir, &[&made[0], "--keep-as", &made[0]]), &["give another --keep-as"]);
}

/// So many that the names in the new snapshot are led to files of its own afterwards.
#[test]
fn a_tree_of_many_hard_links_comes_back_and_its_own_state_is_kept() {
    const FILES: usize = 150;
    let mounted = Mounted::new();
    let (dir, beside) = (mounted.path("tree"), mounted.path("beside"));
    let path = |of: &Path, number: usize| of.join(number.to_string());
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::create_dir(&beside).unwrap();
    for number in 0..FILES {
        fs::write(path(&dir, number), b"first").unwrap();
        fs::hard_link(path(&dir, number), path(&dir.join("sub"), number)).unwrap();
        fs::hard_link(path(&dir, number), path(&beside, number)).unwrap();
    }
    ok(&snapshot("create", &dir, &["old"]));
    (0..FILES).for_each(|number| fs::write(path(&beside, number), b"second").unwrap());
    let kept = dir.join(".betrfs-snapshots/kept");
    assert!(!kept.exists());
    let names_of = |file: &Path| fs::metadata(file).unwrap().nlink();
    assert!((0..FILES).all(|number| names_of(&path(&beside, number)) == 3));

    ok(&snapshot("restore", &dir, &["old", "--keep-as", "kept"]));
    for number in 0..FILES {
        for (top, text, inside) in [(&dir, "first", 2), (&kept, "second", 2), (&beside, "second", 1)] {
            let file = path(top, number);
            assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names_of(&file)), (text, inside));
        }
        let ino = |file: &Path| fs::metadata(file).unwrap().ino();
        assert_eq!(ino(&path(&kept, number)), ino(&path(&kept.join("sub"), number)));
    }
    assert_eq!(names(kept.parent().unwrap()), ["kept", "old"]);
    // And back.
    ok(&snapshot("restore", &dir, &["kept", "--keep-as", "again"]));
    assert!((0..FILES).all(|number| fs::read(path(&dir, number)).unwrap() == b"second"));
    ok(&betrfs().arg("check").arg(&mounted.dir).output().unwrap());
}
