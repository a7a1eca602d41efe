//! A disk, and the systems that use it in turn.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use bench_harness::disk::{Disk, DiskKind};
use bench_harness::teardown::Teardown;
use tempfile::TempDir;

use crate::system::{Betrfs, Kernel, Peer, System};

/// Space that must stay free beside the image, for the tree's archive and the repositories.
const SPARE_BYTES: u64 = 2 << 30;

/// The parts of a testbed.
pub struct Parts<'a> {
    /// The kind of disk.
    pub disk: DiskKind,
    /// The file systems to compare with.
    pub peers: &'a [Peer],
    /// The binary `betrfs`.
    pub binary: PathBuf,
    /// The directory of its files.
    pub scratch: &'a Path,
    /// Cleans up.
    pub teardown: &'a Teardown,
}

/// A disk of a size and the systems on it.
pub struct Testbed {
    /// They use the disk in turn.
    pub systems: Vec<Box<dyn System>>,
    /// The disk.
    pub disk: Rc<Disk>,
    size_bytes: u64,
    // Dropped last.
    _files: TempDir,
}

impl Parts<'_> {
    /// Makes a testbed, or returns `before` if its disk has the size.
    pub fn testbed(&self, before: Option<Testbed>, size_bytes: u64) -> Result<Testbed> {
        if let Some(before) = before.filter(|before| before.size_bytes == size_bytes) {
            return Ok(before);
        }
        let files = tempfile::tempdir_in(self.scratch)?;
        let disk = Rc::new(Disk::new(self.disk, files.path(), size_bytes, self.teardown)?);
        let mut systems: Vec<Box<dyn System>> = Vec::new();
        for peer in self.peers {
            systems.push(Box::new(Kernel::new(*peer, files.path(), &disk, self.teardown)?));
        }
        systems.push(Box::new(Betrfs::new(files.path(), &disk, self.binary.clone(), self.teardown)?));
        Ok(Testbed { systems, disk, size_bytes, _files: files })
    }
}

/// Checks that there is room for the image of a disk.
///
/// # Errors
/// There is too little.
pub fn ensure_room(scratch: &Path, workload: &str, size_bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(scratch).with_context(|| format!("cannot ask {}", scratch.display()))?;
    let (free_bytes, needed_bytes) = (stat.f_bavail * stat.f_frsize, size_bytes + SPARE_BYTES);
    ensure!(
        free_bytes >= needed_bytes,
        "{workload} needs {} MiB where the backing files live, and {} MiB are free: choose another place with \
         --dir, or other workloads",
        needed_bytes >> 20,
        free_bytes >> 20
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_has_no_room_is_refused_with_what_it_needs() {
        let dir = tempfile::tempdir().unwrap();
        ensure_room(dir.path(), "small", 0).unwrap();
        let error = ensure_room(dir.path(), "huge", 1 << 60).unwrap_err().to_string();
        assert!(error.starts_with("huge needs 1099511629824 MiB"), "{error}");
    }
}
