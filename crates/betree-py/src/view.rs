//! Views: one moment of all dictionaries.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};

use crate::convert::{Octets, Pair, bytes, call, pair, range};
use crate::ending::detach;
use crate::held::Held;
use crate::pairs::Pairs;
use crate::store::Store;

/// One moment of a store, and a context manager that ends it.
#[pyclass(subclass, frozen, module = "betree")]
pub struct View {
    view: Held<betree_store::View>,
    store: Py<Store>,
}

#[pymethods]
impl View {
    /// Begins a view of this moment.
    #[new]
    fn new(py: Python<'_>, store: Py<Store>) -> View {
        let opened = store.get();
        let view = detach(py, || opened.store.view());
        View { view: Held::new(view), store }
    }

    /// The names of all dictionaries that there were, in order.
    fn dicts(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        call(py, || self.view.dicts())
    }

    /// The number of the last change that it sees.
    #[getter]
    fn last_change(&self) -> u64 {
        self.view.last_change()
    }

    /// Ends it: reads of its dictionaries fail from then on, and the space of what it held comes back.
    fn end(&self, py: Python<'_>) {
        detach(py, || self.view.end());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) {
        self.end(py);
    }
}

/// A dictionary as it was when a view began.
#[pyclass(subclass, frozen, module = "betree")]
pub struct ViewDict {
    dict: Held<betree_store::ViewDict>,
    store: Py<Store>,
}

#[pymethods]
impl ViewDict {
    /// The dictionary that had the name when the view began.
    #[new]
    fn new(py: Python<'_>, view: &View, name: &str) -> PyResult<ViewDict> {
        let dict = call(py, || view.view.dict(name))?;
        Ok(ViewDict { dict: Held::new(dict), store: view.store.clone_ref(py) })
    }

    /// The name that it had.
    #[getter]
    fn name(&self) -> &str {
        self.dict.name()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Octets) -> PyResult<Bound<'py, PyBytes>> {
        match call(py, || self.dict.get(&key))? {
            Some(value) => Ok(bytes(py, &value)),
            None => Err(PyKeyError::new_err(PyBytes::new(py, &key).unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Octets) -> PyResult<bool> {
        call(py, || self.dict.contains(&key))
    }

    /// The value that a key had, or the default.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Octets,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(call(py, || self.dict.get(&key))?.map(|value| bytes(py, &value).into_any()).or(default))
    }

    /// The values of several keys, in the order of these; `None` for those that were not there.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Octets>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = call(py, || self.dict.get_many(&keys))?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| bytes(py, value))).collect())
    }

    /// The pairs from the key `lo` on and before `hi`, in the order of the keys or against it.
    #[pyo3(signature = (lo=None, hi=None, *, reverse=false))]
    fn range(&self, py: Python<'_>, lo: Option<Octets>, hi: Option<Octets>, reverse: bool) -> Pairs {
        Pairs::new(self.dict.owned_range::<&[u8]>(range(&lo, &hi)), reverse, self.store.clone_ref(py))
    }

    /// The pairs whose keys begin with a prefix, in the order of the keys or against it.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, py: Python<'_>, prefix: Octets, reverse: bool) -> Pairs {
        Pairs::new(self.dict.owned_prefix(&prefix), reverse, self.store.clone_ref(py))
    }

    /// The first pair, or `None`.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        Ok(call(py, || self.dict.first())?.map(|first| pair(py, &first)))
    }

    /// The last pair, or `None`.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        Ok(call(py, || self.dict.last())?.map(|last| pair(py, &last)))
    }
}
