//! What a new version of a node keeps of the blocks of the last one.
//!
//! A leaf of a file server's volume changes in a few places at a time. Where the device seeks, it is written
//! whole all the same, so that a scan finds it in one place. Elsewhere a new extent is a new part, with the
//! header and what has changed, and behind it the blocks of the last extent that hold what has not.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use betree_sys::BLOCK_BYTES;

use super::NodePlace;
use crate::cache::{Piece, Stored};
use crate::planted;
use crate::space::{Extent, Part};

/// An extent has at most so many parts for this reason: each may be a read of its own for a scan.
const PARTS_MAX: usize = 16;
/// A run shorter than one part in so many of the last extent is written anew.
const SHARE_MIN: u64 = 32;
/// Less than one part in so many is not worth being kept: the node is written whole.
const WORTH: u64 = 4;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Runs of blocks of an extent, from its start on, that the next one goes on holding.
#[derive(Default)]
pub(super) struct Kept {
    extent: Option<Arc<Extent>>,
    /// In blocks of the extent, in order.
    runs: Vec<Range<u64>>,
}

impl Kept {
    /// What is kept of a node's last extent. Only pieces that are stored there are; those which the node has
    /// from another, whose version may go on holding them, are not.
    pub fn plan(pieces: &[Arc<Piece>], place: &NodePlace) -> Kept {
        let extent = &place.extent;
        let stored = pieces.iter().filter_map(|piece| piece.stored());
        let mut there: Vec<Range<u64>> = stored
            .filter(|stored| Arc::ptr_eq(&stored.extent, extent))
            .map(|Stored { at, .. }| (u64::from(at.offset), u64::from(at.offset) + u64::from(at.stored_len)))
            .map(|(start, end)| start / BLOCK..end.div_ceil(BLOCK))
            .collect();
        there.sort_unstable_by_key(|run| run.start);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for next in there {
            match runs.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                _ => runs.push(next),
            }
        }
        runs.retain(|run| (run.end - run.start) * SHARE_MIN >= extent.len_blocks());
        let kept = Kept { extent: Some(extent.clone()), runs };
        let blocks = kept.runs.iter().map(|run| run.end - run.start).sum::<u64>();
        let is_worth_it = blocks * WORTH >= extent.len_blocks() && kept.parts().len() < PARTS_MAX;
        // Places in an extent are kept in 32 bits; nodes are far smaller, but for what somebody made up.
        if is_worth_it && extent.len_blocks() * BLOCK < 1 << 31 { kept } else { Kept::default() }
    }

    /// Where in the kept blocks, put one behind the other, a piece begins; `None` where it is not in them.
    pub fn offset_of(&self, stored: &Stored) -> Option<u64> {
        if !self.extent.as_ref().is_some_and(|extent| Arc::ptr_eq(extent, &stored.extent)) {
            return None;
        }
        let start = u64::from(stored.at.offset);
        let end = start + u64::from(stored.at.stored_len);
        let mut before = 0;
        for run in &self.runs {
            if run.start * BLOCK <= start && end <= run.end * BLOCK {
                return Some(before + start - run.start * BLOCK);
            }
            if !planted::is(planted::Bug::KeptRunsCountedAsOne) {
                before += (run.end - run.start) * BLOCK;
            }
        }
        None
    }

    /// The blocks on the volume.
    pub fn parts(&self) -> Vec<Part> {
        let Some(extent) = &self.extent else { return Vec::new() };
        let places = self.runs.iter().flat_map(|run| {
            extent.places(run.start * BLOCK, (run.end - run.start) * BLOCK).collect::<Vec<_>>()
        });
        places.map(|(at, len)| Part { start_block: at / BLOCK, len_blocks: len / BLOCK }).collect()
    }
}
