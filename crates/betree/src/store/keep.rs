//! What a new version of a node keeps of the blocks of the last one.
//!
//! A leaf of a file server's volume changes in a few places at a time. Where the device seeks, it is written
//! whole all the same, so that a scan finds it in one place. Elsewhere a new extent is a new part, with the
//! header and what has changed, and behind it the blocks of the last extent that hold what has not: of a partition
//! that newer messages have come to, the older ones.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use betree_sys::BLOCK_BYTES;

use crate::format::node::RunRef;
use crate::planted;
use crate::space::{Extent, Part};

/// An extent has at most so many parts for this reason: each may be a read of its own for a scan.
const PARTS_MAX: usize = 16;
/// A stretch shorter than one part in so many of the last extent is written anew.
const SHARE_MIN: u64 = 32;
/// Less than one part in so many is not worth being kept: the node is written whole.
const WORTH: u64 = 4;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Stretches of blocks of an extent that the next one goes on holding.
#[derive(Default)]
pub(super) struct Kept {
    extent: Option<Arc<Extent>>,
    /// In blocks of the extent, in order.
    stretches: Vec<Range<u64>>,
}

impl Kept {
    /// What is kept of a node's last extent, which has these runs that are still of use.
    pub fn plan<'r>(useful: impl Iterator<Item = &'r RunRef>, extent: &Arc<Extent>) -> Kept {
        let mut there: Vec<Range<u64>> = useful
            .map(|run| (u64::from(run.offset), u64::from(run.offset) + u64::from(run.stored_len)))
            .map(|(start, end)| start / BLOCK..end.div_ceil(BLOCK))
            .collect();
        there.sort_unstable_by_key(|run| run.start);
        let mut stretches: Vec<Range<u64>> = Vec::new();
        for next in there {
            match stretches.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                _ => stretches.push(next),
            }
        }
        stretches.retain(|kept| (kept.end - kept.start) * SHARE_MIN >= extent.len_blocks());
        let kept = Kept { extent: Some(extent.clone()), stretches };
        let blocks = kept.stretches.iter().map(|kept| kept.end - kept.start).sum::<u64>();
        let is_worth_it = blocks * WORTH >= extent.len_blocks() && kept.parts().len() < PARTS_MAX;
        // Places in an extent are kept in 32 bits; nodes are far smaller, but for what somebody made up.
        if is_worth_it && extent.len_blocks() * BLOCK < 1 << 31 { kept } else { Kept::default() }
    }

    /// Where in the kept blocks, put one behind the other, a run of the extent begins; `None` where it is not
    /// in them.
    pub fn offset_of(&self, run: &RunRef) -> Option<u64> {
        let start = u64::from(run.offset);
        let end = start + u64::from(run.stored_len);
        let mut before = 0;
        for kept in &self.stretches {
            if kept.start * BLOCK <= start && end <= kept.end * BLOCK {
                return Some(before + start - kept.start * BLOCK);
            }
            if !planted::is(planted::Bug::KeptRunsCountedAsOne) {
                before += (kept.end - kept.start) * BLOCK;
            }
        }
        None
    }

    /// The blocks on the volume.
    pub fn parts(&self) -> Vec<Part> {
        let Some(extent) = &self.extent else { return Vec::new() };
        let places = self.stretches.iter().flat_map(|kept| {
            extent.places(kept.start * BLOCK, (kept.end - kept.start) * BLOCK).collect::<Vec<_>>()
        });
        places.map(|(at, len)| Part { start_block: at / BLOCK, len_blocks: len / BLOCK }).collect()
    }
}
