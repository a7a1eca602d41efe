//! Ranges that were deleted or replaced: their data stays on the device until the messages that hide it have
//! gone down along the ranges' bounds.

use alloc::vec::Vec;

use super::Engine;
use crate::error::Result;
use crate::format::record::{Change, Changes};
use crate::key::Cut;
use crate::settings::DictId;
use crate::tree::FLUSH_NODES;

/// How many bounds are worth a way down: together they share the paths from the root.
pub(crate) const BOUNDS_AT_ONCE: usize = 128;
/// How many bounds are kept at most. Ranges that are not noted go down as buffers fill.
const BOUNDS_MAX: usize = 4096;
/// Fewer bounds are worth it too where they hide this part of the unused space.
const HIDDEN_PART: u64 = 32;

/// The ranges whose hidden data is still to be reclaimed.
#[derive(Default)]
pub(crate) struct HiddenRanges {
    bounds: Vec<(DictId, Cut)>,
    /// The bytes that they are known to hide.
    known_bytes: u64,
}

impl HiddenRanges {
    fn note(&mut self, dict: DictId, bounds: [Cut; 2]) {
        if self.bounds.len() < BOUNDS_MAX {
            self.bounds.extend(bounds.map(|cut| (dict, cut)));
        }
    }
}

impl Engine {
    /// Notes the ranges of a record, which are known to hide `known_bytes` together (0 if unknown).
    pub fn note_ranges(&self, record: &[u8], known_bytes: u64) {
        let mut hidden = self.hidden_ranges.lock();
        for (id, change) in Changes::of(record).map_while(Result::ok) {
            match change {
                Change::DeleteRange { lo, hi } => hidden.note(id, [lo, hi]),
                Change::CloneRange { to, lo, hi, .. } => {
                    hidden.note(id, [lo, hi].map(|cut| cut.with_prefix(to)));
                }
                _ => {}
            }
        }
        hidden.known_bytes = hidden.known_bytes.saturating_add(known_bytes);
    }

    /// Notes a range that was replaced, as [`note_ranges`](Engine::note_ranges).
    pub fn note_range(&self, dict: DictId, bounds: [Cut; 2]) {
        self.hidden_ranges.lock().note(dict, bounds);
    }

    /// Whether the noted ranges are known to hide much compared with what is unused.
    pub fn is_much_hidden(&self) -> bool {
        let known_bytes = self.hidden_ranges.lock().known_bytes;
        known_bytes > u64::from(self.geometry.node_bytes) * 4
            && known_bytes > self.room().unused_bytes() / HIDDEN_PART
    }

    /// Reclaims the data that the noted ranges hide, if they are known to hide much compared with what is
    /// unused. `false` if they do not, or there is no room.
    pub fn reclaim_much_hidden(&self) -> Result<bool> {
        Ok(self.is_much_hidden() && self.reclaim_hidden(1)?)
    }

    /// Reclaims the data that the noted ranges hide, if they have at least `least` bounds or hide much.
    /// `false` if they do not, or there is no room.
    pub fn reclaim_hidden(&self, least: usize) -> Result<bool> {
        let bounds = self.hidden_ranges.lock().bounds.len();
        let are_worth_it = bounds >= least || bounds > 0 && self.is_much_hidden();
        if !are_worth_it || !self.room().has_nodes(FLUSH_NODES) {
            return Ok(false);
        }
        let HiddenRanges { mut bounds, known_bytes } = core::mem::take(&mut *self.hidden_ranges.lock());
        // The range messages may still be in a memtable.
        self.freeze(true);
        bounds.sort_unstable();
        for dict in &self.dicts {
            let here = bounds.iter().filter(|(id, _)| usize::from(id.0) == dict.index);
            let cuts: Vec<Cut> = here.map(|(_, cut)| cut.clone()).collect();
            // Others want the tree too.
            for some in cuts.chunks(BOUNDS_AT_ONCE) {
                while self.absorb(dict)? {}
                let _structure = dict.structure.lock();
                let tree = self.tree_of(dict);
                let reached = tree.reclaim_hidden(some, &|nodes| self.room().has_nodes(nodes))?;
                self.rebalance(&tree, reached)?;
            }
        }
        // About half a leaf beside each bound stays hidden, until messages go down as buffers fill or a drain
        // takes them.
        let left_bytes = bounds.len() as u64 * u64::from(self.geometry.node_bytes / 2);
        self.admission.expect_less_space(known_bytes.saturating_sub(left_bytes));
        Ok(true)
    }
}
