//! Aging by version control: a clone pulls commit after commit, with greps between.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bench_harness::tool;

use super::Workload;
use super::git_clone::{CLONE, clone};
use super::grep::grep_for;
use super::seen::{Seen, content_bytes};
use crate::data::History;
use crate::repository::{MAIN, Repository, ensure_clean, git};

/// A text that no file has: grep reads all of each file, and prints nothing.
const ABSENT: &str = "no line has this";

/// A cold `grep -r` of a clone after each number of pulls.
pub struct AgeGit<'t> {
    /// The commits to pull.
    pub history: History,
    /// Their repository.
    pub repository: &'t Repository,
    /// Pulls before each grep.
    pub pulls_per_step: u64,
    /// The bytes that the last grep read.
    pub seen: Seen,
}

/// Greps the files of the clone, without its `.git`.
fn grep(dir: &Path, seen: &Seen) -> Result<()> {
    let found = grep_for(ABSENT, &["--exclude-dir=.git"], &dir.join(CLONE), seen)?;
    ensure!(found == 0, "it found what no file has");
    Ok(())
}

fn ensure_saw_all(dir: &Path, seen: &Seen) -> Result<()> {
    seen.ensure_all(content_bytes(&dir.join(CLONE), ".git")?, "bytes")
}

impl Workload for AgeGit<'_> {
    fn name(&self) -> &'static str {
        "age-git"
    }

    fn about(&self) -> String {
        format!(
            "grep -r a clone of {} files, cold, after every {} of {} git pulls",
            self.history.files, self.pulls_per_step, self.history.commits
        )
    }

    fn writes(&self) -> bool {
        false
    }

    fn steps(&self) -> u64 {
        self.history.commits / self.pulls_per_step
    }

    fn time_max(&self) -> Duration {
        Duration::from_secs(4 * 60 * 60)
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.repository.make_of_history(&self.history)?;
        let first = self.repository.commits()?.into_iter().next().context("there are no commits")?;
        let clone = dir.join(CLONE);
        std::fs::create_dir(&clone)?;
        tool::run(git(&clone).args(["init", "-q", "-b", MAIN]))?;
        pull(&clone, self.repository, &first)
    }

    fn age(&self, dir: &Path, step: u64) -> Result<()> {
        let from = 1 + (step - 1) * self.pulls_per_step;
        let commits = self.repository.commits()?;
        let due = commits.iter().skip(from as usize).take(self.pulls_per_step as usize);
        due.into_iter().try_for_each(|commit| pull(&dir.join(CLONE), self.repository, commit))
    }

    fn run(&self, dir: &Path) -> Result<()> {
        grep(dir, &self.seen)
    }

    fn check_run(&self, dir: &Path) -> Result<()> {
        ensure_saw_all(dir, &self.seen)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let clone = dir.join(CLONE);
        let head = tool::run(git(&clone).args(["rev-parse", "HEAD"]))?;
        let pulled = self.steps() * self.pulls_per_step;
        let expected = self.repository.commits()?.into_iter().nth(pulled as usize);
        ensure!(expected.as_deref() == Some(head.trim()), "it is at {head}");
        ensure_clean(&clone)?;
        tool::run(git(&clone).args(["fsck", "--no-dangling"])).map(drop)
    }
}

fn pull(clone: &Path, from: &Repository, commit: &str) -> Result<()> {
    let mut pull: Command = git(clone);
    pull.args(["pull", "-q", "--ff-only"]).arg(from.dir()).arg(commit);
    tool::run(&mut pull).map(drop)
}

/// `grep -r` of the files of the aged clone at the end, in a new clone.
pub struct AgeGitFresh<'t> {
    /// The commits.
    pub history: History,
    /// Their repository.
    pub repository: &'t Repository,
    /// The bytes that grep read.
    pub seen: Seen,
}

impl Workload for AgeGitFresh<'_> {
    fn name(&self) -> &'static str {
        "age-git-fresh"
    }

    fn about(&self) -> String {
        "grep -r a new clone of the last commit of age-git, cold".into()
    }

    fn writes(&self) -> bool {
        false
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.repository.make_of_history(&self.history)?;
        clone(self.repository, dir)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        grep(dir, &self.seen)
    }

    fn check_run(&self, dir: &Path) -> Result<()> {
        ensure_saw_all(dir, &self.seen)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        ensure_clean(&dir.join(CLONE))
    }
}
