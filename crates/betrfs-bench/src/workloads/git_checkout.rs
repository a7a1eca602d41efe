//! Checking out another version in a clone.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bench_harness::tool;

use super::Workload;
use super::git_clone::{CLONE, clone};
use crate::repository::{LATER, Repository, ensure_clean, git};
use crate::tree::Tree;

/// The resolution of times in git's index.
const INDEX_GRAIN: Duration = Duration::from_millis(1100);

/// A cold `git checkout` of another branch.
pub struct GitCheckout<'t> {
    /// The contents of the repository.
    pub tree: &'t Tree,
    /// The repository.
    pub repository: &'t Repository,
}

impl Workload for GitCheckout<'_> {
    fn name(&self) -> &'static str {
        "git-checkout"
    }

    fn about(&self) -> String {
        "git checkout another branch in a clone of the tree, cold".into()
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.repository.make_of_tree(self.tree)?;
        clone(self.repository, dir)?;
        // git reads files that are as young as its index, and their number depends on the speed of the clone:
        // all files are made older.
        thread::sleep(INDEX_GRAIN);
        let index = |command: &[&str]| tool::run(git(&dir.join(CLONE)).args(command)).map(drop);
        index(&["read-tree", "HEAD"])?;
        index(&["update-index", "-q", "--refresh"])
    }

    fn run(&self, dir: &Path) -> Result<()> {
        tool::run(git(&dir.join(CLONE)).args(["checkout", "-q", LATER])).map(drop)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let commit = |dir: &Path, name: &str| tool::run(git(dir).args(["rev-parse", name]));
        let found = commit(&dir.join(CLONE), "HEAD")?;
        ensure!(found == commit(self.repository.dir(), LATER)?, "it is at {found}");
        ensure_clean(&dir.join(CLONE))
    }
}
