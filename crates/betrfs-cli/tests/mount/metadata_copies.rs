//! `betrfs metadata-copies`, and the commands that tell of it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::administration::{MIB, json, noise, run, said};
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};
use crate::program::program_beside;
use crate::schemas::valid;

/// Chooses a number of copies.
fn choose(volume: &Path, more: &[&str]) -> Output {
    run("metadata-copies", volume, more)
}

/// The choice of a volume as each command tells it that can be asked by this path.
fn told(path: &Path, commands: &[&str]) -> Vec<u64> {
    let number = |command: &&str| json(command, path, &[])["metadata_copies"].as_u64().unwrap();
    commands.iter().map(number).collect()
}

/// The interior nodes above the parents of leaves of a closed volume, each as `betrfs debug nodes` has it.
fn high_nodes(volume: &Path) -> Vec<Value> {
    let output = betrfs().args(["debug", "nodes"]).arg(volume).args(["--format", "json"]).output().unwrap();
    let document: Value = serde_json::from_str(&said(&output)).unwrap();
    valid("debug-nodes", &document);
    let nodes = document["nodes"].as_array().unwrap().iter();
    nodes.filter(|node| node["height"].as_u64().unwrap() > 1).cloned().collect()
}

fn has_copy(node: &Value) -> bool {
    !node["copy"].as_array().unwrap().is_empty()
}

#[test]
fn the_choice_changes_live_and_closed_and_all_commands_tell_it() {
    let mounted = Mounted::of_size("64M");
    let volume = &mounted.volume;
    assert_eq!(said(&choose(volume, &[])), "1\n");
    ok(&choose(volume, &["2"]));
    assert_eq!(told(volume, &["metadata-copies", "info", "df"]), [2, 2, 2]);
    assert!(said(&run("info", volume, &[])).contains("\ncopies     2 of metadata\n"));
    mounted.mount();
    let by_dir = ["metadata-copies", "info", "df", "stats"];
    assert_eq!(told(&mounted.dir, &by_dir), [2; 4]);
    assert!(said(&run("info", &mounted.dir, &[])).contains("\ncopies     2 of metadata\n"));
    assert!(said(&run("stats", &mounted.dir, &[])).contains("\ncopies       2 of metadata\n"));
    assert!(said(&run("df", &mounted.dir, &[])).contains("\ncopies                 2\n"));
    for command in ["list", "doctor"] {
        let output = betrfs().args([command, "--format", "json"]).output().unwrap();
        let told: Value = serde_json::from_str(&said(&output)).unwrap();
        valid(command, &told);
        let dir = mounted.dir.to_str().unwrap();
        let own = told["mounts"].as_array().unwrap().iter().find(|mount| mount["dir"] == dir).unwrap();
        assert_eq!(own["metadata_copies"], 2, "{own}");
    }
    let line = format!("copies on     {}: 2 of metadata", mounted.dir.display());
    let doctor = || said(&betrfs().arg("doctor").output().unwrap());
    assert!(doctor().lines().any(|told| told == line), "{}", doctor());
    // By the volume's path its server is asked too, and what it says is durable.
    ok(&choose(volume, &["1"]));
    assert_eq!(told(&mounted.dir, &by_dir), [1; 4]);
    assert!(!doctor().contains(&line));
    assert_eq!(said(&choose(&mounted.dir, &[])), "1\n");
    mounted.umount();
    assert_eq!(told(volume, &["metadata-copies", "info"]), [1, 1]);
    ok(&betrfs().arg("check").arg(volume).output().unwrap());
}

#[test]
fn who_may_not_and_wrong_numbers_are_refused() {
    let mounted = Mounted::of_size("64M");
    ended_with(&choose(&mounted.volume, &["3"]), 2, &["there can be 1 or 2 copies"]);
    ended_with(&choose(&mounted.volume, &["--all"]), 2, &["COPIES"]);
    refused(&choose(Path::new("/dev/null"), &["2"]), &["/dev/null", "character device"]);
    fs::set_permissions(mounted.volume.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let program = program_beside(&mounted);
    mounted.mount();
    let mut by_another = Command::new(program);
    by_another.arg("metadata-copies").arg(&mounted.dir).args(["2", "--all"]).uid(65_534);
    refused(&by_another.output().unwrap(), &["only root and the user who mounted the volume may"]);
    mounted.umount();
    ok(&mounted.try_mount(&["-o", "ro"]));
    refused(&choose(&mounted.dir, &["2"]), &["opened for reading"]);
    assert_eq!(told(&mounted.dir, &["metadata-copies"]), [1]);
}

/// A volume that was made without: its interior nodes get their copies while it is in use, and are read from
/// them when the first ones are damaged.
#[test]
fn nodes_that_are_there_get_copies_and_are_read_from_them() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    let contents = noise(12 * MIB);
    let written = |number: usize| &contents[number * MIB..(number + 1) * MIB];
    for number in 0..12 {
        fs::write(mounted.path(number.to_string()), written(number)).unwrap();
    }
    mounted.remount();
    // From then on: no node is written for it.
    ok(&choose(&mounted.dir, &["2"]));
    mounted.umount();
    let before = high_nodes(&mounted.volume);
    assert!(!before.is_empty() && !before.iter().any(has_copy), "{before:?}");
    mounted.mount();
    ok(&choose(&mounted.dir, &["2", "--all"]));
    mounted.umount();
    let nodes = high_nodes(&mounted.volume);
    assert!(nodes.len() == before.len() && nodes.iter().all(has_copy), "{nodes:?}");
    let node = nodes[0]["id"].as_str().unwrap();
    let shown = betrfs().args(["debug", "node"]).arg(&mounted.volume).arg(node).output().unwrap();
    let copy = nodes[0]["copy"][0]["offset"].as_u64().unwrap();
    assert!(said(&shown).contains(&format!("at byte {copy}")), "{}", said(&shown));

    let file = File::options().read(true).write(true).open(&mounted.volume).unwrap();
    for node in &nodes {
        let (offset, mut byte) = (node["extent"][0]["offset"].as_u64().unwrap() + 20, [0]);
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }
    mounted.mount();
    for number in 0..12 {
        assert!(fs::read(mounted.path(number.to_string())).unwrap() == written(number), "{number}");
    }
    assert!(mounted.stats()["engine"]["copies_used"].as_u64().unwrap() > 0);
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());

    // And back, closed.
    ok(&choose(&mounted.volume, &["1", "--all"]));
    assert!(!high_nodes(&mounted.volume).iter().any(has_copy));
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}
