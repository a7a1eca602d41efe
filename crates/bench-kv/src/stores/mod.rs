//! The engines under test, each behind one interface in a file of its own.
//!
//! All are used alike: each change or batch of changes is one commit of the engine's own kind; no commit
//! waits for the disk; [`Synced::sync`] makes everything durable. If the process dies before that, engines
//! differ: RocksDB with its log keeps all commits, `rocksdb-no-log`, `betree` and `betree-store` those that
//! they had written out. Each engine has the same budget for its caches, compresses with LZ4 if it compresses
//! at all, and has its defaults otherwise, except where its file says so.
//!
//! A store is a handle of an open database, and each thread has one of its own.

mod betree;
mod betree_store;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "fjall")]
mod fjall_transactions;
#[cfg(feature = "lmdb")]
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_transactions;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::data::{COUNTER_BYTES, Key};

pub use betree_store::BetreeStore;

/// Changes in one commit of a batch.
pub const BATCH_OPERATIONS: usize = 100;

/// Receives pairs in the order of their keys.
pub type See<'s> = &'s mut dyn FnMut(&[u8], &[u8]);

/// A handle of an open database that can make it durable.
pub trait Synced: Send {
    /// Makes all commits so far durable.
    fn sync(&mut self) -> Result<()>;
}

/// A handle of an open database, for one thread.
pub trait Store: Synced {
    /// Another handle, for another thread. It is dropped before the first is closed.
    fn another(&self) -> Result<Box<dyn Store>>;

    /// Puts pairs, in one commit.
    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()>;

    /// Adds to the counters at the start of existing values, by the best means of the engine.
    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()>;

    /// Deletes a key.
    fn delete(&mut self, key: &Key) -> Result<()>;

    /// Deletes all keys in `[from, until)`.
    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()>;

    /// The value of a key.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Passes up to `pairs_max` pairs, from a key on, to `see`.
    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()>;

    /// Passes up to `pairs_max` pairs to `see`, from the last on backwards.
    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()>;

    /// The engine's own counters.
    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// Closes the database cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What a transaction is kept from seeing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Changes that were made since it began; two of them that change one key do not both commit.
    Snapshot,
    /// Anything but what it would see if transactions ran one after the other.
    Serializable,
}

/// A handle of an open database with transactions, for one thread. The database is closed with the last.
pub trait Transactional: Synced {
    /// Another handle, for another thread.
    fn another(&self) -> Result<Box<dyn Transactional>>;

    /// Whether it has transactions of that isolation.
    fn has(&self, isolation: Isolation) -> bool {
        isolation == Isolation::Serializable
    }

    /// Gets a key and puts what `change` makes of its value, in one transaction. After a conflict it is done
    /// again, `change` too, until it commits.
    fn update(
        &mut self,
        isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()>;
}

/// The resources of a database.
#[derive(Clone, Copy)]
pub struct Budget {
    /// Bytes for caches and buffers.
    pub cache_bytes: u64,
    /// The size of the volume, for an engine that needs it.
    pub volume_bytes: u64,
}

impl Budget {
    /// Of a memory limit a quarter for caches and buffers, and a volume of thrice the data.
    pub fn of(memory_bytes: u64, data_bytes: u64) -> Budget {
        Budget { cache_bytes: memory_bytes / 4, volume_bytes: data_bytes * 3 + (64 << 20) }
    }
}

/// An engine, and the way in which it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// RocksDB. The others are compared with the first engine.
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb")]
    Rocksdb,
    /// RocksDB without its log: `sync` writes its tables, as that of `Betree` does here. Otherwise like
    /// `Rocksdb`.
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb-no-log")]
    RocksdbNoLog,
    /// RocksDB with its merge operator for counters. Otherwise like `Rocksdb`.
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb-merge")]
    RocksdbMerge,
    /// RocksDB with its own settings, for suites; its transactions are the optimistic ones.
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb-defaults")]
    RocksdbDefaults,
    /// The engine of this project.
    Betree,
    /// The store of this project over it.
    BetreeStore,
    /// An LSM-tree in Rust; its transactions are the optimistic ones.
    #[cfg(feature = "fjall")]
    Fjall,
    /// Fjall with transactions of one writer at a time.
    #[cfg(feature = "fjall")]
    FjallSingleWriter,
    /// A copy-on-write B-tree in Rust.
    Redb,
    /// A copy-on-write B-tree in mapped memory.
    #[cfg(feature = "lmdb")]
    Lmdb,
    /// A B-tree with a log.
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl Engine {
    /// The name in tables and on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The engine with whose loaded databases it starts.
    pub fn family(self) -> Engine {
        match self {
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbMerge | Engine::RocksdbNoLog => Engine::Rocksdb,
            other => other,
        }
    }

    /// Whether it takes part in workloads that are no suites.
    pub fn is_workload_engine(self) -> bool {
        match self {
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbDefaults => false,
            #[cfg(feature = "fjall")]
            Engine::FjallSingleWriter => false,
            _ => true,
        }
    }

    /// Whether suites compare it: one of each family, RocksDB with its defaults.
    pub fn is_peer(self) -> bool {
        match self {
            Engine::BetreeStore | Engine::Redb => true,
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbDefaults => true,
            #[cfg(feature = "fjall")]
            Engine::Fjall => true,
            #[cfg(feature = "lmdb")]
            Engine::Lmdb => true,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => true,
            _ => false,
        }
    }

    /// Whether the suite of transactions compares it.
    pub fn is_transactional(self) -> bool {
        match self {
            #[cfg(feature = "fjall")]
            Engine::FjallSingleWriter => true,
            other => other.is_peer(),
        }
    }

    /// Whether it differs from its family in logging, which matters for inserts.
    pub fn is_unlogged(self) -> bool {
        match self {
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbNoLog => true,
            _ => false,
        }
    }

    /// Opens the database in a directory, or makes one.
    pub fn open(self, dir: &Path, budget: Budget) -> Result<Box<dyn Store>> {
        Ok(match self {
            Engine::Betree => Box::new(betree::Betree::open(dir, budget)?),
            Engine::BetreeStore => Box::new(BetreeStore::open(dir, budget)?),
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbDefaults => {
                let settings = rocksdb::Settings::Defaults;
                let used = rocksdb::Use { settings, ..rocksdb::Use::default() };
                Box::new(rocksdb::Rocksdb::open(dir, budget, used)?)
            }
            #[cfg(feature = "rocksdb")]
            Engine::Rocksdb => Box::new(rocksdb::Rocksdb::open(dir, budget, rocksdb::Use::default())?),
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbNoLog => {
                let unlogged = rocksdb::Use { is_logged: false, ..rocksdb::Use::default() };
                Box::new(rocksdb::Rocksdb::open(dir, budget, unlogged)?)
            }
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbMerge => {
                let merged = rocksdb::Use { counters: rocksdb::Counters::Merged, ..rocksdb::Use::default() };
                Box::new(rocksdb::Rocksdb::open(dir, budget, merged)?)
            }
            #[cfg(feature = "fjall")]
            Engine::Fjall | Engine::FjallSingleWriter => Box::new(fjall::Fjall::open(dir, budget)?),
            Engine::Redb => Box::new(redb::Redb::open(dir, budget)?),
            #[cfg(feature = "lmdb")]
            Engine::Lmdb => Box::new(lmdb::Lmdb::open(dir, budget)?),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => Box::new(sqlite::Sqlite::open(dir, budget)?),
        })
    }

    /// Opens the database in a directory for transactions, or makes one.
    ///
    /// # Errors
    /// Those of the engine; it is not used for transactions.
    pub fn open_transactional(self, dir: &Path, budget: Budget) -> Result<Box<dyn Transactional>> {
        Ok(match self {
            Engine::BetreeStore => Box::new(BetreeStore::open(dir, budget)?),
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbDefaults => Box::new(rocksdb_transactions::Optimistic::open(dir, budget)?),
            #[cfg(feature = "fjall")]
            Engine::Fjall => Box::new(fjall_transactions::Optimistic::open(dir, budget)?),
            #[cfg(feature = "fjall")]
            Engine::FjallSingleWriter => Box::new(fjall_transactions::SingleWriter::open(dir, budget)?),
            Engine::Redb => Box::new(redb::Redb::open(dir, budget)?),
            #[cfg(feature = "lmdb")]
            Engine::Lmdb => Box::new(lmdb::Lmdb::open(dir, budget)?),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => Box::new(sqlite::Sqlite::open(dir, budget)?),
            other => bail!("{} is not used for transactions", other.name()),
        })
    }
}

/// A value with `delta` added to its counter; a value without a counter stays as it is.
pub fn added(value: &[u8], delta: u64) -> Vec<u8> {
    let mut value = value.to_vec();
    if let Some(counter) = value.first_chunk_mut::<COUNTER_BYTES>() {
        *counter = u64::from_le_bytes(*counter).wrapping_add(delta).to_le_bytes();
    }
    value
}
