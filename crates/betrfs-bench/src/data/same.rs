//! Walking trees and comparing them.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

const PIECE_BYTES: usize = 1 << 20;

/// Everything below a directory, as sorted paths from it, each directory before its contents. Entries named
/// `except` are left out, with everything below them.
pub fn walk(root: &Path, except: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        let path = root.join(&dir);
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))? {
            let entry = entry?;
            if entry.file_name() != except {
                names.push((dir.join(entry.file_name()), entry.file_type()?.is_dir()));
            }
        }
        dirs.extend(names.iter().filter(|(_, is_dir)| *is_dir).map(|(name, _)| name.clone()));
        found.extend(names.into_iter().map(|(name, _)| name));
    }
    found.sort_unstable();
    Ok(found)
}

/// Fails, and says where, unless two trees have the same names, types, permissions, times of change
/// of all but directories, contents and targets.
pub fn ensure_same(one: &Path, other: &Path) -> Result<()> {
    let names = walk(one, "")?;
    let others = walk(other, "")?;
    if let Some(name) = names.iter().find(|name| others.binary_search(name).is_err()) {
        bail!("{} is missing in {}", name.display(), other.display());
    }
    if let Some(name) = others.iter().find(|name| names.binary_search(name).is_err()) {
        bail!("{} should not be in {}", name.display(), other.display());
    }
    for name in names {
        let differs = differs(&one.join(&name), &other.join(&name))?;
        ensure!(differs.is_none(), "{} has another {}", name.display(), differs.unwrap_or_default());
    }
    Ok(())
}

/// The difference of two entries.
fn differs(one: &Path, other: &Path) -> Result<Option<&'static str>> {
    let (a, b) = (fs::symlink_metadata(one)?, fs::symlink_metadata(other)?);
    if a.file_type() != b.file_type() {
        return Ok(Some("type"));
    }
    if a.is_symlink() {
        return Ok((fs::read_link(one)? != fs::read_link(other)?).then_some("target"));
    }
    if a.mode() != b.mode() {
        return Ok(Some("mode"));
    }
    if a.is_dir() {
        return Ok(None);
    }
    if (a.mtime(), a.mtime_nsec()) != (b.mtime(), b.mtime_nsec()) {
        return Ok(Some("time of change"));
    }
    if a.len() != b.len() {
        return Ok(Some("size"));
    }
    let (mut a, mut b) = (File::open(one)?, File::open(other)?);
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    loop {
        of_a.clear();
        of_b.clear();
        (&mut a).take(PIECE_BYTES as u64).read_to_end(&mut of_a)?;
        (&mut b).take(PIECE_BYTES as u64).read_to_end(&mut of_b)?;
        if of_a != of_b {
            return Ok(Some("content"));
        }
        if of_a.is_empty() {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use super::*;

    fn tree(at: &Path) {
        fs::create_dir_all(at.join("dir/.git")).unwrap();
        fs::write(at.join("dir/file"), "content").unwrap();
        File::options()
            .write(true)
            .open(at.join("dir/file"))
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        symlink("target", at.join("link")).unwrap();
    }

    #[test]
    fn each_difference_is_found() {
        type Change = fn(&Path);
        let changes: [(Change, &str); 6] = [
            (|at| fs::write(at.join("new"), "").unwrap(), "should not be"),
            (|at| fs::remove_file(at.join("link")).unwrap(), "missing"),
            (|at| fs::write(at.join("dir/file"), "content").unwrap(), "time"),
            (|at| fs::write(at.join("dir/file"), "contend").unwrap(), "time"),
            (
                |at| {
                    let file = at.join("dir/file");
                    fs::write(&file, "contend").unwrap();
                    let file = File::options().write(true).open(file).unwrap();
                    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                },
                "content",
            ),
            (
                |at| {
                    fs::remove_file(at.join("link")).unwrap();
                    symlink("elsewhere", at.join("link")).unwrap();
                },
                "target",
            ),
        ];
        for (change, what) in changes {
            let dir = tempfile::tempdir().unwrap();
            let (one, other) = (dir.path().join("one"), dir.path().join("other"));
            tree(&one);
            tree(&other);
            ensure_same(&one, &other).unwrap();
            change(&other);
            let error = ensure_same(&one, &other).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_walk_leaves_out_what_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path());
        let found = walk(dir.path(), ".git").unwrap();
        assert_eq!(found, ["dir", "dir/file", "link"].map(PathBuf::from));
    }
}
