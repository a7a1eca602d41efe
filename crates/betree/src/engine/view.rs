//! Views begin and end; what they hold is written out or given up where memory or space is short.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::Ordering;

use super::Engine;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::io::AlignedBuf;
use crate::views::Live;

/// The part of the cache's budget that versions for views may take in memory alone.
const UNWRITTEN_PARTS: usize = 8;

impl Engine {
    /// Begins a view of this moment.
    pub fn begin_view(&self) -> Arc<Live> {
        let mut views = self.views.lock();
        let live = views.begin();
        for (dict, epoch) in self.dicts.iter().zip(live.epochs) {
            dict.named.lock().add(epoch, live.msn);
        }
        live
    }

    /// Ends a view, and lets go of what no other one needs. Does nothing if it has ended.
    pub fn end_view(&self, live: &Live) {
        let mut views = self.views.lock();
        if !views.end(live) {
            return;
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

    /// Ends the view that began first, which holds most. `false` if no view holds any space.
    pub fn end_oldest_view(&self) -> bool {
        if !self.dicts.iter().any(|dict| dict.state.read().history.holds_versions()) {
            return false;
        }
        let Some(oldest) = self.views.lock().oldest() else { return false };
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
            let encoded = self.store.encode_node(dict.index as u8, node, None, buffer)?;
            match self.store.place_node(encoded) {
                Ok(outgoing) => {
                    let outgoing = self.store.write_node(outgoing, buffer)?;
                    self.store.node_written(&outgoing);
                    dict.state.write().history.written(&outgoing.node, &outgoing.place);
                }
                Err(Error::NoSpace) if self.end_oldest_view() => {}
                Err(error) => return Err(error),
            }
        }
    }
}
