//! File systems under test: they are made, mounted, made cold, unmounted, and report their work.

mod betrfs;
mod kernel;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use bench_harness::machine::drop_caches;
use serde::{Deserialize, Serialize};

pub use betrfs::Betrfs;
pub use kernel::{Kernel, Peer};

/// The name of the system that all others are the peers of.
pub const OURS: &str = "BetrFS";

/// The work of a file system's server since it was mounted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Kernel requests by kind.
    pub requests: BTreeMap<String, u64>,
    /// Queries and scans of the tree.
    pub tree_queries: u64,
}

impl Work {
    /// The work since an earlier time of the same mount.
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

/// A file system under test. Only one is on the disk at a time.
pub trait System {
    /// The name in tables.
    fn name(&self) -> &'static str;

    /// The mount point.
    fn dir(&self) -> &Path;

    /// Makes a new, empty file system and does not mount it.
    fn format(&self) -> Result<()>;

    /// Mounts it.
    fn mount(&self) -> Result<()>;

    /// Unmounts it, if it is mounted; then everything is on the device.
    fn unmount(&self) -> Result<()>;

    /// Makes everything durable that was written so far.
    fn sync(&self) -> Result<()>;

    /// The work of its server since it was mounted, if it has one.
    fn work(&self) -> Result<Option<Work>>;

    /// The used space.
    fn used_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(self.dir())?;
        Ok(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize)
    }

    /// Mounts it anew, with cold caches.
    fn mount_cold(&self) -> Result<()> {
        self.unmount()?;
        drop_caches()?;
        self.mount()
    }
}
