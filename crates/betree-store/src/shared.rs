//! What a store, its dictionaries and its iterators share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use betree::{Batch, Env};
use betree_std::{FileDevice, Workers};
use parking_lot::{Mutex, RwLock};

use crate::catalogue::{Catalogue, Entry};
use crate::error::{Error, Result};
use crate::merge::Merges;
use crate::options::Durability;

/// An open store. The locks are taken in this order: catalogue, `DictState::changing` by number, names.
pub(crate) struct Shared {
    pub env: Arc<Env>,
    pub workers: Mutex<Option<Workers>>,
    pub file: Arc<FileDevice>,
    pub path: PathBuf,
    pub merges: Arc<Merges>,
    pub durability: Durability,
    pub read_only: bool,
    pub catalogue: Mutex<Catalogue>,
    /// The next generation of a value in parts.
    pub generation: AtomicU64,
    pub closed: AtomicBool,
}

/// A dictionary, as all its handles see it.
pub(crate) struct DictState {
    /// What its keys begin with; no other dictionary ever has it.
    pub number: u32,
    /// The name of its merge.
    pub merge: Option<String>,
    /// Shared by whoever changes pairs, alone for who drops it, or must see what it changes.
    pub changing: RwLock<()>,
    has_parts: AtomicBool,
    dropped: AtomicBool,
    name: Mutex<String>,
}

impl DictState {
    pub fn new(name: &str, entry: Entry) -> DictState {
        DictState {
            number: entry.number,
            merge: entry.merge,
            changing: RwLock::new(()),
            has_parts: AtomicBool::new(entry.has_parts),
            dropped: AtomicBool::new(false),
            name: Mutex::new(name.into()),
        }
    }

    /// Its entry in the catalogue.
    pub fn entry(&self) -> Entry {
        Entry { number: self.number, has_parts: self.has_parts(), merge: self.merge.clone() }
    }

    /// Whether it may have values in parts. It does not become so while the caller has `changing`.
    pub fn has_parts(&self) -> bool {
        self.has_parts.load(Ordering::SeqCst)
    }

    /// Says that it may; the caller has `changing` alone.
    pub fn set_has_parts(&self) {
        self.has_parts.store(true, Ordering::SeqCst);
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
            betree::Error::Upsert { name, why } => Error::MergeFailed { path, merge: name, why },
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
        self.file.release();
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
