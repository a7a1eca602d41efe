//! Volumes by several devices: what lies below something in use is not written.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::OFlags;

use crate::mounted::{Mounted, betrfs, ok, refused};

/// A loop device, detached at the end.
struct Loop(PathBuf);

impl Loop {
    /// One that shows a part of a file, in MiB.
    fn of(file: &Path, from: u64, len: u64) -> Loop {
        let mut losetup = Command::new("losetup");
        losetup.args([
            "--find",
            "--show",
            "--offset",
            &format!("{from}MiB"),
            "--sizelimit",
            &format!("{len}MiB"),
        ]);
        let output = losetup.arg(file).output().unwrap();
        ok(&output);
        Loop(String::from_utf8(output.stdout).unwrap().trim().into())
    }

    /// Has the kernel keep others from the device, as a mount of it does.
    fn claim(&self) -> File {
        let flags = OFlags::EXCL.bits().cast_signed();
        File::options().read(true).custom_flags(flags).open(&self.0).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

fn mkfs(path: &Path) -> Output {
    betrfs().args(["mkfs", "-f", "--quiet"]).arg(path).output().unwrap()
}

#[test]
fn a_device_above_a_part_of_a_mounted_volumes_file_is_not_written() {
    let mounted = Mounted::new();
    std::fs::write(mounted.path("file"), b"kept").unwrap();
    let part = Loop::of(&mounted.volume, 1, 256);
    refused(&mkfs(&part.0), &["is in use"]);
    let repair = betrfs().args(["check", "-y"]).arg(&part.0).output().unwrap();
    assert!(!repair.status.success());
    mounted.umount();
    mounted.mount();
    assert_eq!(std::fs::read(mounted.path("file")).unwrap(), b"kept");
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
    // Nothing uses the file any more.
    ok(&mkfs(&part.0));
}

#[test]
fn a_file_of_which_a_part_is_mounted_is_not_written() {
    let mounted = Mounted::unmounted();
    let part = Loop::of(&mounted.volume, 1, 256);
    ok(&mkfs(&part.0));
    ok(&betrfs().arg("mount").arg(&part.0).arg(&mounted.dir).output().unwrap());
    std::fs::write(mounted.path("file"), b"kept").unwrap();
    refused(&mkfs(&mounted.volume), &["is in use"]);
    assert_eq!(std::fs::read(mounted.path("file")).unwrap(), b"kept");
    mounted.umount();
    ok(&betrfs().arg("check").arg(&part.0).output().unwrap());
    ok(&mkfs(&mounted.volume));
}

/// As another file system's that is mounted there.
#[test]
fn parts_of_a_file_that_the_kernel_uses_are_not_written_and_others_are() {
    let mounted = Mounted::unmounted();
    let (first, within, behind) = (
        Loop::of(&mounted.volume, 0, 300),
        Loop::of(&mounted.volume, 200, 200),
        Loop::of(&mounted.volume, 300, 200),
    );
    let claimed = first.claim();
    // Each waits for a moment, as a server may be closing its volume.
    let started = [&within.0, &mounted.volume].map(|path| {
        let mut mkfs = betrfs();
        mkfs.args(["mkfs", "-f", "--quiet"]).arg(path).stderr(Stdio::piped()).spawn().unwrap()
    });
    ok(&mkfs(&behind.0));
    for child in started {
        refused(&child.wait_with_output().unwrap(), &["is in use"]);
    }
    drop(claimed);
    ok(&mkfs(&within.0));
    ok(&mkfs(&mounted.volume));
}
