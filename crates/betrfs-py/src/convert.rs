//! Values and errors from one language to the other.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use betrfs_std::FileType;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::ending::detach;

const EIO: i32 = 5;
const EINVAL: i32 = 22;

/// A path: text, bytes, or what has `__fspath__`.
pub fn path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let value = value.py().import("os")?.call_method1("fspath", (value,))?;
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes.as_bytes().to_vec()))),
        Err(_) => value.extract(),
    }
}

/// `OSError`, or the subclass for the number.
pub fn error(error: betrfs_std::Error) -> PyErr {
    let mut paths = error.paths().iter().map(|path| path.clone().into_os_string());
    let (from, to) = (paths.next(), paths.next());
    PyOSError::new_err((error.errno().raw_os_error(), error.kind().to_string(), from, None::<i32>, to))
}

/// `OSError`, or the subclass for the number, of a failure of a stream.
pub fn io_error(py: Python<'_>, error: &std::io::Error) -> PyErr {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::InvalidInput => EINVAL,
        _ => EIO,
    });
    match py.import("os").and_then(|os| os.call_method1("strerror", (errno,))) {
        Ok(text) => PyOSError::new_err((errno, text.unbind())),
        Err(raised) => raised,
    }
}

/// The contents of a file: `bytes`, which are not copied, or any other object with a buffer.
pub struct Octets(PyBackedBytes);

impl<'py> FromPyObject<'_, 'py> for Octets {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Octets> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Octets(bytes.to_owned().into()));
        }
        let Ok(view) = PyMemoryView::from(&object) else {
            let name = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a bytes-like object is required, not '{name}'")));
        };
        let copied = view.call_method0("tobytes")?;
        Ok(Octets(copied.cast_into::<PyBytes>()?.into()))
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Calls the library without Python's lock.
pub fn call<T: Send>(py: Python<'_>, run: impl FnOnce() -> betrfs_std::Result<T> + Send) -> PyResult<T> {
    detach(py, run).map_err(error)
}

pub fn closed() -> PyErr {
    PyValueError::new_err("the volume is closed")
}

pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::CharDevice => "char_device",
        FileType::BlockDevice => "block_device",
        FileType::Socket => "socket",
    }
}

/// Nanoseconds since 1970.
fn nanoseconds(time: SystemTime) -> i64 {
    let ns = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => ns(since),
        Err(before) => -ns(before.duration()),
    }
}

/// The time of a number of nanoseconds since 1970.
pub fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let time = match ns {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// What is known of an object beside its contents.
#[pyclass(frozen, get_all, eq, skip_from_py_object, module = "betrfs")]
#[derive(Clone, PartialEq)]
pub struct Metadata {
    file_type: &'static str,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    ino: u64,
    nlink: u32,
    blocks: u64,
    accessed_ns: i64,
    modified_ns: i64,
    changed_ns: i64,
    created_ns: i64,
}

impl From<betrfs_std::Metadata> for Metadata {
    fn from(found: betrfs_std::Metadata) -> Metadata {
        Metadata {
            file_type: type_name(found.file_type()),
            size: found.len(),
            mode: found.mode(),
            uid: found.uid(),
            gid: found.gid(),
            ino: found.ino(),
            nlink: found.nlink(),
            blocks: found.blocks(),
            accessed_ns: nanoseconds(found.accessed()),
            modified_ns: nanoseconds(found.modified()),
            changed_ns: nanoseconds(found.changed()),
            created_ns: nanoseconds(found.created()),
        }
    }
}

#[pymethods]
impl Metadata {
    #[getter]
    fn is_dir(&self) -> bool {
        self.file_type == type_name(FileType::Directory)
    }

    #[getter]
    fn is_file(&self) -> bool {
        self.file_type == type_name(FileType::Regular)
    }

    #[getter]
    fn is_symlink(&self) -> bool {
        self.file_type == type_name(FileType::Symlink)
    }

    fn __repr__(&self) -> String {
        let Metadata { file_type, size, mode, ino, .. } = self;
        format!("<betrfs.Metadata {file_type} size={size} mode={mode:#o} ino={ino}>")
    }
}

/// The bytes that something takes, and those that its removal would free.
#[pyclass(frozen, get_all, module = "betrfs")]
pub struct Usage {
    pub stored_bytes: u64,
    pub exclusive_bytes: u64,
}

/// The room on a volume.
#[pyclass(frozen, get_all, module = "betrfs")]
pub struct StatFs {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
}
