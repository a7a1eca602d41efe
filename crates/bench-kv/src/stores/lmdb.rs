//! LMDB, a copy-on-write B-tree in mapped memory.
//!
//! Each batch is a transaction; `MDB_NOSYNC` leaves it in the page cache until `sync`. LMDB has no cache of
//! its own: it uses the page cache, within the memory limit.

use std::ops::Bound;
use std::path::Path;

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithTls};

use super::{Budget, Isolation, See, Store, Synced, Transactional, added};
use crate::data::Key;

/// The map's size is a multiple of this, in bytes.
const MAP_STEP_BYTES: u64 = 1 << 20;
/// How many times the size of a volume it has: addresses cost nothing.
const MAPS: usize = 4;

/// An open environment with one database.
#[derive(Clone)]
pub struct Lmdb {
    env: Env<WithTls>,
    pairs: Database<Bytes, Bytes>,
}

impl Lmdb {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<Lmdb> {
        let dir = dir.join("db");
        std::fs::create_dir_all(&dir)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(budget.volume_bytes.next_multiple_of(MAP_STEP_BYTES) as usize * MAPS);
        // SAFETY: the file was made for this run, and no other process has it open. A power failure could
        // tear it, but no run opens a file of an earlier one.
        #[allow(unsafe_code)]
        let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(&dir)? };
        let mut transaction = env.write_txn()?;
        let pairs = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { env, pairs })
    }
}

impl Synced for Lmdb {
    fn sync(&mut self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }
}

impl Store for Lmdb {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(self.clone()))
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in pairs {
            self.pairs.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, delta) in additions {
            let value = self.pairs.get(&transaction, key)?.map(|value| added(value, *delta));
            if let Some(value) = value {
                self.pairs.put(&mut transaction, key, &value)?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.pairs.delete(&mut transaction, key)?;
        Ok(transaction.commit()?)
    }

    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        let range = (Bound::Included(from.as_slice()), Bound::Excluded(until.as_slice()));
        self.pairs.delete_range(&mut transaction, &range)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let transaction = self.env.read_txn()?;
        Ok(self.pairs.get(&transaction, key)?.map(<[u8]>::to_vec))
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        let transaction = self.env.read_txn()?;
        let range = (Bound::Included(from.as_slice()), Bound::Unbounded);
        for pair in self.pairs.range(&transaction, &range)?.take(pairs_max) {
            let (key, value) = pair?;
            see(key, value);
        }
        Ok(())
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        let transaction = self.env.read_txn()?;
        for pair in self.pairs.rev_iter(&transaction)?.take(pairs_max) {
            let (key, value) = pair?;
            see(key, value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// One writer at a time.
impl Transactional for Lmdb {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(Box::new(self.clone()))
    }

    fn update(
        &mut self,
        _isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        let new = change(self.pairs.get(&transaction, key)?);
        self.pairs.put(&mut transaction, key, &new)?;
        Ok(transaction.commit()?)
    }
}
