//! A mount by root is a mount of a block device: sync(2) and umount(2) keep their promises there.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::block_device::LoopDevice;
use crate::mounted::{Mounted, betrfs, ok, refused, told, wait_for_end};

/// The loop devices that stand for a file.
fn loop_devices_of(file: &Path) -> Vec<String> {
    let attached =
        Command::new("losetup").args(["--noheadings", "--output", "NAME", "--associated"]).arg(file).output();
    let attached = attached.unwrap();
    assert!(attached.status.success(), "{}", told(&attached));
    String::from_utf8(attached.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A column of findmnt(8) for a mount.
fn findmnt(dir: &Path, column: &str) -> String {
    let output =
        Command::new("findmnt").args(["--noheadings", "--output", column, "--mountpoint"]).arg(dir).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
}

fn syncs(mounted: &Mounted) -> u64 {
    mounted.stats()["engine"]["device_syncs"].as_u64().unwrap()
}

#[test]
fn data_synced_by_syncfs_survives_the_server() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"data").unwrap();
    let before = syncs(&mounted);
    rustix::fs::syncfs(File::open(mounted.path("f")).unwrap()).unwrap();
    assert!(syncs(&mounted) > before, "the device was not synced");
    mounted.kill_server();
    mounted.mount();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"data");
}

#[test]
fn the_sync_command_works_where_syncfs_does_not() {
    let mounted = Mounted::unmounted();
    // As for users other than root: without loop devices, in a mount namespace that hides them.
    let script = r#"
        set -e
        mount --bind /dev/null /dev/loop-control
        "$1" mount "$2" "$3"
        echo data > "$3/f"
        "$1" sync "$3"
        kill -9 "$("$1" stats "$3" --format json | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p')"
        until "$1" mount "$2" "$3"; do sleep 0.1; done
        cat "$3/f"
        "$1" umount "$3"
    "#;
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_betrfs")]);
    let output = shell.arg(&mounted.volume).arg(&mounted.dir).output().unwrap();
    ok(&output);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "data\n");
    mounted.mount();
    refused(&betrfs().arg("sync").arg("/proc").output().unwrap(), &["/proc", "no BetrFS mount"]);
    ok(&betrfs().arg("sync").arg(&mounted.dir).output().unwrap());
}

#[test]
fn umount_returns_when_the_volume_is_free() {
    let mounted = Mounted::new();
    for round in 0..5 {
        fs::write(mounted.path("f"), vec![round; 20 << 20]).unwrap();
        mounted.umount_plainly();
        // No waiting: it is locked, or it is not.
        let lock = File::options().read(true).write(true).open(&mounted.volume).unwrap();
        lock.try_lock().expect("the volume is still in use");
        drop(lock);
        assert_eq!(loop_devices_of(&mounted.volume), [""; 0], "round {round}");
        ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
        mounted.mount();
        assert!(fs::read(mounted.path("f")).unwrap() == vec![round; 20 << 20]);
    }
}

#[test]
fn the_loop_device_goes_with_the_mount_however_it_ends() {
    let mounted = Mounted::new();
    let device = findmnt(&mounted.dir, "SOURCE");
    assert_eq!(loop_devices_of(&mounted.volume), [device.as_str()]);
    assert_eq!(findmnt(&mounted.dir, "FSTYPE"), "fuseblk.betrfs");
    mounted.kill_server();
    // The dead mount is replaced, and its loop device is gone.
    mounted.mount();
    assert_eq!(loop_devices_of(&mounted.volume).len(), 1);
    mounted.umount();
    assert_eq!(loop_devices_of(&mounted.volume), [""; 0]);
}

/// A dead mount claims its block device until its last user is gone.
#[test]
fn a_block_device_is_mounted_again_after_its_server_was_killed() {
    let mut mounted = Mounted::unmounted();
    let device = LoopDevice::on(&mounted.volume);
    mounted.volume.clone_from(&device.0);
    let source = device.0.to_str().unwrap();
    let kill = |mounted: &Mounted| {
        mounted.kill_server();
    };
    mounted.mount();
    let file = File::create(mounted.path("f")).unwrap();
    rustix::io::write(&file, b"data").unwrap();
    file.sync_all().unwrap();
    drop(file);
    kill(&mounted);
    mounted.mount();
    assert_eq!(findmnt(&mounted.dir, "SOURCE"), source);
    let user = File::open(mounted.path("f")).unwrap();
    kill(&mounted);
    mounted.mount();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"data");
    assert_eq!(findmnt(&mounted.dir, "FSTYPE"), "fuseblk.betrfs");
    assert_eq!(loop_devices_of(&device.0), [findmnt(&mounted.dir, "SOURCE")]);
    refused(&betrfs().arg("mkfs").arg(&device.0).arg("--force").output().unwrap(), &["in use"]);
    drop(user);
    mounted.umount();
    assert_eq!(loop_devices_of(&device.0), [""; 0]);
    mounted.mount();
    assert_eq!(findmnt(&mounted.dir, "SOURCE"), source);
    mounted.umount();
    ok(&betrfs().arg("check").arg(&device.0).output().unwrap());
}

#[test]
fn a_volume_is_mounted_even_without_loop_devices() {
    let mounted = Mounted::unmounted();
    let script = r#"
        set -e
        mount --bind /dev/null /dev/loop-control
        "$1" mount "$2" "$3"
        findmnt --noheadings --output FSTYPE --mountpoint "$3"
        head -c 20000000 /dev/urandom > "$3/f"
        "$1" umount "$3"
        "$1" check "$2"
    "#;
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_betrfs")]);
    let output = shell.arg(&mounted.volume).arg(&mounted.dir).output().unwrap();
    ok(&output);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("fuse.betrfs\n"));
}

#[test]
fn the_mount_sets_the_read_ahead() {
    let mounted = Mounted::new();
    let device = rustix::fs::stat(&mounted.dir).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let read_ahead = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}-fuseblk/read_ahead_kb"));
    assert_eq!(read_ahead.unwrap().trim(), "1024");
}

/// A service manager asks a server to end, and kills it if that takes too long: the server must not wait for
/// its own answer.
#[test]
fn a_server_that_is_killed_while_it_unmounts_itself_ends() {
    let mounted = Mounted::unmounted();
    for round in 0..8 {
        mounted.mount();
        let file = File::create(mounted.path("kept")).unwrap();
        rustix::io::write(&file, &[round; 10]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs::write(mounted.path("f"), vec![round; 64 << 20]).unwrap();
        let server = mounted.server();
        kill_process(server, Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3 + 6 * u64::from(round)));
        // The server may have ended already.
        let _ = kill_process(server, Signal::KILL);
        wait_for_end(server);
        mounted.mount();
        assert_eq!(fs::read(mounted.path("kept")).unwrap(), [round; 10]);
        mounted.umount();
    }
}
