//! The engine of this project.
//!
//! Its volume is a file on the same ext4 as the files of all others, written past the page cache. Its cache
//! includes its buffers. Its threads and its log are those of a mount, but the log is not synced every
//! second.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use betree::{Batch, Cut, DictId, Env, Geometry, Options, Upsert};
use betree_std::{FileDevice, Workers, WorkersOptions};

use super::{Budget, See, Store, Synced, added};
use crate::data::Key;

const DICT: DictId = DictId(0);
/// The least number of nodes in the cache: with fewer, nodes that are being written outgrow it.
const CACHE_NODES_MIN: u64 = 32;
/// Longer than any workload.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// An open volume with one dictionary.
pub struct Betree {
    env: Arc<Env>,
    /// Of the first handle alone.
    workers: Option<Workers>,
    batch: Batch,
}

/// Upserts add their delta to the counter at the start of the value.
struct Add;

impl Upsert for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        let delta = delta.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        old.map(|old| added(old, delta))
    }
}

impl Betree {
    /// Opens the volume in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<Betree> {
        let path = dir.join("volume");
        if !path.exists() {
            let device = Arc::new(FileDevice::create(&path, budget.volume_bytes)?);
            let usual = Geometry::for_volume(budget.volume_bytes, 1);
            let node_bytes = usual.node_bytes.min((budget.cache_bytes / CACHE_NODES_MIN) as u32);
            let basement_bytes = usual.basement_bytes.min(node_bytes);
            Env::format(device, &Geometry { node_bytes, basement_bytes, ..usual }, [1; 16])?;
        }
        let device = Arc::new(FileDevice::open(&path)?);
        let options = Options::new(budget.cache_bytes as usize, Arc::new(Add));
        let env = Arc::new(Env::open(device, options)?);
        let threads = WorkersOptions { sync_every: NEVER, ..WorkersOptions::default() };
        let workers = Workers::start(Arc::clone(&env), threads).context("no thread for the engine")?;
        Ok(Betree { env, workers: Some(workers), batch: Batch::new() })
    }

    fn commit(&mut self) -> Result<()> {
        self.env.commit(&self.batch)?;
        self.batch = Batch::new();
        Ok(())
    }
}

impl Synced for Betree {
    fn sync(&mut self) -> Result<()> {
        Ok(self.env.sync()?)
    }
}

impl Store for Betree {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(Betree { env: Arc::clone(&self.env), workers: None, batch: Batch::new() }))
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        pairs.iter().for_each(|(key, value)| self.batch.put(DICT, key, value));
        self.commit()
    }

    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()> {
        additions.iter().for_each(|(key, delta)| self.batch.upsert(DICT, key, &delta.to_le_bytes()));
        self.commit()
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.batch.delete(DICT, key);
        self.commit()
    }

    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()> {
        self.batch.delete_range(DICT, &Cut::before(*from), &Cut::before(*until));
        self.commit()
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.env.get(DICT, key)?)
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut cursor = self.env.cursor(DICT, Cut::before(*from), Cut::HIGH);
        for _ in 0..pairs_max {
            let Some((key, value)) = cursor.next()? else { break };
            see(key, value);
        }
        Ok(())
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut cursor = self.env.cursor(DICT, Cut::LOW, Cut::HIGH);
        cursor.seek(&Cut::HIGH);
        for _ in 0..pairs_max {
            let Some((key, value)) = cursor.prev()? else { break };
            see(key, value);
        }
        Ok(())
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let stats = self.env.stats();
        let counters = [
            ("device_reads", stats.device_reads),
            ("device_read_bytes", stats.device_read_bytes),
            ("device_writes", stats.device_writes),
            ("device_write_bytes", stats.device_write_bytes),
            ("log_write_bytes", stats.log_write_bytes),
            ("checkpoints", stats.checkpoints),
            ("flushes", stats.flushes),
            ("range_queries", stats.range_queries),
            ("cache_bytes", stats.cache_bytes),
            ("dirty_bytes", stats.dirty_bytes),
        ];
        counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        match self.workers {
            Some(workers) => {
                workers.stop();
                Ok(self.env.close()?)
            }
            None => Ok(()),
        }
    }
}
