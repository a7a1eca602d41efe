//! An open volume.

use std::ffi::OsString;
use std::path::PathBuf;

use betrfs_std::Caller;
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::convert::{call, closed, error, path};
use crate::dir::Dir;
use crate::ending::detach;

/// A file system in a file or a block device. It is its root directory, and a context manager that closes it.
#[pyclass(extends = Dir, frozen, module = "betrfs")]
pub struct Fs {
    /// `None` once it is closed.
    fs: RwLock<Option<betrfs_std::Fs>>,
    volume: PathBuf,
}

#[pymethods]
impl Fs {
    /// Opens a volume, or makes one where a size is given.
    #[new]
    #[pyo3(signature = (volume, *, size=None, cache_bytes=None, read_only=false, uid=None, gid=None, umask=None))]
    #[allow(clippy::too_many_arguments)] // By their names.
    fn new(
        volume: &Bound<'_, PyAny>,
        size: Option<u64>,
        cache_bytes: Option<usize>,
        read_only: bool,
        uid: Option<u32>,
        gid: Option<u32>,
        umask: Option<u16>,
    ) -> PyResult<(Fs, Dir)> {
        let (py, volume) = (volume.py(), path(volume)?);
        let own = Caller::of_process();
        let mut options = betrfs_std::Fs::options().read_only(read_only).caller(Caller {
            uid: uid.unwrap_or(own.uid),
            gid: gid.unwrap_or(own.gid),
            groups: if uid.is_none() && gid.is_none() { own.groups } else { Vec::new() },
            umask: umask.unwrap_or(own.umask),
        });
        if let Some(bytes) = cache_bytes {
            options = options.cache_bytes(bytes);
        }
        let fs = call(py, || match size {
            Some(size) => options.create(&volume, size),
            None => options.open(&volume),
        })?;
        let root = Dir::new((*fs).clone());
        Ok((Fs { fs: RwLock::new(Some(fs)), volume }, root))
    }

    /// Makes all that was changed durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let fs = self.fs.read().clone().ok_or_else(closed)?;
        call(py, || fs.sync())
    }

    /// Makes all durable and releases the volume, for all handles. Closed again, it does nothing.
    fn close(slf: PyRef<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let Some(fs) = slf.fs.write().take() else { return Ok(()) };
        slf.as_super().close();
        detach(py, || fs.close()).map_err(error)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.fs.read().is_none()
    }

    #[getter]
    fn volume(&self) -> OsString {
        self.volume.clone().into_os_string()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(slf: PyRef<'_, Self>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        Fs::close(slf)
    }

    fn __repr__(&self) -> String {
        format!("<betrfs.Fs {}>", self.volume.display())
    }
}
