//! Listing every name of the tree.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use bench_harness::tool;

use super::Workload;
use super::seen::Seen;
use crate::tree::Tree;

/// `find` over the tree, cold.
pub struct Find<'t> {
    /// Where it looks.
    pub tree: &'t Tree,
    /// How many names it found.
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
        // The directory that it was unpacked into is none of its entries.
        self.seen.ensure_all(self.tree.entries()? + 1, "names")
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let found = tool::count_lines(Command::new("find").arg(dir.join("tree")), None)?;
        // The directory that it was unpacked into is none of its entries.
        let expected = self.tree.entries()? + 1;
        ensure!(found == expected, "it found {found} names of {expected}");
        Ok(())
    }
}
