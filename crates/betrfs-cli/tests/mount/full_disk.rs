//! A sparse volume file on a disk smaller than the volume: a tmpfs, as root.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::mounted::{Mounted, betrfs, ok, refused};

const FILE_BYTES: usize = 1 << 20;

/// A tmpfs, unmounted when it is dropped.
pub struct Disk(pub PathBuf);

impl Disk {
    /// One of this size, mounted on a new directory.
    pub fn of_size(dir: PathBuf, size: &str) -> Disk {
        fs::create_dir(&dir).unwrap();
        let data = std::ffi::CString::new(format!("size={size}")).unwrap();
        rustix::mount::mount("tmpfs", &dir, c"tmpfs", MountFlags::empty(), Some(data.as_c_str())).unwrap();
        Disk(dir)
    }

    /// Gives it more room.
    pub fn grow_to(&self, size: &str) {
        rustix::mount::mount_remount(&self.0, MountFlags::empty(), format!("size={size}")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn contents(number: u64) -> Vec<u8> {
    seeded::bytes(number, 0, FILE_BYTES)
}

/// A volume of 256 MiB in a sparse file on a disk of 48.
fn mounted_on_a_small_disk() -> (Mounted, Disk) {
    let mut mounted = Mounted::of_size("256M");
    let disk = Disk::of_size(mounted.volume.with_file_name("disk"), "48M");
    let volume = disk.0.join("volume");
    let mut copy = Command::new("cp");
    ok(&copy.arg("--sparse=always").args([&mounted.volume, &volume]).output().unwrap());
    mounted.volume = volume;
    mounted.mount();
    (mounted, disk)
}

fn write_durably(mounted: &Mounted, number: u64) -> io::Result<()> {
    let mut file = File::create(mounted.path(format!("f{number}")))?;
    file.write_all(&contents(number))?;
    file.sync_all()
}

#[test]
fn a_full_disk_below_the_volume_is_reported_and_changes_resume_once_it_has_room() {
    let (mounted, disk) = mounted_on_a_small_disk();
    assert_eq!(mounted.stats()["state"]["is"], "writable");

    let failed = (0..200).find_map(|number| Some((number, write_durably(&mounted, number).err()?)));
    let (durable, error) = failed.unwrap();
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "file {durable}: {error}");
    assert!(durable > 10, "{durable} files");
    let state = mounted.stats()["state"].clone();
    assert_eq!(state["is"], "device-full", "{state}");
    assert!(state["why"].as_str().unwrap().contains("the disk under the volume is full"), "{state}");
    assert!(state["since"].as_i64().unwrap() > 1_600_000_000, "{state}");
    let text = betrfs().arg("stats").arg(&mounted.dir).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("state        device-full for "), "{text}");
    assert_eq!(mounted.log().matches("the disk under the volume is full").count(), 1, "{}", mounted.log());
    assert!(fs::read(mounted.path("f0")).unwrap() == contents(0), "reading goes on");

    disk.grow_to("200M");
    write_durably(&mounted, durable).unwrap();
    write_durably(&mounted, durable + 1).unwrap();
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
    mounted.mount();
    for number in 0..durable + 2 {
        assert!(fs::read(mounted.path(format!("f{number}"))).unwrap() == contents(number), "f{number}");
    }
    mounted.umount();
}

#[test]
fn a_rescue_to_a_full_disk_says_how_far_it_has_come() {
    let mounted = Mounted::new();
    for number in 0..4 {
        fs::write(mounted.path(format!("f{number}")), contents(number)).unwrap();
    }
    mounted.umount();
    let disk = Disk::of_size(mounted.volume.with_file_name("disk"), "2M");
    let target = disk.0.join("rescued");
    let told = betrfs().arg("rescue").arg(&mounted.volume).arg(&target).output().unwrap();
    let words = [target.to_str().unwrap(), "No space left on device", "objects are there so far"];
    refused(&told, &words);
}

#[test]
fn deletes_and_a_trim_give_a_full_disk_room_again() {
    let (mounted, _disk) = mounted_on_a_small_disk();
    let durable = (0..200).find(|number| write_durably(&mounted, *number).is_err()).unwrap();
    (1..=durable).for_each(|number| fs::remove_file(mounted.path(format!("f{number}"))).unwrap());
    ok(&betrfs().arg("trim").arg(&mounted.dir).output().unwrap());
    (1..durable / 2).for_each(|number| write_durably(&mounted, number).unwrap());
    assert!(fs::read(mounted.path("f0")).unwrap() == contents(0));
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

/// Takes every free byte of a disk.
fn fill(disk: &Disk) -> PathBuf {
    let path = disk.0.join("ballast");
    let mut ballast = File::create(&path).unwrap();
    let (large, small) = (vec![1; 1 << 20], vec![1; 4096]);
    while ballast.write_all(&large).is_ok() {}
    while ballast.write_all(&small).is_ok() {}
    assert_eq!(free_bytes(disk), 0);
    path
}

fn free_bytes(disk: &Disk) -> u64 {
    let found = rustix::fs::statvfs(&disk.0).unwrap();
    found.f_bavail * found.f_frsize
}

fn told(mounted: &Mounted, command: &str) {
    ok(&betrfs().arg(command).arg(&mounted.dir).output().unwrap());
}

/// What was accepted can be written, and deletes give room back, although nothing else can.
#[test]
fn a_disk_without_a_free_byte_is_left_by_rm_and_trim() {
    let (mounted, disk) = mounted_on_a_small_disk();
    let durable = (0..200).find(|number| write_durably(&mounted, *number).is_err()).unwrap();
    let _ = fs::remove_file(mounted.path(format!("f{durable}")));
    fill(&disk);
    told(&mounted, "sync");
    mounted.umount();
    mounted.mount();
    (1..durable / 2).for_each(|number| fs::remove_file(mounted.path(format!("f{number}"))).unwrap());
    told(&mounted, "sync");
    told(&mounted, "trim");
    assert!(free_bytes(&disk) > durable / 4 * FILE_BYTES as u64, "{} bytes came back", free_bytes(&disk));
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
    mounted.mount();
    (durable / 2..durable).chain([0]).for_each(|number| {
        assert!(fs::read(mounted.path(format!("f{number}"))).unwrap() == contents(number), "f{number}");
    });
    write_durably(&mounted, 1).unwrap();
    mounted.umount();
}

/// Another program takes the room while data is in memory alone.
#[test]
fn a_disk_that_others_fill_refuses_nothing_that_was_accepted() {
    let (mounted, disk) = mounted_on_a_small_disk();
    disk.grow_to("120M");
    write_durably(&mounted, 0).unwrap();
    (1..12).for_each(|number| fs::write(mounted.path(format!("f{number}")), contents(number)).unwrap());
    let ballast = fill(&disk);
    told(&mounted, "sync");
    let refused = (12..100).find_map(|number| write_durably(&mounted, number).err()).unwrap();
    assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{refused}");
    assert_eq!(mounted.stats()["state"]["is"], "device-full");
    fs::remove_file(mounted.path("f1")).unwrap();
    mounted.umount();
    mounted.mount();
    (2..12).for_each(|number| {
        assert!(fs::read(mounted.path(format!("f{number}"))).unwrap() == contents(number), "f{number}");
    });
    fs::remove_file(ballast).unwrap();
    write_durably(&mounted, 200).unwrap();
    assert_eq!(mounted.stats()["state"]["is"], "writable");
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}
