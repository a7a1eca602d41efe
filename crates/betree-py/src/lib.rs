//! The module `betree` for Python: the embedded store. `python/betree/__init__.py` makes mappings of it.
//!
//! Each method calls the one of the same name in [`betree_store`], without Python's lock, and turns a failure
//! into an exception of `betree/_errors.py`. Objects are dropped without it too ([`held`]): threads of the
//! store take it to call merges, so whoever has it must not wait for the store.
// The classes are made by macros of pyo3, whose expansions hold `unsafe`: a call from C into Rust cannot be
// without. Nothing else here may.
#![deny(unsafe_code)]

mod batch;
mod convert;
mod dict;
mod ending;
mod held;
mod merge;
mod pairs;
mod store;
mod transaction;
mod view;

use pyo3::prelude::*;

#[pymodule]
mod _betree {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::dict::Dict;
    #[pymodule_export]
    use super::ending::_end;
    #[pymodule_export]
    use super::pairs::Pairs;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::transaction::Transaction;
    #[pymodule_export]
    use super::view::View;
    #[pymodule_export]
    use super::view::ViewDict;
}
