//! The dictionaries of a volume and what they share, without log and checkpoints.

pub(crate) mod checkpoint;
pub(crate) mod recover;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use betree_platform::sync::{Mutex, MutexGuard};
use hashbrown::HashSet;

use crate::batch::RangeChange;
use crate::dict::{Dict, DictState};
use crate::error::{Error, Result};
use crate::format::record::{Change, Changes};
use crate::format::superblock::DICTS_MAX;
use crate::format::table::PART_BYTES;
use crate::key::Cut;
use crate::memtable::Memtable;
use crate::message::{Bytes, Msn};
use crate::node::NodeId;
use crate::settings::{DictId, Geometry};
use crate::store::Store;
use crate::table::Table;
use crate::tree::{FLUSH_NODES, PASSING_FLUSH_NODES, Tree, TreeChange};

/// Memtables of one dictionary that wait to arrive at the root before writers have to.
const FROZEN_MAX: usize = 2;

/// Borders of deleted or replaced ranges whose turn comes together, and the most that are kept.
pub(crate) const RANGE_BOUNDS_AT_ONCE: usize = 128;
const RANGE_BOUNDS_MAX: usize = 4096;

/// Everything that a tree operation may touch.
pub(crate) struct Engine {
    pub store: Store,
    pub geometry: Geometry,
    pub table: Mutex<Table>,
    /// Nodes without references that are still to be freed.
    pub dead: Mutex<Vec<NodeId>>,
    pub dicts: Vec<Dict>,
    pub counters: Counters,
    /// A memtable may be full: until then nobody has to look.
    filled: AtomicBool,
    /// A rebalancing of the tree was cut short for want of space.
    unbalanced: AtomicBool,
    /// Where ranges begin and end that were deleted or replaced, by dictionary, until what they hide is
    /// let go.
    range_bounds: Mutex<Vec<(DictId, Cut)>>,
    /// How many batches had been committed when everything was last flushed to give space back.
    drained_at_commit: AtomicU64,
    /// Whether any batch since then may give space back, and how much is known to come.
    deletes_pending: AtomicBool,
    pending_freed_bytes: AtomicU64,
}

/// Counts of what was done.
#[derive(Default)]
pub(crate) struct Counters {
    pub point_queries: AtomicU64,
    pub point_query_nodes: AtomicU64,
    pub kept_bytes: AtomicU64,
    pub range_queries: AtomicU64,
    pub commits: AtomicU64,
    pub checkpoints: AtomicU64,
    pub flushes: AtomicU64,
}

impl Engine {
    /// An engine over a store; the dictionaries' roots are in the table.
    pub fn new(store: Store, geometry: Geometry, table: Table, dicts: Vec<Dict>) -> Engine {
        Engine {
            store,
            geometry,
            table: Mutex::new(table),
            dead: Mutex::new(Vec::new()),
            dicts,
            counters: Counters::default(),
            filled: AtomicBool::new(false),
            unbalanced: AtomicBool::new(false),
            range_bounds: Mutex::new(Vec::new()),
            // What was committed before it was opened may not have been carried out.
            drained_at_commit: AtomicU64::new(u64::MAX),
            deletes_pending: AtomicBool::new(true),
            pending_freed_bytes: AtomicU64::new(0),
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

    /// The tree of a dictionary at hand.
    pub fn tree_of<'e>(&'e self, dict: &'e Dict) -> Tree<'e> {
        Tree {
            dict,
            store: &self.store,
            table: &self.table,
            dead: &self.dead,
            geometry: &self.geometry,
            upsert: &*self.store.upsert,
        }
    }

    /// How large a memtable grows before it is frozen, in bytes.
    pub fn memtable_bytes_max(&self) -> usize {
        (self.geometry.node_bytes as usize).min(self.store.cache.budget_bytes() / 8).max(256)
    }

    /// Puts the changes of a record into the memtables, numbered from `first_msn` on; those that a
    /// dictionary's tree holds already are passed over. All of it is seen at once.
    ///
    /// # Errors
    /// [`Error::BadRecord`] or [`Error::NoSuchDictionary`], before anything is changed.
    pub fn take(&self, first_msn: Msn, record: &Arc<Vec<u8>>) -> Result<()> {
        let mut used = 0u8;
        for change in Changes::of(record) {
            let (id, _) = change?;
            if usize::from(id.0) >= self.dicts.len() {
                return Err(Error::NoSuchDictionary { id: id.0 });
            }
            used |= 1 << id.0;
        }
        // In the order of the dictionaries, as all who lock several do.
        let mut states: [_; DICTS_MAX] = core::array::from_fn(|index| {
            self.dicts.get(index).filter(|_| used & 1 << index != 0).map(|dict| dict.state.write())
        });
        let mut changes = Changes::of(record);
        for msn in first_msn.. {
            let Some(change) = changes.next() else { break };
            let (id, change) = change?;
            let Some(state) = states.get_mut(usize::from(id.0)).and_then(Option::as_mut) else { continue };
            if msn <= state.applied_msn {
                continue;
            }
            match change {
                Change::Put { key, value } => {
                    let end = record.len() - changes.rest_len();
                    state.active.put(key, msn, Bytes::of(record, end - value.len()..end));
                }
                Change::Delete { key } => state.active.delete(key, msn),
                Change::Upsert { key, delta } => state.active.upsert(key, msn, delta, &*self.store.upsert),
                Change::DeleteRange { lo, hi } => state.active.delete_range(&lo, &hi, msn),
                // `apply_ranges` has brought it to the tree.
                Change::CloneRange { .. } => {}
            }
        }
        let most = self.memtable_bytes_max();
        if states.iter().flatten().any(|state| state.active.is_full(most)) {
            self.filled.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What the changes of ranges at the front of a record, numbered from `first_msn` on, make of the
    /// trees, for [`apply_ranges`](Engine::apply_ranges); those that a dictionary's tree holds
    /// already are passed over. Every message from before is in the trees. No key of a clone may be over
    /// `key_bytes_max`.
    pub fn change_ranges(
        &self,
        _structures: &[MutexGuard<'_, ()>],
        first_msn: Msn,
        record: &[u8],
        count: u32,
        key_bytes_max: usize,
    ) -> Result<Vec<(usize, TreeChange)>> {
        let mut all = Vec::new();
        for dict in &self.dicts {
            let applied = dict.state.read().applied_msn;
            let mut mine = Vec::new();
            for (change, msn) in Changes::of(record).take(count as usize).zip(first_msn..) {
                let (id, change) = change?;
                if usize::from(id.0) >= self.dicts.len() {
                    return Err(Error::NoSuchDictionary { id: id.0 });
                }
                if usize::from(id.0) != dict.index || msn <= applied {
                    continue;
                }
                match change {
                    Change::DeleteRange { lo, hi } => mine.push((msn, RangeChange::Delete { lo, hi })),
                    Change::CloneRange { from, to, lo, hi } => {
                        mine.push((msn, RangeChange::Clone { from, to, lo, hi }));
                    }
                    _ => return Err(Error::BadRecord),
                }
            }
            if mine.is_empty() {
                continue;
            }
            match self.tree_of(dict).change_ranges(&mine, key_bytes_max) {
                Ok(change) => all.push((dict.index, change)),
                Err(error) => {
                    self.cancel(&all);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// How much more is owed to the device once what [`change_ranges`](Engine::change_ranges) made is
    /// applied, in bytes.
    pub fn owed_by(&self, changes: &[(usize, TreeChange)]) -> u64 {
        let mut more = 0;
        for (index, change) in changes {
            let Some(dict) = self.dicts.get(*index) else { continue };
            let state = dict.state.read();
            for node in change.added.iter().chain(&change.changed) {
                let now = state.node(node.id).map_or(0, |node| node.charge.owed_bytes());
                more += node.charge.to_come_bytes().saturating_sub(now);
            }
        }
        more
    }

    /// How many levels the highest tree has, its leaves counted.
    pub fn height(&self) -> u64 {
        let roots = self.dicts.iter().map(|dict| dict.state.read().root);
        let heights = roots.filter_map(|root| self.table.lock().height(root));
        heights.max().map_or(0, |height| u64::from(height) + 1)
    }

    /// Gives back what [`change_ranges`](Engine::change_ranges) has reserved, where it is not applied.
    pub fn cancel(&self, changes: &[(usize, TreeChange)]) {
        for (index, change) in changes {
            if let Some(dict) = self.dicts.get(*index) {
                self.tree_of(dict).cancel(change);
            }
        }
    }

    /// Puts what [`change_ranges`](Engine::change_ranges) gave in place; `last_msn` is the last of
    /// these changes.
    pub fn apply_ranges(&self, changes: Vec<(usize, TreeChange)>, last_msn: Msn) {
        for (index, change) in changes {
            if let Some(dict) = self.dicts.get(index) {
                self.tree_of(dict).install(change);
            }
        }
        for dict in &self.dicts {
            let mut state = dict.state.write();
            state.applied_msn = state.applied_msn.max(last_msn);
        }
        self.unbalanced.store(true, Ordering::Relaxed);
    }

    /// Freezes memtables: those that are full, or all that hold anything. `true` if any was frozen.
    pub fn freeze(&self, all: bool) -> bool {
        if !all {
            if !self.filled.load(Ordering::Relaxed) {
                return false;
            }
            // Before the look: what fills up behind it says so again.
            self.filled.store(false, Ordering::Relaxed);
        }
        let mut frozen = false;
        for dict in &self.dicts {
            let wanted = |state: &DictState| {
                if all {
                    return !state.active.is_empty();
                }
                let is_full = state.active.is_full(self.memtable_bytes_max());
                let has_room = state.frozen.len() < FROZEN_MAX;
                if is_full && !has_room {
                    self.filled.store(true, Ordering::Relaxed);
                }
                is_full && has_room
            };
            if !wanted(&dict.state.read()) {
                continue;
            }
            let mut state = dict.state.write();
            if wanted(&state) {
                let full = core::mem::take(&mut state.active);
                state.frozen.push_back(Arc::new(full));
                frozen = true;
            }
        }
        frozen
    }

    /// Whether a writer should wait for memtables to arrive.
    pub fn is_behind(&self) -> bool {
        let is_behind = |dict: &Dict| {
            let state = dict.state.read();
            state.frozen.len() >= FROZEN_MAX && state.active.is_full(self.memtable_bytes_max())
        };
        self.filled.load(Ordering::Relaxed) && self.dicts.iter().any(is_behind)
    }

    /// Brings the oldest frozen memtable of a dictionary into its tree. `false` if there was none.
    pub fn absorb(&self, dict: &Dict) -> Result<bool> {
        Ok(dict.is_full() && self.absorb_locked(dict, &dict.structure.lock())?)
    }

    /// Brings a frozen memtable of any dictionary into its tree, of one that nobody is at if there is such a one.
    /// `false` if there was none.
    pub fn absorb_any(&self) -> Result<bool> {
        let full = || self.dicts.iter().filter(|dict| dict.is_full());
        for dict in full() {
            if let Some(structure) = dict.structure.try_lock()
                && self.absorb_locked(dict, &structure)?
            {
                return Ok(true);
            }
        }
        for dict in full() {
            if self.absorb(dict)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn absorb_locked(&self, dict: &Dict, _structure: &MutexGuard<'_, ()>) -> Result<bool> {
        let Some(memtable): Option<Arc<Memtable>> = dict.state.read().frozen.front().cloned() else {
            return Ok(false);
        };
        let tree = self.tree_of(dict);
        let reached = tree.flush_memtable(&memtable, self.has_room(PASSING_FLUSH_NODES))?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.rebalance(&tree, reached, None)?;
        Ok(true)
    }

    /// Brings every frozen memtable into its tree.
    pub fn absorb_all(&self) -> Result<()> {
        for dict in &self.dicts {
            while self.absorb(dict)? {}
        }
        Ok(())
    }

    /// Keeps the shape of all trees as it is.
    pub fn lock_structures(&self) -> Vec<MutexGuard<'_, ()>> {
        self.dicts.iter().map(|dict| dict.structure.lock()).collect()
    }

    /// Brings every frozen memtable to its root, and not further. The caller holds all structures.
    pub fn absorb_at_roots(&self, _structures: &[MutexGuard<'_, ()>]) -> Result<()> {
        for dict in &self.dicts {
            loop {
                let Some(memtable) = dict.state.read().frozen.front().cloned() else { break };
                self.tree_of(dict).flush_memtable(&memtable, false)?;
                self.counters.flushes.fetch_add(1, Ordering::Relaxed);
                // The root may be over its size now.
                self.unbalanced.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn rebalance(
        &self,
        tree: &Tree<'_>,
        reached: Vec<NodeId>,
        emptied: Option<&mut HashSet<NodeId>>,
    ) -> Result<()> {
        let (cache, eager) = (&self.store.cache, emptied.is_some());
        // Who empties all buffers reaches every leaf, and can go on after a checkpoint.
        let most_dirty_bytes = cache.dirty_bytes() + cache.budget_bytes() / 2;
        let has_memory = || !eager || cache.dirty_bytes() <= most_dirty_bytes;
        let rebalanced = tree.rebalance(reached, emptied, &|nodes| has_memory() && self.has_room(nodes))?;
        self.counters.flushes.fetch_add(rebalanced.flushes, Ordering::Relaxed);
        if rebalanced.cut_short {
            self.unbalanced.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Goes on with what was cut short for want of space, if there is room again. `false` if there
    /// was nothing to go on with.
    pub fn resume_rebalance(&self) -> Result<bool> {
        if !self.unbalanced.load(Ordering::Relaxed) || !self.has_room(FLUSH_NODES) {
            return Ok(false);
        }
        self.unbalanced.store(false, Ordering::Relaxed);
        self.rebalance_all(None)?;
        Ok(true)
    }

    /// Notes where the ranges of a record begin and end, not beyond what is worth the memory: what they
    /// hide is much, or in pieces. The others go down as buffers fill.
    pub fn note_range_bounds(&self, record: &[u8]) {
        let mut range_bounds = self.range_bounds.lock();
        for (id, change) in Changes::of(record).map_while(Result::ok) {
            let ends = match change {
                Change::DeleteRange { lo, hi } => [lo, hi],
                Change::CloneRange { to, lo, hi, .. } => [lo, hi].map(|cut| cut.with_prefix(to)),
                _ => continue,
            };
            if range_bounds.len() < RANGE_BOUNDS_MAX {
                range_bounds.extend(ends.map(|cut| (id, cut)));
            }
        }
    }

    /// Lets go of what ranges hide that were deleted or replaced, if `least` of their ends have been noted:
    /// together they share the ways to their places. `false` if there were not so many.
    pub fn reclaim_hidden(&self, least: usize) -> Result<bool> {
        if self.range_bounds.lock().len() < least || !self.has_room(FLUSH_NODES) {
            return Ok(false);
        }
        let mut range_bounds = core::mem::take(&mut *self.range_bounds.lock());
        // What hides may still be in memory.
        self.freeze(true);
        range_bounds.sort_unstable();
        for dict in &self.dicts {
            let here = range_bounds.iter().filter(|(id, _)| usize::from(id.0) == dict.index);
            let cuts: Vec<Cut> = here.map(|(_, cut)| cut.clone()).collect();
            if cuts.is_empty() {
                continue;
            }
            while self.absorb(dict)? {}
            let _structure = dict.structure.lock();
            let tree = self.tree_of(dict);
            let reached = tree.reclaim_hidden(cuts, &|nodes| self.has_room(nodes))?;
            self.rebalance(&tree, reached, None)?;
        }
        Ok(true)
    }

    /// A batch that may give space back was committed.
    pub fn expect_space(&self, bytes: u64) {
        self.deletes_pending.store(true, Ordering::Relaxed);
        self.pending_freed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether pending deletes should give their space back now, because there is little.
    pub fn wants_deletes_back(&self) -> bool {
        self.deletes_pending.load(Ordering::Relaxed) && self.is_short()
    }

    /// Whether what pending deletes will give back is much beside what is free, or beside what is used and worth
    /// the work.
    pub fn expects_much(&self) -> bool {
        let pending = self.pending_freed_bytes.load(Ordering::Relaxed);
        let used = self.store.space.total_blocks() * BLOCK_BYTES as u64 - self.free_bytes();
        let worth_it = u64::from(self.geometry.node_bytes) * 4;
        pending > (self.free_bytes() / 16).min((used / 16).max(worth_it))
    }

    /// Whether free space is within twice the reserve.
    fn is_short(&self) -> bool {
        let reserve = self.reserve_bytes();
        !self.is_far_from_full(reserve * 2) && self.free_bytes() <= self.owed_bytes() + reserve * 2
    }

    /// Whether anything was committed since this was asked last.
    pub fn has_news_to_drain(&self) -> bool {
        let commits = self.counters.commits.load(Ordering::Relaxed);
        self.drained_at_commit.swap(commits, Ordering::Relaxed) != commits
    }

    /// Brings what is pending down to the leaves, as far as there is room on the device and in memory: that
    /// is how deletes and overwrites give space back, once a checkpoint follows. `true` if something was
    /// done and something is left, with which another call goes on if it is given the same `emptied`, at
    /// first empty.
    pub fn drain(&self, emptied: &mut HashSet<NodeId>) -> Result<bool> {
        self.deletes_pending.store(false, Ordering::Relaxed);
        self.pending_freed_bytes.store(0, Ordering::Relaxed);
        self.freeze(true);
        self.absorb_all()?;
        let before = self.counters.flushes.load(Ordering::Relaxed);
        self.unbalanced.store(false, Ordering::Relaxed);
        self.rebalance_all(Some(emptied))?;
        let flushed = self.counters.flushes.load(Ordering::Relaxed) != before;
        Ok(flushed && self.unbalanced.load(Ordering::Relaxed))
    }

    fn rebalance_all(&self, mut emptied: Option<&mut HashSet<NodeId>>) -> Result<()> {
        for dict in &self.dicts {
            let _structure = dict.structure.lock();
            self.rebalance(&self.tree_of(dict), Vec::new(), emptied.as_deref_mut())?;
        }
        Ok(())
    }

    /// Frees one dead node. `false` if there is none.
    pub fn free_one(&self) -> Result<bool> {
        Ok(!self.dead.lock().is_empty() && self.free_one_locked(&self.lock_structures())?)
    }

    /// The same in the background: not while anybody is at a tree. Who waited for one would keep others from being
    /// changed meanwhile.
    pub fn free_one_if_idle(&self) -> Result<bool> {
        if self.dead.lock().is_empty() {
            return Ok(false);
        }
        let structures: Option<Vec<_>> = self.dicts.iter().map(|dict| dict.structure.try_lock()).collect();
        structures.map_or(Ok(false), |structures| self.free_one_locked(&structures))
    }

    /// A dead node is in no tree any more, but its version may be in the memory of any.
    fn free_one_locked(&self, _structures: &[MutexGuard<'_, ()>]) -> Result<bool> {
        let Some(id) = self.dead.lock().last().copied() else { return Ok(false) };
        let platform = self.dicts.iter().find(|d| d.state.read().node(id).is_some()).or(self.dicts.first());
        platform.map_or(Ok(false), |dict| self.tree_of(dict).free_one())
    }

    /// Free bytes on the device now.
    pub fn free_bytes(&self) -> u64 {
        self.store.space.free_blocks() * BLOCK_BYTES as u64
    }

    /// What the next checkpoint may have to write, at most, in bytes.
    pub fn owed_bytes(&self) -> u64 {
        // A memtable arrives at the root, which is then written with it.
        let memtables = self.dicts.iter().map(|d| d.state.read().memtable_bytes() as u64).sum::<u64>();
        let trees = self.store.cache.owed_bytes() + memtables;
        let further_parts = self.store.space.further_parts() * PART_BYTES;
        trees + self.table.lock().dirty_page_bytes(self.geometry.table_page_bytes()) + further_parts
    }

    /// Whether so many bytes more fit whatever is owed: then the exact sum is not worth its locks.
    /// Memtables and dirty pages of the table are bounded by the cache.
    pub fn is_far_from_full(&self, more_bytes: u64) -> bool {
        let cache = &self.store.cache;
        self.free_bytes() > cache.owed_bytes() + cache.budget_bytes() as u64 * 4 + more_bytes
    }

    /// What is kept free so that deletes and checkpoints always work, in bytes.
    pub fn reserve_bytes(&self) -> u64 {
        let total = self.store.space.total_blocks() * BLOCK_BYTES as u64;
        (u64::from(self.geometry.node_bytes) * 16).max(total / 64).min(total / 4)
    }

    /// Whether a checkpoint would still fit with so many nodes more to write.
    fn has_room(&self, nodes: u32) -> bool {
        let more = u64::from(self.geometry.node_bytes) * u64::from(nodes);
        self.is_far_from_full(more) || self.free_bytes() > self.owed_bytes() + more
    }
}
