//! Views begin and end; what they hold is written out or given up where memory or space is short.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::Engine;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::expiry::TimeNs;
use crate::io::AlignedBuf;
use crate::message::Msn;
use crate::node_id::NodeId;
use crate::settings::DictId;
use crate::transaction::{Footprint, Since};
use crate::views::{Live, Views};

/// The part of the cache's budget that versions for views may take in memory alone.
const UNWRITTEN_PARTS: usize = 8;

impl Engine {
    /// Begins a view of this moment.
    pub fn begin_view(&self) -> Arc<Live> {
        let views = &mut self.views.lock();
        self.begin_in(views, false, self.store.clock.now_ns())
    }

    /// Begins a view of a transaction: changes that come meanwhile are remembered for its commit.
    pub fn begin_transaction(&self) -> Arc<Live> {
        let views = &mut self.views.lock();
        self.begin_transaction_in(views, self.store.clock.now_ns())
    }

    /// Begins another view of a transaction that has one: of this moment, by the time of that.
    pub fn begin_later(&self, first: &Live) -> Arc<Live> {
        self.begin_transaction_in(&mut self.views.lock(), first.time_ns)
    }

    fn begin_transaction_in(&self, views: &mut Views, time_ns: Option<TimeNs>) -> Arc<Live> {
        let live = self.begin_in(views, true, time_ns);
        self.recent.lock().begin(live.msn);
        live
    }

    fn begin_in(&self, views: &mut Views, is_of_transaction: bool, time_ns: Option<TimeNs>) -> Arc<Live> {
        let live = views.begin(is_of_transaction, time_ns);
        for (dict, epoch) in self.dicts.iter().zip(live.epochs) {
            dict.named.lock().add(epoch, live.msn);
        }
        live
    }

    /// Ends the epochs that a view names, where they are at hand. From now on it sees the same versions of
    /// nodes whenever it looks: flushes and splits of an epoch that went on would change them.
    pub fn fix_versions(&self, live: &Live) {
        self.fix_in(&mut self.views.lock(), live);
    }

    /// Begins a view whose versions of nodes are [fixed](Engine::fix_versions). Returns it with the nodes
    /// that wait to be freed. The caller has locked all structures: no node is being freed.
    pub fn begin_fixed(&self, _structures: &[MutexGuard<'_, ()>]) -> (Arc<Live>, Vec<(&Dict, NodeId)>) {
        let live = {
            let mut views = self.views.lock();
            let live = self.begin_in(&mut views, false, self.store.clock.now_ns());
            self.fix_in(&mut views, &live);
            live
        };
        let mut dead = Vec::new();
        for dict in &self.dicts {
            dict.retry_unread_dead();
            dead.extend(dict.dead.lock().iter().map(|id| (dict, *id)));
        }
        (live, dead)
    }

    /// Those of these nodes that have no references and do not wait to be freed. The caller has locked all
    /// structures.
    pub fn unfreed(&self, mut nodes: Vec<NodeId>, _structures: &[MutexGuard<'_, ()>]) -> Vec<NodeId> {
        let waits = |id: &NodeId| {
            self.unowned.lock().contains(id) || self.dicts.iter().any(|dict| dict.dead.lock().contains(id))
        };
        nodes.retain(|id| {
            let is_dead = {
                let table = self.table.lock();
                table.holds(*id) && table.references(*id) == 0
            };
            is_dead && !waits(id)
        });
        nodes
    }

    fn fix_in(&self, views: &mut Views, live: &Live) {
        for ((dict, named), at_hand) in self.dicts.iter().zip(live.epochs).zip(&mut views.epochs) {
            let mut state = dict.state.write();
            if state.epoch == named {
                state.end_epoch(None, &dict.named.lock());
                *at_hand = state.epoch;
            }
        }
    }

    /// Looks for a change of a footprint since a moment. The caller holds the writers' lock.
    pub fn changed_since(&self, footprint: &Footprint, since: Msn) -> Since {
        if footprint.is_empty() {
            return Since::Unchanged;
        }
        let views = self.views.lock();
        if views.visible == since {
            return Since::Unchanged;
        }
        for dict in &self.dicts {
            let id = DictId(dict.index as u8);
            let state = dict.state.read();
            let memtables =
                core::iter::once(&state.active).chain(state.frozen.iter().map(|frozen| &**frozen));
            if let Some(newer) =
                memtables.into_iter().find_map(|memtable| footprint.newer_in(id, memtable, since))
            {
                return Since::Changed(newer);
            }
        }
        self.recent.lock().since(footprint, since)
    }

    /// Ends a view, and lets go of what no other one needs. Does nothing if it has ended.
    pub fn end_view(&self, live: &Live) {
        let mut views = self.views.lock();
        if !views.end(live) {
            return;
        }
        if live.is_of_transaction {
            self.recent.lock().end(live.msn);
        }
        for (dict, epoch) in self.dicts.iter().zip(live.epochs) {
            dict.named.lock().remove(epoch);
        }
        drop(views);
        for dict in self.dicts.iter().filter(|dict| !dict.state.read().history.is_empty()) {
            let mut state = dict.state.write();
            let unnamed = state.history.take_unnamed(&dict.named.lock());
            // Extents and versions are dropped without the state's lock.
            drop(state);
            drop(unnamed);
        }
    }

    /// Ends the view that began first, which holds most, or where no view holds any space the oldest backup
    /// that does. `false` if there is none.
    pub fn end_oldest_view(&self) -> bool {
        if !self.dicts.iter().any(|dict| dict.state.read().history.holds_versions()) {
            return self.unnamed.end_oldest_backup();
        }
        let Some(oldest) = self.views.lock().oldest() else { return self.unnamed.end_oldest_backup() };
        // Before anything goes: whoever reads looks at it under the state's lock.
        oldest.has_ended.store(true, Ordering::Release);
        self.end_view(&oldest);
        true
    }

    /// Ends views, the oldest first, while less is free than the reserve.
    pub fn end_views_if_short(&self) {
        while self.room().free_bytes() < self.room().reserve_bytes() && self.end_oldest_view() {}
    }

    /// Writes versions that only views see, the largest first, while they take too much memory. Nothing on
    /// the device names them. `false` if there was nothing to do.
    ///
    /// # Errors
    /// Those of the device and of reading; where space is short, views end instead.
    pub fn spill_old_versions(&self) -> Result<bool> {
        let most_bytes = self.store.cache.budget_bytes() / UNWRITTEN_PARTS;
        let unwritten = |dict: &Dict| dict.state.read().history.unwritten_bytes();
        let mut buffer = None;
        loop {
            let all: Vec<(usize, &Dict)> = self.dicts.iter().map(|dict| (unwritten(dict), dict)).collect();
            if all.iter().map(|(bytes, _)| bytes).sum::<usize>() <= most_bytes {
                return Ok(buffer.is_some());
            }
            let Some((_, dict)) = all.into_iter().max_by_key(|(bytes, _)| *bytes) else { return Ok(false) };
            let largest = dict.state.read().history.largest_unwritten();
            let Some(node) = largest else { return Ok(buffer.is_some()) };
            self.store.expect_messages_before(self.views.lock().visible + 1);
            let buffer = buffer.get_or_insert_with(AlignedBuf::default);
            // The current version shares pieces, which stay where it has them.
            let copy = self.tree_of(dict).copy_of(&node);
            let encoded = self.store.encode_old_version(dict.index as u8, copy, buffer)?;
            let placed = self.store.place_node(encoded);
            match placed.and_then(|outgoing| self.store.write_node(outgoing, buffer)) {
                Ok(outgoing) => {
                    self.store.node_written(&outgoing);
                    dict.state.write().history.spilled(&node, &outgoing.place);
                }
                Err(Error::NoSpace | Error::DeviceFull(_)) if self.end_oldest_view() => {}
                Err(error) => return Err(error),
            }
        }
    }
}
