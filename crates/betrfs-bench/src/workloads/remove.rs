//! Removing the tree.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use bench_harness::tool;

use super::Workload;
use crate::tree::Tree;

const ROOT: &str = "tree";

/// A cold `rm -rf` of the tree.
pub struct Remove<'t> {
    /// The tree.
    pub tree: &'t Tree,
}

impl Workload for Remove<'_> {
    fn name(&self) -> &'static str {
        "remove"
    }

    fn about(&self) -> String {
        "rm -rf the tree, cold".into()
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        let root = dir.join(ROOT);
        std::fs::create_dir(&root)?;
        self.tree.unpack(&root)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        tool::run(Command::new("rm").arg("-rf").arg(dir.join(ROOT))).map(drop)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        ensure!(!dir.join(ROOT).try_exists()?, "the tree is still there");
        Ok(())
    }
}
