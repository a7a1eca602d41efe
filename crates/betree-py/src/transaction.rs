//! Transactions: reads of one moment, and changes that are made together unless others came first.

use betree_store::{Isolation, Outcome, Savepoint, SharedTransaction};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyAny, PyBytes};

use crate::convert::{Failure, Octets, bytes, call, conflict, range};
use crate::dict::Dict;
use crate::ending::detach;
use crate::held::Held;
use crate::pairs::Pairs;
use crate::store::Store;

/// Reads of one moment of a store, and changes that nobody else sees before the commit. A `with` block
/// commits at its end, and drops the changes where it ends with an exception.
#[pyclass(frozen, module = "betree")]
pub struct Transaction {
    pub own: Held<SharedTransaction>,
    store: Py<Store>,
}

/// "snapshot" or "serializable".
pub fn isolation_of(name: &str) -> PyResult<Isolation> {
    match name {
        "snapshot" => Ok(Isolation::Snapshot),
        "serializable" => Ok(Isolation::Serializable),
        other => Err(PyValueError::new_err(format!("there is no isolation {other:?}"))),
    }
}

impl Transaction {
    pub fn new(own: SharedTransaction, store: Py<Store>) -> Transaction {
        Transaction { own: Held::new(own), store }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut betree_store::Transaction) -> betree_store::Result<T> + Send,
    ) -> PyResult<T> {
        // Another thread may have it for a commit.
        call(py, || self.own.with(run))
    }

    /// A dictionary, as the class that `betree/__init__.py` makes of it.
    fn dict_of<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        create: bool,
        merge: Option<&str>,
        clone_of: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let named = [("create", create.into_pyobject(py)?.to_owned().into_any())];
        let named = named.into_py_dict(py)?;
        named.set_item("transaction", slf)?;
        named.set_item("merge", merge)?;
        named.set_item("clone_of", clone_of)?;
        let store = slf.get().store.clone_ref(py);
        py.import("betree")?.getattr("Dict")?.call((store, name), Some(&named))
    }
}

#[pymethods]
impl Transaction {
    /// The dictionary of a name, as of the beginning and with the transaction's own changes.
    fn dict<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        Transaction::dict_of(slf, name, false, None, None)
    }

    /// Makes a dictionary. It is good for this transaction, and everywhere once that has committed.
    #[pyo3(signature = (name, *, merge=None))]
    fn create_dict<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        merge: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Transaction::dict_of(slf, name, true, merge, None)
    }

    /// Makes a dictionary that holds what another one holds, as the transaction sees it.
    fn clone_dict<'py>(slf: &Bound<'py, Self>, name: &str, to: &str) -> PyResult<Bound<'py, PyAny>> {
        Transaction::dict_of(slf, to, true, None, Some(name))
    }

    /// The names of all dictionaries, in order.
    fn dicts(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |own| own.dicts())
    }

    /// Renames a dictionary.
    fn rename_dict(&self, py: Python<'_>, name: &str, to: &str) -> PyResult<()> {
        self.with(py, |own| own.rename_dict(name, to))
    }

    /// Removes a dictionary with all that it holds.
    fn drop_dict(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, |own| own.drop_dict(name))
    }

    /// The value of a key as of the beginning, with the transaction's own changes, or the default.
    #[pyo3(signature = (dict, key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        dict: &Dict,
        key: Octets,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.with(py, |own| own.get(&dict.dict, &key))?;
        Ok(found.map(|value| bytes(py, &value).into_any()).or(default))
    }

    /// The values of several keys, in the order of these; `None` for those that are not there.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        dict: &Dict,
        keys: Vec<Octets>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = self.with(py, |own| own.get_many(&dict.dict, &keys))?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| bytes(py, value))).collect())
    }

    /// Whether there is a value of a key.
    fn contains(&self, py: Python<'_>, dict: &Dict, key: Octets) -> PyResult<bool> {
        self.with(py, |own| own.contains(&dict.dict, &key))
    }

    /// Sets the value of a key.
    fn put(&self, py: Python<'_>, dict: &Dict, key: Octets, value: Octets) -> PyResult<()> {
        self.with(py, |own| own.put(&dict.dict, &key, &value))
    }

    /// Removes a key, if it is there.
    fn delete(&self, py: Python<'_>, dict: &Dict, key: Octets) -> PyResult<()> {
        self.with(py, |own| own.delete(&dict.dict, &key))
    }

    /// Changes the value of a key by the dictionary's merge.
    fn upsert(&self, py: Python<'_>, dict: &Dict, key: Octets, delta: Octets) -> PyResult<()> {
        self.with(py, |own| own.upsert(&dict.dict, &key, &delta))
    }

    /// As `upsert`, for a delta that depends on nothing that was read: it conflicts with no change of the
    /// key.
    fn upsert_blind(&self, py: Python<'_>, dict: &Dict, key: Octets, delta: Octets) -> PyResult<()> {
        self.with(py, |own| own.upsert_blind(&dict.dict, &key, &delta))
    }

    /// Removes every key from `lo` on and before `hi`.
    #[pyo3(signature = (dict, lo=None, hi=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        dict: &Dict,
        lo: Option<Octets>,
        hi: Option<Octets>,
    ) -> PyResult<()> {
        self.with(py, |own| own.delete_range::<&[u8]>(&dict.dict, range(&lo, &hi)))
    }

    /// Removes every key that begins with a prefix.
    fn delete_prefix(&self, py: Python<'_>, dict: &Dict, prefix: Octets) -> PyResult<()> {
        self.with(py, |own| own.delete_prefix(&dict.dict, &prefix))
    }

    /// Makes what begins with `to` what begins with `source`.
    fn clone_prefix(&self, py: Python<'_>, dict: &Dict, source: Octets, to: Octets) -> PyResult<()> {
        self.with(py, |own| own.clone_prefix(&dict.dict, &source, &to))
    }

    /// As `clone_prefix`, and what began with `source` is gone.
    fn rename_prefix(&self, py: Python<'_>, dict: &Dict, source: Octets, to: Octets) -> PyResult<()> {
        self.with(py, |own| own.rename_prefix(&dict.dict, &source, &to))
    }

    /// The pairs from the key `lo` on and before `hi`, with the transaction's own changes.
    #[pyo3(signature = (dict, lo=None, hi=None, *, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        dict: &Dict,
        lo: Option<Octets>,
        hi: Option<Octets>,
        reverse: bool,
    ) -> Pairs {
        let pairs = self.own.owned_range::<&[u8]>(&dict.dict, range(&lo, &hi));
        Pairs::new(pairs, reverse, self.store.clone_ref(py))
    }

    /// The pairs whose keys begin with a prefix, with the transaction's own changes.
    #[pyo3(signature = (dict, prefix, *, reverse=false))]
    fn prefix(&self, py: Python<'_>, dict: &Dict, prefix: Octets, reverse: bool) -> Pairs {
        Pairs::new(self.own.owned_prefix(&dict.dict, &prefix), reverse, self.store.clone_ref(py))
    }

    /// Makes the commit depend on a condition of a value in place of the value; whether it holds now. The
    /// function gets the value or `None`. It is called again by the commit, if the key has changed by then;
    /// there an exception counts as a condition that does not hold.
    fn expect(&self, py: Python<'_>, dict: &Dict, key: Octets, holds: Py<PyAny>) -> PyResult<bool> {
        let raised = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let first = raised.clone();
        let asked = move |value: Option<&[u8]>| {
            let call = |py: Python<'_>| {
                let value = value.map(|value| PyBytes::new(py, value));
                holds.bind(py).call1((value,))?.is_truthy()
            };
            match Python::try_attach(call) {
                Some(Ok(is_met)) => is_met,
                Some(Err(error)) => {
                    *first.lock() = Some(error);
                    false
                }
                None => false,
            }
        };
        let is_met = self.with(py, |own| own.expect(&dict.dict, &key, asked))?;
        let raised = raised.lock().take();
        raised.map_or(Ok(is_met), Err)
    }

    /// A place to which `roll_back` returns.
    fn savepoint(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |own| Ok(own.savepoint().into()))
    }

    /// Drops the changes since a savepoint, which stays; those behind it end.
    fn roll_back(&self, py: Python<'_>, savepoint: u64) -> PyResult<()> {
        match self.with(py, |own| Ok(own.roll_back(Savepoint::from(savepoint))))? {
            true => Ok(()),
            false => Err(PyValueError::new_err(format!("the transaction has no savepoint {savepoint}"))),
        }
    }

    /// Makes the changes seen, all or none, and ends the transaction: `Conflict` if another change came
    /// first.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        match call(py, || self.own.commit())? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Conflict(found) => Err(conflict(py, &found)?),
        }
    }

    /// Ends the transaction, and drops its changes. Ended again, it does nothing.
    fn abort(&self, py: Python<'_>) {
        detach(py, || self.own.end());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exception, *_raised))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: &Bound<'_, PyAny>,
        _raised: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !exception.is_none() {
            self.abort(py);
            return Ok(());
        }
        // One that the block has ended itself is at its end.
        if detach(py, || self.own.has_ended()) { Ok(()) } else { self.commit(py) }
    }
}

/// Runs a function with a transaction, again after each conflict, until it commits.
pub fn run(
    py: Python<'_>,
    store: &Py<Store>,
    isolation: Isolation,
    function: &Py<PyAny>,
) -> PyResult<Py<PyAny>> {
    let opened = store.get();
    let body = |own: &SharedTransaction| {
        Python::attach(|py| {
            let transaction = Py::new(py, Transaction::new(own.clone(), store.clone_ref(py)))?;
            Ok(function.call1(py, (transaction,))?)
        })
    };
    let done = detach(py, || opened.store.run_shared(isolation, body));
    done.map_err(|failure: Failure| failure.exception(py))
}
