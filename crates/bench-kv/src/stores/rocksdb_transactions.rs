//! RocksDB's optimistic transactions, with its defaults: a commit that finds a conflict fails, and is tried
//! again.
//!
//! Under snapshot isolation the read is one of the transaction's snapshot, and the put is checked against it;
//! to be serializable the key that is read is checked too (`GetForUpdate`).

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rocksdb::{ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions, WriteOptions};

use super::{Budget, Isolation, Synced, Transactional, rocksdb::default_options};
use crate::data::Key;

/// An open database.
pub struct Optimistic {
    db: Arc<OptimisticTransactionDB>,
}

impl Optimistic {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<Optimistic> {
        let db = OptimisticTransactionDB::open(&default_options(budget)?, dir.join("db"))?;
        Ok(Optimistic { db: Arc::new(db) })
    }

    /// One try. Whether it committed.
    fn try_update(
        &self,
        isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<bool, rocksdb::Error> {
        let mut options = OptimisticTransactionOptions::default();
        options.set_snapshot(true);
        let transaction = self.db.transaction_opt(&WriteOptions::default(), &options);
        let old = match isolation {
            Isolation::Snapshot => transaction.snapshot().get(key)?,
            Isolation::Serializable => transaction.get_for_update(key, true)?,
        };
        transaction.put(key, change(old.as_deref()))?;
        match transaction.commit() {
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => Ok(false),
            committed => committed.map(|()| true),
        }
    }
}

impl Synced for Optimistic {
    fn sync(&mut self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }
}

impl Transactional for Optimistic {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(Box::new(Optimistic { db: self.db.clone() }))
    }

    fn has(&self, _isolation: Isolation) -> bool {
        true
    }

    fn update(
        &mut self,
        isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        while !self.try_update(isolation, key, change)? {}
        Ok(())
    }
}
