//! A volume on a whole block device: a loop device, as root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::mounted::{Mounted, betrfs, ok, refused, told};

/// A loop device, freed when it is dropped.
pub struct LoopDevice(pub PathBuf);

impl LoopDevice {
    /// One that reads and writes past the page cache.
    pub fn on(image: &Path) -> LoopDevice {
        LoopDevice::attach(&["--direct-io=on"], image)
    }

    /// One that cannot be written.
    pub fn read_only_on(image: &Path) -> LoopDevice {
        LoopDevice::attach(&["--read-only"], image)
    }

    fn attach(options: &[&str], image: &Path) -> LoopDevice {
        let mut attach = Command::new("losetup");
        let output = attach.args(["--find", "--show"]).args(options).arg(image).output().unwrap();
        assert!(output.status.success(), "losetup (only root may use it): {}", told(&output));
        LoopDevice(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The kernel frees a device in use at its last close.
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_made_mounted_and_checked_like_a_file() {
    let mut mounted = Mounted::of_size("256M");
    let device = LoopDevice::on(&mounted.volume);
    mounted.volume.clone_from(&device.0);
    let mkfs = |more: &[&str]| betrfs().arg("mkfs").arg(&device.0).args(more).output().unwrap();
    refused(&mkfs(&[]), &["BetrFS volume already", "--force"]);
    refused(&mkfs(&["--size", "128M", "--force"]), &["block device", "--size"]);
    let made = mkfs(&["--force", "--format", "json"]);
    ok(&made);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["size_bytes"], 256 << 20);

    mounted.mount();
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("dir/f"), vec![7; 20 << 20]).unwrap();
    refused(&mkfs(&["--force"]), &["in use"]);
    mounted.remount();
    assert!(fs::read(mounted.path("dir/f")).unwrap() == vec![7; 20 << 20]);
    // Its reads and writes went through the device.
    let stats = mounted.stats();
    assert!(stats["engine"]["device_read_bytes"].as_u64().unwrap() > 0);
    mounted.umount();
    ok(&betrfs().arg("check").arg(&device.0).output().unwrap());
}

#[test]
fn a_block_device_that_the_kernel_has_mounted_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (image, dir) = (temp.path().join("image"), temp.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let device = LoopDevice::on(&image);
    let made = Command::new("mkfs.ext4").arg("-q").arg(&device.0).output().unwrap();
    ok(&made);
    rustix::mount::mount(&device.0, &dir, c"ext4", MountFlags::empty(), None).unwrap();
    let mkfs = betrfs().arg("mkfs").arg(&device.0).arg("--force").output().unwrap();
    let busy = rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty());
    assert_ne!(busy, Err(Errno::BUSY), "its mount is still used");
    refused(&mkfs, &["in use"]);
}

/// A volume is the same by its file and by each loop device that shows the whole file.
#[test]
fn a_volume_in_use_is_refused_by_its_file_and_by_each_loop_device_of_it() {
    let mut mounted = Mounted::of_size("64M");
    let file = mounted.volume.clone();
    let [one, other] = [LoopDevice::on(&file), LoopDevice::on(&file)];
    let run = |arguments: &[&str], volume: &Path| betrfs().args(arguments).arg(volume).output().unwrap();
    let second = mounted.dir.with_file_name("second");
    fs::create_dir(&second).unwrap();
    for volume in [&file, &one.0] {
        mounted.volume.clone_from(volume);
        mounted.mount();
        fs::write(mounted.path("f"), b"kept").unwrap();
        for same in [&file, &one.0, &other.0] {
            let mount = || betrfs().arg("mount").arg(same).arg(&second).output().unwrap();
            refused(&mount(), &["in use"]);
            if same != volume {
                refused(&run(&["mkfs", "--force"], same), &["in use"]);
            }
            assert!(!run(&["check"], same).status.success());
        }
        mounted.umount();
        ok(&run(&["check"], &other.0));
    }
    // A device that shows a part of a file overlaps what has the whole of it.
    let part = LoopDevice::attach(&["--offset", "1048576"], &file);
    mounted.volume.clone_from(&file);
    mounted.mount();
    assert!(!run(&["probe"], &part.0).status.success());
    let told = told(&run(&["check"], &part.0));
    assert!(told.contains("in use"), "{told}");
    mounted.umount();
}
