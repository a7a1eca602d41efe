//! Cloning a repository.

use std::path::Path;

use anyhow::Result;
use bench_harness::tool;

use super::Workload;
use crate::repository::{MAIN, Repository, ensure_clean, git};
use crate::tree::Tree;

/// The directory of the clone.
pub const CLONE: &str = "clone";

/// `git clone` from a directory elsewhere on the machine.
pub struct GitClone<'t> {
    /// The contents of the repository.
    pub tree: &'t Tree,
    /// The repository.
    pub repository: &'t Repository,
}

/// Clones a repository with copies of its objects.
pub fn clone(from: &Repository, dir: &Path) -> Result<()> {
    let mut clone = git(dir);
    clone.args(["clone", "-q", "--no-hardlinks", "-b", MAIN]).arg(from.dir()).arg(dir.join(CLONE));
    tool::run(&mut clone).map(drop)
}

impl Workload for GitClone<'_> {
    fn name(&self) -> &'static str {
        "git-clone"
    }

    fn about(&self) -> String {
        "git clone the tree from a repository elsewhere".into()
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, _dir: &Path) -> Result<()> {
        self.repository.make_of_tree(self.tree)
    }

    fn warm(&self) -> Result<()> {
        self.repository.warm()
    }

    fn run(&self, dir: &Path) -> Result<()> {
        clone(self.repository, dir)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let clone = dir.join(CLONE);
        ensure_clean(&clone)?;
        tool::run(git(&clone).args(["fsck", "--no-dangling"])).map(drop)
    }
}
