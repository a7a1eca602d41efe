//! Comparing two versions in a clone.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::Workload;
use super::git_clone::{CLONE, clone};
use crate::repository::{LATER, MAIN, Repository, git};
use crate::tree::Tree;

/// A cold `git diff` of two branches.
pub struct GitDiff<'t> {
    /// The contents of the repository.
    pub tree: &'t Tree,
    /// The repository.
    pub repository: &'t Repository,
}

/// The patch between two branches.
fn patch(dir: &Path, from: &str, to: &str) -> Result<Vec<u8>> {
    let mut diff = git(dir);
    // Whole object names: the length of short ones depends on the other objects.
    diff.args(["diff", "--patch", "--full-index", from, to]).stdin(Stdio::null());
    let output = diff.output().context("cannot run git (Debian: apt-get install git)")?;
    ensure!(output.status.success(), "git diff: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// A patch without the headings of its hunks: git finds these by the tree's attributes, which a repository
/// without a working tree does not have.
fn without_headings(patch: &[u8]) -> Vec<u8> {
    let lines = patch.split_inclusive(|byte| *byte == b'\n');
    let numbers_end = |line: &[u8]| Some(4 + line.get(4..)?.windows(3).position(|at| at == b" @@")?);
    lines
        .flat_map(|line| match line.starts_with(b"@@ -").then(|| numbers_end(line)).flatten() {
            Some(end) => [line.get(..end).unwrap_or_default(), b"\n"],
            None => [line, b""],
        })
        .flatten()
        .copied()
        .collect()
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
        ensure!(
            without_headings(&found) == without_headings(&expected),
            "its patch differs from that in the repository"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_of_hunks_are_no_part_of_a_patch_and_all_else_is() {
        let patch = b"--- a\n+++ b\n@@ -1,2 +3 @@ int main(void)\n @@ -1 +1 @@ a line\n-x\n";
        let expected = b"--- a\n+++ b\n@@ -1,2 +3\n @@ -1 +1 @@ a line\n-x\n";
        assert_eq!(without_headings(patch), expected);
        assert_eq!(without_headings(b"@@ -1 +1 @@\n+y\n"), b"@@ -1 +1\n+y\n");
        assert_ne!(without_headings(b"@@ -1 +2 @@\n"), without_headings(b"@@ -1 +1 @@\n"));
    }
}
