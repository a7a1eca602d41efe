//! A file system under test: made, mounted, made cold, unmounted, and asked what it did.

mod betrfs;
mod kernel;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use betrfs::Betrfs;
pub use kernel::{Kernel, Peer};

/// What the server of a file system has done since it was mounted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Kernel requests by kind.
    pub requests: BTreeMap<String, u64>,
    /// Queries and scans of the tree.
    pub tree_queries: u64,
}

impl Work {
    /// What came after an earlier moment of the same mount.
    pub fn since(&self, earlier: &Work) -> Work {
        let before = |kind: &String| earlier.requests.get(kind).copied().unwrap_or(0);
        let counts =
            self.requests.iter().map(|(kind, count)| (kind.clone(), count.saturating_sub(before(kind))));
        Work {
            requests: counts.filter(|(_, count)| *count > 0).collect(),
            tree_queries: self.tree_queries.saturating_sub(earlier.tree_queries),
        }
    }
}

/// Has the kernel forget what it has of files, as far as that is on the disk.
pub fn drop_caches() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the kernel's caches")
}

/// A file system under test. Only one is on the disk at a time.
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

    /// What its server has done since it was mounted, if it has one.
    fn work(&self) -> Result<Option<Work>>;

    /// How much of its space is used.
    fn used_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(self.dir())?;
        Ok(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize)
    }

    /// Mounts it with nothing of it in memory.
    fn mount_cold(&self) -> Result<()> {
        self.unmount()?;
        drop_caches()?;
        self.mount()
    }
}
