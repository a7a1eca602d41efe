//! redb, a copy-on-write B-tree in Rust.
//!
//! Each batch is a transaction that is not durable; `sync` is an empty durable one. Its cache has the whole
//! budget.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::{Budget, Isolation, See, Store, Synced, Transactional, added};
use crate::data::Key;

const PAIRS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pairs");

/// An open database.
#[derive(Clone)]
pub struct Redb {
    db: Arc<Database>,
}

impl Redb {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<Redb> {
        let mut builder = Database::builder();
        builder.set_cache_size(budget.cache_bytes as usize);
        let mut redb = Redb { db: Arc::new(builder.create(dir.join("db"))?) };
        // Reads need a table.
        redb.change(|_| Ok(()))?;
        Ok(redb)
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut Table<'_, &'static [u8], &'static [u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::None)?;
        change(&mut transaction.open_table(PAIRS)?)?;
        Ok(transaction.commit()?)
    }
}

impl Synced for Redb {
    fn sync(&mut self) -> Result<()> {
        Ok(self.db.begin_write()?.commit()?)
    }
}

impl Store for Redb {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(self.clone()))
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        self.change(|table| {
            for (key, value) in pairs {
                table.insert(key.as_slice(), value.as_slice())?;
            }
            Ok(())
        })
    }

    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()> {
        self.change(|table| {
            for (key, delta) in additions {
                let value = table.get(key.as_slice())?.map(|value| added(value.value(), *delta));
                if let Some(value) = value {
                    table.insert(key.as_slice(), value.as_slice())?;
                }
            }
            Ok(())
        })
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.change(|table| {
            table.remove(key.as_slice())?;
            Ok(())
        })
    }

    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()> {
        self.change(|table| Ok(table.retain_in(from.as_slice()..until.as_slice(), |_, _| false)?))
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let table = self.db.begin_read()?.open_table(PAIRS)?;
        Ok(table.get(key.as_slice())?.map(|value| value.value().to_vec()))
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        let table = self.db.begin_read()?.open_table(PAIRS)?;
        for pair in table.range(from.as_slice()..)?.take(pairs_max) {
            let (key, value) = pair?;
            see(key.value(), value.value());
        }
        Ok(())
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        let table = self.db.begin_read()?.open_table(PAIRS)?;
        for pair in table.iter()?.rev().take(pairs_max) {
            let (key, value) = pair?;
            see(key.value(), value.value());
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// One writer at a time.
impl Transactional for Redb {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(Box::new(self.clone()))
    }

    fn update(
        &mut self,
        _isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        self.change(|table| {
            let new = change(table.get(key.as_slice())?.as_ref().map(|value| value.value()));
            table.insert(key.as_slice(), new.as_slice())?;
            Ok(())
        })
    }
}
