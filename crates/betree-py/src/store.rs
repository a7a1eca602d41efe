//! Stores: opening, ending, and their dictionaries by name.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use betree_store::{BackupProgress, Compression, Durability, Error, MissingMerges};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::batch::Batch;
use crate::convert::{Failure, call};
use crate::ending::detach;
use crate::held::Held;
use crate::merge::{Named, with_merge};
use crate::transaction::{Transaction, isolation_of, run};

/// An open store, and a context manager that closes it.
#[pyclass(subclass, frozen, module = "betree")]
pub struct Store {
    pub store: Held<betree_store::Store>,
}

/// "commit", "manual", or a number of seconds.
#[derive(FromPyObject)]
enum Durable {
    Every(f64),
    When(String),
}

fn no_such(what: &str, name: impl std::fmt::Debug) -> PyErr {
    PyValueError::new_err(format!("there is no {what} {name:?}"))
}

impl Durable {
    fn durability(&self) -> PyResult<Durability> {
        match self {
            Durable::Every(seconds) => match Duration::try_from_secs_f64(*seconds) {
                Ok(period) if !period.is_zero() => Ok(Durability::Every(period)),
                _ => Err(no_such("durability", seconds)),
            },
            Durable::When(when) => match &when[..] {
                "commit" => Ok(Durability::PerCommit),
                "manual" => Ok(Durability::Manual),
                other => Err(no_such("durability", other)),
            },
        }
    }
}

fn compression_of(name: &str) -> PyResult<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        other => Err(no_such("compression", other)),
    }
}

#[pymethods]
impl Store {
    /// Opens the store in a file, or makes one.
    #[new]
    #[pyo3(signature = (path, *, create=true, read_only=false, cache_bytes=None, compression=None,
        durability=None, merges=None, keep_missing_merges=false))]
    #[allow(clippy::too_many_arguments)] // By their names.
    fn new(
        py: Python<'_>,
        path: PathBuf,
        create: bool,
        read_only: bool,
        cache_bytes: Option<usize>,
        compression: Option<&str>,
        durability: Option<Durable>,
        merges: Option<BTreeMap<String, Named>>,
        keep_missing_merges: bool,
    ) -> PyResult<Store> {
        let mut options = betree_store::Store::options().create(create).read_only(read_only);
        if let Some(bytes) = cache_bytes {
            options = options.cache_bytes(bytes);
        }
        if let Some(name) = compression {
            options = options.compression(compression_of(name)?);
        }
        if let Some(durable) = durability {
            options = options.durability(durable.durability()?);
        }
        for (name, merge) in merges.unwrap_or_default() {
            options = with_merge(options, &name, merge)?;
        }
        if keep_missing_merges {
            options = options.missing_merges(MissingMerges::Keep);
        }
        let store = call(py, || options.open(&path))?;
        Ok(Store { store: Held::new(store) })
    }

    /// The path with which it was opened.
    #[getter]
    fn path(&self) -> PathBuf {
        self.store.path().to_owned()
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.store.is_closed()
    }

    /// The names of all dictionaries, in order.
    fn dicts(&self, py: Python<'_>) -> Vec<String> {
        detach(py, || self.store.dicts())
    }

    /// Renames a dictionary. Objects that stand for it stay good.
    fn rename_dict(&self, py: Python<'_>, name: &str, to: &str) -> PyResult<()> {
        call(py, || self.store.rename_dict(name, to))
    }

    /// Removes a dictionary with all that it holds, at a cost that does not depend on that.
    fn drop_dict(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        call(py, || self.store.drop_dict(name))
    }

    /// An empty batch, for a `with` block.
    fn batch(slf: &Bound<'_, Self>) -> Batch {
        Batch::new(slf.get().store.batch(), slf.clone().unbind())
    }

    /// Begins a transaction, for a `with` block, which commits it.
    #[pyo3(signature = (isolation="serializable"))]
    fn transaction(slf: &Bound<'_, Self>, isolation: &str) -> PyResult<Transaction> {
        let (isolation, opened) = (isolation_of(isolation)?, slf.get());
        let own = detach(slf.py(), || opened.store.begin(isolation).into());
        Ok(Transaction::new(own, slf.clone().unbind()))
    }

    /// Calls a function with a transaction, again after each conflict, until it commits, and returns its
    /// result.
    #[pyo3(signature = (function, *, isolation="serializable"))]
    fn run(slf: &Bound<'_, Self>, function: Py<PyAny>, isolation: &str) -> PyResult<Py<PyAny>> {
        run(slf.py(), &slf.clone().unbind(), isolation_of(isolation)?, &function)
    }

    /// Copies the store into a new file, as it is at this moment; writers go on meanwhile. The function is
    /// called with a dictionary's name, and the numbers of pairs and bytes that were copied so far; what it
    /// raises stops the copy. Where it fails, no file is left.
    #[pyo3(signature = (path, progress=None))]
    fn backup(&self, py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let mut failed = None;
        let told = |at: &BackupProgress| -> PyResult<()> {
            let Some(progress) = &progress else { return Ok(()) };
            Python::attach(|py| progress.call1(py, (&at.dict, at.pairs, at.bytes)).map(drop))
        };
        let done = detach(py, || {
            self.store.backup_while(&path, |at| match told(at) {
                Ok(()) => ControlFlow::Continue(()),
                Err(raised) => {
                    failed = Some(raised);
                    ControlFlow::Break(())
                }
            })
        });
        match (done, failed) {
            (Err(Error::BackupStopped { .. }), Some(raised)) => Err(raised),
            (done, _) => done.map_err(|error| Failure::Store(error).exception(py)),
        }
    }

    /// Makes all changes durable that were made before the call.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.store.sync())
    }

    /// Counters of what it has done, and what it takes.
    fn stats(&self, py: Python<'_>) -> BTreeMap<&'static str, u64> {
        let stats = detach(py, || self.store.stats());
        let mut all: BTreeMap<_, _> = stats.engine.iter().collect();
        all.extend([
            ("used_bytes", stats.used_bytes),
            ("free_bytes", stats.free_bytes),
            ("dicts", stats.dicts as u64),
        ]);
        all
    }

    /// Walks through everything in the file; what is wrong with it, a line each.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let found = call(py, || self.store.check())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// Makes everything durable, and releases the file, also where it fails: but after `NoSpace` the store
    /// stays open, to be closed again once there is room, or abandoned. Closed again, it does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed() {
            return Ok(());
        }
        call(py, || self.store.close())
    }

    /// Releases the file and writes nothing more to it: what is not durable is lost.
    fn abandon(&self, py: Python<'_>) {
        detach(py, || self.store.abandon());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        let closed = self.close(py);
        if closed.is_err() {
            self.abandon(py);
        }
        closed
    }
}
