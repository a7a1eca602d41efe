//! Open files. `betrfs/_file.py` makes them Python's raw streams.

use std::io::{Read, Seek, SeekFrom, Write};

use parking_lot::RwLock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{Metadata, Octets, call, io_error};
use crate::ending::detach;

/// An open file.
#[pyclass(frozen, module = "betrfs")]
pub struct File(RwLock<Option<betrfs_std::File>>);

impl File {
    pub fn new(file: betrfs_std::File) -> File {
        File(RwLock::new(Some(file)))
    }

    /// Calls `std::io` without Python's lock.
    fn io<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&betrfs_std::File) -> std::io::Result<T> + Send,
    ) -> PyResult<T> {
        let done = detach(py, || self.0.read().as_ref().map(run)).ok_or_else(closed)?;
        done.map_err(|error| io_error(py, &error))
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&betrfs_std::File) -> betrfs_std::Result<T> + Send,
    ) -> PyResult<T> {
        call(py, || self.0.read().as_ref().map(run).transpose())?.ok_or_else(closed)
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

#[pymethods]
impl File {
    /// Up to `size` bytes from the position on.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        // No more than is there comes into memory.
        let bytes = self.io(py, |mut file| {
            let mut bytes = Vec::new();
            (&mut file).take(size as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// All from the position on.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.io(py, |mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes bytes at the position; how many.
    fn write(&self, py: Python<'_>, bytes: Octets) -> PyResult<usize> {
        self.io(py, |mut file| file.write(&bytes))
    }

    /// Moves the position, and returns it.
    #[pyo3(signature = (offset, whence=0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        let to = match whence {
            0 => {
                let negative = |_| io_error(py, &std::io::ErrorKind::InvalidInput.into());
                SeekFrom::Start(u64::try_from(offset).map_err(negative)?)
            }
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            _ => return Err(PyValueError::new_err(format!("invalid whence: {whence}"))),
        };
        self.io(py, |mut file| file.seek(to))
    }

    /// Sets the size.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.call(py, |file| file.set_len(size))
    }

    /// Makes the file durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, betrfs_std::File::sync_all)
    }

    /// The attributes.
    fn metadata(&self, py: Python<'_>) -> PyResult<Metadata> {
        self.call(py, betrfs_std::File::metadata).map(Metadata::from)
    }

    /// Makes sure that there is room for a range.
    fn allocate(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.call(py, |file| file.allocate(offset, length))
    }

    /// Makes a range a hole.
    fn punch_hole(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<()> {
        self.call(py, |file| file.punch_hole(offset, length))
    }

    /// Closes it.
    fn close(&self, py: Python<'_>) {
        detach(py, || *self.0.write() = None);
    }
}
