//! Reading every file of the tree.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use bench_harness::tool;

use super::Workload;
use super::seen::{Seen, content_bytes};
use crate::tree::{NEEDLE, Tree};

/// The exit code of `grep` when it finds nothing.
const FOUND_NONE: i32 = 1;

/// A cold `grep -r` over the tree.
pub struct Grep<'t> {
    /// The tree.
    pub tree: &'t Tree,
    /// The bytes that grep read.
    pub seen: Seen,
}

/// Counts the lines below a directory that have a text, and notes the bytes read for that in `seen`.
pub fn grep_for(text: &str, options: &[&str], dir: &Path, seen: &Seen) -> Result<u64> {
    let mut grep = Command::new("grep");
    let counts =
        tool::count_lines_and_reads(grep.args(["-r", text]).args(options).arg(dir), Some(FOUND_NONE))?;
    seen.note(counts.read_bytes);
    Ok(counts.lines)
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
        grep_for(NEEDLE, &[], dir, &self.seen).map(drop)
    }

    fn check_run(&self, dir: &Path) -> Result<()> {
        self.seen.ensure_all(content_bytes(dir, "lost+found")?, "bytes")
    }

    fn check(&self, dir: &Path) -> Result<()> {
        // The files are those of the archive, byte by byte; so the count is right if grep finds the word.
        self.tree.compare(dir)?;
        let probe = dir.join("probe");
        std::fs::write(&probe, format!("{NEEDLE}\n"))?;
        let found = grep_for(NEEDLE, &[], &probe, &Seen::default())?;
        std::fs::remove_file(&probe)?;
        ensure!(found == 1, "it does not find what is there");
        Ok(())
    }
}
