//! The tree to unpack: a tar archive, given or generated.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use bench_harness::scale::Scale;
use bench_harness::tool;

/// The text that `grep` looks for: generated trees have it, and it is rare in others.
pub const NEEDLE: &str = "BETREE";

/// A tar archive of a tree.
pub struct Tree {
    archive: PathBuf,
}

impl Tree {
    /// No archive, to list the workloads that need one.
    pub fn none() -> Tree {
        Tree { archive: PathBuf::new() }
    }

    /// The archive at a path, decompressed if needed, or that of a generated tree; at a quarter of the scale,
    /// the first quarter of its entries.
    pub fn new(scratch: &Path, given: Option<&Path>, scale: Scale) -> Result<Tree> {
        let whole = match given {
            Some(given) => Tree::given(scratch, given)?,
            None => Tree::generate(scratch, scale)?,
        };
        if scale == Scale::Quarter { whole.first_quarter(scratch) } else { Ok(whole) }
    }

    fn given(scratch: &Path, given: &Path) -> Result<Tree> {
        let given = std::path::absolute(given)?;
        match given.extension().and_then(|extension| extension.to_str()) {
            Some("tar") => {
                std::fs::metadata(&given).with_context(|| format!("cannot use {}", given.display()))?;
                Ok(Tree { archive: given })
            }
            Some("xz") => {
                let archive = scratch.join("tree.tar");
                let to = std::fs::File::create(&archive)?;
                let mut xz = Command::new("xz");
                xz.args(["-d", "-c", "-T0"]).arg(&given).stdin(Stdio::null()).stdout(to);
                let status = xz.status().context("cannot run xz (Debian: apt-get install xz-utils)")?;
                if !status.success() {
                    bail!("xz cannot decompress {}", given.display());
                }
                Ok(Tree { archive })
            }
            _ => bail!("{} is neither a .tar nor a .tar.xz", given.display()),
        }
    }

    /// An archive of the first quarter of its entries.
    fn first_quarter(&self, scratch: &Path) -> Result<Tree> {
        let entries = tool::run(Command::new("tar").arg("-tf").arg(&self.archive))?;
        let entries: Vec<&str> = entries.lines().collect();
        let (list, root) = (scratch.join("quarter.list"), scratch.join("quarter"));
        std::fs::write(&list, entries[..entries.len() / 4].join("\n"))?;
        std::fs::create_dir(&root)?;
        let mut unpack = Command::new("tar");
        unpack.arg("-xf").arg(&self.archive).arg("-C").arg(&root).arg("--no-recursion").arg("-T").arg(&list);
        tool::run(&mut unpack)?;
        let archive = scratch.join("quarter.tar");
        let name = entries.first().and_then(|entry| entry.split('/').next()).context("the tree is empty")?;
        tool::run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(name))?;
        std::fs::remove_dir_all(&root)?;
        Ok(Tree { archive })
    }

    /// Generates directories of files like those of a source tree: most small, a few large.
    fn generate(scratch: &Path, scale: Scale) -> Result<Tree> {
        let (dirs, files) = scale.pick((10, 20), (1000, 60));
        let root = scratch.join("generated");
        for dir in 0..dirs {
            let path = root.join(format!("tree/{}/dir{dir:04}", dir % 10));
            std::fs::create_dir_all(&path)?;
            for file in 0..files {
                let lines = 20 + (dir * 31 + file * 17) % 97 * (1 + file % 7);
                let mut text =
                    std::io::BufWriter::new(std::fs::File::create(path.join(format!("file{file}.c")))?);
                for line in 0..lines {
                    writeln!(text, "\tint value_{line} = function_{}(argument, {dir});", line * file)?;
                }
                if file % 10 == 0 {
                    writeln!(text, "/* {NEEDLE} */")?;
                }
                text.flush()?;
            }
        }
        let archive = scratch.join("tree.tar");
        tool::run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg("tree"))?;
        std::fs::remove_dir_all(&root)?;
        Ok(Tree { archive })
    }

    /// Unpacks it.
    pub fn unpack(&self, into: &Path) -> Result<()> {
        tool::run(Command::new("tar").arg("-xf").arg(&self.archive).arg("-C").arg(into)).map(drop)
    }

    /// Compares an unpacked tree with it, byte by byte.
    pub fn compare(&self, with: &Path) -> Result<()> {
        tool::run(Command::new("tar").arg("-df").arg(&self.archive).arg("-C").arg(with)).map(drop)
    }

    /// The number of its entries.
    pub fn entries(&self) -> Result<u64> {
        tool::count_lines(Command::new("tar").arg("-tf").arg(&self.archive), None)
    }

    /// Brings the archive into the page cache, so that reading it is not timed.
    pub fn warm(&self) -> Result<()> {
        let mut archive = std::fs::File::open(&self.archive)?;
        std::io::copy(&mut archive, &mut std::io::sink())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_tree_is_its_first_entries_and_no_more() {
        let scratch = tempfile::tempdir().unwrap();
        let whole = Tree::new(scratch.path(), None, Scale::Tiny).unwrap();
        let quarter = whole.first_quarter(scratch.path()).unwrap();
        let names = |tree: &Tree| tool::run(Command::new("tar").arg("-tf").arg(&tree.archive)).unwrap();
        let (all, some) = (names(&whole), names(&quarter));
        let mut first: Vec<&str> = all.lines().take(all.lines().count() / 4).collect();
        let mut kept: Vec<&str> = some.lines().collect();
        first.sort_unstable();
        kept.sort_unstable();
        assert!(!kept.is_empty());
        assert_eq!(kept, first);
    }
}
