//! Listings and walks.

use std::ffi::OsString;
use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::convert::{Metadata, call, error, type_name};
use crate::ending::detach;

/// An entry of a directory.
#[pyclass(frozen, module = "betrfs")]
pub struct DirEntry(Source);

enum Source {
    Listed(betrfs_std::DirEntry),
    Walked(betrfs_std::WalkEntry),
}

impl DirEntry {
    pub fn new(entry: betrfs_std::DirEntry) -> DirEntry {
        DirEntry(Source::Listed(entry))
    }

    fn whole_path(&self) -> PathBuf {
        match &self.0 {
            Source::Listed(entry) => entry.path(),
            Source::Walked(entry) => entry.path().to_owned(),
        }
    }
}

#[pymethods]
impl DirEntry {
    #[getter]
    fn name(&self) -> OsString {
        match &self.0 {
            Source::Listed(entry) => entry.file_name().to_owned(),
            Source::Walked(entry) => entry.path().file_name().unwrap_or_default().to_owned(),
        }
    }

    #[getter]
    fn path(&self) -> OsString {
        self.whole_path().into_os_string()
    }

    #[getter]
    fn file_type(&self) -> &'static str {
        match &self.0 {
            Source::Listed(entry) => type_name(entry.file_type()),
            Source::Walked(entry) => type_name(entry.file_type()),
        }
    }

    /// Its attributes, looked up now and without following a symbolic link.
    fn metadata(&self, py: Python<'_>) -> PyResult<Metadata> {
        let found = call(py, || match &self.0 {
            Source::Listed(entry) => entry.metadata(),
            Source::Walked(entry) => entry.metadata(),
        });
        found.map(Metadata::from)
    }

    fn __repr__(&self) -> String {
        format!("<betrfs.DirEntry {} {}>", self.file_type(), self.whole_path().display())
    }
}

/// An iterator over a directory and all that is below it.
#[pyclass(frozen, module = "betrfs")]
pub struct Walk(Mutex<betrfs_std::Walk>);

impl Walk {
    pub fn new(walk: betrfs_std::Walk) -> Walk {
        Walk(Mutex::new(walk))
    }
}

#[pymethods]
impl Walk {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<DirEntry>> {
        let entry = detach(py, || self.0.lock().next());
        entry.transpose().map_err(error).map(|entry| entry.map(|entry| DirEntry(Source::Walked(entry))))
    }

    /// Leaves out what is below the directory that came last.
    fn skip_current_dir(&self) {
        self.0.lock().skip_current_dir();
    }
}
