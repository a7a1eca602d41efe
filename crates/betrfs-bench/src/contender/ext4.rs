//! ext4 on an image file behind a loop device with direct I/O.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Contender, Usage, preallocate};
use crate::teardown::{Teardown, detach};
use crate::tool;

/// What the kernel counts a block device's bytes in.
const SECTOR_BYTES: u64 = 512;

/// ext4 with Debian's defaults, its tables written when it is made instead of in the background.
pub struct Ext4 {
    image: PathBuf,
    dir: PathBuf,
    device: String,
    teardown: Teardown,
}

impl Ext4 {
    /// An image of a size in a directory.
    pub fn new(scratch: &Path, size_bytes: u64, teardown: &Teardown) -> Result<Ext4> {
        let (image, dir) = (scratch.join("ext4.image"), scratch.join("ext4"));
        std::fs::create_dir(&dir)?;
        preallocate(&image, size_bytes)?;
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]).arg(&image);
        let device = tool::run(&mut attach)?.trim().to_owned();
        teardown.attached(&device);
        Ok(Ext4 { image, dir, device, teardown: teardown.clone() })
    }

    fn is_mounted(&self) -> Result<bool> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        Ok(mounts.lines().any(|line| line.split(' ').next() == Some(&self.device)))
    }
}

impl Contender for Ext4 {
    fn name(&self) -> &'static str {
        "ext4"
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn format(&self) -> Result<()> {
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]).arg(&self.device);
        tool::run(&mut mkfs).map(drop)
    }

    fn mount(&self) -> Result<()> {
        self.teardown.will_mount(&self.dir);
        tool::run(Command::new("mount").args(["-t", "ext4"]).arg(&self.device).arg(&self.dir)).map(drop)
    }

    fn unmount(&self) -> Result<()> {
        if self.is_mounted()? {
            tool::run(Command::new("umount").arg(&self.dir))?;
        }
        self.teardown.unmounted(&self.dir);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.dir)?)?)
    }

    fn usage(&self) -> Result<Usage> {
        let name = self.device.trim_start_matches("/dev/");
        let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        let sectors = |column: usize| -> Result<u64> {
            let field = stat.split_ascii_whitespace().nth(column).context("a short statistics file")?;
            Ok(field.parse::<u64>()? * SECTOR_BYTES)
        };
        Ok(Usage { device_read_bytes: sectors(2)?, device_write_bytes: sectors(6)?, ..Usage::default() })
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            detach(&self.dir);
        }
        match tool::run(Command::new("losetup").args(["-d", &self.device])) {
            Ok(_) => self.teardown.detached(&self.device),
            Err(error) => eprintln!("betrfs-bench: {} of {}: {error:#}", self.device, self.image.display()),
        }
    }
}
