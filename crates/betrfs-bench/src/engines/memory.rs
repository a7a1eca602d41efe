//! A limit on the memory of a process, its page cache included: a memory cgroup (version 1).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const MEMORY: &str = "/sys/fs/cgroup/memory";
const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";
const DIRTY_RATIO: &str = "/proc/sys/vm/dirty_ratio";

/// A cgroup with a limit. As long as it lives, the machine also keeps what is not written back yet
/// to a fifth of the limit: version 1 does not make a writer wait who fills his cgroup with that, but
/// kills him.
pub struct Limited {
    path: PathBuf,
    dirty_bytes_before: String,
    dirty_ratio_before: String,
}

impl Limited {
    /// A cgroup with a limit.
    pub fn new(limit_bytes: u64) -> Result<Limited> {
        if !Path::new(MEMORY).join("memory.limit_in_bytes").exists() {
            bail!("there are no memory cgroups of version 1 in {MEMORY}");
        }
        let read = |path: &str| -> Result<String> { Ok(std::fs::read_to_string(path)?.trim().to_owned()) };
        let limited = Limited {
            path: Path::new(MEMORY).join(format!("betrfs-bench-{}", std::process::id())),
            dirty_bytes_before: read(DIRTY_BYTES)?,
            dirty_ratio_before: read(DIRTY_RATIO)?,
        };
        std::fs::create_dir(&limited.path)?;
        let limit = limited.path.join("memory.limit_in_bytes");
        std::fs::write(&limit, limit_bytes.to_string())
            .with_context(|| format!("cannot set {}", limit.display()))?;
        std::fs::write(DIRTY_BYTES, (limit_bytes / 5).to_string())?;
        Ok(limited)
    }

    /// The cgroup's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Forgets what the cgroup holds of files, for the next process in it.
    pub fn clear(&self) -> Result<()> {
        Ok(std::fs::write(self.path.join("memory.force_empty"), "0")?)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // Of the two settings the kernel heeds the one that was set last.
        let (path, value) = match self.dirty_bytes_before.as_str() {
            "0" => (DIRTY_RATIO, &self.dirty_ratio_before),
            bytes => (DIRTY_BYTES, &bytes.to_owned()),
        };
        if let Err(error) = std::fs::write(path, value) {
            eprintln!("betrfs-bench: {path} could not be set to {value} again: {error}");
        }
        if let Err(error) = std::fs::remove_dir(&self.path) {
            eprintln!("betrfs-bench: {} stays: {error}", self.path.display());
        }
    }
}
