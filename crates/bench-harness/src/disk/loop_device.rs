//! A file as a block device, by the kernel's loop driver.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Counters;
use crate::output::tell;
use crate::teardown::Teardown;
use crate::tool;

/// The unit of a block device's statistics.
const SECTOR_BYTES: u64 = 512;

/// A loop device with direct I/O, freed when it is dropped.
pub struct LoopDevice {
    path: PathBuf,
    name: String,
    teardown: Teardown,
}

impl LoopDevice {
    /// A loop device on a file.
    ///
    /// # Errors
    /// Those of `losetup`.
    pub fn attach(file: &Path, teardown: &Teardown) -> Result<LoopDevice> {
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]).arg(file);
        let path = PathBuf::from(tool::run(&mut attach)?.trim());
        teardown.attached(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let device = LoopDevice { path, name, teardown: teardown.clone() };
        // A discard would free blocks of the file, and the next write would pay for allocating them.
        device.set("discard_max_bytes", "0")?;
        Ok(device)
    }

    /// The path of the block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets an attribute of its queue.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(&self, attribute: &str, value: &str) -> Result<()> {
        let path = format!("/sys/block/{}/queue/{attribute}", self.name);
        std::fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))
    }

    /// Its counters.
    ///
    /// # Errors
    /// As for [`counters`].
    pub fn counters(&self) -> Result<Counters> {
        counters(&self.path)
    }
}

/// The kernel's counters of a block device.
///
/// # Errors
/// The device is gone.
pub fn counters(device: &Path) -> Result<Counters> {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat"))?;
    let column = |number: usize| -> Result<u64> {
        let field = stat.split_ascii_whitespace().nth(number);
        Ok(field.context("the statistics of a block device are short")?.parse()?)
    };
    Ok(Counters {
        reads: column(0)?,
        writes: column(4)?,
        flushes: column(15)?,
        read_bytes: column(2)? * SECTOR_BYTES,
        write_bytes: column(6)? * SECTOR_BYTES,
        seeks: None,
    })
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        match tool::run(Command::new("losetup").arg("-d").arg(&self.path)) {
            Ok(_) => self.teardown.detached(&self.path),
            Err(error) => tell(format_args!("betrfs-bench: {}: {error:#}", self.path.display())),
        }
    }
}
