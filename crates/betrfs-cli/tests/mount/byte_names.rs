//! Names that are not UTF-8 in the documents of commands: their bytes stand beside them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::mounted::{Mounted, betrfs, ok};
use crate::schemas::valid;

const NAME: &[u8] = b"n\xff";

fn document(schema: &str, arguments: &[&str], path: &Path, more: &[&str]) -> Value {
    let mut command = betrfs();
    command.args(arguments).arg(path).args(more).args(["--format", "json"]);
    let output = command.output().unwrap();
    ok(&output);
    let document = serde_json::from_slice(&output.stdout).unwrap();
    valid(schema, &document);
    document
}

/// The bytes in hexadecimal, and the text, of a field.
fn both(of: &Value, field: &str) -> (Option<OsString>, String) {
    let bytes = |text: &str| {
        let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect::<Vec<_>>()
    };
    let hex = of.get(format!("{field}_hex")).map(|hex| bytes(hex.as_str().unwrap()));
    (hex.map(|bytes| OsStr::from_bytes(&bytes).to_owned()), of[field].as_str().unwrap().to_owned())
}

/// Asserts that a field has a name, with its bytes beside it only if need be.
fn has(of: &Value, field: &str, name: impl AsRef<OsStr>) {
    let name = name.as_ref();
    let hex = name.to_str().is_none().then(|| name.to_owned());
    assert_eq!(both(of, field), (hex, name.to_string_lossy().into_owned()), "{of}");
}

#[test]
fn names_on_a_mount_come_with_their_bytes() {
    let mounted = Mounted::new();
    let name = OsStr::from_bytes(NAME);
    let (top, dir) = (mounted.path("top"), mounted.path("top").join(name));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("file"), "text").unwrap();
    for name in [name, OsStr::new("plain")] {
        ok(&betrfs().args(["snapshot", "create"]).arg(&top).arg(name).output().unwrap());
    }

    let told = document("usage-paths", &["usage", "-d", "1"], &top, &[]);
    has(&told["paths"][0], "path", &dir);
    has(&told["paths"][1], "path", &top);

    let told = document("tree", &["tree"], &dir, &["-d", "0"]);
    has(&told, "name", &dir);
    let told = document("tree", &["tree"], &top, &["-d", "1"]);
    has(&told, "name", &top);
    let entries = told["entries"].as_array().unwrap();
    let found: Vec<_> = entries.iter().map(|entry| (&entry["kind"], both(entry, "name").0)).collect();
    let (snapshot, directory) = (json!("snapshot"), json!("directory"));
    let bytes = Some(name.to_owned());
    assert_eq!(found, [(&snapshot, bytes.clone()), (&snapshot, None), (&directory, bytes)]);

    let told = document("snapshot-list", &["snapshot", "list"], &top, &[]);
    has(&told["snapshots"][0], "name", name);
    has(&told["snapshots"][1], "name", "plain");
    let told = document("snapshot-prune", &["snapshot", "prune", "-n", "--keep-last", "1"], &top, &[]);
    has(&told["kept"][0], "name", "plain");
    assert_eq!(told["removed"], json!(["n\u{fffd}"]));
    assert_eq!(told["removed_hex"], json!(["6eff"]));

    ok(&betrfs().args(["quota", "set"]).arg(&dir).arg("1M").output().unwrap());
    has(&document("quota-list", &["quota", "list"], &mounted.dir, &[])["quotas"][0], "path", &dir);
    has(&document("quota-get", &["quota", "get"], &dir, &[]), "path", dir.canonicalize().unwrap());

    ok(&betrfs().arg("set").arg(&dir).arg("noatime=on").output().unwrap());
    fs::create_dir(dir.join("below")).unwrap();
    let told = document("get", &["get"], &dir.join("below"), &[]);
    has(&told["directories"][0], "path", dir.join("below"));
    has(&told["directories"][0]["properties"]["noatime"], "from", dir.canonicalize().unwrap());

    mounted.umount();
    let told = document("quota-list", &["quota", "list"], &mounted.volume, &[]);
    has(&told["quotas"][0], "path", Path::new("/top").join(name));
}

#[test]
fn names_of_volumes_and_of_mounts_come_with_their_bytes() {
    let mut mounted = Mounted::of_size("64M");
    for path in [&mut mounted.volume, &mut mounted.dir] {
        let mut bytes = path.clone().into_os_string();
        bytes.push(OsStr::from_bytes(NAME));
        fs::rename(&*path, &bytes).unwrap();
        *path = bytes.into();
    }
    let (volume, dir) = (mounted.volume.clone(), mounted.dir.clone());
    has(&document("mkfs", &["mkfs", "-f"], &volume, &["64M"]), "volume", &volume);
    has(&document("check", &["check"], &volume, &[]), "volume", &volume);
    has(&document("check", &["check", "-p"], &volume, &[]), "volume", &volume);
    has(&document("debug-super", &["debug", "super"], &volume, &[]), "volume", &volume);
    let told = document("info-volume", &["info"], &volume, &[]);
    has(&told, "volume", &volume);
    assert!(told["dir"].is_null(), "{told}");

    mounted.mount();
    let output = betrfs().args(["list", "--format", "json"]).output().unwrap();
    ok(&output);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("list", &told);
    let all = told["mounts"].as_array().unwrap();
    let own = all.iter().find(|mount| both(mount, "dir").0.is_some_and(|found| found == dir)).unwrap();
    has(own, "volume", &volume);
    has(&document("info-volume", &["info"], &volume, &[]), "dir", &dir);
    for (schema, field) in [("info", "dir"), ("stats", "mount_point")] {
        let told = document(schema, &[schema], &dir, &[]);
        has(&told, "volume", &volume);
        has(&told, field, &dir);
    }
    let told = document("top", &["top", "--once", "--interval", "0.1"], &dir, &[]);
    has(&told, "volume", &volume);
    has(&told, "dir", &dir);
    has(&document("check", &["check"], &dir, &[]), "volume", &dir);
    has(&document("scrub", &["scrub"], &dir, &[]), "volume", &dir);
}
