//! Cloning the tree.

use std::path::Path;

use anyhow::{Result, ensure};
use bench_harness::machine::drop_caches;

use super::Workload;
use crate::cloner::Cloner;
use crate::data::{edits_of, ensure_same};
use crate::tree::Tree;

const SOURCE: &str = "source";
const CLONE: &str = "clone";
/// Per cent of the files that a check changes in the clone, to see that the source stays as it is.
const CHANGED_PERCENT: u64 = 5;

/// A cold clone of the tree.
pub struct CloneTree<'t> {
    /// Its name.
    pub name: &'static str,
    /// The tree.
    pub tree: &'t Tree,
    /// The means.
    pub cloner: Cloner,
}

impl Workload for CloneTree<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let btrfs = if self.cloner.has_snapshots { "by a snapshot on Btrfs, " } else { "" };
        format!("clone the tree, {btrfs}by copying on ext4, cold")
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.cloner.make_source(dir, SOURCE)?;
        self.tree.unpack(&dir.join(SOURCE))
    }

    fn warm(&self) -> Result<()> {
        self.cloner.warm()
    }

    fn run(&self, dir: &Path) -> Result<()> {
        self.cloner.clone_dir(&dir.join(SOURCE), &dir.join(CLONE))
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let (source, clone) = (dir.join(SOURCE), dir.join(CLONE));
        self.tree.compare(&source)?;
        ensure_same(&source, &clone)?;
        let edits: Vec<_> = edits_of(&clone, CHANGED_PERCENT)?.collect::<Result<_>>()?;
        for (name, text) in &edits {
            std::fs::write(clone.join(name), text)?;
        }
        // The kernel's caches of both would hide the contents on the file system.
        rustix::fs::syncfs(std::fs::File::open(dir)?)?;
        drop_caches()?;
        for (name, text) in &edits {
            let found = std::fs::read(clone.join(name))?;
            ensure!(found == *text, "{} in the clone is not what was written", name.display());
        }
        self.tree.compare(&source)
    }
}
