//! Iterators over pairs.

use betree_store::OwnedIter;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::convert::{Pair, call, pair};
use crate::held::Held;
use crate::store::Store;

/// An iterator over keys and values, in their order or from the last to the first.
#[pyclass(frozen, module = "betree")]
pub struct Pairs {
    pairs: Held<Mutex<OwnedIter>>,
    reverse: bool,
    /// So that it is closed before Python ends.
    _store: Py<Store>,
}

impl Pairs {
    pub fn new(pairs: OwnedIter, reverse: bool, store: Py<Store>) -> Pairs {
        Pairs { pairs: Held::new(Mutex::new(pairs)), reverse, _store: store }
    }
}

#[pymethods]
impl Pairs {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        let next = call(py, || {
            let mut pairs = self.pairs.lock();
            if self.reverse { pairs.next_back() } else { pairs.next() }.transpose()
        })?;
        Ok(next.map(|next| pair(py, &next)))
    }
}
