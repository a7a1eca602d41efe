//! RocksDB: tuned, with its write-ahead log or without, or with its defaults.
//!
//! Tuned, leveled compaction has its defaults. Changed: LZ4 in place of Snappy, Bloom filters of 10 bits a
//! key, and memory: half of the budget is for the block cache, half for the write buffers, which have at most
//! their default size. With its defaults it has the whole budget as a block cache, and write buffers of 64
//! MiB on top. Each commit writes the log, and only `sync` syncs it; without a log, `sync` writes out the
//! write buffers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, MergeOperands, Options, WriteBatch, WriteOptions,
};

use super::{Budget, See, Store, Synced, added};
use crate::data::Key;

const BLOOM_BITS_PER_KEY: f64 = 10.0;

/// The way to add to counters.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Counters {
    /// Reads the value and puts a new one.
    #[default]
    Rewritten,
    /// Uses the merge operator.
    Merged,
}

/// The settings beside the cache.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Settings {
    /// As the module says.
    #[default]
    Tuned,
    /// RocksDB's own.
    Defaults,
}

/// The parts of RocksDB to use.
#[derive(Clone, Copy)]
pub struct Use {
    /// The way to add to counters.
    pub counters: Counters,
    /// Whether commits are logged.
    pub is_logged: bool,
    /// Its settings.
    pub settings: Settings,
}

impl Default for Use {
    fn default() -> Use {
        Use { counters: Counters::default(), is_logged: true, settings: Settings::default() }
    }
}

/// An open database.
pub struct Rocksdb {
    db: Arc<DB>,
    used: Use,
    write: WriteOptions,
}

/// The value with all additions; without a value, their sum.
fn merge(_key: &[u8], old: Option<&[u8]>, deltas: &MergeOperands) -> Option<Vec<u8>> {
    let sum = deltas.iter().filter_map(|delta| delta.first_chunk());
    let sum = sum.fold(0_u64, |sum, delta| sum.wrapping_add(u64::from_le_bytes(*delta)));
    Some(old.map_or_else(|| sum.to_le_bytes().to_vec(), |old| added(old, sum)))
}

/// RocksDB's defaults, with the budget as its block cache.
pub fn default_options(budget: Budget) -> Result<Options> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(budget.cache_bytes as usize)?);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_merge_operator_associative("add", merge);
    Ok(options)
}

fn tuned_options(budget: Budget) -> Result<Options> {
    let budget_bytes = budget.cache_bytes as usize;
    let cache = Cache::new_lru_cache(budget_bytes / 2)?;
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_block_based_table_factory(&blocks);
    options.set_db_write_buffer_size(budget_bytes / 2);
    options.set_merge_operator_associative("add", merge);
    Ok(options)
}

fn write_options(used: Use) -> WriteOptions {
    let mut write = WriteOptions::default();
    write.disable_wal(!used.is_logged);
    write
}

impl Rocksdb {
    /// Opens the database in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget, used: Use) -> Result<Rocksdb> {
        let options = match used.settings {
            Settings::Tuned => tuned_options(budget)?,
            Settings::Defaults => default_options(budget)?,
        };
        let db = Arc::new(DB::open(&options, dir.join("db"))?);
        Ok(Rocksdb { db, used, write: write_options(used) })
    }
}

impl Synced for Rocksdb {
    fn sync(&mut self) -> Result<()> {
        if self.used.is_logged {
            self.db.flush_wal(true)?;
        } else {
            self.db.flush()?;
        }
        Ok(())
    }
}

impl Store for Rocksdb {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(Rocksdb { db: self.db.clone(), used: self.used, write: write_options(self.used) }))
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        if let [(key, value)] = pairs {
            return Ok(self.db.put_opt(key, value, &self.write)?);
        }
        let mut batch = WriteBatch::default();
        pairs.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()> {
        match self.used.counters {
            Counters::Merged => {
                let mut batch = WriteBatch::default();
                additions.iter().for_each(|(key, delta)| batch.merge(key, delta.to_le_bytes()));
                self.db.write_opt(batch, &self.write)?;
            }
            Counters::Rewritten => {
                for (key, delta) in additions {
                    if let Some(value) = self.db.get_pinned(key)? {
                        self.db.put_opt(key, added(&value, *delta), &self.write)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(from, until);
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.db.get(key)?)
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek(from);
        for _ in 0..pairs_max {
            let Some((key, value)) = iterator.item() else { break };
            see(key, value);
            iterator.next();
        }
        Ok(iterator.status()?)
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek_to_last();
        for _ in 0..pairs_max {
            let Some((key, value)) = iterator.item() else { break };
            see(key, value);
            iterator.prev();
        }
        Ok(iterator.status()?)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let named = ["estimate-pending-compaction-bytes", "total-sst-files-size", "cur-size-all-mem-tables"];
        let value = |name: &str| self.db.property_int_value(&format!("rocksdb.{name}")).ok().flatten();
        named.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.db);
        Ok(())
    }
}
