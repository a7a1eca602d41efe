//! Changing to another version in a clone.

use std::path::Path;

use anyhow::{Result, ensure};

use super::Workload;
use super::git_clone::{CLONE, clone};
use crate::repository::{LATER, Repository, ensure_clean, git};
use crate::tool;
use crate::tree::Tree;

/// `git checkout` of another branch, cold.
pub struct GitCheckout<'t> {
    /// What is in the repository.
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
        clone(self.repository, dir)
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
