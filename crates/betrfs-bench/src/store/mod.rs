//! The disk that all contenders use in turn: a block device, and what was asked of it.

pub mod emulated;
pub mod loop_device;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::teardown::Teardown;
use emulated::Emulated;
use loop_device::LoopDevice;

/// How far the kernel reads ahead on the emulated disk: as far as BetrFS has it read ahead.
const READ_AHEAD_KIB: &str = "1024";

/// What kind of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Disk {
    /// The disk under the directory of --dir, as it is
    Fast,
    /// An emulated 7200 rpm disk
    Hdd,
}

/// What a disk was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests to read.
    pub reads: u64,
    /// Requests to write.
    pub writes: u64,
    /// Requests to empty the write cache.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// How often the head moved, if there is one.
    pub seeks: Option<u64>,
}

impl Counters {
    /// What came after an earlier moment.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            seeks: self.seeks.zip(earlier.seeks).map(|(now, then)| now - then),
        }
    }
}

/// A disk as a block device.
pub struct Store {
    // The device goes before what it stands on.
    device: LoopDevice,
    emulated: Option<Emulated>,
    size_bytes: u64,
}

impl Store {
    /// A disk of a size, whose files are in a directory.
    pub fn new(disk: Disk, scratch: &Path, size_bytes: u64, teardown: &Teardown) -> Result<Store> {
        match disk {
            Disk::Fast => {
                let image = scratch.join("image");
                preallocate(&image, size_bytes)?;
                let device = LoopDevice::attach(&image, teardown)?;
                Ok(Store { device, emulated: None, size_bytes })
            }
            Disk::Hdd => {
                let emulated = Emulated::start(scratch, size_bytes, teardown)?;
                let device = LoopDevice::attach(&emulated.disk(), teardown)?;
                device.set("rotational", "1")?;
                device.set("scheduler", "mq-deadline")?;
                // Its answers come a little later than a drive's, by the way through its server: more
                // is on the way meanwhile.
                device.set("read_ahead_kb", READ_AHEAD_KIB)?;
                Ok(Store { device, emulated: Some(emulated), size_bytes })
            }
        }
    }

    /// Its block device.
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// What it was asked so far: of a drive, what reached the drive.
    pub fn counters(&self) -> Result<Counters> {
        let Some(emulated) = &self.emulated else { return self.device.counters() };
        let drive = emulated.counters()?;
        Ok(Counters {
            reads: drive.reads,
            writes: drive.writes,
            flushes: drive.flushes,
            read_bytes: drive.read_bytes,
            write_bytes: drive.write_bytes,
            seeks: Some(drive.seeks),
        })
    }

    /// From now on, has a drive that is emulated make haste, or no longer: what is not measured need not take a
    /// drive's time, and lies on it as it would.
    pub fn set_in_haste(&self, in_haste: bool) -> Result<()> {
        self.emulated.as_ref().map_or(Ok(()), |emulated| emulated.set_in_haste(in_haste))
    }

    /// How many requests a drive that is emulated was asked in haste so far; `None` where there is none.
    pub fn hasty_requests(&self) -> Result<Option<u64>> {
        self.emulated.as_ref().map(|emulated| Ok(emulated.counters()?.hasty)).transpose()
    }

    /// Gives back the room that its contents take, where that costs nothing later.
    pub fn forget(&self) -> Result<()> {
        self.emulated.as_ref().map_or(Ok(()), |emulated| emulated.forget(self.size_bytes))
    }
}

/// Makes a file of `bytes` with every block written once, so that writing it again asks nothing of
/// the file system beneath.
fn preallocate(path: &Path, bytes: u64) -> Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut file = File::create(path)?;
    for _ in 0..bytes >> 20 {
        file.write_all(&zeros)?;
    }
    file.sync_all().with_context(|| format!("cannot write {}", path.display()))
}
