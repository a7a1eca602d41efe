//! SQLite: one table of blobs, without row ids.
//!
//! It has a write-ahead log, which only checkpoints sync (`synchronous = NORMAL`). Each batch is a
//! transaction; `sync` is a checkpoint that empties the log. Its page cache has the whole budget; with
//! several threads that of each connection has as much.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rusqlite::{Connection, OptionalExtension};

use super::{Budget, Isolation, See, Store, Synced, Transactional, added};
use crate::data::Key;

const PUT: &str = "INSERT OR REPLACE INTO pairs (key, value) VALUES (?1, ?2)";
const GET: &str = "SELECT value FROM pairs WHERE key = ?1";
const SCAN: &str = "SELECT key, value FROM pairs WHERE key >= ?1 ORDER BY key LIMIT ?2";
const SCAN_BACK: &str = "SELECT key, value FROM pairs ORDER BY key DESC LIMIT ?1";
const DELETE: &str = "DELETE FROM pairs WHERE key = ?1";
const DELETE_RANGE: &str = "DELETE FROM pairs WHERE key >= ?1 AND key < ?2";

/// A connection to an open database.
pub struct Sqlite {
    db: Connection,
    dir: PathBuf,
    budget: Budget,
}

impl Sqlite {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<Sqlite> {
        let db = Connection::open(dir.join("db"))?;
        db.execute_batch(&format!(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = NORMAL;
             PRAGMA cache_size = -{};
             CREATE TABLE IF NOT EXISTS pairs (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;",
            budget.cache_bytes >> 10
        ))?;
        Ok(Sqlite { db, dir: dir.to_owned(), budget })
    }
}

impl Synced for Sqlite {
    fn sync(&mut self) -> Result<()> {
        Ok(self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?)
    }
}

impl Store for Sqlite {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(Sqlite::open(&self.dir, self.budget)?))
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        if let [(key, value)] = pairs {
            self.db.prepare_cached(PUT)?.execute((key.as_slice(), value))?;
            return Ok(());
        }
        let transaction = self.db.transaction()?;
        {
            let mut put = transaction.prepare_cached(PUT)?;
            for (key, value) in pairs {
                put.execute((key.as_slice(), value))?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()> {
        let transaction = self.db.transaction()?;
        {
            let mut get = transaction.prepare_cached(GET)?;
            let mut put = transaction.prepare_cached(PUT)?;
            for (key, delta) in additions {
                let value: Option<Vec<u8>> = get.query_row([key.as_slice()], |row| row.get(0)).optional()?;
                if let Some(value) = value {
                    put.execute((key.as_slice(), added(&value, *delta)))?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.db.prepare_cached(DELETE)?.execute([key.as_slice()])?;
        Ok(())
    }

    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()> {
        self.db.prepare_cached(DELETE_RANGE)?.execute([from.as_slice(), until.as_slice()])?;
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.db.prepare_cached(GET)?.query_row([key.as_slice()], |row| row.get(0)).optional()?)
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut scan = self.db.prepare_cached(SCAN)?;
        let limit = i64::try_from(pairs_max).unwrap_or(i64::MAX);
        let mut rows = scan.query((from.as_slice(), limit))?;
        while let Some(row) = rows.next()? {
            see(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut scan = self.db.prepare_cached(SCAN_BACK)?;
        let mut rows = scan.query([i64::try_from(pairs_max).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            see(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close().map_err(|(_, error)| error.into())
    }
}

/// One writer at a time.
impl Transactional for Sqlite {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(Box::new(Sqlite::open(&self.dir, self.budget)?))
    }

    fn update(
        &mut self,
        _isolation: Isolation,
        key: &Key,
        change: &mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        let mut get = self.db.prepare_cached(GET)?;
        let old: Option<Vec<u8>> = get.query_row([key.as_slice()], |row| row.get(0)).optional()?;
        self.db.prepare_cached(PUT)?.execute((key.as_slice(), change(old.as_deref())))?;
        self.db.prepare_cached("COMMIT")?.execute(())?;
        Ok(())
    }
}
