//! Renaming a directory, by the number of files in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Workload;
use crate::data::{Layout, bytes, walk};

const FILE_BYTES: usize = 200;
const FANOUT: u64 = 128;
const FROM: &str = "from/old";
const TO: &str = "to/new";

/// A cold rename of a directory into another directory.
pub struct RenameDir {
    /// Its name.
    pub name: &'static str,
    /// The number of files below the directory.
    pub files: u64,
}

impl RenameDir {
    fn layout(&self) -> Layout {
        Layout { files: self.files, fanout: FANOUT }
    }
}

fn content(number: u64) -> Vec<u8> {
    bytes(number, 0, FILE_BYTES)
}

impl Workload for RenameDir {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let files = self.files;
        format!("rename a directory with {files} files of {FILE_BYTES} bytes into another, cold")
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        let (root, layout) = (dir.join(FROM), self.layout());
        fs::create_dir_all(&root)?;
        if let Some(parent) = Path::new(TO).parent() {
            fs::create_dir(dir.join(parent))?;
        }
        layout.make_dirs(&root)?;
        (0..self.files).try_for_each(|number| Ok(fs::write(root.join(layout.file(number)), content(number))?))
    }

    fn run(&self, dir: &Path) -> Result<()> {
        fs::rename(dir.join(FROM), dir.join(TO)).context("the directory cannot be renamed")
    }

    fn check(&self, dir: &Path) -> Result<()> {
        ensure!(!dir.join(FROM).try_exists()?, "the old name is still there");
        let (root, layout) = (dir.join(TO), self.layout());
        let mut expected = BTreeSet::new();
        for number in 0..self.files {
            let file = layout.file(number);
            let found =
                fs::read(root.join(&file)).with_context(|| format!("cannot read {}", file.display()))?;
            ensure!(found == content(number), "{} is wrong", file.display());
            let dirs = file.ancestors().filter(|path| !path.as_os_str().is_empty());
            expected.extend(dirs.map(PathBuf::from));
        }
        let found: BTreeSet<PathBuf> = walk(&root, "")?.into_iter().collect();
        ensure!(found == expected, "it has {} names instead of {}", found.len(), expected.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_not_renamed_or_lost_something_is_found() {
        for files in [1, 300] {
            let workload = RenameDir { name: "rename-dir", files };
            let dir = tempfile::tempdir().unwrap();
            workload.prepare(dir.path()).unwrap();
            assert!(workload.check(dir.path()).unwrap_err().to_string().contains("still there"));
            workload.run(dir.path()).unwrap();
            workload.check(dir.path()).unwrap();
            let extra = dir.path().join(TO).join("extra");
            fs::write(&extra, "").unwrap();
            assert!(workload.check(dir.path()).unwrap_err().to_string().contains("names instead of"));
            fs::remove_file(&extra).unwrap();
            fs::remove_file(dir.path().join(TO).join(workload.layout().file(files - 1))).unwrap();
            assert!(workload.check(dir.path()).unwrap_err().to_string().contains("cannot read"));
        }
    }
}
