//! rsync of the tree, from one directory to another of one file system.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use bench_harness::tool;

use super::Workload;
use crate::data::{edits_of, ensure_same};
use crate::tree::Tree;

const SOURCE: &str = "source";
const TARGET: &str = "target";
/// Per cent of the files that changed since the older copy.
const CHANGED_PERCENT: u64 = 5;

/// A cold `rsync -a`.
pub struct Rsync<'t> {
    /// Its name.
    pub name: &'static str,
    /// The tree.
    pub tree: &'t Tree,
    /// Whether files are written in place; otherwise to a temporary file that is then renamed.
    pub in_place: bool,
    /// Whether there is an older copy.
    pub older_copy: bool,
}

impl Workload for Rsync<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let how = if self.in_place { "rsync -a --inplace" } else { "rsync -a" };
        let target = match self.older_copy {
            true => format!("to an older copy of which {CHANGED_PERCENT} % of the files have changed"),
            false => "to a new directory".into(),
        };
        format!("{how} the tree {target}, cold")
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        let source = dir.join(SOURCE);
        std::fs::create_dir(&source)?;
        self.tree.unpack(&source)?;
        if self.older_copy {
            let target = dir.join(TARGET);
            std::fs::create_dir(&target)?;
            self.tree.unpack(&target)?;
            for edit in edits_of(&source, CHANGED_PERCENT)? {
                let (name, text) = edit?;
                std::fs::write(source.join(name), text)?;
            }
        }
        Ok(())
    }

    fn run(&self, dir: &Path) -> Result<()> {
        let mut rsync = Command::new("rsync");
        rsync.arg("-a").args(self.in_place.then_some("--inplace"));
        // A slash after the source means its contents, not the directory itself.
        tool::run(rsync.arg(dir.join(SOURCE).join("")).arg(dir.join(TARGET))).map(drop)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        if !self.older_copy {
            self.tree.compare(&dir.join(SOURCE))?;
        }
        ensure_same(&dir.join(SOURCE), &dir.join(TARGET))
    }
}
