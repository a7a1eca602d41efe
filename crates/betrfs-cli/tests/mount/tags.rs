//! Volumes by label and UUID: `betrfs probe`, the rule of udev(7), lines of /etc/fstab, file(1).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::mounted::{Mounted, betrfs, ended_with, ok, refused, run};

const UUID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const LABEL: &str = "my disk";

fn stdout(output: &Output) -> String {
    ok(output);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Makes the volume anew, with label and UUID.
fn make(volume: &Path, label: &str, uuid: &str) {
    ok(&betrfs().arg("mkfs").arg(volume).args(["-f", "-q", "-L", label, "-U", uuid]).output().unwrap());
}

#[test]
fn a_probe_tells_the_tags_whether_the_volume_is_mounted_or_not() {
    let mounted = Mounted::of_size("64M");
    make(&mounted.volume, LABEL, UUID);
    let probe =
        |more: &[&str]| stdout(&betrfs().arg("probe").arg(&mounted.volume).args(more).output().unwrap());
    let as_json = || -> Value { serde_json::from_str(&probe(&["--format", "json"])).unwrap() };
    let closed = as_json();
    assert_eq!((&closed["schema_version"], &closed["type"]), (&1.into(), &"betrfs".into()));
    assert_eq!((&closed["label"], &closed["uuid"]), (&LABEL.into(), &UUID.into()));
    assert_eq!((&closed["size_bytes"], &closed["closed"]), (&(64 << 20).into(), &true.into()));
    for line in ["label    my disk", &format!("uuid     {UUID}"), "size     64.0 MiB", "state    closed"] {
        assert!(probe(&[]).lines().any(|told| told == line), "{line}: {}", probe(&[]));
    }
    mounted.mount();
    assert_eq!(as_json()["closed"], false);
    let variables = probe(&["--udev"]);
    for line in [
        "ID_FS_TYPE=betrfs",
        "ID_FS_USAGE=filesystem",
        "ID_FS_VERSION=6",
        "ID_FS_LABEL=my_disk",
        "ID_FS_LABEL_ENC=my\\x20disk",
        &format!("ID_FS_UUID_ENC={UUID}"),
    ] {
        assert!(variables.lines().any(|told| told == line), "{line}: {variables}");
    }
    // What it is asked of is left alone: also the lock, so that nobody is refused meanwhile.
    mounted.remount();
}

#[test]
fn a_probe_of_anything_else_ends_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    for contents in [Vec::new(), b"a letter".to_vec(), vec![0xa5; 1 << 20]] {
        fs::write(&file, contents).unwrap();
        let output = betrfs().args(["probe", "--udev"]).arg(&file).output().unwrap();
        refused(&output, &["not a BetrFS volume"]);
        assert!(output.stdout.is_empty());
    }
    refused(&betrfs().arg("probe").arg(dir.path()).output().unwrap(), &["is a directory"]);
    refused(&betrfs().arg("probe").arg(dir.path().join("no")).output().unwrap(), &["No such file"]);
    ended_with(&run(["probe", "--udev", "--format", "json", "v"]), 2, &["cannot be used with"]);
}

#[test]
fn file_1_knows_a_volume_by_the_projects_magic() {
    let mounted = Mounted::of_size("64M");
    make(&mounted.volume, LABEL, UUID);
    let magic = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/magic/betrfs");
    let told = Command::new("file").arg("-m").arg(magic).arg(&mounted.volume).output().unwrap();
    let expected = format!("BetrFS volume, format 6, label \"{LABEL}\", UUID={UUID}, 67108864 bytes\n");
    assert!(stdout(&told).ends_with(&expected), "{}", stdout(&told));
}

/// In a mount namespace with /sbin, /etc, /run and /dev/disk of its own. No daemon of udev runs there:
/// `udevadm test` carries out the rules for one device, links and database included.
#[test]
fn udevs_rule_makes_tags_known_to_mount_fstab_lsblk_and_findmnt() {
    // Of its own: the loop devices of other tests have tags too.
    const LABEL: &str = "our disk";
    const UUID: &str = "6ba7b811-9dad-11d1-80b4-00c04fd430c8";
    let mounted = Mounted::unmounted();
    make(&mounted.volume, LABEL, UUID);
    let script = r#"
        set -e
        betrfs=$1 volume=$2 dir=$3 uuid=$4 label=$5
        mount -t tmpfs none /run
        mkdir -p /dev/disk /run/udev
        mount -t tmpfs none /dev/disk
        for own in usr/sbin etc; do
            mkdir -p "/run/layers/$own/upper" "/run/layers/$own/work"
            layers=/run/layers/$own
            mount -t overlay none -o "lowerdir=/$own,upperdir=$layers/upper,workdir=$layers/work" "/$own"
        done
        "$betrfs" install-helpers > /run/installed
        device=$(losetup --find --show "$volume")
        trap 'losetup -d "$device"' EXIT
        tried() {
            findmnt -n -o SOURCE,FSTYPE "$dir" | sed "s/^/$1: /"
            umount "$dir"
        }
        # The program finds the device without udev; mount(8) does not.
        "$betrfs" mount "LABEL=$label" "$dir"
        tried "without udev"
        "$betrfs" mount "UUID=$uuid" "$dir"
        tried "without udev, by UUID"
        mount "UUID=$uuid" "$dir" 2> /dev/null || echo "mount without udev: refused"

        udevadm test "/sys/block/${device#/dev/}" > /run/tested 2>&1
        [ "$(readlink -f "/dev/disk/by-uuid/$uuid")" = "$device" ]
        [ "$(readlink -f '/dev/disk/by-label/our\x20disk')" = "$device" ]
        lsblk -n -o FSTYPE,FSVER,LABEL,UUID "$device"
        mount "LABEL=$label" "$dir"
        findmnt -n -o LABEL,UUID "$dir"
        tried "by label"
        options=noauto,user,users,nofail,_netdev,x-systemd.automount,x-systemd.device-timeout=5
        for source in "$device" "UUID=$uuid" "LABEL=our\\040disk"; do
            echo "$source $dir betrfs $options 0 2" > /etc/fstab
            findmnt --verify > /run/verified || { cat /run/verified; exit 1; }
            mount "$dir"
            tried "fstab"
        done
        echo "$volume $dir betrfs defaults 0 0" > /etc/fstab
        mount -a
        tried "fstab, a file"
        "$betrfs" install-helpers --remove
        ls /etc/udev/rules.d
    "#;
    let mut shell = Command::new("timeout");
    shell.args(["60", "unshare", "--mount", "bash", "-c", script, "bash", env!("CARGO_BIN_EXE_betrfs")]);
    let told = stdout(&shell.args([&mounted.volume, &mounted.dir]).args([UUID, LABEL]).output().unwrap());
    let count = |what: &str| told.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!(count("mount without udev: refused"), 1, "{told}");
    assert_eq!(count(&format!("betrfs 6     {LABEL} {UUID}")), 1, "lsblk: {told}");
    assert_eq!(count(&format!("{LABEL} {UUID}")), 1, "findmnt: {told}");
    for (what, times) in [
        ("without udev: /dev/loop", 1),
        ("without udev, by UUID: /dev/loop", 1),
        ("by label: /dev/loop", 1),
        ("fstab: /dev/loop", 3),
        ("fstab, a file: /dev/loop", 1),
    ] {
        assert_eq!(count(what), times, "{what}: {told}");
    }
    assert_eq!(
        told.lines().filter(|line| line.contains("/dev/loop")).count(),
        7,
        "a kind of mount without a block device: {told}"
    );
    assert!(told.lines().last().unwrap().starts_with("removed /etc/udev/rules.d/65-betrfs.rules"), "{told}");
}

#[test]
fn tags_that_no_device_has_are_refused_by_name() {
    let mounted = Mounted::of_size("64M");
    // Volumes of other tests are on loop devices meanwhile.
    for tag in ["LABEL=no such label", "LABEL=", "UUID=0a4f9a7e-4d1c-4d55-9c56-2f7a80a1b3c4"] {
        let output = betrfs().arg("mount").arg(tag).arg(&mounted.dir).output().unwrap();
        refused(&output, &[tag, "no block device", "named by its path"]);
    }
    let output = betrfs().args(["mount", "UUID=12"]).arg(&mounted.dir).output().unwrap();
    refused(&output, &["UUID=12"]);
}
