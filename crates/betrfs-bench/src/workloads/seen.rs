//! The amount read by a reading workload: a run that read less than everything has no figure.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};

use crate::data::walk;

/// The amount read by the last run.
#[derive(Default)]
pub struct Seen(AtomicU64);

impl Seen {
    /// Notes the count of a run.
    pub fn note(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Fails if the last run read less than `expected`; `what` is the unit.
    pub fn ensure_all(&self, expected: u64, what: &str) -> Result<()> {
        let seen = self.0.load(Ordering::Relaxed);
        ensure!(seen >= expected, "it saw {seen} {what} of {expected}");
        Ok(())
    }
}

/// The bytes of all files below a directory, without those below entries named `except`.
pub fn content_bytes(dir: &Path, except: &str) -> Result<u64> {
    let mut bytes = 0;
    for name in walk(dir, except)? {
        let metadata = std::fs::symlink_metadata(dir.join(name))?;
        bytes += if metadata.is_file() { metadata.len() } else { 0 };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_saw_less_than_is_there_has_no_figure() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("left out")).unwrap();
        for name in ["one", "two", "left out/three"] {
            std::fs::write(dir.path().join(name), [7; 500]).unwrap();
        }
        let expected = content_bytes(dir.path(), "left out").unwrap();
        assert_eq!(expected, 1000);
        let seen = Seen::default();
        for (count, is_all) in [(0, false), (999, false), (1000, true), (1200, true)] {
            seen.note(count);
            assert_eq!(seen.ensure_all(expected, "bytes").is_ok(), is_all, "{count}");
        }
    }
}
