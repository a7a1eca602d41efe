//! Reading every file of the tree.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::Workload;
use crate::tool;
use crate::tree::{NEEDLE, Tree};

/// What `grep` says when it found nothing.
const FOUND_NONE: i32 = 1;

/// `grep -r` over the tree, cold.
pub struct Grep<'t> {
    /// Where it looks.
    pub tree: &'t Tree,
}

/// How many lines below a directory have a text.
pub fn grep_for(text: &str, options: &[&str], dir: &Path) -> Result<u64> {
    tool::count_lines(Command::new("grep").args(["-r", text]).args(options).arg(dir), Some(FOUND_NONE))
}

fn grep(dir: &Path) -> Result<u64> {
    grep_for(NEEDLE, &[], dir)
}

impl Workload for Grep<'_> {
    fn name(&self) -> &'static str {
        "grep"
    }

    fn about(&self) -> String {
        "grep -r a word in the tree, cold".into()
    }

    fn writes(&self) -> bool {
        false
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.tree.unpack(dir)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        grep(dir).map(drop)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        // What is there is what was unpacked, byte by byte; so what it finds is right if it finds
        // the word where it was put.
        self.tree.compare(dir)?;
        let probe = dir.join("probe");
        std::fs::write(&probe, format!("{NEEDLE}\n"))?;
        let found = grep(&probe)?;
        std::fs::remove_file(&probe)?;
        ensure!(found == 1, "it does not find what is there");
        Ok(())
    }
}
