//! The disk of one database: an ext4 on a sparse image behind a loop device with direct I/O.
//!
//! Every engine has its files on such an ext4. The loop device counts the engine's reads and writes, those of
//! ext4's journal and metadata included.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use bench_harness::disk::loop_device::LoopDevice;
use bench_harness::teardown::{Teardown, detach};
use bench_harness::{machine, tool};

/// Makes an image of a size with an empty ext4 on it.
pub fn make(image: &Path, size_bytes: u64) -> Result<()> {
    let file = File::create(image)?;
    file.set_len(size_bytes)?;
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]).arg(image);
    tool::run(&mut mkfs)?;
    Ok(file.sync_all()?)
}

/// Copies an image; holes stay holes.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    tool::run(Command::new("cp").args(["--sparse=always", "--reflink=never"]).arg(from).arg(to))?;
    Ok(File::open(to)?.sync_all()?)
}

/// A mounted image; no cache held any of it before. Unmounted when dropped.
pub struct Mounted {
    device: LoopDevice,
    dir: PathBuf,
    teardown: Teardown,
}

impl Mounted {
    /// Mounts an image on a directory.
    pub fn new(image: &Path, dir: &Path, teardown: &Teardown) -> Result<Mounted> {
        machine::drop_caches()?;
        let device = LoopDevice::attach(image, teardown)?;
        teardown.will_mount(dir);
        let mounted = Mounted { device, dir: dir.to_owned(), teardown: teardown.clone() };
        tool::run(Command::new("mount").args(["-t", "ext4"]).arg(mounted.device()).arg(dir))?;
        Ok(mounted)
    }

    /// The loop device.
    pub fn device(&self) -> &Path {
        self.device.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if tool::run(Command::new("umount").arg(&self.dir)).is_err() {
            detach(&self.dir);
        }
        self.teardown.unmounted(&self.dir);
    }
}
