//! Batches: changes that are made together.

use betree_store::WriteBatch;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::convert::{Octets, call, range};
use crate::dict::Dict;
use crate::ending::detach;
use crate::held::Held;
use crate::store::Store;

/// Changes of any dictionaries of one store, made as one: by `commit`, or at the end of a `with` block, which
/// makes none of them where it ends with an exception.
#[pyclass(frozen, module = "betree")]
pub struct Batch {
    batch: Held<Mutex<WriteBatch>>,
    /// So that it is closed before Python ends.
    _store: Py<Store>,
}

impl Batch {
    pub fn new(batch: WriteBatch, store: Py<Store>) -> Batch {
        Batch { batch: Held::new(Mutex::new(batch)), _store: store }
    }

    fn add(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut WriteBatch) -> betree_store::Result<()> + Send,
    ) -> PyResult<()> {
        // Another thread may have it for a commit.
        call(py, || change(&mut self.batch.lock()))
    }
}

#[pymethods]
impl Batch {
    /// Sets the value of a key.
    fn put(&self, py: Python<'_>, dict: &Dict, key: Octets, value: Octets) -> PyResult<()> {
        self.add(py, |batch| batch.put(&dict.dict, &key, &value))
    }

    /// Removes a key, if it is there.
    fn delete(&self, py: Python<'_>, dict: &Dict, key: Octets) -> PyResult<()> {
        self.add(py, |batch| batch.delete(&dict.dict, &key))
    }

    /// Changes the value of a key by the dictionary's merge.
    fn upsert(&self, py: Python<'_>, dict: &Dict, key: Octets, delta: Octets) -> PyResult<()> {
        self.add(py, |batch| batch.upsert(&dict.dict, &key, &delta))
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
        self.add(py, |batch| batch.delete_range::<&[u8]>(&dict.dict, range(&lo, &hi)))
    }

    /// Removes every key that begins with a prefix.
    fn delete_prefix(&self, py: Python<'_>, dict: &Dict, prefix: Octets) -> PyResult<()> {
        self.add(py, |batch| batch.delete_prefix(&dict.dict, &prefix))
    }

    /// Makes the changes, and empties the batch. Where it fails, the batch stays as it is.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.add(py, |batch| {
            batch.commit()?;
            batch.clear();
            Ok(())
        })
    }

    /// Forgets the changes.
    fn clear(&self, py: Python<'_>) {
        detach(py, || self.batch.lock().clear());
    }

    /// The number of changes.
    fn __len__(&self, py: Python<'_>) -> usize {
        detach(py, || self.batch.lock().len())
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
        if exception.is_none() {
            return self.commit(py);
        }
        self.clear(py);
        Ok(())
    }
}
