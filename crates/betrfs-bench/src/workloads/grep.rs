//! Reading every file of the tree.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use bench_harness::tool;

use super::Workload;
use super::seen::{Seen, content_bytes};
use crate::tree::{NEEDLE, Tree};

/// What `grep` says when it found nothing.
const FOUND_NONE: i32 = 1;

/// `grep -r` over the tree, cold.
pub struct Grep<'t> {
    /// Where it looks.
    pub tree: &'t Tree,
    /// How many bytes it read.
    pub seen: Seen,
}

/// How many lines below a directory have a text. How many bytes it read for that is noted.
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
        // What is there is what was unpacked, byte by byte; so what it finds is right if it finds
        // the word where it was put.
        self.tree.compare(dir)?;
        let probe = dir.join("probe");
        std::fs::write(&probe, format!("{NEEDLE}\n"))?;
        let found = grep_for(NEEDLE, &[], &probe, &Seen::default())?;
        std::fs::remove_file(&probe)?;
        ensure!(found == 1, "it does not find what is there");
        Ok(())
    }
}
