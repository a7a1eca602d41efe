//! Directories, and all operations by paths.

use std::ffi::OsString;
use std::path::PathBuf;

use betrfs_std::{OpenOptions, XattrMode};
use parking_lot::RwLock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};

use crate::convert::{Metadata, Octets, StatFs, Usage, call, closed, path, time};
use crate::file::File;
use crate::listing::{DirEntry, Walk};

/// A directory that is held, from which paths lead on; it stays the same directory when it is renamed.
#[pyclass(subclass, frozen, module = "betrfs")]
pub struct Dir(RwLock<Option<betrfs_std::Dir>>);

type Path<'a, 'py> = &'a Bound<'py, PyAny>;

impl Dir {
    pub fn new(dir: betrfs_std::Dir) -> Dir {
        Dir(RwLock::new(Some(dir)))
    }

    /// Lets go of the directory.
    pub fn close(&self) {
        *self.0.write() = None;
    }

    fn dir(&self) -> PyResult<betrfs_std::Dir> {
        self.0.read().clone().ok_or_else(closed)
    }

    /// Calls an operation of one path.
    fn at<T: Send>(
        &self,
        at: Path<'_, '_>,
        run: impl FnOnce(&betrfs_std::Dir, PathBuf) -> betrfs_std::Result<T> + Send,
    ) -> PyResult<T> {
        let (dir, to) = (self.dir()?, path(at)?);
        call(at.py(), || run(&dir, to))
    }

    /// Calls an operation of two paths.
    fn between<T: Send>(
        &self,
        from: Path<'_, '_>,
        to: Path<'_, '_>,
        run: impl FnOnce(&betrfs_std::Dir, PathBuf, PathBuf) -> betrfs_std::Result<T> + Send,
    ) -> PyResult<T> {
        let (dir, from_path, to_path) = (self.dir()?, path(from)?, path(to)?);
        call(from.py(), || run(&dir, from_path, to_path))
    }
}

#[pymethods]
impl Dir {
    /// The contents of a file.
    fn read<'py>(&self, path: Path<'_, 'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.at(path, |dir, path| dir.read(path))?;
        Ok(PyBytes::new(path.py(), &bytes))
    }

    /// Replaces the contents of a file, which is made if it does not exist.
    fn write(&self, path: Path<'_, '_>, contents: Octets) -> PyResult<()> {
        self.at(path, |dir, path| dir.write(path, &*contents))
    }

    /// Writes at the end of a file, which is made if it does not exist.
    fn append(&self, path: Path<'_, '_>, contents: Octets) -> PyResult<()> {
        self.at(path, |dir, path| dir.append(path, &*contents))
    }

    /// Opens a file as the built-in `open` does.
    #[pyo3(signature = (path, mode="r", buffering=-1, encoding=None, errors=None, newline=None))]
    fn open<'py>(
        &self,
        path: Path<'_, 'py>,
        mode: &str,
        buffering: i64,
        encoding: Option<&str>,
        errors: Option<&str>,
        newline: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options =
            options_of(mode).ok_or_else(|| PyValueError::new_err(format!("invalid mode: {mode:?}")))?;
        let file = self.at(path, |dir, path| options.open(dir, path))?;
        let wrap = path.py().import("betrfs._file")?.getattr("wrap")?;
        wrap.call1((File::new(file), path, mode, buffering, encoding, errors, newline))
    }

    /// Makes an empty directory.
    fn create_dir(&self, path: Path<'_, '_>) -> PyResult<()> {
        self.at(path, |dir, path| dir.create_dir(path))
    }

    /// Makes a directory and those above it, as far as they do not exist.
    fn create_dir_all(&self, path: Path<'_, '_>) -> PyResult<()> {
        self.at(path, |dir, path| dir.create_dir_all(path))
    }

    /// Opens a directory.
    fn open_dir(&self, path: Path<'_, '_>) -> PyResult<Dir> {
        self.at(path, |dir, path| dir.open_dir(path)).map(Dir::new)
    }

    /// The entries of a directory, by name.
    #[pyo3(signature = (path=None))]
    fn read_dir(&self, py: Python<'_>, path: Option<Path<'_, '_>>) -> PyResult<Vec<DirEntry>> {
        let (dir, path) = (self.dir()?, path.map_or(Ok(PathBuf::from(".")), crate::convert::path)?);
        let mut entries = call(py, || dir.read_dir(path)?.collect::<betrfs_std::Result<Vec<_>>>())?;
        entries.sort_by(|one, other| one.file_name().cmp(other.file_name()));
        Ok(entries.into_iter().map(DirEntry::new).collect())
    }

    /// Walks through a directory and all that is below it, each directory before its entries.
    #[pyo3(signature = (path, *, min_depth=0, max_depth=None))]
    fn walk(&self, path: Path<'_, '_>, min_depth: usize, max_depth: Option<usize>) -> PyResult<Walk> {
        let walk = self.dir()?.walk(crate::convert::path(path)?).min_depth(min_depth);
        Ok(Walk::new(walk.max_depth(max_depth.unwrap_or(usize::MAX))))
    }

    /// The attributes of what a path leads to.
    fn metadata(&self, path: Path<'_, '_>) -> PyResult<Metadata> {
        self.at(path, |dir, path| dir.metadata(path)).map(Metadata::from)
    }

    /// The same without following a symbolic link at the end.
    fn symlink_metadata(&self, path: Path<'_, '_>) -> PyResult<Metadata> {
        self.at(path, |dir, path| dir.symlink_metadata(path)).map(Metadata::from)
    }

    /// Whether a path leads to something.
    fn exists(&self, path: Path<'_, '_>) -> PyResult<bool> {
        self.at(path, |dir, path| dir.exists(path))
    }

    /// Removes a name of what is no directory.
    fn remove_file(&self, path: Path<'_, '_>) -> PyResult<()> {
        self.at(path, |dir, path| dir.remove_file(path))
    }

    /// Removes an empty directory.
    fn remove_dir(&self, path: Path<'_, '_>) -> PyResult<()> {
        self.at(path, |dir, path| dir.remove_dir(path))
    }

    /// Removes a directory with all that is below it, whatever that is.
    fn rm_tree(&self, path: Path<'_, '_>) -> PyResult<()> {
        self.at(path, |dir, path| dir.rm_tree(path))
    }

    /// Renames an entry, and replaces what has the new name.
    fn rename(&self, source: Path<'_, '_>, target: Path<'_, '_>) -> PyResult<()> {
        self.between(source, target, |dir, from, to| dir.rename(from, to))
    }

    /// Renames an entry, and replaces nothing.
    fn rename_no_replace(&self, source: Path<'_, '_>, target: Path<'_, '_>) -> PyResult<()> {
        self.between(source, target, |dir, from, to| dir.rename_no_replace(from, to))
    }

    /// Exchanges two entries in one step.
    fn rename_exchange(&self, one: Path<'_, '_>, other: Path<'_, '_>) -> PyResult<()> {
        self.between(one, other, |dir, one, other| dir.rename_exchange(one, other))
    }

    /// Copies the contents and the permissions of a file; the number of bytes.
    fn copy(&self, source: Path<'_, '_>, target: Path<'_, '_>) -> PyResult<u64> {
        self.between(source, target, |dir, from, to| dir.copy(from, to))
    }

    /// Makes `to` a copy of a file or a directory, whatever that holds.
    fn clone_tree(&self, source: Path<'_, '_>, target: Path<'_, '_>) -> PyResult<()> {
        self.between(source, target, |dir, from, to| dir.clone_tree(from, to))
    }

    /// Gives a file one more name.
    fn hard_link(&self, original: Path<'_, '_>, link: Path<'_, '_>) -> PyResult<()> {
        self.between(original, link, |dir, original, link| dir.hard_link(original, link))
    }

    /// Makes a symbolic link.
    fn symlink(&self, original: Path<'_, '_>, link: Path<'_, '_>) -> PyResult<()> {
        self.between(original, link, |dir, original, link| dir.symlink(original, link))
    }

    /// The target of a symbolic link.
    fn read_link(&self, path: Path<'_, '_>) -> PyResult<OsString> {
        self.at(path, |dir, path| dir.read_link(path)).map(PathBuf::into_os_string)
    }

    /// The path from the root, without symbolic links, `.` and `..`.
    fn canonicalize(&self, path: Path<'_, '_>) -> PyResult<OsString> {
        self.at(path, |dir, path| dir.canonicalize(path)).map(PathBuf::into_os_string)
    }

    /// The path of this directory, as it is now.
    fn path(&self, py: Python<'_>) -> PyResult<OsString> {
        let dir = self.dir()?;
        call(py, || dir.path()).map(PathBuf::into_os_string)
    }

    /// Sets the permissions with the set-id and sticky bits.
    fn set_permissions(&self, path: Path<'_, '_>, mode: u32) -> PyResult<()> {
        self.at(path, |dir, path| dir.set_permissions(path, mode))
    }

    /// Changes owner and group; what is `None` stays.
    #[pyo3(signature = (path, uid=None, gid=None, *, follow_symlinks=true))]
    fn chown(
        &self,
        path: Path<'_, '_>,
        uid: Option<u32>,
        gid: Option<u32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.at(path, |dir, path| match follow_symlinks {
            true => dir.chown(path, uid, gid),
            false => dir.lchown(path, uid, gid),
        })
    }

    /// Sets times, in nanoseconds since 1970; what is `None` stays.
    #[pyo3(signature = (path, *, accessed_ns=None, modified_ns=None))]
    fn set_times(
        &self,
        path: Path<'_, '_>,
        accessed_ns: Option<i64>,
        modified_ns: Option<i64>,
    ) -> PyResult<()> {
        self.at(path, |dir, path| dir.set_times(path, accessed_ns.map(time), modified_ns.map(time)))
    }

    /// The value of an extended attribute.
    fn get_xattr<'py>(&self, path: Path<'_, 'py>, name: OsString) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.at(path, |dir, path| dir.get_xattr(path, name))?;
        Ok(PyBytes::new(path.py(), &value))
    }

    /// Sets an extended attribute.
    fn set_xattr(&self, path: Path<'_, '_>, name: OsString, value: Octets) -> PyResult<()> {
        self.at(path, |dir, path| dir.set_xattr(path, name, &*value, XattrMode::Any))
    }

    /// The names of all extended attributes.
    fn list_xattrs(&self, path: Path<'_, '_>) -> PyResult<Vec<OsString>> {
        self.at(path, |dir, path| dir.list_xattrs(path))
    }

    /// Removes an extended attribute.
    fn remove_xattr(&self, path: Path<'_, '_>, name: OsString) -> PyResult<()> {
        self.at(path, |dir, path| dir.remove_xattr(path, name))
    }

    /// Makes a snapshot of a directory: a copy that cannot be changed.
    fn snapshot(&self, path: Path<'_, '_>, name: OsString) -> PyResult<()> {
        self.at(path, |dir, path| dir.snapshot(path, name))
    }

    /// The names of a directory's snapshots.
    fn snapshots(&self, path: Path<'_, '_>) -> PyResult<Vec<OsString>> {
        self.at(path, |dir, path| dir.snapshots(path))
    }

    /// Removes a snapshot of a directory.
    fn remove_snapshot(&self, path: Path<'_, '_>, name: OsString) -> PyResult<()> {
        self.at(path, |dir, path| dir.remove_snapshot(path, name))
    }

    /// What a file or a directory takes, with all that is below it.
    fn usage(&self, path: Path<'_, '_>) -> PyResult<Usage> {
        let usage = self.at(path, |dir, path| dir.usage(path))?;
        Ok(Usage { stored_bytes: usage.stored_bytes, exclusive_bytes: usage.exclusive_bytes })
    }

    /// The room on the volume.
    fn statfs(&self, py: Python<'_>) -> PyResult<StatFs> {
        let dir = self.dir()?;
        let room = call(py, || dir.statfs())?;
        let betrfs_std::StatFs { total_bytes, free_bytes, available_bytes, .. } = room;
        Ok(StatFs { total_bytes, free_bytes, available_bytes })
    }
}

/// How the built-in `open` opens a file of this mode.
fn options_of(mode: &str) -> Option<OpenOptions> {
    let mut options = OpenOptions::new();
    let (mut actions, mut kinds, mut updates) = (0, 0, 0);
    for letter in mode.chars() {
        match letter {
            'r' => drop(options.read(true)),
            'w' => drop(options.write(true).create(true).truncate(true)),
            'a' => drop(options.append(true).create(true)),
            'x' => drop(options.write(true).create_new(true)),
            '+' => updates += 1,
            'b' | 't' => kinds += 1,
            _ => return None,
        }
        actions += usize::from("rwax".contains(letter));
    }
    if updates == 1 {
        options.read(true);
        if !mode.contains('a') {
            options.write(true);
        }
    }
    (actions == 1 && kinds <= 1 && updates <= 1).then_some(options)
}
