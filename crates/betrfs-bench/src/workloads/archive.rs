//! Reading the tree into an archive.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Workload;
use crate::data::walk;
use crate::tree::Tree;

/// `tar -c` of the tree, cold, into a pipe that is emptied: `tar` reads nothing if it writes to
/// /dev/null.
pub struct Archive<'t> {
    /// What is read.
    pub tree: &'t Tree,
}

/// The bytes of all files.
fn content_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for name in walk(dir, "lost+found")? {
        let metadata = std::fs::symlink_metadata(dir.join(name))?;
        bytes += if metadata.is_file() { metadata.len() } else { 0 };
    }
    Ok(bytes)
}

/// Archives a directory and gives the archive's size.
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
        ensure!(archive(dir)? > 0, "the archive is empty");
        Ok(())
    }

    fn check(&self, dir: &Path) -> Result<()> {
        self.tree.compare(dir)?;
        let (bytes, expected) = (archive(dir)?, content_bytes(dir)?);
        ensure!(bytes >= expected, "the archive has {bytes} bytes, what is in it {expected}");
        Ok(())
    }
}
