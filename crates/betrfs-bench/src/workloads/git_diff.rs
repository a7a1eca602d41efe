//! Comparing two versions in a clone.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::Workload;
use super::git_clone::{CLONE, clone};
use crate::repository::{LATER, MAIN, Repository, git};
use crate::tree::Tree;

/// `git diff` of two branches, cold.
pub struct GitDiff<'t> {
    /// What is in the repository.
    pub tree: &'t Tree,
    /// The repository.
    pub repository: &'t Repository,
}

/// The patch between two branches.
fn patch(dir: &Path, from: &str, to: &str) -> Result<Vec<u8>> {
    let mut diff = git(dir);
    // Whole object names: how short they may be depends on what else is in a repository.
    diff.args(["diff", "--patch", "--full-index", from, to]).stdin(Stdio::null());
    let output = diff.output().context("cannot run git (Debian: apt-get install git)")?;
    ensure!(output.status.success(), "git diff: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

impl Workload for GitDiff<'_> {
    fn name(&self) -> &'static str {
        "git-diff"
    }

    fn about(&self) -> String {
        "git diff two branches in a clone of the tree, cold".into()
    }

    fn writes(&self) -> bool {
        false
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.repository.make_of_tree(self.tree)?;
        clone(self.repository, dir)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        let patch = patch(&dir.join(CLONE), MAIN, &format!("origin/{LATER}"))?;
        ensure!(!patch.is_empty(), "it found nothing");
        Ok(())
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let found = patch(&dir.join(CLONE), MAIN, &format!("origin/{LATER}"))?;
        let expected = patch(self.repository.dir(), MAIN, LATER)?;
        ensure!(found == expected, "its patch differs from that in the repository");
        Ok(())
    }
}
