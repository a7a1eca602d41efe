//! Listing every name of the tree.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use bench_harness::tool;

use super::Workload;
use super::seen::Seen;
use crate::tree::Tree;

/// A cold `find` over the tree.
pub struct Find<'t> {
    /// The tree.
    pub tree: &'t Tree,
    /// The number of names found.
    pub seen: Seen,
}

impl Workload for Find<'_> {
    fn name(&self) -> &'static str {
        "find"
    }

    fn about(&self) -> String {
        "find every name of the tree, cold".into()
    }

    fn writes(&self) -> bool {
        false
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        let root = dir.join("tree");
        std::fs::create_dir(&root)?;
        self.tree.unpack(&root)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        self.seen.note(tool::count_lines(Command::new("find").arg(dir.join("tree")), None)?);
        Ok(())
    }

    fn check_run(&self, _dir: &Path) -> Result<()> {
        // The directory that holds the tree is not one of its entries.
        self.seen.ensure_all(self.tree.entries()? + 1, "names")
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let found = tool::count_lines(Command::new("find").arg(dir.join("tree")), None)?;
        // The directory that holds the tree is not one of its entries.
        let expected = self.tree.entries()? + 1;
        ensure!(found == expected, "it found {found} names of {expected}");
        Ok(())
    }
}
