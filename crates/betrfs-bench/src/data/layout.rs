//! Files in a balanced tree.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Numbered files in directories with a maximum number of entries, all files at one depth.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The number of files.
    pub files: u64,
    /// The most entries of a directory; at least 2.
    pub fanout: u64,
}

impl Layout {
    /// The number of directories with files.
    pub fn leaves(&self) -> u64 {
        self.files.div_ceil(self.fanout).max(1)
    }

    /// Levels of directories above the files.
    fn levels(&self) -> u32 {
        let (mut levels, mut reached) = (0, 1);
        while reached < self.leaves() {
            reached *= self.fanout;
            levels += 1;
        }
        levels
    }

    /// A directory with files, by its number.
    pub fn leaf(&self, number: u64) -> PathBuf {
        let digits = (0..self.levels()).rev().map(|level| number / self.fanout.pow(level) % self.fanout);
        digits.map(|digit| format!("d{digit:03}")).collect()
    }

    /// A file, by its number: near numbers are in one directory.
    pub fn file(&self, number: u64) -> PathBuf {
        self.leaf(number / self.fanout).join(format!("f{number:07}"))
    }

    /// Makes all directories.
    pub fn make_dirs(&self, root: &Path) -> Result<()> {
        for leaf in 0..self.leaves() {
            std::fs::create_dir_all(root.join(self.leaf(leaf)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn no_directory_has_more_entries_than_the_fanout() {
        for files in [1, 4, 5, 16, 17, 64, 65, 1000] {
            let layout = Layout { files, fanout: 4 };
            let mut entries: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
            let paths: BTreeSet<PathBuf> = (0..files).map(|number| layout.file(number)).collect();
            assert_eq!(paths.len() as u64, files);
            let depths: BTreeSet<usize> = paths.iter().map(|path| path.components().count()).collect();
            assert_eq!(depths.len(), 1, "all files are at one depth");
            for path in &paths {
                for at in path.ancestors() {
                    if let Some(parent) = at.parent() {
                        entries.entry(parent.to_owned()).or_default().insert(at.to_owned());
                    }
                }
            }
            let most = entries.values().map(BTreeSet::len).max();
            assert!(most.unwrap() <= 4, "{files} files: {most:?} entries");
        }
    }

    #[test]
    fn near_files_are_together() {
        let layout = Layout { files: 1_000_000, fanout: 128 };
        assert_eq!(layout.file(127).parent(), layout.file(0).parent());
        assert_ne!(layout.file(128).parent(), layout.file(127).parent());
        assert_eq!(layout.file(999_999), Path::new("d061/d004/f0999999"));
    }
}
