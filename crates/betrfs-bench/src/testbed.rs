//! A disk, and the contenders that have it in turn.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::contender::{Betrfs, Contender, Kernel, Peer};
use crate::store::{Disk, Store};
use crate::teardown::Teardown;

/// What must stay free beside the disk's image: for the tree's archive and the repositories.
const SPARE_BYTES: u64 = 2 << 30;

/// What a testbed is made of.
pub struct Parts<'a> {
    /// What kind of disk.
    pub disk: Disk,
    /// Who is compared with.
    pub peers: &'a [Peer],
    /// The binary `betrfs`.
    pub binary: PathBuf,
    /// Where its files are.
    pub scratch: &'a Path,
    /// Who undoes it.
    pub teardown: &'a Teardown,
}

/// A disk of a size and the contenders on it.
pub struct Testbed {
    /// Who has it in turn.
    pub contenders: Vec<Box<dyn Contender>>,
    /// The disk.
    pub store: Rc<Store>,
    size_bytes: u64,
    // Gone when all else is.
    _files: TempDir,
}

impl Parts<'_> {
    /// Makes one, or takes that of before if its disk has the size.
    pub fn testbed(&self, before: Option<Testbed>, size_bytes: u64) -> Result<Testbed> {
        if let Some(before) = before.filter(|before| before.size_bytes == size_bytes) {
            return Ok(before);
        }
        let files = tempfile::tempdir_in(self.scratch)?;
        let store = Rc::new(Store::new(self.disk, files.path(), size_bytes, self.teardown)?);
        let mut contenders: Vec<Box<dyn Contender>> = Vec::new();
        for peer in self.peers {
            contenders.push(Box::new(Kernel::new(*peer, files.path(), &store, self.teardown)?));
        }
        contenders.push(Box::new(Betrfs::new(files.path(), &store, self.binary.clone(), self.teardown)?));
        Ok(Testbed { contenders, store, size_bytes, _files: files })
    }
}

/// Checks that there is room for a disk's image.
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
