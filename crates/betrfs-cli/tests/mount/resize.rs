//! Growth of a volume: in a file and on a block device, mounted and closed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::administration::{json, noise, run, said};
use crate::block_device::LoopDevice;
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};

const MIB: usize = 1 << 20;

/// The size that df(1) shows, in MiB.
fn shown_mib(dir: &Path) -> u64 {
    let df = Command::new("df").args(["--output=size", "-B1M"]).arg(dir).output().unwrap();
    said(&df).lines().nth(1).unwrap().trim().parse().unwrap()
}

fn check(volume: &Path) {
    ok(&betrfs().arg("check").arg(volume).output().unwrap());
}

fn file_len(volume: &Path) -> usize {
    fs::metadata(volume).unwrap().len() as usize
}

#[test]
fn a_mounted_volume_in_a_file_grows_and_df_shows_it_at_once() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    fs::write(mounted.path("before"), noise(8 * MIB)).unwrap();
    assert!(fs::write(mounted.path("too large"), noise(80 * MIB)).is_err());
    fs::remove_file(mounted.path("too large")).unwrap();
    let before = shown_mib(&mounted.dir);
    let told = said(&run("resize", &mounted.dir, &["+64M"]));
    assert_eq!(told, format!("{}: a volume of 128.0 MiB (134217728 bytes)\n", mounted.dir.display()));
    assert_eq!((shown_mib(&mounted.dir), file_len(&mounted.volume)), (before + 64, 128 * MIB));
    // The device of the mount is as long as the file.
    let find = Command::new("findmnt").args(["-no", "SOURCE"]).arg(&mounted.dir).output().unwrap();
    let size = Command::new("blockdev").arg("--getsize64").arg(said(&find).trim()).output().unwrap();
    assert_eq!(said(&size).trim(), "134217728");
    fs::write(mounted.path("after"), noise(80 * MIB)).unwrap();
    // By the volume's path too. What it has is nothing to do.
    assert_eq!(json("resize", &mounted.volume, &["128M"])["size_bytes"], 128 * MIB);
    assert_eq!(json("resize", &mounted.volume, &["129M"])["size_bytes"], 129 * MIB);
    assert_eq!(json("probe", &mounted.volume, &[])["size_bytes"], 129 * MIB);
    mounted.remount();
    assert_eq!(shown_mib(&mounted.dir), before + 65);
    assert!(fs::read(mounted.path("before")).unwrap() == noise(8 * MIB));
    assert!(fs::read(mounted.path("after")).unwrap() == noise(80 * MIB));
    mounted.umount();
    check(&mounted.volume);
}

#[test]
fn a_closed_volume_grows_and_takes_what_its_file_has() {
    let mounted = Mounted::of_size("64M");
    let volume = &mounted.volume;
    assert_eq!(json("resize", volume, &["max"])["size_bytes"], 64 * MIB);
    assert_eq!(json("resize", volume, &["100M"])["size_bytes"], 100 * MIB);
    fs::File::options().write(true).open(volume).unwrap().set_len((200 * MIB) as u64).unwrap();
    assert_eq!(json("resize", volume, &["+1M"])["size_bytes"], 101 * MIB);
    assert_eq!(json("resize", volume, &["max"])["size_bytes"], 200 * MIB);
    assert_eq!((file_len(volume), &json("probe", volume, &[])["closed"]), (200 * MIB, &true.into()));
    check(volume);
    mounted.mount();
    fs::write(mounted.path("f"), noise(80 * MIB)).unwrap();
    mounted.umount();
    check(volume);
}

#[test]
fn what_a_volume_cannot_become_is_refused_and_changes_nothing() {
    let mounted = Mounted::of_size("64M");
    let volume = &mounted.volume;
    ok(&mounted.try_mount(&["-o", "ro"]));
    let before = fs::read(volume).unwrap();
    refused(&run("resize", &mounted.dir, &["1G"]), &[mounted.dir.to_str().unwrap(), "opened for reading"]);
    mounted.umount();
    assert!(fs::read(volume).unwrap() == before);
    for path in [volume, &mounted.dir] {
        refused(
            &run("resize", path, &["63M"]),
            if path == volume { &["cannot shrink", "67108864 bytes"] } else { &["is a directory"] },
        );
    }
    mounted.mount();
    refused(&run("resize", &mounted.dir, &["4K"]), &["cannot shrink"]);
    for wrong in ["-1M", "most", "0", "+", "1.5G"] {
        ended_with(&run("resize", &mounted.dir, &[wrong]), 2, &["invalid value"]);
    }
    // No file system has files that long.
    refused(&run("resize", &mounted.dir, &["900000T"]), &["device growth", "failed"]);
    assert_eq!(mounted.stats()["state"]["is"], "writable");
    refused(&run("resize", Path::new("/dev/null"), &["1G"]), &["/dev/null", "character device"]);
    mounted.umount();
    assert_eq!(file_len(volume), 64 * MIB);
    check(volume);
}

#[test]
fn a_volume_on_a_block_device_takes_the_size_that_the_device_has_by_now() {
    let mut mounted = Mounted::of_size("64M");
    let image = mounted.volume.clone();
    let device = LoopDevice::on(&image);
    mounted.volume.clone_from(&device.0);
    ok(&betrfs().arg("mkfs").arg("--force").arg(&device.0).output().unwrap());
    mounted.mount();
    let before = shown_mib(&mounted.dir);
    refused(&run("resize", &mounted.dir, &["+1M"]), &["the device has 67108864 bytes", "68157440"]);
    assert_eq!(json("resize", &mounted.dir, &["max"])["size_bytes"], 64 * MIB);
    fs::File::options().write(true).open(&image).unwrap().set_len((160 * MIB) as u64).unwrap();
    ok(&Command::new("losetup").arg("-c").arg(&device.0).output().unwrap());
    assert_eq!(json("resize", &mounted.dir, &["128M"])["size_bytes"], 128 * MIB);
    assert_eq!(json("resize", &mounted.dir, &["max"])["size_bytes"], 160 * MIB);
    assert_eq!(shown_mib(&mounted.dir), before + 96);
    fs::write(mounted.path("f"), noise(80 * MIB)).unwrap();
    mounted.remount();
    assert!(fs::read(mounted.path("f")).unwrap() == noise(80 * MIB));
    mounted.umount();
    check(&device.0);
}
