//! The engines under test, each behind one interface in a file of its own.
//!
//! All are used alike: changes come in batches of [`BATCH_OPERATIONS`], each one commit of the engine's own
//! kind; no commit waits for the disk; one [`Store::sync`] at the end makes everything durable. If the
//! process dies before that, engines differ: RocksDB with its log keeps all commits, `rocksdb-no-log` and
//! `betree` keep the commits that they had written out. Each engine has the same budget for its caches,
//! compresses with LZ4 if it compresses at all, and has its defaults otherwise, except where its file says
//! so.

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

/// Receives pairs in the order of their keys.
pub type See<'s> = &'s mut dyn FnMut(&[u8], &[u8]);

/// One open database.
pub trait Store {
    /// Puts pairs, in one commit.
    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()>;

    /// Adds to the counters at the start of existing values, by the best means of the engine.
    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()>;

    /// Deletes all keys in `[from, until)`.
    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()>;

    /// The value of a key.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Passes up to `pairs_max` pairs, from a key on, to `see`.
    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()>;

    /// Makes all commits so far durable.
    fn sync(&mut self) -> Result<()>;

    /// The engine's own counters.
    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// Closes the database cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The resources of a database.
#[derive(Clone, Copy)]
pub struct Budget {
    /// Bytes for caches and buffers.
    pub cache_bytes: u64,
    /// The size of the volume, for an engine that needs it.
    pub volume_bytes: u64,
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
    /// The engine of this project.
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

/// A value with `delta` added to its counter; a value without a counter stays as it is.
pub fn added(value: &[u8], delta: u64) -> Vec<u8> {
    let mut value = value.to_vec();
    if let Some(counter) = value.first_chunk_mut::<COUNTER_BYTES>() {
        *counter = u64::from_le_bytes(*counter).wrapping_add(delta).to_le_bytes();
    }
    value
}
