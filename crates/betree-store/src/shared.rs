//! What a store, its dictionaries and its iterators share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use betree::{Batch, Compression, Env};
use betree_std::{FileDevice, Workers};
use parking_lot::{Mutex, RwLock};

use crate::catalogue::{self, Catalogue, Entry};
use crate::error::{Error, Result};
use crate::expiring::{Deltas, TimeNs};
use crate::freeing::carry_out_deletes;
use crate::keys::Keys;
use crate::merge::Merges;
use crate::options::{DictOptions, Durability};
use crate::sweep::Sweeper;

/// An open store. The locks are taken in this order: catalogue, `DictState::changing` by number, names.
pub(crate) struct Shared {
    pub env: Arc<Env>,
    pub workers: Mutex<Option<Workers>>,
    /// Removes what has expired. Dropped before `workers`.
    pub sweeper: Mutex<Option<Sweeper>>,
    pub file: Arc<FileDevice>,
    pub path: PathBuf,
    pub merges: Arc<Merges>,
    pub cache_bytes: usize,
    pub compression: Compression,
    pub durability: Durability,
    pub read_only: bool,
    pub catalogue: Arc<Mutex<Catalogue>>,
    /// The next generation of a value in parts.
    pub generation: AtomicU64,
    /// Taken by transactions that failed again and again.
    pub turn: Mutex<()>,
    /// A thread closes it: the engine takes no changes from other threads.
    pub closing: AtomicBool,
    pub closed: AtomicBool,
}

/// So many ranges that were changed as wholes are told apart; with more, all keys count.
const WHOLES_MAX: usize = 1024;

/// Whether a dictionary is there.
const LIVE: u8 = 0;
const DROPPED: u8 = 1;
const UNMADE: u8 = 2;

/// A dictionary, as all its handles see it.
pub(crate) struct DictState {
    /// What its keys begin with; no other dictionary ever has it.
    pub number: u32,
    /// The name of its merge.
    pub merge: Option<String>,
    /// Whether its values may expire.
    pub is_expiring: bool,
    /// Before this time nothing in it expires, as far as is known.
    earliest_ns: AtomicI64,
    /// Shared by whoever changes pairs, alone for who drops it, or must see what it changes.
    pub changing: RwLock<()>,
    has_parts: AtomicBool,
    /// If it is the work of a large transaction: the keys that were changed as wholes.
    wholes: Option<Mutex<Vec<Keys>>>,
    standing: AtomicU8,
    name: Mutex<String>,
}

impl DictState {
    pub fn new(name: &str, entry: Entry) -> DictState {
        DictState {
            number: entry.number,
            merge: entry.merge,
            is_expiring: entry.is_expiring,
            earliest_ns: AtomicI64::new(TimeNs::MIN),
            changing: RwLock::new(()),
            has_parts: AtomicBool::new(entry.has_parts),
            wholes: None,
            standing: AtomicU8::new(LIVE),
            name: Mutex::new(name.into()),
        }
    }

    /// One that a transaction makes, and that is there for nobody else yet.
    pub fn unmade(name: &str, entry: Entry) -> DictState {
        let state = DictState::new(name, entry);
        state.standing.store(UNMADE, Ordering::SeqCst);
        state
    }

    /// One that a large transaction works in, to which no name leads.
    pub fn of_large(name: &str, entry: Entry) -> DictState {
        DictState { wholes: Some(Mutex::default()), ..DictState::new(name, entry) }
    }

    /// Whether a large transaction works in it.
    pub fn is_of_large(&self) -> bool {
        self.wholes.is_some()
    }

    /// Notes that keys are changed as a whole, if somebody wants to know: what others have put among them
    /// counts then. It is called before the change.
    pub fn note_whole(&self, keys: &Keys) {
        let Some(wholes) = &self.wholes else { return };
        let mut wholes = wholes.lock();
        if wholes.len() == WHOLES_MAX {
            *wholes = vec![Keys::Prefix(Vec::new())];
        }
        wholes.push(keys.clone());
    }

    /// The keys that were changed as wholes.
    pub fn wholes(&self) -> Vec<Keys> {
        self.wholes.as_ref().map_or_else(Vec::new, |wholes| wholes.lock().clone())
    }

    /// Its entry in the catalogue.
    pub fn entry(&self) -> Entry {
        let (number, is_expiring) = (self.number, self.is_expiring);
        Entry { number, has_parts: self.has_parts(), is_expiring, merge: self.merge.clone() }
    }

    /// Whether deltas may come to its values.
    pub fn deltas(&self) -> Deltas {
        if self.merge.is_some() { Deltas::Perhaps } else { Deltas::Never }
    }

    /// Notes that something in it expires at a time. It is called behind the change: a sweep that begins
    /// before it must not count as one that has seen it.
    pub fn note_expiry(&self, at_ns: TimeNs) {
        self.earliest_ns.fetch_min(at_ns, Ordering::SeqCst);
    }

    /// Whether something in it may have expired. If so, who asks is to sweep it, and nobody else is told.
    pub fn take_expiry(&self, now_ns: TimeNs) -> bool {
        let is_due = self.is_expiring && self.earliest_ns.load(Ordering::SeqCst) <= now_ns;
        if is_due {
            self.earliest_ns.store(TimeNs::MAX, Ordering::SeqCst);
        }
        is_due
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

    /// Says whether it is dropped or there; the caller has `changing` alone.
    pub fn set_dropped(&self, dropped: bool) {
        self.standing.store(if dropped { DROPPED } else { LIVE }, Ordering::SeqCst);
    }

    pub fn is_dropped(&self) -> bool {
        self.standing.load(Ordering::SeqCst) == DROPPED
    }

    /// Whether a transaction makes it that has not committed.
    pub fn is_unmade(&self) -> bool {
        self.standing.load(Ordering::SeqCst) == UNMADE
    }

    /// [`Error::DictDropped`], if it was; [`Error::NoSuchDict`], if it is not made yet. A reader asks after
    /// reading: what it has read may have been gone.
    pub fn refuse_if_dropped(&self) -> Result<()> {
        match self.standing.load(Ordering::SeqCst) {
            DROPPED => Err(Error::DictDropped { name: self.name() }),
            UNMADE => Err(Error::NoSuchDict { name: self.name() }),
            _ => Ok(()),
        }
    }
}

impl Shared {
    /// The time by which values have expired now.
    pub fn now_ns(&self) -> TimeNs {
        // A store has a clock.
        self.env.now_ns().unwrap_or(TimeNs::MIN)
    }

    /// Commits a batch.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        self.refuse_if_closed()?;
        self.refuse_if_read_only()?;
        self.env.commit(batch).map_err(|error| self.error(error))
    }

    /// Refuses changes of a store that was opened for reading.
    pub fn refuse_if_read_only(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly { path: self.path.clone(), why: "it was opened for reading".into() });
        }
        Ok(())
    }

    /// Refuses a new dictionary whose merge is not registered.
    pub fn refuse_unknown_merge(&self, name: &str, options: &DictOptions) -> Result<()> {
        match options.merge.as_ref().filter(|merge| !self.merges.has(merge)) {
            Some(merge) => Err(Error::UnknownMerge { merge: merge.clone(), dict: Some(name.into()) }),
            None => Ok(()),
        }
    }

    /// The number of a dictionary that a transaction makes; it stays unused if that does not commit.
    pub fn take_number(&self) -> Result<u32> {
        let mut catalogue = self.catalogue.lock();
        let number = catalogue.next;
        let next = number.checked_add(1).ok_or(Error::TooManyDicts)?;
        let mut batch = Batch::new();
        catalogue::put_next(&mut batch, next);
        self.commit(&batch)?;
        catalogue.next = next;
        Ok(number)
    }

    /// Waits until all commits are durable, if each is to be.
    pub fn settle(&self) -> Result<()> {
        match self.durability {
            Durability::PerCommit => self.env.sync().map_err(|error| self.error(error)),
            Durability::Every(_) | Durability::Manual => Ok(()),
        }
    }

    pub fn refuse_if_closed(&self) -> Result<()> {
        self.refuse_if_forked()?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed { path: self.path.clone() });
        }
        Ok(())
    }

    /// Refuses a fork of the process that has opened it.
    pub fn refuse_if_forked(&self) -> Result<()> {
        self.env.refuse_if_forked().map_err(|error| self.error_of(error))
    }

    /// The store's error for one of the engine.
    pub fn error(&self, error: betree::Error) -> Error {
        if let Err(closed) = self.refuse_if_closed() {
            return closed;
        }
        self.error_of(error)
    }

    fn error_of(&self, error: betree::Error) -> Error {
        let path = self.path.clone();
        match error {
            betree::Error::Forked { opened_by } => Error::Forked { path, opened_by },
            betree::Error::NoSpace => Error::NoSpace { path, why: "the store is full".into() },
            betree::Error::DeviceFull(_) => Error::NoSpace { path, why: error.to_string() },
            betree::Error::ReadOnly { .. } if self.closing.load(Ordering::SeqCst) => Error::Closed { path },
            betree::Error::ReadOnly { why } => Error::ReadOnly { path, why },
            betree::Error::TooLarge { what: "a batch", bytes, limit_bytes } => {
                Error::BatchTooLarge { bytes: bytes as usize, limit_bytes: limit_bytes as usize }
            }
            betree::Error::TooLarge { what: "a transaction", bytes, limit_bytes } => {
                Error::TransactionTooLarge { bytes: bytes as usize, limit_bytes: limit_bytes as usize }
            }
            betree::Error::TooManyClones { limit } => Error::TooManyClones { limit },
            betree::Error::ViewEnded => Error::ViewEnded { path },
            source => Error::Engine { path, source },
        }
    }

    /// Ends it, and releases the file. Only where the disk has no room even for the log, the store stays
    /// open, and the call can be repeated.
    pub fn close(&self) -> Result<()> {
        self.refuse_if_forked()?;
        if self.closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        if !self.read_only
            && let Err(error) = carry_out_deletes(&self.env)
        {
            tracing::debug!("the space of deletes is not released: {error}");
        }
        // Its threads end first: they hold references to the environment.
        drop(self.sweeper.lock().take());
        drop(self.workers.lock().take());
        self.closing.store(true, Ordering::SeqCst);
        let done = match self.read_only {
            true => {
                self.env.abandon();
                Ok(())
            }
            false => self.env.close(),
        };
        self.closing.store(false, Ordering::SeqCst);
        let done = match done {
            // The log takes less room than a checkpoint. With that everything is durable.
            Err(error @ (betree::Error::NoSpace | betree::Error::DeviceFull(_))) => {
                self.env.sync().map_err(|_| self.error(error))
            }
            // Repeated, it would fail again.
            done => done.map_err(|error| self.error(error)),
        };
        if !matches!(done, Err(Error::NoSpace { .. })) {
            self.release();
        }
        done
    }

    /// Ends it without another write, and releases the file.
    pub fn release(&self) {
        self.env.abandon();
        self.closed.store(true, Ordering::SeqCst);
        self.file.release();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.refuse_if_forked().is_err() {
            // The sweeper's thread is its parent's, and so is the store: nothing of it may end here.
            std::mem::forget(self.sweeper.get_mut().take());
            return;
        }
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!("closing the store failed, and what was not durable is lost: {error}");
            self.release();
        }
    }
}
