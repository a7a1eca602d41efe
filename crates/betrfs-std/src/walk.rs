//! Walks through directories and all that is below them.

use std::iter::FusedIterator;
use std::path::{Path, PathBuf};

use betrfs::FileType;

use crate::dir::Dir;
use crate::error::{Context, Kinded, Result};
use crate::listing::{DirEntry, ReadDir};
use crate::metadata::Metadata;

/// A walk, depth first: each directory comes before its entries. A directory that cannot be listed is an
/// error in its place, and the walk goes on behind it.
///
/// Each directory on the way is held: what is renamed meanwhile is walked to its end.
#[derive(Debug)]
pub struct Walk {
    dir: Dir,
    path: PathBuf,
    has_begun: bool,
    depth_min: usize,
    depth_max: usize,
    /// The listings of the directory in which the walk is, and of those above it.
    way: Vec<ReadDir>,
    /// What was returned last, if the walk is to go on in it.
    next: Option<Dir>,
}

impl Walk {
    pub(crate) fn new(dir: Dir, path: &Path) -> Walk {
        let (has_begun, depth_min, depth_max) = (false, 0, usize::MAX);
        Walk { dir, path: path.to_owned(), has_begun, depth_min, depth_max, way: Vec::new(), next: None }
    }

    /// Leaves out what is less deep: 1 leaves out the path itself.
    #[must_use]
    pub fn min_depth(mut self, depth: usize) -> Walk {
        self.depth_min = depth;
        self
    }

    /// Goes no deeper.
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Walk {
        self.depth_max = depth;
        self
    }

    /// Leaves out what is below the directory that was returned last.
    pub fn skip_current_dir(&mut self) {
        self.next = None;
    }

    fn begin(&mut self) -> Kinded<WalkEntry> {
        let found = self.dir.find(&self.path, true)?;
        let (metadata, path) = (Metadata::new(found.attr), self.path.clone());
        if found.is_dir() && self.depth_max > 0 {
            self.next = Some(self.dir.dir_of(found, &path)?);
        }
        Ok(WalkEntry { path, depth: 0, file_type: metadata.file_type(), source: Source::Root(metadata) })
    }

    fn step(&mut self, entry: DirEntry) -> Result<WalkEntry> {
        let depth = self.way.len();
        if entry.file_type() == FileType::Directory && depth < self.depth_max {
            self.next = Some(entry.open_dir()?);
        }
        Ok(WalkEntry {
            path: entry.path(),
            depth,
            file_type: entry.file_type(),
            source: Source::Entry(entry),
        })
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Result<WalkEntry>> {
        loop {
            let entry = if !self.has_begun {
                self.has_begun = true;
                let path = self.path.clone();
                self.begin().of("walk", &path)
            } else {
                if let Some(dir) = self.next.take() {
                    match dir.listing().of("list", dir.given_path()) {
                        Ok(listing) => self.way.push(listing),
                        Err(error) => return Some(Err(error)),
                    }
                }
                match self.way.last_mut()?.next() {
                    None => {
                        self.way.pop();
                        continue;
                    }
                    Some(entry) => entry.and_then(|entry| self.step(entry)),
                }
            };
            if entry.as_ref().is_ok_and(|entry| entry.depth < self.depth_min) {
                continue;
            }
            return Some(entry);
        }
    }
}

impl FusedIterator for Walk {}

/// What a walk comes to.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: PathBuf,
    depth: usize,
    file_type: FileType,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    /// The path of the walk itself.
    Root(Metadata),
    Entry(DirEntry),
}

impl WalkEntry {
    /// The path of the walk, and from there on.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same, as a value.
    pub fn into_path(self) -> PathBuf {
        self.path
    }

    /// How many directories the walk has gone down to it.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// What it is; costs nothing.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Its attributes, looked up now and without following a symbolic link.
    ///
    /// # Errors
    /// As [`DirEntry::metadata`].
    pub fn metadata(&self) -> Result<Metadata> {
        match &self.source {
            Source::Root(metadata) => Ok(*metadata),
            Source::Entry(entry) => entry.metadata(),
        }
    }
}
