//! Unpacking the tree.

use std::path::Path;

use anyhow::Result;

use super::Workload;
use crate::tree::Tree;

/// `tar -x` of the tree, with its archive in memory.
pub struct Unpack<'t> {
    /// The tree.
    pub tree: &'t Tree,
}

impl Workload for Unpack<'_> {
    fn name(&self) -> &'static str {
        "unpack"
    }

    fn about(&self) -> String {
        "unpack the tree with tar".into()
    }

    fn writes(&self) -> bool {
        true
    }

    fn warm(&self) -> Result<()> {
        self.tree.warm()
    }

    fn run(&self, dir: &Path) -> Result<()> {
        self.tree.unpack(dir)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.tree.compare(dir)
    }
}
