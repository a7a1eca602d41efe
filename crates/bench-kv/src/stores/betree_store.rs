//! The embedded store of this project, over the engine.
//!
//! Its cache includes its buffers; `sync` alone makes commits durable. It has one dictionary, whose merge
//! adds to the counter at the start of a value.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use betree_store::{Dict, DictOptions, Durability, Isolation as Kind};

use super::{Budget, Isolation, See, Store, Synced, Transactional, added};
use crate::data::{COUNTER_BYTES, Key};

/// The name of the merge.
const ADD: &str = "add";

/// An open store.
pub struct BetreeStore {
    store: betree_store::Store,
    pairs: Dict,
}

/// A value with a delta added to its counter; there is nothing to add to where there is no value.
fn add(old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
    let delta = delta.first_chunk::<COUNTER_BYTES>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    old.map(|old| added(old, delta))
}

impl BetreeStore {
    /// The name of the dictionary.
    pub const DICT: &str = "pairs";

    /// Opens the store in a directory, or makes one.
    pub fn open(dir: &Path, budget: Budget) -> Result<BetreeStore> {
        let options = betree_store::Store::options()
            .cache_bytes(budget.cache_bytes as usize)
            .durability(Durability::Manual)
            .merge(ADD, add);
        let store = options.open(dir.join("store"))?;
        let pairs = store.dict_with(BetreeStore::DICT, &DictOptions::new().merge(ADD))?;
        Ok(BetreeStore { store, pairs })
    }

    /// The store itself, for what others do not have.
    pub fn store(&self) -> &betree_store::Store {
        &self.store
    }

    fn handle(&self) -> Box<BetreeStore> {
        Box::new(BetreeStore { store: self.store.clone(), pairs: self.pairs.clone() })
    }
}

impl Synced for BetreeStore {
    fn sync(&mut self) -> Result<()> {
        Ok(self.store.sync()?)
    }
}

impl Store for BetreeStore {
    fn another(&self) -> Result<Box<dyn Store>> {
        Ok(self.handle())
    }

    fn put(&mut self, pairs: &[(Key, Vec<u8>)]) -> Result<()> {
        if let [(key, value)] = pairs {
            return Ok(self.pairs.put(key, value)?);
        }
        let mut batch = self.store.batch();
        pairs.iter().try_for_each(|(key, value)| batch.put(&self.pairs, key, value))?;
        Ok(batch.commit()?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Ok(self.pairs.delete(key)?)
    }

    fn add(&mut self, additions: &[(Key, u64)]) -> Result<()> {
        let mut batch = self.store.batch();
        for (key, delta) in additions {
            batch.upsert(&self.pairs, key, delta.to_le_bytes())?;
        }
        Ok(batch.commit()?)
    }

    fn delete_range(&mut self, from: &Key, until: &Key) -> Result<()> {
        Ok(self.pairs.delete_range::<&Key>(from..until)?)
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.pairs.get(key)?.map(Vec::from))
    }

    fn scan(&self, from: &Key, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut pairs = self.pairs.range::<&Key>(from..);
        for _ in 0..pairs_max {
            let Some((key, value)) = pairs.next_lent()? else { break };
            see(key, &value);
        }
        Ok(())
    }

    fn scan_back(&self, pairs_max: usize, see: See<'_>) -> Result<()> {
        let mut pairs = self.pairs.iter();
        for _ in 0..pairs_max {
            let Some((key, value)) = pairs.next_back_lent()? else { break };
            see(key, &value);
        }
        Ok(())
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let stats = self.store.stats();
        let counters = [
            ("device_reads", stats.engine.device_reads),
            ("device_read_bytes", stats.engine.device_read_bytes),
            ("device_writes", stats.engine.device_writes),
            ("device_write_bytes", stats.engine.device_write_bytes),
            ("log_write_bytes", stats.engine.log_write_bytes),
            ("checkpoints", stats.engine.checkpoints),
            ("used_bytes", stats.used_bytes),
        ];
        counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.store.close()?)
    }
}

impl Transactional for BetreeStore {
    fn another(&self) -> Result<Box<dyn Transactional>> {
        Ok(self.handle())
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
        let isolation = match isolation {
            Isolation::Snapshot => Kind::Snapshot,
            Isolation::Serializable => Kind::Serializable,
        };
        Ok(self.store.run(isolation, |transaction| {
            let old = transaction.get(&self.pairs, key)?;
            transaction.put(&self.pairs, key, change(old.as_deref()))
        })?)
    }
}
