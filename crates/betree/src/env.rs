//! First step: everything in memory.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use betree_sys::Device;
use betree_sys::sync::Mutex;

use crate::batch::{Batch, Change, Changes};
use crate::error::Result;
use crate::key::Cut;
use crate::upsert::Upsert;

/// One dictionary of an environment, by its place in the list that the volume was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DictId(pub u8);

/// What is fixed when a volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Target size of a node in bytes, before compression.
    pub node_bytes: u32,
    /// Target size of a basement (the unit of reading in a leaf) in bytes, before compression.
    pub basement_bytes: u32,
    /// The most children of a node.
    pub fanout_max: u32,
    /// Size of the circular log in bytes.
    pub log_bytes: u64,
    /// How many dictionaries, at most 8.
    pub dicts: u8,
}

/// What is chosen each time a volume is opened.
#[derive(Clone)]
pub struct Options {
    /// The node cache's budget in bytes.
    pub cache_bytes: usize,
    /// The meaning of upserts.
    pub upsert: Arc<dyn Upsert>,
}

/// What the engine has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of the device's `read_at`.
    pub device_reads: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Calls of the device's `write_at`.
    pub device_writes: u64,
    /// Bytes written to the device.
    pub device_write_bytes: u64,
    /// Calls of the device's `sync`.
    pub device_syncs: u64,
    /// Segments written to the log.
    pub log_writes: u64,
    /// Bytes written to the log.
    pub log_write_bytes: u64,
    /// Point queries.
    pub point_queries: u64,
    /// Steps of cursors that went to the tree.
    pub range_queries: u64,
    /// Batches committed.
    pub commits: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Flushes from a node to a child.
    pub flushes: u64,
    /// Bytes held by the node cache now.
    pub cache_bytes: u64,
    /// Bytes of those that are not on the device yet.
    pub dirty_bytes: u64,
}

/// The room on a volume in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What the volume can hold: all but superblocks and log.
    pub total_bytes: u64,
    /// What a writer can still be given.
    pub free_bytes: u64,
}

/// Several dictionaries in one volume.
pub struct Env {
    dicts: Mutex<Vec<BTreeMap<Vec<u8>, Vec<u8>>>>,
    upsert: Arc<dyn Upsert>,
}

impl Env {
    /// Makes an empty volume on the device.
    pub fn format(_device: &dyn Device, _geometry: &Geometry) -> Result<()> {
        Ok(())
    }

    /// Opens a volume and brings it up to its last durable state.
    pub fn open(_device: Arc<dyn Device>, options: Options) -> Result<Env> {
        Ok(Env { dicts: Mutex::new(alloc::vec![BTreeMap::new(); 8]), upsert: options.upsert })
    }

    /// Takes a batch: all of it or none. It is durable after a later [`sync`](Env::sync).
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        let mut dicts = self.dicts.lock();
        for change in Changes::of(batch.record()) {
            let (dict, change) = change?;
            let Some(map) = dicts.get_mut(usize::from(dict.0)) else { continue };
            match change {
                Change::Put { key, value } => {
                    map.insert(key.to_vec(), value.to_vec());
                }
                Change::Delete { key } => {
                    map.remove(key);
                }
                Change::Upsert { key, delta } => {
                    match self.upsert.apply(map.get(key).map(Vec::as_slice), delta) {
                        Some(value) => map.insert(key.to_vec(), value),
                        None => map.remove(key),
                    };
                }
                Change::DeleteRange { lo, hi } => map.retain(|k, _| lo.is_above(k) || !hi.is_above(k)),
            }
        }
        Ok(())
    }

    /// Waits, before any lock of the caller's is taken, until there is room to commit about `bytes`.
    pub fn throttle(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// Makes everything committed before the call durable.
    pub fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Writes a checkpoint: the log is empty behind it.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    /// Does one piece of background work (a flush, a write-out, a checkpoint that is due) in the
    /// caller's thread; `false` where there was nothing to do. For homes without threads.
    pub fn pump(&self) -> Result<bool> {
        Ok(false)
    }

    /// Does background work until [`stop`](Env::stop); a home runs it on threads of its own. While
    /// no thread is in it, callers of [`throttle`](Env::throttle) do the work themselves.
    pub fn work(&self) {}

    /// Makes every [`work`](Env::work) return.
    pub fn stop(&self) {}

    /// Writes what is in memory and marks the volume clean. Afterwards every change is refused.
    pub fn close(&self) -> Result<()> {
        Ok(())
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// What the volume holds.
    pub fn space(&self) -> Space {
        Space { total_bytes: 1 << 30, free_bytes: 1 << 29 }
    }

    /// Walks everything on the device and in memory: structure, checksums, references, space. Each
    /// problem is given to `problem` as a sentence; `progress` hears (nodes done, nodes in all).
    pub fn check(
        &self,
        problem: &mut dyn FnMut(alloc::string::String),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let _ = (problem, progress);
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.dicts.lock().get(usize::from(dict.0)).and_then(|m| m.get(key).cloned()))
    }

    /// A cursor over `[lo, hi)`, standing before its first key.
    pub fn cursor(&self, dict: DictId, lo: Cut, hi: Cut) -> Cursor<'_> {
        Cursor { env: self, dict, at: lo.clone(), lo, hi, pair: (Vec::new(), Vec::new()) }
    }
}

/// A place in a key range of a dictionary; it moves both ways and sees changes made meanwhile.
pub struct Cursor<'e> {
    env: &'e Env,
    dict: DictId,
    lo: Cut,
    hi: Cut,
    at: Cut,
    pair: (Vec<u8>, Vec<u8>),
}

impl Cursor<'_> {
    /// Moves to a place, clipped to the cursor's range.
    pub fn seek(&mut self, to: &Cut) {
        self.at = to.clone().clamp(self.lo.clone(), self.hi.clone());
    }

    /// Steps over the next pair and gives it, or `None` at the end of the range.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let dicts = self.env.dicts.lock();
        let Some(map) = dicts.get(usize::from(self.dict.0)) else { return Ok(None) };
        let from = Bound::Included(self.at.bytes());
        let found = map
            .range::<[u8], _>((from, Bound::Unbounded))
            .find(|(k, _)| !self.at.is_above(k))
            .filter(|(k, _)| self.hi.is_above(k));
        let Some((key, value)) = found else { return Ok(None) };
        self.pair = (key.clone(), value.clone());
        self.at = Cut::just_after(&self.pair.0);
        Ok(Some((&self.pair.0, &self.pair.1)))
    }

    /// Steps back over the pair before the cursor and gives it, or `None` at the range's start.
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let dicts = self.env.dicts.lock();
        let Some(map) = dicts.get(usize::from(self.dict.0)) else { return Ok(None) };
        let found = map.iter().rev().find(|(k, _)| self.at.is_above(k)).filter(|(k, _)| !self.lo.is_above(k));
        let Some((key, value)) = found else { return Ok(None) };
        self.pair = (key.clone(), value.clone());
        self.at = Cut::before(self.pair.0.clone());
        Ok(Some((&self.pair.0, &self.pair.1)))
    }
}
