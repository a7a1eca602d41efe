//! The history of a source tree: commits that change, add and delete files here and there.

use std::path::PathBuf;

use super::layout::Layout;
use super::random::{Rng, gamma_size};
use super::source::Source;

/// The change of one file by a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The new content.
    Write(PathBuf, Vec<u8>),
    /// The file is deleted.
    Delete(PathBuf),
}

/// A history: its first commit makes all files, each later one changes some.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The number of files, at any time.
    pub files: u64,
    /// Their mean size.
    pub mean_bytes: u64,
    /// The number of commits after the first.
    pub commits: u64,
}

/// The number of files that a commit changes; it also makes one and deletes one.
const CHANGED_FILES: u64 = 6;
const SEED: u64 = 0x6869_7374;

impl History {
    fn layout(&self) -> Layout {
        Layout { files: self.files, fanout: 24 }
    }

    /// Its commits, the first included.
    pub fn commits(&self) -> impl Iterator<Item = Vec<Change>> {
        let layout = self.layout();
        let mut rng = Rng::of_stream(SEED, 0);
        let mut files: Vec<(PathBuf, Source)> = Vec::new();
        let mut next_number = 0;
        let (count, mean_bytes) = (self.files, self.mean_bytes);
        (0..=self.commits).map(move |commit| {
            let mut changes = Vec::new();
            let mut create = |dir: u64, rng: &mut Rng, files: &mut Vec<(PathBuf, Source)>| {
                let path = layout.leaf(dir).join(format!("source{next_number:06}.c"));
                next_number += 1;
                let bytes = gamma_size(rng, mean_bytes);
                let source = Source::new(rng, bytes);
                let change = Change::Write(path.clone(), source.text());
                files.push((path, source));
                change
            };
            if commit == 0 {
                changes.extend((0..count).map(|file| create(file / layout.fanout, &mut rng, &mut files)));
                return changes;
            }
            for _ in 0..CHANGED_FILES {
                let at = rng.below(files.len());
                if let Some((path, source)) = files.get_mut(at) {
                    source.edit(&mut rng);
                    // A file changed twice in a commit counts once.
                    changes.retain(|change| !matches!(change, Change::Write(same, _) if same == path));
                    changes.push(Change::Write(path.clone(), source.text()));
                }
            }
            let (gone, _) = files.swap_remove(rng.below(files.len()));
            changes.retain(|change| !matches!(change, Change::Write(same, _) if *same == gone));
            changes.push(Change::Delete(gone));
            let dir = rng.below_u64(layout.leaves());
            changes.push(create(dir, &mut rng, &mut files));
            changes
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const HISTORY: History = History { files: 100, mean_bytes: 2000, commits: 50 };

    #[test]
    fn a_history_is_the_same_each_time() {
        assert!(HISTORY.commits().eq(HISTORY.commits()));
    }

    #[test]
    fn the_number_of_files_stays_and_deletes_find_what_they_delete() {
        let mut tree = BTreeMap::new();
        let mut commits = 0;
        for changes in HISTORY.commits() {
            let mut paths: Vec<PathBuf> = Vec::new();
            for change in changes {
                match change {
                    Change::Write(path, text) => {
                        paths.push(path.clone());
                        tree.insert(path, text);
                    }
                    Change::Delete(path) => {
                        assert!(tree.remove(&path).is_some(), "{} is not there", path.display());
                        paths.push(path);
                    }
                }
            }
            let changed = paths.len();
            paths.sort();
            paths.dedup();
            assert_eq!(paths.len(), changed, "a path twice in a commit");
            assert_eq!(tree.len(), 100);
            commits += 1;
        }
        assert_eq!(commits, 51);
    }
}
