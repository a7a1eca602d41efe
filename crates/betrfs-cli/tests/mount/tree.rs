//! `betrfs tree`: directories, clones and snapshots with own and shared bytes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};
use crate::schemas::valid;

const MIB: u64 = 1 << 20;

fn tree(dir: &Path, more: &[&str]) -> Output {
    betrfs().arg("tree").arg(dir).args(more).output().unwrap()
}

fn json(dir: &Path, more: &[&str]) -> Value {
    let output = tree(dir, &[more, &["--format", "json"]].concat());
    ok(&output);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["schema_version"], 1);
    valid("tree", &told);
    told
}

/// The names of all places, with those above them, in order.
fn names(place: &Value, above: &str, found: &mut Vec<String>) {
    for entry in place["entries"].as_array().unwrap() {
        let path = format!("{above}/{}", entry["name"].as_str().unwrap());
        found.push(path.clone());
        names(entry, &path, found);
    }
}

fn noise(len: u64) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_tree_shows_clones_and_snapshots_with_what_they_share() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("one/deep/deeper")).unwrap();
    fs::write(mounted.path("one/file"), noise(2 * MIB)).unwrap();
    fs::create_dir(mounted.path("other")).unwrap();
    symlink("one", mounted.path("link")).unwrap();
    let run = |arguments: &[&str], paths: &[&str]| {
        let paths = paths.iter().map(|path| mounted.path(path));
        ok(&betrfs().args(arguments).args(paths).output().unwrap());
    };
    run(&["clone"], &["one", "twin"]);
    ok(&betrfs().args(["snapshot", "create"]).arg(mounted.path("one")).arg("monday").output().unwrap());
    let told = json(&mounted.dir, &[]);
    let mut seen = Vec::new();
    names(&told, "", &mut seen);
    assert_eq!(seen, ["/one", "/one/monday", "/one/deep", "/other", "/twin", "/twin/deep"]);
    assert_eq!((told["kind"].as_str(), told.get("made")), (Some("directory"), None));
    let one = &told["entries"][0];
    let snapshot = &one["entries"][0];
    assert_eq!(snapshot["kind"], "snapshot");
    assert!(snapshot["made"].as_str().unwrap().starts_with("20"), "{snapshot}");
    for place in [one, snapshot, &told["entries"][2]] {
        let bytes = |name: &str| place[name].as_u64().unwrap();
        assert!(bytes("stored_bytes") >= 2 * MIB, "{place}");
        assert_eq!(bytes("shared_bytes") + bytes("freed_bytes"), bytes("stored_bytes"), "{place}");
        assert!(bytes("shared_bytes") >= 2 * MIB && bytes("freed_bytes") < MIB, "{place}");
    }
    // What is written to one alone is its own.
    fs::write(mounted.path("other/file"), noise(3 * MIB)).unwrap();
    let other = &json(&mounted.dir, &["-d", "1"])["entries"][1];
    assert!(other["freed_bytes"].as_u64().unwrap() >= 3 * MIB, "{other}");
    let text = tree(&mounted.dir, &[]);
    ok(&text);
    let text = String::from_utf8(text.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("├── monday  (snapshot, 20")).unwrap();
    assert!(line.contains(" MiB "), "{text}");
    assert_eq!(text.lines().count(), 1 + 1 + 6, "{text}");
}

#[test]
fn the_depth_bounds_a_tree() {
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("a/b/c")).unwrap();
    let seen = |depth: &str| {
        let mut seen = Vec::new();
        names(&json(&mounted.dir, &["-d", depth]), "", &mut seen);
        seen
    };
    assert!(seen("0").is_empty());
    assert_eq!(seen("1"), ["/a"]);
    assert_eq!(seen("64"), ["/a", "/a/b", "/a/b/c"]);
    ended_with(&tree(&mounted.dir, &["-d", "65"]), 2, &["65"]);
}

#[test]
fn a_tree_is_of_a_directory_on_a_mount() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), b"text").unwrap();
    refused(&tree(&mounted.path("file"), &[]), &["is no directory"]);
    refused(&tree(&mounted.path("absent"), &[]), &["absent", "No such file"]);
    refused(&tree(Path::new("/proc"), &[]), &["/proc", "no BetrFS mount"]);
}
