//! What a store, its dictionaries and its iterators share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betree::{Batch, Env};
use betree_std::{FileDevice, Workers};
use parking_lot::{Mutex, RwLock};

use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use crate::merge::{MergeNumber, Merges, number_of};
use crate::options::Durability;

/// An open store. The locks are taken in this order: catalogue, `DictState::changing` by number, names.
pub(crate) struct Shared {
    pub env: Arc<Env>,
    pub workers: Mutex<Option<Workers>>,
    pub device: Arc<FileDevice>,
    pub path: PathBuf,
    pub merges: Arc<Merges>,
    pub durability: Durability,
    pub read_only: bool,
    pub catalogue: Mutex<Catalogue>,
    pub closed: AtomicBool,
}

/// A dictionary, as all its handles see it.
pub(crate) struct DictState {
    /// What its keys begin with; no other dictionary ever has it.
    pub number: u32,
    /// The name of its merge, with the number that deltas begin with.
    pub merge: Option<(String, MergeNumber)>,
    /// Shared by whoever changes pairs, alone for who drops it, or must see what it changes.
    pub changing: RwLock<()>,
    dropped: AtomicBool,
    name: Mutex<String>,
}

impl DictState {
    pub fn new(number: u32, name: &str, merge: Option<&str>) -> DictState {
        DictState {
            number,
            merge: merge.map(|merge| (merge.into(), number_of(merge))),
            changing: RwLock::new(()),
            dropped: AtomicBool::new(false),
            name: Mutex::new(name.into()),
        }
    }

    /// The name at the moment.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    pub fn set_name(&self, name: &str) {
        *self.name.lock() = name.into();
    }

    /// Says whether it is dropped; the caller has `changing` alone.
    pub fn set_dropped(&self, dropped: bool) {
        self.dropped.store(dropped, Ordering::SeqCst);
    }

    /// [`Error::DictDropped`], if it was. A reader asks after reading: what it has read may have been gone.
    pub fn refuse_if_dropped(&self) -> Result<()> {
        if self.dropped.load(Ordering::SeqCst) {
            return Err(Error::DictDropped { name: self.name() });
        }
        Ok(())
    }
}

impl Shared {
    /// Commits a batch.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        self.refuse_if_closed()?;
        if self.read_only {
            return Err(Error::ReadOnly { path: self.path.clone(), why: "it was opened for reading".into() });
        }
        self.env.commit(batch).map_err(|error| self.error(error))
    }

    /// Waits until all commits are durable, if each is to be.
    pub fn settle(&self) -> Result<()> {
        match self.durability {
            Durability::PerCommit => self.env.sync().map_err(|error| self.error(error)),
            Durability::Every(_) | Durability::Manual => Ok(()),
        }
    }

    pub fn refuse_if_closed(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed { path: self.path.clone() });
        }
        Ok(())
    }

    /// The store's error for one of the engine.
    pub fn error(&self, error: betree::Error) -> Error {
        if let Err(closed) = self.refuse_if_closed() {
            return closed;
        }
        let path = self.path.clone();
        match error {
            betree::Error::NoSpace => Error::NoSpace { path, why: "the store is full".into() },
            betree::Error::DeviceFull(_) => Error::NoSpace { path, why: error.to_string() },
            betree::Error::ReadOnly { why } => Error::ReadOnly { path, why },
            betree::Error::TooLarge { what: "a batch", bytes, limit_bytes } => {
                Error::BatchTooLarge { bytes: bytes as usize, limit_bytes: limit_bytes as usize }
            }
            source => Error::Engine { path, source },
        }
    }

    /// Ends it; a failed call can be repeated.
    pub fn close(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        // Its threads end first: they hold references to the environment.
        drop(self.workers.lock().take());
        if self.read_only {
            self.env.abandon();
        } else {
            self.env.close().map_err(|error| self.error(error))?;
        }
        self.closed.store(true, Ordering::SeqCst);
        self.device.release();
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!("closing the store failed, and what was not durable is lost: {error}");
        }
    }
}
