//! A later version of a tree, with some files changed.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::random::Rng;
use super::same::walk;

/// The files that the later version of a tree has changed, each with its new content: some per cent of all,
/// chosen by name alone.
pub fn edits_of(root: &Path, percent: u64) -> Result<impl Iterator<Item = Result<(PathBuf, Vec<u8>)>>> {
    let root = root.to_owned();
    let names = walk(&root, ".git")?.into_iter().filter(move |name| is_chosen(name, percent));
    Ok(names.filter_map(move |name| {
        let path = root.join(&name);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if !metadata.is_file() => None,
            Ok(_) => Some(fs::read(&path).map(|old| (name, edited(old))).map_err(Into::into)),
            Err(error) => Some(Err(error.into())),
        }
    }))
}

fn is_chosen(name: &Path, percent: u64) -> bool {
    rng_of(name.as_os_str().as_bytes()).below_u64(100) < percent
}

fn rng_of(bytes: &[u8]) -> Rng {
    Rng::of_stream(
        bytes.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(257).wrapping_add(u64::from(*byte))),
        0,
    )
}

/// Changes some lines and inserts some, so that the rest moves.
fn edited(mut text: Vec<u8>) -> Vec<u8> {
    let mut rng = rng_of(&text);
    for _ in 0..1 + rng.below_u64(4) {
        let at = rng.below(text.len() + 1);
        let end = (at + rng.below(80)).min(text.len());
        let new = format!("\n/* changed: {:016x} */\n", rng.next_u64());
        text.splice(at..end, new.into_bytes());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_files_are_changed_and_always_the_same() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..500 {
            fs::write(dir.path().join(format!("file{number}")), format!("content {number}")).unwrap();
        }
        let edits =
            || edits_of(dir.path(), 5).unwrap().collect::<Result<Vec<_>>>().expect("all files can be read");
        let first = edits();
        assert!((10..50).contains(&first.len()), "{} files", first.len());
        assert!(first.iter().all(|(name, new)| fs::read(dir.path().join(name)).unwrap() != *new));
        assert_eq!(first, edits());
    }

    #[test]
    fn an_empty_file_can_be_edited() {
        assert!(!edited(Vec::new()).is_empty());
    }
}
