//! Background work on the trees: flushes memtables to the roots, rebalances, and frees dead nodes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::Engine;
use crate::dict::{Dict, DictState};
use crate::error::{Error, Result};
use crate::memtable::Memtable;
use crate::message::RangeDelete;
use crate::node_id::NodeId;
use crate::settings::DictId;
use crate::stall::Writes;
use crate::tree::{Drain, FLUSH_NODES, PASSING_FLUSH_NODES, Rebalanced, Tree};

/// How often a drain asks for room before it gives way to a memtable: some flushes, so that it comes to an
/// end beside any number of writers, and few, so that these do not wait for long.
const TRIES_IN_A_ROW: usize = 16;

/// Writers wait while a dictionary has this many frozen memtables and its active one is full; those who write
/// little wait once it has half as much again.
const FROZEN_MAX: usize = 2;
/// How many dead nodes are freed with each memtable that arrives: beside writers that fill one after the
/// other nobody is ever idle, and dead nodes would stay until the device is full.
const FREED_BESIDE_MEMTABLE_MAX: usize = 4;
/// The part of a memtable that may wait where the trees count as ready for a change of ranges.
const READY_PARTS: usize = 8;
/// So many bytes may wait in any case: an operation may have put some itself.
const READY_BYTES: usize = 32 << 10;

impl Engine {
    /// Freezes the full memtables, or (`all`) every memtable that is not empty. `true` if any was frozen.
    pub fn freeze(&self, all: bool) -> bool {
        if !all {
            if !self.filled.load(Ordering::Relaxed) {
                return false;
            }
            // Cleared before the look: a memtable that fills up afterwards sets it again.
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
    pub fn is_behind(&self, writes: Writes) -> bool {
        let full_bytes = self.memtable_bytes_max();
        let bytes_max = writes.bound(full_bytes.saturating_add(full_bytes / 2), full_bytes);
        let is_behind = |dict: &Dict| {
            let state = dict.state.read();
            state.frozen.len() >= FROZEN_MAX && state.active.is_full(bytes_max)
        };
        self.filled.load(Ordering::Relaxed) && self.dicts.iter().any(is_behind)
    }

    /// Whether no node has to be rebalanced.
    pub fn is_balanced(&self) -> bool {
        !self.unbalanced.load(Ordering::Relaxed)
    }

    /// Whether little has to be brought to the roots before ranges change.
    pub fn is_ready_for_ranges(&self) -> bool {
        let waiting_bytes = |dict: &Dict| {
            let state = dict.state.read();
            state.active.bytes() + state.frozen.iter().map(|memtable| memtable.bytes()).sum::<usize>()
        };
        let most_bytes = (self.memtable_bytes_max() / READY_PARTS).max(READY_BYTES);
        self.dicts.iter().map(waiting_bytes).sum::<usize>() <= most_bytes
    }

    /// Flushes the oldest frozen memtable of a dictionary into its tree. `false` if there was none.
    pub fn absorb(&self, dict: &Dict) -> Result<bool> {
        Ok(dict.is_full() && self.absorb_locked(dict, &dict.structure.lock())?)
    }

    /// Flushes a frozen memtable of any dictionary into its tree, preferably of one whose tree is not being
    /// changed. `false` if there was none.
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
        let reached = tree.flush_memtable(&memtable, self.room().has_nodes(PASSING_FLUSH_NODES))?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.rebalance(&tree, reached)?;
        for _ in 0..FREED_BESIDE_MEMTABLE_MAX {
            if !tree.free_one()? {
                break;
            }
        }
        Ok(true)
    }

    /// Flushes every frozen memtable into its tree.
    pub fn absorb_all(&self) -> Result<()> {
        for dict in &self.dicts {
            while self.absorb(dict)? {}
        }
        Ok(())
    }

    /// Puts known damage, disjoint and in order, over all keys of a dictionary in these ranges. Every message
    /// is in its tree already.
    ///
    /// # Errors
    /// [`Error::NoSuchDictionary`]; those of the device.
    pub fn lose(&self, dict: DictId, ranges: Vec<RangeDelete>) -> Result<()> {
        let dict = self.dicts.get(usize::from(dict.0)).ok_or(Error::NoSuchDictionary { id: dict.0 })?;
        let _structure = dict.structure.lock();
        let tree = self.tree_of(dict);
        tree.lose(ranges)?;
        self.rebalance(&tree, Vec::new())
    }

    /// Locks the structure of every tree.
    pub fn lock_structures(&self) -> Vec<MutexGuard<'_, ()>> {
        self.dicts.iter().map(|dict| dict.structure.lock()).collect()
    }

    /// As [`lock_structures`](Engine::lock_structures), unless another thread has one: it may be at the
    /// device.
    pub fn try_lock_structures(&self) -> Option<Vec<MutexGuard<'_, ()>>> {
        self.dicts.iter().map(|dict| dict.structure.try_lock()).collect()
    }

    /// Flushes every frozen memtable to its root, and no further. The caller has locked all structures.
    pub fn absorb_at_roots(&self, _structures: &[MutexGuard<'_, ()>]) -> Result<()> {
        for dict in &self.dicts {
            loop {
                let Some(memtable) = dict.state.read().frozen.front().cloned() else { break };
                self.tree_of(dict).flush_memtable(&memtable, false)?;
                self.counters.flushes.fetch_add(1, Ordering::Relaxed);
                // The root may be oversized now.
                self.unbalanced.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Rebalances a tree; cut short for want of room, it is continued later.
    pub(super) fn rebalance(&self, tree: &Tree<'_>, reached: Vec<NodeId>) -> Result<()> {
        let rebalanced = tree.rebalance(reached, None, &|nodes| self.room().has_nodes(nodes))?;
        self.note_rebalanced(tree.dict, &rebalanced);
        Ok(())
    }

    fn note_rebalanced(&self, dict: &Dict, rebalanced: &Rebalanced) {
        self.note_held(dict, rebalanced);
        self.counters.flushes.fetch_add(rebalanced.flushes, Ordering::Relaxed);
        if rebalanced.cut_short {
            self.unbalanced.store(true, Ordering::Relaxed);
        }
    }

    /// Tells of what cannot be read and holds up messages, once.
    fn note_held(&self, dict: &Dict, rebalanced: &Rebalanced) {
        for (id, error) in &rebalanced.held.errors {
            if dict.held_told.lock().insert(*id) {
                self.store.disk.health.note_failed_work(error);
            }
        }
    }

    /// Continues a rebalancing that was cut short, if there is room again. `false` if there was none to
    /// continue, or no room.
    pub fn resume_rebalance(&self) -> Result<bool> {
        if !self.unbalanced.load(Ordering::Relaxed) || !self.room().has_nodes(FLUSH_NODES) {
            return Ok(false);
        }
        self.unbalanced.store(false, Ordering::Relaxed);
        for dict in &self.dicts {
            let _structure = dict.structure.lock();
            self.rebalance(&self.tree_of(dict), Vec::new())?;
        }
        Ok(true)
    }

    /// Flushes all pending messages down to the leaves, as far as there is room on the device and in memory.
    /// So deletes and overwrites free their space, once a checkpoint follows. `true` if something was flushed
    /// and something is left; another call with the same `drain` continues. Memtables that fill meanwhile
    /// come first, so that writers do not wait for the end.
    pub fn drain(&self, drain: &mut Drain) -> Result<bool> {
        self.admission.begin_drain();
        self.freeze(true);
        let cache = &self.store.cache;
        // Emptying all buffers reaches every leaf: it stops before writers have to wait for a checkpoint,
        // and continues after one. It goes on a little where much is dirty already.
        let (dirty_bytes, budget_bytes) = (cache.dirty_bytes(), cache.budget_bytes());
        let most_dirty_bytes = (dirty_bytes + budget_bytes / 8).max(budget_bytes / 2);
        let has_memory = || cache.dirty_bytes() <= most_dirty_bytes;
        let before = self.counters.flushes.load(Ordering::Relaxed);
        self.unbalanced.store(false, Ordering::Relaxed);
        loop {
            self.absorb_all()?;
            let mut gave_way = false;
            for dict in &self.dicts {
                gave_way |= self.drain_until_full(dict, drain, &has_memory)?;
            }
            if !gave_way {
                break;
            }
        }
        let flushed = self.counters.flushes.load(Ordering::Relaxed) != before;
        Ok(flushed && self.unbalanced.load(Ordering::Relaxed))
    }

    /// Goes on with a drain in a tree until it ends, there is no room, or a memtable waits: then it returns
    /// `true`, after some flushes at least.
    pub(crate) fn drain_until_full(
        &self,
        dict: &Dict,
        drain: &mut Drain,
        has_memory: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let (tries, gives_way) = (Cell::new(0), Cell::new(false));
        let has_room = |nodes| {
            tries.set(tries.get() + 1);
            gives_way.set(gives_way.get() || tries.get() > TRIES_IN_A_ROW && dict.is_full());
            !gives_way.get() && has_memory() && self.room().has_nodes(nodes)
        };
        let _structure = dict.structure.lock();
        let rebalanced = self.tree_of(dict).rebalance(Vec::new(), Some(drain), &has_room)?;
        if gives_way.get() {
            self.note_held(dict, &rebalanced);
            self.counters.flushes.fetch_add(rebalanced.flushes, Ordering::Relaxed);
        } else {
            self.note_rebalanced(dict, &rebalanced);
        }
        Ok(gives_way.get())
    }

    /// Frees one dead node. `false` if there is none.
    pub fn free_one(&self) -> Result<bool> {
        let was_unowned = self.assign_unowned()?;
        for dict in self.dicts.iter().filter(|dict| dict.has_dead()) {
            let _structure = dict.structure.lock();
            if self.tree_of(dict).free_one()? {
                return Ok(true);
            }
        }
        Ok(was_unowned)
    }

    /// As [`free_one`](Engine::free_one), but no tree that another thread is changing: waiting for it would
    /// keep others from changing it meanwhile.
    pub fn free_one_if_idle(&self) -> Result<bool> {
        let was_unowned = self.assign_unowned()?;
        for dict in self.dicts.iter().filter(|dict| dict.has_dead()) {
            let Some(_structure) = dict.structure.try_lock() else { continue };
            if self.tree_of(dict).free_one()? {
                return Ok(true);
            }
        }
        Ok(was_unowned)
    }

    /// Gives all nodes that were dead at the opening to their dictionaries.
    pub fn assign_all_unowned(&self) -> Result<()> {
        while self.assign_unowned()? {}
        Ok(())
    }

    /// Gives a node that was dead at the opening to its dictionary: nodes below it may be in that one's
    /// memory, and seen by its views. `false` if there is none. A node that cannot be read stays in the
    /// table.
    fn assign_unowned(&self) -> Result<bool> {
        let Some(id) = self.unowned.lock().last().copied() else { return Ok(false) };
        let (height, place) = {
            let table = self.table.lock();
            (table.height(id), table.place(id))
        };
        let owner = match place.filter(|_| height > Some(0)) {
            // Nothing is below a leaf, and nobody has come to this one since the opening.
            None => Some(0),
            Some(place) => match self.store.read_header(id, &place, None) {
                Ok(header) => Some(header.origin.dict),
                Err(error) if error.is_unreadable() => None,
                Err(error) => return Err(error),
            },
        };
        let mut unowned = self.unowned.lock();
        if unowned.last() == Some(&id) {
            unowned.pop();
            if let Some(dict) = owner.and_then(|owner| self.dicts.get(usize::from(owner))) {
                dict.dead.lock().push(id);
            }
        }
        Ok(true)
    }
}
