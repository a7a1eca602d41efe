//! fjall's two kinds of transactions: one writer at a time, and optimistic ones, whose commit fails at a
//! conflict. Both are serializable.

use std::path::Path;

use anyhow::Result;
use fjall::{
    OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable, SingleWriterTxDatabase,
    SingleWriterTxKeyspace,
};

use super::fjall::{cache_bytes, keyspace_options};
use super::{Budget, Isolation, Synced, Transactional};
use crate::data::Key;

/// An open database of one writer at a time.
#[derive(Clone)]
pub struct SingleWriter {
    db: SingleWriterTxDatabase,
    pairs: SingleWriterTxKeyspace,
}

impl SingleWriter {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<SingleWriter> {
        let db = SingleWriterTxDatabase::builder(dir.join("db"));
        let db = db.cache_size(cache_bytes(budget)).open()?;
        let pairs = db.keyspace("pairs", || keyspace_options(budget))?;
        Ok(SingleWriter { db, pairs })
    }
}

impl Synced for SingleWriter {
    fn sync(&mut self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

impl Transactional for SingleWriter {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(Box::new(self.clone()))
    }

    fn update(
        &mut self,
        _isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        let mut transaction = self.db.write_tx();
        let old = transaction.get(&self.pairs, key)?;
        transaction.insert(&self.pairs, key.as_slice(), change(old.as_deref()));
        Ok(transaction.commit()?)
    }
}

/// An open database of optimistic transactions.
#[derive(Clone)]
pub struct Optimistic {
    db: OptimisticTxDatabase,
    pairs: OptimisticTxKeyspace,
}

impl Optimistic {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<Optimistic> {
        let db = OptimisticTxDatabase::builder(dir.join("db"));
        let db = db.cache_size(cache_bytes(budget)).open()?;
        let pairs = db.keyspace("pairs", || keyspace_options(budget))?;
        Ok(Optimistic { db, pairs })
    }
}

impl Synced for Optimistic {
    fn sync(&mut self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

impl Transactional for Optimistic {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(Box::new(self.clone()))
    }

    fn update(
        &mut self,
        _isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        loop {
            let mut transaction = self.db.write_tx()?;
            let old = transaction.get(&self.pairs, key)?;
            transaction.insert(&self.pairs, key.as_slice(), change(old.as_deref()));
            if transaction.commit()?.is_ok() {
                return Ok(());
            }
        }
    }
}
