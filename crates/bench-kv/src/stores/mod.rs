//! The engines under test, each behind one interface in a file of its own.
//!
//! All are used alike: changes come in batches of [`BATCH_OPERATIONS`], each one commit of the
//! engine's own kind; no commit waits for the disk; one [`Store::sync`] at the end makes everything
//! durable. What is left of a commit if the process dies before that is for each engine to say: with
//! RocksDB's log all of it, with `rocksdb-no-log` and `betree` what was written out by then. Each has the same budget for what it caches, compresses with LZ4 if it compresses at
//! all, and has its defaults in all else, but for what its file says.

mod betree;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::data::{COUNTER_BYTES, Key};

/// Changes in one commit.
pub const BATCH_OPERATIONS: usize = 100;

/// Is shown pairs in the order of their keys.
pub type See<'s> = &'s mut dyn FnMut(&[u8], &[u8]);

/// One open database.
pub trait Store {
    /// Sets values, in one commit.
    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()>;

    /// Adds to the counters in front of the values of keys that are there, by whatever the engine
    /// has for it.
    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()>;

    /// Removes every key in `[from, until)`.
    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()>;

    /// The value of a key.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Shows up to `pairs_max` pairs from a key on.
    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()>;

    /// Makes everything so far durable.
    fn sync(&mut self) -> Result<()>;

    /// What the engine counts of its own work.
    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// Closes the database as a program does that ends in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What a database is opened with.
#[derive(Clone, Copy)]
pub struct Budget {
    /// For what the engine caches and buffers, in bytes.
    pub cache_bytes: u64,
    /// How large the volume of an engine is that needs to know, in bytes.
    pub volume_bytes: u64,
}

/// An engine, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The first of them is what others are compared with.
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb")]
    Rocksdb,
    /// RocksDB without its log, which makes what it has durable by writing its tables, as `Betree` does here; like
    /// `Rocksdb` in all else.
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb-no-log")]
    RocksdbNoLog,
    /// RocksDB with its merge operator for counters; like `Rocksdb` in all else.
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb-merge")]
    RocksdbMerge,
    /// This project's.
    Betree,
    /// An LSM-tree in Rust.
    #[cfg(feature = "fjall")]
    Fjall,
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
    /// Its name in the tables and on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The engine whose databases it can open.
    pub fn family(self) -> Engine {
        match self {
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbMerge | Engine::RocksdbNoLog => Engine::Rocksdb,
            other => other,
        }
    }

    /// Whether it differs from its family in what it logs, which matters where pairs are inserted.
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
            Engine::Fjall => Box::new(fjall::Fjall::open(dir, budget)?),
            Engine::Redb => Box::new(redb::Redb::open(dir, budget)?),
            #[cfg(feature = "lmdb")]
            Engine::Lmdb => Box::new(lmdb::Lmdb::open(dir, budget)?),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => Box::new(sqlite::Sqlite::open(dir, budget)?),
        })
    }
}

/// A value with a number added to its counter; one that has none stays as it is.
pub fn added(value: &[u8], delta: u64) -> Vec<u8> {
    let mut value = value.to_vec();
    if let Some(counter) = value.first_chunk_mut::<COUNTER_BYTES>() {
        *counter = u64::from_le_bytes(*counter).wrapping_add(delta).to_le_bytes();
    }
    value
}
