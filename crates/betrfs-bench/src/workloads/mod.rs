//! The workloads, one a file.

mod create;
mod find;
mod grep;
mod random_write;
mod sequential;
mod unpack;

pub use sequential::fill;

use std::path::Path;

use anyhow::Result;

use crate::Scale;
use crate::tree::Tree;

/// Something to do on a file system, which is timed.
pub trait Workload {
    /// Its name on the command line and in the tables.
    fn name(&self) -> &'static str;

    /// What it does, in a line.
    fn about(&self) -> String;

    /// Whether it changes the file system: then each round has a new one, and its time includes the
    /// sync that makes everything durable.
    fn writes(&self) -> bool;

    /// What must be there before; not timed, and cold when the time begins.
    fn prepare(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    /// Brings its input from elsewhere into memory; not timed.
    fn warm(&self) -> Result<()> {
        Ok(())
    }

    /// Does it. What this takes is the figure.
    fn run(&self, dir: &Path) -> Result<()>;

    /// Checks, on a cold mount, what it has written or found; not timed.
    fn check(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    /// How large the disk must be.
    fn disk_bytes(&self) -> u64 {
        4 << 30
    }

    /// How much memory client, server and page cache have together.
    fn memory_bytes(&self) -> u64 {
        2 << 30
    }
}

/// All workloads.
pub fn all(scale: Scale, tree: &Tree) -> Vec<Box<dyn Workload + '_>> {
    vec![
        Box::new(unpack::Unpack { tree }),
        Box::new(find::Find { tree }),
        Box::new(grep::Grep { tree }),
        Box::new(create::Create { dirs: scale.pick(10, 100), files_per_dir: scale.pick(50, 1000) }),
        Box::new(random_write::RandomWrite {
            file_mib: scale.pick(16, 1024),
            writes: scale.pick(200, 10_000),
        }),
        Box::new(sequential::Write { mib: scale.pick(16, 1024) }),
        Box::new(sequential::Read { mib: scale.pick(16, 1024) }),
    ]
}
