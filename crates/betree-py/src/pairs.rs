//! Iterators over pairs.

use betree_store::OwnedIter;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::convert::{Pair, call, pair};

/// An iterator over keys and values, in their order or from the last to the first.
#[pyclass(frozen, module = "betree")]
pub struct Pairs {
    pairs: Mutex<OwnedIter>,
    reverse: bool,
}

impl Pairs {
    pub fn new(pairs: OwnedIter, reverse: bool) -> Pairs {
        Pairs { pairs: Mutex::new(pairs), reverse }
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
