//! The disk that all systems use in turn: a block device with counters.

pub mod emulated;
pub mod loop_device;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::teardown::Teardown;
use emulated::EmulatedDisk;
use loop_device::LoopDevice;

/// The kernel's readahead on the emulated disk: that of a mount of BetrFS.
const READ_AHEAD_KIB: &str = "1024";

/// A kind of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// The disk under the directory of --dir, as it is
    Fast,
    /// An emulated 7200 rpm disk
    Hdd,
}

/// Requests to a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Moves of the head, on a disk that has one.
    pub seeks: Option<u64>,
}

impl Counters {
    /// The counters since an earlier time.
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
pub struct Disk {
    // Dropped before the disk that it stands on.
    device: LoopDevice,
    emulated: Option<EmulatedDisk>,
    size_bytes: u64,
}

impl Disk {
    /// A disk of a kind and a size, with its files in a directory.
    ///
    /// # Errors
    /// Its files or devices cannot be made.
    pub fn new(kind: DiskKind, scratch: &Path, size_bytes: u64, teardown: &Teardown) -> Result<Disk> {
        match kind {
            DiskKind::Fast => {
                let image = scratch.join("image");
                preallocate(&image, size_bytes)?;
                let device = LoopDevice::attach(&image, teardown)?;
                Ok(Disk { device, emulated: None, size_bytes })
            }
            DiskKind::Hdd => {
                let emulated = EmulatedDisk::start(scratch, size_bytes, teardown)?;
                let device = LoopDevice::attach(&emulated.file(), teardown)?;
                device.set("rotational", "1")?;
                device.set("scheduler", "mq-deadline")?;
                // Its answers come a little later than a drive's, because of its server; more readahead makes
                // up for that.
                device.set("read_ahead_kb", READ_AHEAD_KIB)?;
                Ok(Disk { device, emulated: Some(emulated), size_bytes })
            }
        }
    }

    /// The path of the block device.
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// The counters so far; those of an emulated disk are the drive's own.
    ///
    /// # Errors
    /// The disk does not answer.
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

    /// Starts or ends fast-forward on an emulated disk: work that is not measured does not take a drive's
    /// time, and lies on the disk as it would.
    ///
    /// # Errors
    /// The disk does not answer.
    pub fn set_fast_forward(&self, on: bool) -> Result<()> {
        self.emulated.as_ref().map_or(Ok(()), |emulated| emulated.set_fast_forward(on))
    }

    /// The number of requests in fast-forward so far; `None` on a disk that is not emulated.
    ///
    /// # Errors
    /// The disk does not answer.
    pub fn fast_forwarded_requests(&self) -> Result<Option<u64>> {
        self.emulated.as_ref().map(|emulated| Ok(emulated.counters()?.fast_forwarded)).transpose()
    }

    /// Discards the contents of an emulated disk. The image of another stays allocated: its next writes would
    /// pay for blocks.
    ///
    /// # Errors
    /// The disk does not answer.
    pub fn discard_all(&self) -> Result<()> {
        self.emulated.as_ref().map_or(Ok(()), |emulated| emulated.discard_all(self.size_bytes))
    }
}

/// Makes a file of `bytes` with every block written once: later writes need no allocation by the file system
/// beneath.
fn preallocate(path: &Path, bytes: u64) -> Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut file = File::create(path)?;
    for _ in 0..bytes >> 20 {
        file.write_all(&zeros)?;
    }
    file.sync_all().with_context(|| format!("cannot write {}", path.display()))
}
