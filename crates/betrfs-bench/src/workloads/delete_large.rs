//! Deleting a large file.

use std::path::Path;

use anyhow::{Result, ensure};

use super::sequential::{fill, verify};
use super::{DISK_BYTES, DISK_BYTES_LARGE, Workload};

const NAME: &str = "large";
/// The file that stays.
const OTHER: &str = "other";
const OTHER_MIB: u64 = 1;

/// A cold `unlink` of a file that was written sequentially.
pub struct DeleteLarge {
    /// Its name.
    pub name: &'static str,
    /// The file's size in MiB.
    pub mib: u64,
}

impl Workload for DeleteLarge {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        format!("delete a file of {} MiB, cold", self.mib)
    }

    fn writes(&self) -> bool {
        true
    }

    fn disk_bytes(&self) -> u64 {
        // Twice the file: no file system is nearly full.
        if self.mib << 21 <= DISK_BYTES { DISK_BYTES } else { DISK_BYTES_LARGE }
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        fill(&dir.join(NAME), self.mib)?;
        fill(&dir.join(OTHER), OTHER_MIB)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        Ok(std::fs::remove_file(dir.join(NAME))?)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        ensure!(!dir.join(NAME).try_exists()?, "the file is still there");
        verify(&dir.join(OTHER), OTHER_MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_deleted_and_what_should_not_have_been_is_found() {
        let workload = DeleteLarge { name: "delete-large", mib: 2 };
        let dir = tempfile::tempdir().unwrap();
        workload.prepare(dir.path()).unwrap();
        assert!(workload.check(dir.path()).unwrap_err().to_string().contains("still there"));
        workload.run(dir.path()).unwrap();
        workload.check(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(OTHER)).unwrap();
        assert!(workload.check(dir.path()).is_err());
    }
}
