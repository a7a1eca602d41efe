//! The dictionaries of a volume and what they share, without log and checkpoints.

pub(crate) mod admission;
pub(crate) mod background;
pub(crate) mod checkpoint;
pub(crate) mod commit_ranges;
pub(crate) mod hidden_ranges;
mod node_copies;
pub(crate) mod scheduler;
mod table_copy;
pub(crate) mod unnamed_blocks;
pub(crate) mod view;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::format::record::{Change, Changes};
use crate::format::superblock::DICTS_MAX;
use crate::format::superblock::slots::{BadSlot, Made};
use crate::invariant::internal;
use crate::message::{Bytes, Msn};
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::settings::{DictId, Geometry, OpenMode};
use crate::store::Store;
use crate::table::{Disputed, Table};
use crate::transaction::{Overlay, Recent};
use crate::tree::{Reach, Tree};
use crate::views::{Moment, Seen, Views};
use admission::{Admission, Room};
use hidden_ranges::HiddenRanges;
use unnamed_blocks::UnnamedBlocks;

/// Facts about the opening of a volume.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Bad copies of the superblock; opening may have repaired them.
    pub bad_copies: Vec<BadSlot>,
    /// The damage of parts of the node table that were read from their second copies, or of these.
    pub healed: Vec<Error>,
    /// Nodes whose blocks others claim too, where an opening for changes is refused for them.
    pub disputed: Disputed,
    /// It was opened for a check alone, with its readable parts (`Env::open_damaged`).
    pub is_damaged: bool,
    /// Nothing is ever written to the device.
    pub for_reading: bool,
    /// What the caller wants to be written.
    pub mode: OpenMode,
    /// It has features of later versions, so that a check could not judge it.
    pub has_unknown_features: bool,
    /// Freed blocks are discarded.
    pub discards: bool,
    /// The number of batches replayed from the log.
    pub replayed_batches: u64,
    /// The durable segment of the log that was lost, if that was accepted.
    pub log_loss: Option<Error>,
    /// The number of structures that could not be read and became known damage, so that the log could be
    /// replayed.
    pub given_up: u64,
    /// The superblock that was made, as copies were lost: it is not on the device until a repair is written.
    pub made: Option<Made>,
}

/// The part of the cache that recent changes may take for transactions.
const RECENT_PARTS: usize = 16;

/// Everything that a tree operation may touch.
pub(crate) struct Engine {
    pub store: Store,
    pub geometry: Geometry,
    pub table: Mutex<Table>,
    pub dicts: Vec<Dict>,
    /// Nodes that were dead at the opening and not yet given to their dictionaries.
    pub unowned: Mutex<Vec<NodeId>>,
    /// The live views, and what the next one will see.
    pub views: Mutex<Views>,
    /// Changes that transactions must not miss.
    pub recent: Mutex<Recent>,
    pub counters: Counters,
    /// A memtable may be full; while this is unset, no thread looks.
    filled: AtomicBool,
    /// A rebalancing of the tree was cut short for want of space.
    unbalanced: AtomicBool,
    hidden_ranges: Mutex<HiddenRanges>,
    pub admission: Admission,
    pub unnamed: UnnamedBlocks,
}

/// Counts of operations.
#[derive(Default)]
pub(crate) struct Counters {
    pub point_queries: AtomicU64,
    pub point_query_nodes: AtomicU64,
    pub kept_bytes: AtomicU64,
    pub copy_bytes: AtomicU64,
    /// 1 while a checkpoint is being written; only one is at a time.
    pub checkpoints_under_way: AtomicU64,
    pub range_queries: AtomicU64,
    pub fetches: AtomicU64,
    pub commits: AtomicU64,
    pub checkpoints: AtomicU64,
    pub flushes: AtomicU64,
}

/// The number before the first change of a record in the last of its dictionaries, if it has several.
fn before_last_dictionary(first_msn: Msn, record: &[u8]) -> Msn {
    let ids = || Changes::of(record).filter_map(Result::ok).map(|(id, _)| id.0);
    let changes = match ids().max() {
        last if ids().min() < last => ids().take_while(|id| Some(*id) != last).count(),
        _ => ids().count(),
    };
    first_msn + changes as Msn - 1
}

impl Engine {
    /// An engine over a store; the dictionaries' roots are in the table.
    pub fn new(store: Store, geometry: Geometry, table: Table, dicts: Vec<Dict>) -> Engine {
        let next_msn = store.next_msn.load(Ordering::Relaxed);
        Engine {
            unowned: Mutex::default(),
            views: Mutex::new(Views::new(next_msn)),
            recent: Mutex::new(Recent::new(store.cache.budget_bytes() / RECENT_PARTS)),
            store,
            geometry,
            table: Mutex::new(table),
            dicts,
            counters: Counters::default(),
            filled: AtomicBool::new(false),
            unbalanced: AtomicBool::new(false),
            hidden_ranges: Mutex::default(),
            admission: Admission::default(),
            unnamed: UnnamedBlocks::default(),
        }
    }

    /// The tree of a dictionary.
    ///
    /// # Errors
    /// [`Error::NoSuchDictionary`].
    pub fn tree(&self, id: DictId) -> Result<Tree<'_>> {
        let dict = self.dicts.get(usize::from(id.0)).ok_or(Error::NoSuchDictionary { id: id.0 })?;
        Ok(self.tree_of(dict))
    }

    /// The tree of `dict`.
    pub fn tree_of<'e>(&'e self, dict: &'e Dict) -> Tree<'e> {
        Tree {
            dict,
            store: &self.store,
            table: &self.table,
            views: &self.views,
            recent: &self.recent,
            overlay: Overlay::none(),
            at: Moment::NEWEST,
            reach: Reach::Device,
            geometry: &self.geometry,
            upsert: &self.store.upsert,
        }
    }

    /// The room on the device.
    pub fn room(&self) -> Room<'_> {
        Room::of(self)
    }

    /// How large a memtable grows before it is frozen, in bytes.
    pub fn memtable_bytes_max(&self) -> usize {
        (self.geometry.node_bytes as usize).min(self.store.cache.budget_bytes() / 8).max(256)
    }

    /// Puts the changes of a record into the memtables, numbered from `first_msn` on; changes that a
    /// dictionary's tree holds already are skipped. Readers see all of them at once.
    ///
    /// # Errors
    /// [`Error::BadRecord`] or [`Error::NoSuchDictionary`], before anything is changed.
    pub fn take(&self, first_msn: Msn, record: &Arc<Vec<u8>>) -> Result<()> {
        self.take_with(&mut self.views.lock(), first_msn, record)
    }

    /// As [`take`](Engine::take), by the holder of the views' lock.
    pub fn take_with(&self, views: &mut Views, first_msn: Msn, record: &Arc<Vec<u8>>) -> Result<()> {
        let mut used = 0u8;
        for change in Changes::of(record) {
            let (id, _) = change?;
            if usize::from(id.0) >= self.dicts.len() {
                return Err(Error::NoSuchDictionary { id: id.0 });
            }
            used |= 1 << id.0;
        }
        // Locked in the order of the dictionaries, as everywhere.
        let mut states: [_; DICTS_MAX] = core::array::from_fn(|index| {
            self.dicts.get(index).filter(|_| used & 1 << index != 0).map(|dict| dict.state.write())
        });
        let nobody = Seen::default();
        let seen = if planted::is(Bug::EntriesOfViewsDropped) { &nobody } else { &views.seen };
        let mut changes = Changes::of(record);
        let mut next_msn = first_msn;
        for msn in first_msn.. {
            let Some(change) = changes.next() else { break };
            next_msn = msn + 1;
            let (id, change) = change?;
            let state = states.get_mut(usize::from(id.0)).and_then(Option::as_mut);
            let state = state.ok_or_else(|| internal!("the dictionaries of a record are locked"))?;
            if msn <= state.applied_msn {
                continue;
            }
            match change {
                Change::Put { key, value, asked } => {
                    let end = record.len() - changes.rest_len();
                    state.active.put(key, msn, Bytes::of(record, end - value.len()..end), asked, seen);
                }
                Change::Delete { key } => state.active.delete(key, msn, seen),
                Change::Upsert { key, delta, asked } => {
                    state.active.upsert(key, msn, (delta, asked), &self.store.upsert, seen)
                }
                Change::DeleteRange { lo, hi } => state.active.delete_range(&lo, &hi, msn, seen),
                // `PreparedRanges::install` has put it into the tree.
                Change::CloneRange { .. } => {}
            }
        }
        views.visible = match planted::is(Bug::LastDictionaryNotVisible) {
            true => before_last_dictionary(first_msn, record),
            false => next_msn - 1,
        };
        let most = self.memtable_bytes_max();
        if states.iter().flatten().any(|state| state.active.is_full(most)) {
            self.filled.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The number of levels of the highest tree, its leaves included.
    pub fn height(&self) -> u64 {
        let roots = self.dicts.iter().map(|dict| dict.state.read().root);
        let heights = roots.filter_map(|root| self.table.lock().height(root));
        heights.max().map_or(0, |height| u64::from(height) + 1)
    }

    /// Drops headers that were not used for a while, if headers take too much memory. Reads do that too, but
    /// headers of new nodes come to memory without a read.
    pub fn evict_headers(&self) {
        let cache = &self.store.cache;
        if cache.has_too_many_headers() {
            self.dicts.iter().for_each(Dict::evict_headers);
            cache.headers_were_evicted();
        }
    }
}
