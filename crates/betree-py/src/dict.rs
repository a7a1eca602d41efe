//! Dictionaries, as far as Python's mappings need it from here.

use betree_store::DictOptions;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes};

use crate::convert::{Octets, Pair, bytes, call, duration_of, pair, range, seconds_of, time_of};
use crate::ending::detach;
use crate::held::Held;
use crate::pairs::Pairs;
use crate::store::Store;
use crate::transaction::Transaction;

/// A dictionary of a store: an ordered map from bytes to bytes.
#[pyclass(subclass, frozen, module = "betree")]
pub struct Dict {
    pub dict: Held<betree_store::Dict>,
    store: Py<Store>,
}

#[pymethods]
impl Dict {
    /// Opens the dictionary of a name, as of now or as a transaction sees it. It is made where there is none
    /// and `create` is true: as a clone of another, if that is named. A transaction makes it, or finds it.
    #[new]
    #[pyo3(signature = (store, name, *, create=true, merge=None, expiring=false, clone_of=None,
        transaction=None))]
    #[allow(clippy::too_many_arguments)] // By their names.
    fn new(
        py: Python<'_>,
        store: Py<Store>,
        name: &str,
        create: bool,
        merge: Option<&str>,
        expiring: bool,
        clone_of: Option<&str>,
        transaction: Option<&Transaction>,
    ) -> PyResult<Dict> {
        let opened = store.get();
        let options = || {
            let options = merge.map_or_else(DictOptions::new, |merge| DictOptions::new().merge(merge));
            if expiring { options.expiring() } else { options }
        };
        let dict = call(py, || match (transaction, clone_of) {
            (Some(own), Some(from)) => own.own.with(|own| own.clone_dict(from, name)),
            (Some(own), _) if create => own.own.with(|own| own.create(name, &options())),
            (Some(own), _) => own.own.with(|own| own.dict(name)),
            (None, Some(from)) => opened.store.clone_dict(from, name),
            (None, None) if !create => opened.store.open_dict(name),
            (None, None) if merge.is_some() || expiring => opened.store.dict_with(name, &options()),
            (None, None) => opened.store.dict(name),
        })?;
        Ok(Dict { dict: Held::new(dict), store })
    }

    /// The name at the moment.
    #[getter]
    fn name(&self, py: Python<'_>) -> String {
        detach(py, || self.dict.name())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Octets) -> PyResult<Bound<'py, PyBytes>> {
        match call(py, || self.dict.get(&key))? {
            Some(value) => Ok(bytes(py, &value)),
            None => Err(PyKeyError::new_err(PyBytes::new(py, &key).unbind())),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: Octets, value: Octets) -> PyResult<()> {
        call(py, || self.dict.put(&key, &value))
    }

    fn __contains__(&self, py: Python<'_>, key: Octets) -> PyResult<bool> {
        call(py, || self.dict.contains(&key))
    }

    /// The value of a key, or the default.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Octets,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(call(py, || self.dict.get(&key))?.map(|value| bytes(py, &value).into_any()).or(default))
    }

    /// The values of several keys, in the order of these; `None` for those that are not there.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Octets>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = call(py, || self.dict.get_many(&keys))?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| bytes(py, value))).collect())
    }

    /// Sets the value of a key; with `ttl`, for that many seconds, with `until`, up to that time, in seconds
    /// since 1970. From then on nobody sees it.
    #[pyo3(signature = (key, value, *, ttl=None, until=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Octets,
        value: Octets,
        ttl: Option<f64>,
        until: Option<f64>,
    ) -> PyResult<()> {
        match (ttl, until) {
            (None, None) => call(py, || self.dict.put(&key, &value)),
            (Some(ttl), None) => {
                let lives = duration_of(ttl)?;
                call(py, || self.dict.put_for(&key, &value, lives))
            }
            (None, Some(until)) => {
                let expires = time_of(until)?;
                call(py, || self.dict.put_until(&key, &value, expires))
            }
            (Some(_), Some(_)) => Err(PyValueError::new_err("a value has `ttl` or `until`, not both")),
        }
    }

    /// The time at which the value of a key expires, in seconds since 1970; `None` if it never does, or there
    /// is none.
    fn expires_at(&self, py: Python<'_>, key: Octets) -> PyResult<Option<f64>> {
        Ok(call(py, || self.dict.expires_at(&key))?.map(seconds_of))
    }

    /// Whether it was made for values that expire.
    #[getter]
    fn expiring(&self) -> bool {
        self.dict.is_expiring()
    }

    /// Removes what has expired, which nobody sees anyway, and returns how many pairs that were: for whom
    /// needs their space now. It reads all pairs.
    fn remove_expired(&self, py: Python<'_>) -> PyResult<u64> {
        call(py, || self.dict.remove_expired())
    }

    /// Removes a key, if it is there, and does not read whether it is: so it is cheaper than `del`.
    fn delete(&self, py: Python<'_>, key: Octets) -> PyResult<()> {
        call(py, || self.dict.delete(&key))
    }

    /// Changes the value of a key by the dictionary's merge, without reading it.
    fn upsert(&self, py: Python<'_>, key: Octets, delta: Octets) -> PyResult<()> {
        call(py, || self.dict.upsert(&key, &delta))
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

    /// Takes the first pair out, or returns `None`. Of several threads, each gets another one.
    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        Ok(call(py, || self.dict.pop_first())?.map(|first| pair(py, &first)))
    }

    /// Takes the last pair out, or returns `None`. Of several threads, each gets another one.
    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        Ok(call(py, || self.dict.pop_last())?.map(|last| pair(py, &last)))
    }

    /// Removes every key from `lo` on and before `hi`, at a cost that does not depend on how many there are.
    #[pyo3(signature = (lo=None, hi=None))]
    fn delete_range(&self, py: Python<'_>, lo: Option<Octets>, hi: Option<Octets>) -> PyResult<()> {
        call(py, || self.dict.delete_range::<&[u8]>(range(&lo, &hi)))
    }

    /// Removes every key that begins with a prefix, at a cost that does not depend on how many there are.
    fn delete_prefix(&self, py: Python<'_>, prefix: Octets) -> PyResult<()> {
        call(py, || self.dict.delete_prefix(&prefix))
    }

    /// Removes every key, at a cost that does not depend on how many there are.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.dict.clear())
    }

    /// Makes what begins with `to` what begins with `source`, at a cost that does not depend on how much it
    /// is.
    fn clone_prefix(&self, py: Python<'_>, source: Octets, to: Octets) -> PyResult<()> {
        call(py, || self.dict.clone_prefix(&source, &to))
    }

    /// As `clone_prefix`, and what began with `source` is gone.
    fn rename_prefix(&self, py: Python<'_>, source: Octets, to: Octets) -> PyResult<()> {
        call(py, || self.dict.rename_prefix(&source, &to))
    }

    /// Rewrites a range in the order of its keys and returns the bytes that it has written.
    #[pyo3(signature = (lo=None, hi=None))]
    fn compact(&self, py: Python<'_>, lo: Option<Octets>, hi: Option<Octets>) -> PyResult<u64> {
        Ok(call(py, || self.dict.compact::<&[u8]>(range(&lo, &hi)))?.written_bytes)
    }

    /// The bytes that a range takes in the file, those of them that no clone shares, and about how many pairs
    /// it has.
    #[pyo3(signature = (lo=None, hi=None))]
    fn estimate(&self, py: Python<'_>, lo: Option<Octets>, hi: Option<Octets>) -> PyResult<(u64, u64, u64)> {
        let found = call(py, || self.dict.estimate::<&[u8]>(range(&lo, &hi)))?;
        Ok((found.stored_bytes, found.exclusive_bytes, found.pairs))
    }
}
