//! Archiving the tree.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Workload;
use super::seen::{Seen, content_bytes};
use crate::tree::Tree;

/// A cold `tar -c` of the tree into a pipe: writing to /dev/null, `tar` reads nothing.
pub struct Archive<'t> {
    /// The tree.
    pub tree: &'t Tree,
    /// The size of the archive.
    pub seen: Seen,
}

/// Archives a directory and returns the archive's size.
fn archive(dir: &Path) -> Result<u64> {
    let mut tar = Command::new("tar")
        .args(["-cf", "-", "-C"])
        .arg(dir)
        .arg(".")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run tar (Debian: apt-get install tar)")?;
    let mut output = tar.stdout.take().context("tar has no output")?;
    let bytes = std::io::copy(&mut output, &mut std::io::sink())?;
    let status = tar.wait()?;
    ensure!(status.success(), "tar: {status}");
    Ok(bytes)
}

impl Workload for Archive<'_> {
    fn name(&self) -> &'static str {
        "archive"
    }

    fn about(&self) -> String {
        "tar -c the tree into a pipe, cold".into()
    }

    fn writes(&self) -> bool {
        false
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        self.tree.unpack(dir)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        self.seen.note(archive(dir)?);
        Ok(())
    }

    fn check_run(&self, dir: &Path) -> Result<()> {
        self.seen.ensure_all(content_bytes(dir, "lost+found")?, "bytes")
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.tree.compare(dir)
    }
}
