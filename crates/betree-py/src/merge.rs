//! Merges that are functions of Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use betree_store::{Merge, StoreOptions, merges};

use crate::convert::Octets;

/// A merge as the caller names it.
#[derive(FromPyObject)]
pub enum Named {
    /// The kind of one that the store has.
    Kind(String),
    /// Functions that merge and combine.
    Functions(Py<PyAny>, Py<PyAny>),
    /// A function that merges.
    Function(Py<PyAny>),
}

/// Functions of Python. Threads of the store call them, and take Python's lock for that: so nobody who has
/// the lock may wait for the store.
struct Functions {
    merge: Py<PyAny>,
    combine: Option<Py<PyAny>>,
}

/// Registers a merge.
pub fn with_merge(options: StoreOptions, name: &str, merge: Named) -> PyResult<StoreOptions> {
    match merge {
        Named::Kind(kind) => match &kind[..] {
            "add_u64" => Ok(options.merge_with(name, merges::AddU64)),
            "add_i64" => Ok(options.merge_with(name, merges::AddI64)),
            "max" => Ok(options.merge_with(name, merges::Max)),
            "append" => Ok(options.merge_with(name, merges::Append)),
            "union_set" => Ok(options.merge_with(name, merges::UnionSet)),
            other => Err(PyValueError::new_err(format!("there is no merge {other:?}"))),
        },
        Named::Functions(merge, combine) => {
            Ok(options.merge_with(name, Functions { merge, combine: Some(combine) }))
        }
        Named::Function(merge) => Ok(options.merge_with(name, Functions { merge, combine: None })),
    }
}

/// Calls a function with bytes or `None`, and bytes; what it returns, or why it did not, in words.
fn called(function: &Py<PyAny>, first: Option<&[u8]>, second: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let call = |py: Python<'_>| {
        let first = first.map(|bytes| PyBytes::new(py, bytes));
        let made = function.bind(py).call1((first, PyBytes::new(py, second)));
        let made = made.and_then(|made| made.extract::<Option<Octets>>());
        made.map(|made| made.map(|made| made.to_vec())).map_err(|raised| raised.to_string())
    };
    // It is not to be had while Python ends.
    Python::try_attach(call).unwrap_or_else(|| Err("Python has ended".into()))
}

impl Merge for Functions {
    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
        called(&self.merge, old, delta)
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        // One that fails is kept as two.
        called(self.combine.as_ref()?, Some(older), newer).ok().flatten()
    }
}
