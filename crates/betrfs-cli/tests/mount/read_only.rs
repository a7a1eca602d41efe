//! Volumes that cannot be written: a mount and a check of them write nothing.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform};
use betrfs::{FileType, InodeId, NewNode, OpenOptions, Volume};
use rustix::io::Errno;

use crate::block_device::LoopDevice;
use crate::mounted::{Mounted, betrfs, ok, refused};

/// Makes a file that is in the log alone: the volume is left as by a crash.
fn log_file(path: &Path, name: &[u8], contents: &[u8]) {
    let options = OpenOptions::new(Arc::new(StdPlatform::new()));
    let volume = Volume::open(Arc::new(FileDevice::open(path).unwrap()), options).unwrap();
    let new = NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0, umask: 0 };
    volume.create_with(InodeId::ROOT, name, &new, contents).unwrap();
    volume.sync().unwrap();
    volume.env().abandon();
}

#[test]
fn a_volume_on_a_read_only_device_is_checked_and_mounted_as_by_its_log() {
    let mut mounted = Mounted::of_size("64M");
    let file = mounted.volume.clone();
    log_file(&file, b"logged", b"only in the log");
    let before = fs::read(&file).unwrap();
    let device = LoopDevice::read_only_on(&file);
    mounted.volume.clone_from(&device.0);
    ok(&betrfs().arg("check").arg(&device.0).output().unwrap());
    for volume in [&device.0, &file] {
        mounted.volume.clone_from(volume);
        ok(&mounted.try_mount(&["-o", "ro"]));
        assert_eq!(fs::read(mounted.path("logged")).unwrap(), b"only in the log");
        let refused = fs::write(mounted.path("new"), b"").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        mounted.umount();
        assert!(fs::read(&file).unwrap() == before, "{}: something was written", volume.display());
    }
}

/// A loop device that is set to read-only, which the kernel would keep for the next user of its number.
struct WriteProtected(LoopDevice);

impl WriteProtected {
    fn on(image: &Path) -> WriteProtected {
        let device = WriteProtected(LoopDevice::on(image));
        ok(&device.set("--setro"));
        device
    }

    fn set(&self, option: &str) -> std::process::Output {
        Command::new("blockdev").arg(option).arg(&self.0.0).output().unwrap()
    }
}

impl Drop for WriteProtected {
    fn drop(&mut self) {
        let _ = self.set("--setrw");
    }
}

/// Some kernels let root open such a device for writing, and refuse the first write.
#[test]
fn a_write_protected_device_is_refused_for_changes_by_that_reason() {
    let mut mounted = Mounted::of_size("64M");
    let file = mounted.volume.clone();
    let device = WriteProtected::on(&file);
    let before = fs::read(&file).unwrap();
    mounted.volume.clone_from(&device.0.0);
    refused(&mounted.try_mount(&[]), &["write-protected", "-o ro"]);
    for arguments in [&["mkfs", "--force"][..], &["label"]] {
        let mut command = betrfs();
        command.args(arguments).arg(&device.0.0);
        if arguments == ["label"] {
            command.arg("new");
        }
        refused(&command.output().unwrap(), &["write-protected"]);
    }
    ok(&mounted.try_mount(&["-o", "ro"]));
    mounted.umount();
    assert!(fs::read(&file).unwrap() == before);
}
