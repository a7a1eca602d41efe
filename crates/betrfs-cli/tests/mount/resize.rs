//! Growth of a volume: in a file and on a block device, mounted and closed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::administration::{json, noise, run, said};
use crate::block_device::LoopDevice;
use crate::full_disk::Disk;
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
    for wrong in ["-1M", "most", "0", "+", "1.5.2G"] {
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

#[test]
fn a_volume_made_to_grow_does_so_up_to_its_size_and_df_tells_both() {
    let mounted = Mounted::of_size("64M");
    let volume = &mounted.volume;
    let mkfs = |more: &[&str]| run("mkfs", volume, &[&["--force"], more].concat());
    refused(&mkfs(&["64M", "--grow-to", "63M"]), &["cannot grow from 64.0 MiB to 63.0 MiB"]);
    refused(&mkfs(&["-n", "64M", "--grow-to", "63M"]), &["cannot grow"]);
    refused(&mkfs(&["64M", "--grow-to", "15000000T"]), &["cannot make a volume", "over the limit"]);
    let made = json("mkfs", volume, &["--force", "64M", "--grow-to", "160M"]);
    assert_eq!((&made["size_bytes"], &made["grow_to_bytes"]), (&(64 * MIB).into(), &(160 * MIB).into()));
    mounted.mount();
    let df = json("df", &mounted.dir, &[]);
    assert_eq!((&df["volume_bytes"], &df["grow_to_bytes"]), (&(64 * MIB).into(), &(160 * MIB).into()));
    // 4 MiB are log.
    assert!((154..=156).contains(&shown_mib(&mounted.dir)), "{}", shown_mib(&mounted.dir));
    for (number, expected_mib) in [(0, 64), (1, 80), (2, 116)] {
        fs::write(mounted.path(format!("f{number}")), noise(36 * MIB)).unwrap();
        ok(&run("sync", &mounted.dir, &[]));
        let has_mib = file_len(volume) / MIB;
        assert!((expected_mib..=160).contains(&has_mib), "{has_mib} MiB after file {number}");
    }
    let info = json("info", &mounted.path("f0"), &[]);
    assert_eq!(
        (&info["volume_bytes"], &info["grow_to_bytes"]),
        (&file_len(volume).into(), &(160 * MIB).into())
    );
    assert!(said(&run("info", &mounted.dir, &[])).contains(", grows to 160.0 MiB\n"));
    assert!(said(&run("df", &mounted.dir, &[])).contains("  grows to     160.0 MiB\n"));
    let error = fs::write(mounted.path("too large"), noise(60 * MIB)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    fs::remove_file(mounted.path("too large")).unwrap();
    assert_eq!(file_len(volume), 160 * MIB);
    mounted.remount();
    for number in 0..3 {
        assert!(fs::read(mounted.path(format!("f{number}"))).unwrap() == noise(36 * MIB), "f{number}");
    }
    mounted.umount();
    check(volume);
    // By hand beyond it.
    assert_eq!(json("resize", volume, &["+1M"])["size_bytes"], 161 * MIB);
    let device = LoopDevice::on(volume);
    let refusal = run("mkfs", &device.0, &["--force", "--grow-to", "1G"]);
    refused(&refusal, &["is a block device", "betrfs resize"]);
}

#[test]
fn a_full_disk_under_a_volume_that_grows_is_no_loss() {
    let mut mounted = Mounted::of_size("64M");
    let disk = Disk::of_size(mounted.volume.with_file_name("disk"), "72M");
    mounted.volume = disk.0.join("volume");
    ok(&run("mkfs", &mounted.volume, &["64M", "--grow-to", "1G"]));
    mounted.mount();
    let write = |number: usize| {
        let mut file = fs::File::create(mounted.path(format!("f{number}")))?;
        std::io::Write::write_all(&mut file, &noise(4 * MIB + number))?;
        file.sync_all()
    };
    let failed = (0..60).find_map(|number| Some((number, write(number).err()?)));
    let (durable, error) = failed.unwrap();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{error}");
    assert!(durable >= 8, "{durable} files");
    disk.grow_to("200M");
    write(durable).unwrap();
    mounted.umount();
    check(&mounted.volume);
    mounted.mount();
    for number in 0..=durable {
        assert!(
            fs::read(mounted.path(format!("f{number}"))).unwrap() == noise(4 * MIB + number),
            "f{number}"
        );
    }
    mounted.umount();
}
