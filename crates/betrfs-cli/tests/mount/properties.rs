//! Properties of directories: `betrfs set` and `betrfs get`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::{Value, json};

use crate::attributes::open_to_all;
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};
use crate::program::program_beside;
use crate::schemas::valid;

pub fn set(dir: &Path, changes: &[&str]) -> Output {
    betrfs().arg("set").arg(dir).args(changes).output().unwrap()
}

fn get(dir: &Path, more: &[&str]) -> String {
    let output = betrfs().arg("get").arg(dir).args(more).output().unwrap();
    ok(&output);
    String::from_utf8(output.stdout).unwrap()
}

fn get_json(dir: &Path, more: &[&str]) -> Value {
    let told = serde_json::from_str(&get(dir, &[more, &["--format", "json"]].concat())).unwrap();
    valid("get", &told);
    told
}

/// A property of a directory as the JSON document has it.
fn property(dir: &Path, name: &str) -> Value {
    get_json(dir, &[name])["directories"][0]["properties"][name].clone()
}

fn local(value: &str) -> Value {
    json!({ "value": value, "source": "local" })
}

fn default(value: &str) -> Value {
    json!({ "value": value, "source": "default" })
}

fn inherited(value: &str, from: &Path) -> Value {
    json!({ "value": value, "source": "inherited", "from": from.to_str().unwrap() })
}

/// Whether reading a file, or a directory, that has just changed moves its time of access.
fn read_moves(path: &Path) -> bool {
    let is_dir = path.is_dir();
    fs::set_permissions(path, fs::metadata(path).unwrap().permissions()).unwrap();
    let before = fs::metadata(path).unwrap();
    if is_dir {
        fs::read_dir(path).unwrap().for_each(drop);
    } else {
        fs::read(path).unwrap();
    }
    let after = fs::metadata(path).unwrap();
    (before.atime(), before.atime_nsec()) != (after.atime(), after.atime_nsec())
}

/// `a/b/c` and `other`, with a file in each.
fn tree(mounted: &Mounted) {
    for dir in ["a", "a/b", "a/b/c", "other"] {
        fs::create_dir(mounted.path(dir)).unwrap();
        fs::write(mounted.path(dir).join("f"), b"text").unwrap();
    }
}

#[test]
fn values_are_inherited_shown_with_their_source_and_obeyed() {
    let mounted = Mounted::new();
    tree(&mounted);
    let [root, a, b, c, other] = ["", "a", "a/b", "a/b/c", "other"].map(|path| mounted.path(path));
    let root = root.canonicalize().unwrap();
    assert_eq!(property(&c, "noatime"), default("off"));
    assert!(read_moves(&c.join("f")) && read_moves(&c));
    let ctime = |path: &Path| fs::metadata(path).map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
    let before = ctime(&a);
    ok(&set(&a, &["noatime=on"]));
    assert_ne!(ctime(&a), before, "the kernel knows of the change");
    ok(&set(&c, &["noatime=off"]));
    let check = || {
        assert_eq!(property(&a, "noatime"), local("on"));
        assert_eq!(property(&b, "noatime"), inherited("on", &a));
        assert_eq!(property(&c, "noatime"), local("off"));
        assert_eq!(property(&other, "noatime"), default("off"));
        assert!(!read_moves(&a.join("f")) && !read_moves(&b.join("f")) && !read_moves(&b));
        assert!(read_moves(&c.join("f")) && read_moves(&other.join("f")));
    };
    check();
    mounted.umount();
    mounted.mount();
    check();
    let shown = format!("noatime      on       inherited from {}\n", a.display());
    assert_eq!(get(&b, &["noatime"]), shown);
    assert!(get(&b, &[]).contains(&shown));
    assert_eq!(get(&a, &["noatime"]), "noatime      on       local\n");
    // Of all that is below, those with a value of their own.
    let all = get_json(&root, &["-r", "noatime"]);
    let paths: Vec<_> =
        all["directories"].as_array().unwrap().iter().map(|found| found["path"].clone()).collect();
    assert_eq!(paths, [&root, &a, &c].map(|path| json!(path.to_str().unwrap())));
    let told = get(&root, &["-r", "noatime"]);
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[2..4], [&format!("{}:", a.display()), "noatime      on       local"], "{told}");
    ok(&set(&a, &["noatime=inherit"]));
    assert_eq!((property(&a, "noatime"), property(&b, "noatime")), (default("off"), default("off")));
    ok(&set(&root, &["noatime=on"]));
    assert_eq!((property(&b, "noatime"), property(&c, "noatime")), (inherited("on", &root), local("off")));
}

/// Other mounts below a directory are none of its directories, and what is above a mount has no path.
#[test]
fn mounts_below_are_left_out_and_what_is_above_a_mount_is_told_so() {
    let mounted = Mounted::new();
    tree(&mounted);
    let [a, b, c, other] = ["a", "a/b", "a/b/c", "other"].map(|path| mounted.path(path));
    ok(&set(&a, &["noatime=on"]));
    ok(&set(&c, &["noatime=off"]));
    rustix::mount::mount("none", &b, "tmpfs", MountFlags::empty(), None).unwrap();
    let all = get_json(&a, &["-r", "noatime"]);
    rustix::mount::unmount(&b, UnmountFlags::empty()).unwrap();
    assert_eq!(all["directories"].as_array().unwrap().len(), 1, "{all}");
    let all = get_json(&a, &["-r", "noatime"]);
    assert_eq!(all["directories"].as_array().unwrap().len(), 2, "{all}");

    let part = tempfile::tempdir().unwrap();
    rustix::mount::mount_bind(&b, part.path()).unwrap();
    let (told, words) = (property(part.path(), "noatime"), get(part.path(), &["noatime"]));
    rustix::mount::unmount(part.path(), UnmountFlags::empty()).unwrap();
    assert_eq!(told, json!({ "value": "on", "source": "inherited" }));
    assert_eq!(words, "noatime      on       inherited from above the mount point\n");
    assert_eq!(property(&other, "noatime"), default("off"));
}

#[test]
fn clones_keep_values_and_what_moves_inherits_anew() {
    let mounted = Mounted::new();
    tree(&mounted);
    let [a, b, other, twin] = ["a", "a/b", "other", "twin"].map(|path| mounted.path(path));
    ok(&set(&a, &["noatime=on"]));
    ok(&betrfs().arg("clone").args([&b, &twin]).output().unwrap());
    ok(&betrfs().arg("snapshot").arg("create").args([b.as_path(), Path::new("monday")]).output().unwrap());
    assert_eq!(property(&twin, "noatime"), local("on"));
    assert!(!read_moves(&twin.join("f")) && !read_moves(&twin.join("c/f")));
    let monday = b.join(".betrfs-snapshots/monday");
    assert_eq!(property(&monday, "noatime"), inherited("on", &a));
    refused(&set(&monday, &["noatime=off"]), &["cannot set properties of", "snapshot"]);
    fs::rename(b.join("c"), other.join("c")).unwrap();
    assert_eq!(property(&other.join("c"), "noatime"), default("off"));
    assert!(read_moves(&other.join("c/f")));
    // A file with several names keeps what it had.
    fs::hard_link(a.join("f"), other.join("linked")).unwrap();
    assert!(!read_moves(&other.join("linked")));
}

#[test]
fn only_the_owner_and_root_set_what_all_may_see() {
    const ADA: u32 = 5001;
    const BOB: u32 = 5002;
    let mounted = Mounted::new();
    open_to_all(&mounted);
    tree(&mounted);
    let a = mounted.path("a");
    chown(&a, Some(ADA), Some(ADA)).unwrap();
    let as_user = |uid: u32, arguments: &[&str], rest: &[&str]| {
        let mut command = Command::new(program_beside(&mounted));
        command.args(arguments).arg(&a).args(rest).uid(uid).gid(uid).output().unwrap()
    };
    let why = ["cannot set properties of", "only its owner and root may"];
    refused(&as_user(BOB, &["set"], &["noatime=on"]), &why);
    assert_eq!(property(&a, "noatime"), default("off"));
    ok(&as_user(ADA, &["set"], &["noatime=on"]));
    assert_eq!(property(&a, "noatime"), local("on"));
    let seen = as_user(BOB, &["get"], &["noatime"]);
    ok(&seen);
    assert_eq!(String::from_utf8(seen.stdout).unwrap(), "noatime      on       local\n");
}

#[test]
fn bad_input_is_told_and_changes_nothing() {
    let mounted = Mounted::new();
    tree(&mounted);
    let a = mounted.path("a");
    let before = (get(&a, &[]), fs::metadata(&a).unwrap().ctime_nsec());
    for (changes, words) in [
        (&["noatime=maybe"][..], "on, off or inherit"),
        (&["noatime"], "as in noatime=on"),
        (&["compression=gzip"], "zstd:1 to zstd:19"),
        (&["noatime=on", "compression=zstd:20"], "zstd:1 to zstd:19"),
        (&["atime=on"], "there is no property `atime`"),
        (&["noatime=on", "noatime=off"], "given twice"),
        (&["noatime=on", "nonsense=1"], "there is no property `nonsense`"),
        (&[], "required"),
    ] {
        ended_with(&set(&a, changes), 2, &[words]);
    }
    ended_with(&betrfs().arg("get").arg(&a).arg("atime").output().unwrap(), 2, &["atime"]);
    refused(&set(&a.join("f"), &["noatime=on"]), &["cannot set properties of", "it is no directory"]);
    refused(&set(&a.join("none"), &["noatime=on"]), &["cannot set properties of", "No such file"]);
    refused(&set(Path::new("/proc"), &["noatime=on"]), &["/proc", "no BetrFS mount"]);
    let unseen = betrfs().args(["get", "/proc"]).output().unwrap();
    refused(&unseen, &["cannot show the properties of /proc", "no BetrFS mount"]);
    assert_eq!((get(&a, &[]), fs::metadata(&a).unwrap().ctime_nsec()), before);
    mounted.umount();
    ok(&mounted.try_mount(&["-o", "ro"]));
    refused(&set(&a, &["noatime=on"]), &["cannot set properties of", "read-only"]);
    assert_eq!(get(&a, &[]), before.0);
}

/// Text that compresses, another for each number.
fn text(number: u32, len: usize) -> Vec<u8> {
    let words = (0_u32..).map(|word| number.wrapping_add(word).wrapping_mul(2_654_435_761) >> 22);
    words.flat_map(|word| format!("{word} ").into_bytes()).take(len).collect()
}

/// The files of a directory, of 100 KB and of 2, with their contents.
fn files(dir: &Path) -> impl Iterator<Item = (PathBuf, Vec<u8>)> {
    let len = |number| if number % 2 == 0 { 100_000 } else { 2000 };
    (0..40).map(move |number| (dir.join(number.to_string()), text(number, len(number))))
}

/// Makes the files in a new directory.
pub fn fill(dir: &Path) {
    fs::create_dir(dir).unwrap();
    files(dir).for_each(|(file, data)| fs::write(file, data).unwrap());
}

pub fn assert_filled(dir: &Path) {
    files(dir).for_each(|(file, data)| assert!(fs::read(&file).unwrap() == data, "{}", file.display()));
}

#[test]
fn data_is_stored_as_the_compression_of_its_directory_has_it() {
    let mounted = Mounted::new();
    let dir = |name: &str| mounted.path(name);
    for name in ["default", "lz4", "none", "fast", "small"] {
        fs::create_dir(dir(name)).unwrap();
    }
    for (name, value) in [("lz4", "lz4"), ("none", "none"), ("fast", "zstd:1"), ("small", "zstd:19")] {
        ok(&set(&dir(name), &[&format!("compression={value}")]));
        assert_eq!(property(&dir(name), "compression"), local(value));
    }
    assert_eq!(property(&dir("default"), "compression"), default("lz4"));
    for name in ["default", "lz4", "none", "fast", "small"] {
        fill(&dir(name).join("below"));
    }
    assert_eq!(property(&dir("small").join("below"), "compression"), inherited("zstd:19", &dir("small")));
    mounted.umount();
    mounted.mount();
    let stored = |name: &str| {
        let output = betrfs().arg("usage").arg(dir(name)).args(["--format", "json"]).output().unwrap();
        ok(&output);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        told["stored_bytes"].as_u64().unwrap()
    };
    let [usual, lz4, none, fast, small] = ["default", "lz4", "none", "fast", "small"].map(stored);
    assert!(none >= 20 * 102_000, "{none}");
    assert!(lz4.abs_diff(usual) * 10 < usual && lz4 * 10 < none * 9, "{usual} {lz4} {none}");
    assert!(fast * 10 < lz4 * 8 && small <= fast, "{lz4} {fast} {small}");
    for name in ["default", "lz4", "none", "fast", "small"] {
        assert_filled(&dir(name).join("below"));
    }
    // A clone keeps it, and shares what is stored.
    ok(&betrfs().arg("clone").args([dir("small").join("below"), dir("twin")]).output().unwrap());
    assert_eq!(property(&dir("twin"), "compression"), local("zstd:19"));
    assert_filled(&dir("twin"));
    ok(&set(&dir("twin"), &["compression=inherit", "noatime=on"]));
    assert_eq!(
        (property(&dir("twin"), "compression"), property(&dir("twin"), "noatime")),
        (default("lz4"), local("on"))
    );
    mounted.umount();
    let checked = betrfs().arg("check").arg(&mounted.volume).output().unwrap();
    ok(&checked);
}

#[test]
fn a_directory_that_may_not_be_listed_hides_no_other() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    for name in ["a", "b", "c"] {
        fs::create_dir(mounted.path(name)).unwrap();
        ok(&set(&mounted.path(name), &["noatime=on"]));
    }
    fs::set_permissions(mounted.path("b"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(program_beside(&mounted));
    let output = command.args(["get", "-r"]).arg(&mounted.dir).uid(1234).gid(1234).output().unwrap();
    ended_with(&output, 1, &["/b"]);
    let told = String::from_utf8(output.stdout).unwrap();
    let has = |name: &str| told.contains(&format!("{}:", mounted.path(name).display()));
    assert!(has("a") && has("c") && !has("b"), "{told}");
}
