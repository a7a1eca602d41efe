//! Values and errors from one language to the other.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Deref;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use betree_store::{Conflict, Error, Key, Value};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::ending::detach;

/// The class of an error, in `betree/_errors.py`.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::InUse { .. } => "InUse",
        Error::NoSuchStore { .. } => "NoSuchStore",
        Error::NotAStore { .. } => "NotAStore",
        Error::NewerStore { .. } => "NewerStore",
        Error::Io { .. } => "SystemFailed",
        Error::NoSpace { .. } => "NoSpace",
        Error::ReadOnly { .. } => "ReadOnly",
        Error::Closed { .. } => "Closed",
        Error::NoSuchDict { .. } => "NoSuchDict",
        Error::DictExists { .. } => "DictExists",
        Error::DictDropped { .. } => "DictDropped",
        Error::BadName { .. } => "BadName",
        Error::KeyTooLong { .. }
        | Error::ValueTooLarge { .. }
        | Error::BatchTooLarge { .. }
        | Error::TransactionTooLarge { .. } => "TooLarge",
        Error::FileExists { .. } => "FileExists",
        Error::ViewEnded { .. } => "ViewEnded",
        Error::TransactionEnded => "TransactionEnded",
        Error::Forked { .. } => "Forked",
        Error::NoExpiry { .. } => "NoExpiry",
        Error::OtherStore { .. } => "OtherStore",
        Error::NoMerge { .. }
        | Error::UnknownMerge { .. }
        | Error::OtherMerge { .. }
        | Error::OtherKindOfMerge { .. }
        | Error::BadMerge { .. }
        | Error::MergeFailed { .. } => "MergeError",
        Error::Damaged { .. } => "Damaged",
        _ => "Error",
    }
}

fn raised(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = py.import("betree._errors")?.getattr(class_of(error))?;
    let exception = match error {
        Error::Io { path, source, .. } => {
            class.call1((source.raw_os_error(), error.to_string(), path.as_os_str()))?
        }
        error => class.call1((error.to_string(),))?,
    };
    Ok(PyErr::from_value(exception))
}

/// A failure of the store, or of a function of Python that it has called.
pub enum Failure {
    Store(Error),
    Raised(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<PyErr> for Failure {
    fn from(raised: PyErr) -> Failure {
        Failure::Raised(raised)
    }
}

impl Failure {
    /// The exception for it.
    pub fn exception(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Store(error) => raised(py, &error).unwrap_or_else(|failed| failed),
            Failure::Raised(raised) => raised,
        }
    }
}

/// The exception for a conflict.
pub fn conflict(py: Python<'_>, found: &Conflict) -> PyResult<PyErr> {
    let class = py.import("betree._errors")?.getattr("Conflict")?;
    let key = found.key.as_ref().map(|key| bytes(py, key));
    Ok(PyErr::from_value(class.call1((&found.dict, key, found.by))?))
}

/// Calls the store without Python's lock.
pub fn call<T: Send>(py: Python<'_>, run: impl FnOnce() -> betree_store::Result<T> + Send) -> PyResult<T> {
    detach(py, run).map_err(|error| Failure::Store(error).exception(py))
}

/// A key or a value: `bytes`, which are not copied, or any other object with a buffer.
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

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A range of keys, without a bound where there is `None`.
pub type Range<'a> = (std::ops::Bound<&'a [u8]>, std::ops::Bound<&'a [u8]>);

/// The keys from `lo` on and before `hi`.
pub fn range<'a>(lo: &'a Option<Octets>, hi: &'a Option<Octets>) -> Range<'a> {
    (lo.as_deref().map_or(Unbounded, Included), hi.as_deref().map_or(Unbounded, Excluded))
}

/// A value.
pub fn bytes<'py>(py: Python<'py>, value: &Value) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value)
}

/// The time of seconds since 1970, as `time.time()` gives them.
pub fn time_of(seconds: f64) -> PyResult<SystemTime> {
    let distance = duration_of(seconds.abs())?;
    let time = match seconds < 0.0 {
        true => UNIX_EPOCH.checked_sub(distance),
        false => UNIX_EPOCH.checked_add(distance),
    };
    time.ok_or_else(|| PyValueError::new_err(format!("there is no time {seconds}")))
}

/// A duration in seconds.
pub fn duration_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("a value cannot live for {seconds} seconds")))
}

/// Seconds since 1970.
pub fn seconds_of(time: SystemTime) -> f64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

/// A key and its value.
pub type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// A key and its value.
pub fn pair<'py>(py: Python<'py>, (key, value): &(Key, Value)) -> Pair<'py> {
    (bytes(py, key), bytes(py, value))
}
