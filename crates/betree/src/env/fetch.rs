//! Queries that do not wait for the device, and others that bring into memory what these need.
//!
//! A caller with a lock that others need asks in memory first. Where that is not enough, it gives the lock
//! back, fetches, and asks again.

use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicU64, Ordering};

use crate::env::Env;
use crate::error::Result;
use crate::key::Cut;
use crate::settings::DictId;
use crate::tree::{Cursor, Reach, Tree};

impl Env {
    /// As [`get`](Env::get), without waiting for the device. A query that finds less than it needs in memory
    /// does not count.
    ///
    /// # Errors
    /// [`Error::NotInMemory`](crate::Error::NotInMemory); corruption.
    pub fn get_in_memory(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let counters = &self.engine.counters;
        let nodes = AtomicU64::new(0);
        let found = Tree { reach: Reach::Memory, ..self.engine.tree(dict)? }.get(key, &nodes)?;
        counters.point_queries.fetch_add(1, Ordering::Relaxed);
        counters.point_query_nodes.fetch_add(nodes.into_inner(), Ordering::Relaxed);
        Ok(found)
    }

    /// Brings into memory what a query for a key needs.
    ///
    /// # Errors
    /// As [`get`](Env::get).
    pub fn fetch(&self, dict: DictId, key: &[u8]) -> Result<()> {
        self.engine.counters.fetches.fetch_add(1, Ordering::Relaxed);
        Tree { reach: Reach::Ahead, ..self.engine.tree(dict)? }.get(key, &AtomicU64::new(0)).map(drop)
    }

    /// Brings into memory what a cursor over `[lo, hi)` needs for its first `pairs` pairs. `whole` is as of
    /// [`Cursor::part_of`].
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn fetch_range(
        &self,
        dict: DictId,
        (lo, hi): (Cut, Cut),
        whole: Option<(Cut, Cut)>,
        pairs: usize,
    ) -> Result<()> {
        let tree = self.engine.tree(dict).ok().map(|tree| Tree { reach: Reach::Ahead, ..tree });
        let mut cursor = Cursor::new(tree, lo, hi, &self.engine.counters.fetches);
        if let Some((lo, hi)) = whole {
            cursor = cursor.part_of(lo, hi);
        }
        for _ in 0..pairs {
            if cursor.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}
