//! A file system under test: made, mounted, made cold, unmounted, and asked what it did.

mod betrfs;
mod ext4;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

pub use betrfs::Betrfs;
pub use ext4::Ext4;

/// What a file system has done since it was mounted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// CPU time of its server's process, if it has one.
    pub server_cpu_seconds: f64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Bytes written to the device.
    pub device_write_bytes: u64,
    /// Kernel requests to its server by kind, if it has one.
    pub requests: BTreeMap<String, u64>,
}

impl Usage {
    /// What came after an earlier moment of the same mount.
    pub fn since(&self, earlier: &Usage) -> Usage {
        let before = |kind: &String| earlier.requests.get(kind).copied().unwrap_or(0);
        let counts =
            self.requests.iter().map(|(kind, count)| (kind.clone(), count.saturating_sub(before(kind))));
        Usage {
            server_cpu_seconds: self.server_cpu_seconds - earlier.server_cpu_seconds,
            device_read_bytes: self.device_read_bytes.saturating_sub(earlier.device_read_bytes),
            device_write_bytes: self.device_write_bytes.saturating_sub(earlier.device_write_bytes),
            requests: counts.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// A file system under test. Only one is mounted at a time, so that none works while another is timed.
pub trait Contender {
    /// Its name in the tables.
    fn name(&self) -> &'static str;

    /// The directory on which it is mounted.
    fn dir(&self) -> &Path;

    /// Makes it anew: empty, not mounted.
    fn format(&self) -> Result<()>;

    /// Mounts it.
    fn mount(&self) -> Result<()>;

    /// Unmounts it, if it is mounted; everything is on the device then.
    fn unmount(&self) -> Result<()>;

    /// Makes everything that was written so far durable.
    fn sync(&self) -> Result<()>;

    /// What it has done since it was mounted.
    fn usage(&self) -> Result<Usage>;

    /// Mounts it with nothing of it in memory.
    fn mount_cold(&self) -> Result<()> {
        self.unmount()?;
        std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the kernel's caches")?;
        self.mount()
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
