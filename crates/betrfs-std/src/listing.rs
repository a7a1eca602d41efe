//! Listings of directories.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::iter::FusedIterator;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use betrfs::{FileType, Objects};

use crate::dir::Dir;
use crate::error::{Context, Result};
use crate::metadata::Metadata;

/// How many entries are read at once.
const ENTRIES_AT_ONCE: usize = 256;

/// The entries of a directory.
#[derive(Debug)]
pub struct ReadDir {
    dir: Dir,
    ahead: VecDeque<Listed>,
    /// Behind the last entry in `ahead`.
    cookie: u64,
    is_over: bool,
}

#[derive(Debug)]
struct Listed {
    name: OsString,
    ino: u64,
    file_type: FileType,
}

impl ReadDir {
    pub(crate) fn new(dir: Dir) -> ReadDir {
        ReadDir { dir, ahead: VecDeque::new(), cookie: 0, is_over: false }
    }

    fn read_ahead(&mut self) -> Result<()> {
        let before = self.cookie;
        let (ahead, cookie) = (&mut self.ahead, &mut self.cookie);
        let volume = self.dir.opened().volume().of("list", self.dir.given_path())?;
        let listed = volume.readdir(self.dir.id(), before, Objects::None, &mut |entry| {
            if ahead.len() == ENTRIES_AT_ONCE {
                return false;
            }
            let name = OsString::from_vec(entry.name.to_vec());
            ahead.push_back(Listed { name, ino: entry.ino, file_type: entry.file_type });
            *cookie = entry.cookie;
            true
        });
        // A call that finds nothing more ends the listing.
        self.is_over = listed.is_err() || self.cookie == before;
        listed.of("list", self.dir.given_path())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.ahead.is_empty()
            && !self.is_over
            && let Err(error) = self.read_ahead()
        {
            return Some(Err(error));
        }
        let Listed { name, ino, file_type } = self.ahead.pop_front()?;
        Some(Ok(DirEntry { dir: self.dir.clone(), name, ino, file_type }))
    }
}

impl FusedIterator for ReadDir {}

/// An entry of a listing.
#[derive(Clone)]
pub struct DirEntry {
    dir: Dir,
    name: OsString,
    ino: u64,
    file_type: FileType,
}

impl DirEntry {
    /// Its name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The path of the directory, as it was given, and the name.
    pub fn path(&self) -> PathBuf {
        self.dir.given_path().join(&self.name)
    }

    /// What it is; costs nothing.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Its inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Its attributes, looked up now and without following a symbolic link.
    ///
    /// # Errors
    /// `ENOENT` if it was removed or renamed meanwhile; `EACCES`.
    pub fn metadata(&self) -> Result<Metadata> {
        let found = self.dir.entry(self.name.as_bytes());
        found.map(|found| Metadata::new(found.attr)).of("examine", &self.path())
    }

    /// Opens it as a directory, whatever happens to the names above it.
    ///
    /// # Errors
    /// `ENOTDIR`; as [`metadata`](DirEntry::metadata).
    pub fn open_dir(&self) -> Result<Dir> {
        let path = self.path();
        let found = self.dir.entry(self.name.as_bytes());
        found.and_then(|found| self.dir.dir_of(found, &path)).of("open directory", &path)
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
