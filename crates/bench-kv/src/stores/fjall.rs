//! fjall, an LSM-tree in Rust; leveled compaction and LZ4 are its defaults.
//!
//! Changed: memory. Half of the budget is for the block cache, and at most a quarter for a memtable.
//! Its journal is written by each commit and synced by `sync` alone. It deletes a range key by key.

use std::path::Path;

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{BATCH_OPERATIONS, Budget, See, Store, Synced, added};
use crate::data::Key;

/// The default size of a memtable.
const MEMTABLE_BYTES: u64 = 64 << 20;

/// The bytes of the block cache.
pub fn cache_bytes(budget: Budget) -> u64 {
    budget.cache_bytes / 2
}

/// The settings of the keyspace.
pub fn keyspace_options(budget: Budget) -> KeyspaceCreateOptions {
    let memtable_bytes = MEMTABLE_BYTES.min(budget.cache_bytes / 4);
    KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes)
}

/// An open database.
#[derive(Clone)]
pub struct Fjall {
    db: Database,
    pairs: Keyspace,
}

impl Fjall {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<Fjall> {
        let db = Database::builder(dir.join("db")).cache_size(cache_bytes(budget)).open()?;
        let pairs = db.keyspace("pairs", || keyspace_options(budget))?;
        Ok(Fjall { db, pairs })
    }
}

impl Synced for Fjall {
    fn sync(&mut self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

impl Store for Fjall {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(self.clone()))
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        if let [(key, value)] = pairs {
            return Ok(self.pairs.insert(key.as_slice(), value.as_slice())?);
        }
        let mut batch = self.db.batch();
        for (key, value) in pairs {
            batch.insert(&self.pairs, key.as_slice(), value.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()> {
        for (key, delta) in additions {
            if let Some(value) = self.pairs.get(key)? {
                self.pairs.insert(key.as_slice(), added(&value, *delta))?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Ok(self.pairs.remove(key.as_slice())?)
    }

    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()> {
        let doomed = self.pairs.range(from.as_slice()..until.as_slice()).map(fjall::Guard::key);
        let doomed = doomed.collect::<Result<Vec<_>, _>>()?;
        for keys in doomed.chunks(BATCH_OPERATIONS) {
            let mut batch = self.db.batch();
            keys.iter().for_each(|key| batch.remove(&self.pairs, key.clone()));
            batch.commit()?;
        }
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.pairs.get(key)?.map(|value| value.to_vec()))
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        for pair in self.pairs.range(from.as_slice()..).take(pairs_max) {
            let (key, value) = pair.into_inner()?;
            see(&key, &value);
        }
        Ok(())
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        for pair in self.pairs.iter().rev().take(pairs_max) {
            let (key, value) = pair.into_inner()?;
            see(&key, &value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
