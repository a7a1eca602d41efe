//! What a new version of a node keeps of the blocks of earlier ones.
//!
//! A leaf of a file server's volume changes in a few places at a time. Where the device seeks, it is written
//! whole all the same, so that a scan finds it in one place. Elsewhere a new extent is a new part, with the
//! header and what has changed, and behind it blocks of other extents that hold what has not: those where the node
//! stood last, and those of nodes that it was made of, as a half is of a leaf that was split. Of a piece that newer
//! messages have come to these are the older ones.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use betree_platform::BLOCK_BYTES;

use crate::cache::{OnDevice, Piece};
use crate::format::node::RunRef;
use crate::planted;
use crate::run::Run;
use crate::space::{BlockRange, Extent};

/// A node keeps blocks in so many parts at most, beside its new ones: each may be a read of its own for a scan.
const PARTS_MAX: usize = 48;
/// A stretch of fewer blocks is written anew, unless it is a good part of a small node.
const STRETCH_BLOCKS_MIN: u64 = 4;
const SHARE_MIN: u64 = 32;
/// Less than one part in so many is not worth being kept: the node is written whole.
const WORTH: u64 = 4;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What of a piece is on the device in blocks that its node may keep.
pub(super) struct Unchanged {
    pub stored: OnDevice,
    /// The messages that have come since.
    pub newer: Option<Arc<Run>>,
}

impl Unchanged {
    /// For a node that stands at `last`, if it does: what stands elsewhere may be another's.
    pub fn of(piece: &Piece, last: Option<&Arc<Extent>>) -> Option<Unchanged> {
        let (stored, newer) = piece.written_runs()?;
        let is_ours = last.is_some_and(|last| Arc::ptr_eq(last, &stored.extent));
        (is_ours || stored.extent.is_reusable()).then_some(Unchanged { stored, newer })
    }

    fn stored_bytes(&self) -> u64 {
        self.stored.runs.iter().map(|run| u64::from(run.stored_len)).sum()
    }
}

/// Stretches of blocks of earlier extents that the next one goes on holding: they are taken over for it.
#[derive(Default)]
pub(super) struct BlockReuse {
    from: Vec<OldExtent>,
}

/// What is kept of one extent.
struct OldExtent {
    extent: Arc<Extent>,
    /// In blocks of the extent, in order.
    stretches: Vec<Range<u64>>,
}

impl OldExtent {
    /// What of a stretch lies in so many parts on the volume at most, from its start on, and in how many.
    fn within(&self, stretch: &Range<u64>, parts_max: usize) -> (Range<u64>, usize) {
        let places = self.extent.places(stretch.start * BLOCK, (stretch.end - stretch.start) * BLOCK);
        let (len, parts) =
            places.take(parts_max).fold((0, 0), |(len, parts), part| (len + part.1, parts + 1));
        (stretch.start..stretch.start + len / BLOCK, parts)
    }

    fn blocks(&self) -> u64 {
        self.stretches.iter().map(|kept| kept.end - kept.start).sum()
    }

    /// The blocks on the volume.
    fn parts(&self) -> impl Iterator<Item = BlockRange> + '_ {
        let places = self.stretches.iter().flat_map(|kept| {
            self.extent.places(kept.start * BLOCK, (kept.end - kept.start) * BLOCK).collect::<Vec<_>>()
        });
        places.map(|(at, len)| BlockRange { start_block: at / BLOCK, len_blocks: len / BLOCK })
    }
}

impl BlockReuse {
    /// What is kept for a node with these pieces, of which this stands in blocks that it may keep.
    pub fn plan(pieces: &[Arc<Piece>], written_runs: &[Option<Unchanged>]) -> BlockReuse {
        let bytes = |(piece, written_runs): (&Arc<Piece>, &Option<Unchanged>)| {
            let newer =
                |written_runs: &Unchanged| written_runs.newer.as_ref().map_or(0, |run| run.as_bytes().len());
            let all = |written_runs: &Unchanged| written_runs.stored_bytes() + newer(written_runs) as u64;
            written_runs.as_ref().map_or(piece.raw_bytes() as u64, all)
        };
        let node_blocks = pieces.iter().zip(written_runs).map(bytes).sum::<u64>() / BLOCK;
        let mut sources: Vec<OldExtent> = Vec::new();
        for OnDevice { extent, runs } in
            written_runs.iter().flatten().map(|written_runs| &written_runs.stored)
        {
            let there = runs
                .iter()
                .map(|run| (u64::from(run.offset), u64::from(run.offset) + u64::from(run.stored_len)))
                .map(|(start, end)| start / BLOCK..end.div_ceil(BLOCK));
            match sources.iter_mut().find(|source| Arc::ptr_eq(&source.extent, extent)) {
                Some(source) => source.stretches.extend(there),
                None => sources.push(OldExtent { extent: extent.clone(), stretches: there.collect() }),
            }
        }
        for source in &mut sources {
            source.stretches = joined(core::mem::take(&mut source.stretches));
        }
        let shortest = (node_blocks / SHARE_MIN).min(STRETCH_BLOCKS_MIN);
        for source in &mut sources {
            source.stretches.retain(|kept| kept.end - kept.start >= shortest);
        }
        retain_longest(&mut sources);
        for source in &mut sources {
            let got = source.stretches.iter().flat_map(|kept| source.extent.inherit(kept.clone()));
            source.stretches = got.collect();
        }
        let kept = BlockReuse { from: sources };
        let blocks = kept.from.iter().map(OldExtent::blocks).sum::<u64>();
        let is_worth_it = blocks > 0 && blocks * WORTH >= node_blocks;
        // Places in an extent are kept in 32 bits; nodes are far smaller, but for what somebody made up.
        if is_worth_it && blocks * BLOCK < 1 << 30 {
            return kept;
        }
        for OldExtent { extent, stretches } in &kept.from {
            stretches.iter().for_each(|kept| extent.release_inherited(kept));
        }
        BlockReuse::default()
    }

    /// Where in the kept blocks, put one behind the other, a run of an extent begins; `None` where it is not
    /// in them.
    pub fn offset_of(&self, extent: &Arc<Extent>, run: &RunRef) -> Option<u64> {
        let start = u64::from(run.offset);
        let end = start + u64::from(run.stored_len);
        let mut before = 0;
        for source in &self.from {
            for kept in &source.stretches {
                let is_here = Arc::ptr_eq(&source.extent, extent);
                if is_here && kept.start * BLOCK <= start && end <= kept.end * BLOCK {
                    return Some(before + start - kept.start * BLOCK);
                }
                if !planted::is(planted::Bug::KeptRunsCountedAsOne) {
                    before += (kept.end - kept.start) * BLOCK;
                }
            }
        }
        None
    }

    /// The blocks on the volume.
    pub fn parts(&self) -> Vec<BlockRange> {
        self.from.iter().flat_map(OldExtent::parts).collect()
    }
}

/// Leaves the longest stretches that lie in [`PARTS_MAX`] parts together, and of the first that does not fit what
/// does: an extent of many parts may be one stretch. Of those that are alike, the first are left.
fn retain_longest(sources: &mut [OldExtent]) {
    let mut stretches: Vec<(usize, Range<u64>)> = Vec::new();
    for (number, source) in sources.iter_mut().enumerate() {
        stretches.extend(source.stretches.drain(..).map(|kept| (number, kept)));
    }
    stretches.sort_by_key(|(_, kept)| core::cmp::Reverse(kept.end - kept.start));
    let mut parts_left = PARTS_MAX;
    for (number, stretch) in stretches {
        let source = &mut sources[number];
        let (kept, parts) = source.within(&stretch, parts_left);
        if parts == 0 {
            break;
        }
        parts_left -= parts;
        source.stretches.push(kept);
    }
    for source in sources {
        source.stretches.sort_unstable_by_key(|kept| kept.start);
    }
}

/// Ranges that touch as one, in order.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for next in ranges {
        match joined.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => joined.push(next),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::space::Space;

    #[test]
    fn a_node_keeps_no_more_stretches_than_an_extent_may_have_parts() {
        let cache = Cache::new(usize::MAX, 16);
        let pieces_len = PARTS_MAX as u64 + 12;
        let extent = Space::new(0, 4096).allocate(pieces_len * 5, 1).unwrap();
        // Each stands in four blocks, with one between it and the next.
        let pieces: Vec<Arc<Piece>> = (0..pieces_len)
            .map(|number| {
                let (offset, stored_len) = ((number * 5 * BLOCK) as u32, (4 * BLOCK) as u32);
                let run = RunRef { offset, stored_len, ..RunRef::default() };
                Piece::on_device(&cache, OnDevice { extent: extent.clone(), runs: Vec::from([run]) })
            })
            .collect();
        let written_runs: Vec<_> = pieces.iter().map(|piece| Unchanged::of(piece, Some(&extent))).collect();
        let kept = BlockReuse::plan(&pieces, &written_runs);
        assert_eq!(kept.parts().len(), PARTS_MAX);
        let is_kept = |piece: &Arc<Piece>| {
            piece.stored().is_some_and(|stored| kept.offset_of(&extent, &stored.runs[0]).is_some())
        };
        assert_eq!(pieces.iter().filter(|piece| is_kept(piece)).count(), PARTS_MAX);
    }

    #[test]
    fn of_an_extent_in_too_many_parts_as_many_are_kept_as_an_extent_may_have() {
        let space = Space::new(0, 4096);
        let parts = PARTS_MAX as u64 + 12;
        // Two blocks are free between each two that are not.
        let mut all: Vec<Arc<Extent>> = (0..4096).map(|_| space.allocate(1, 1).unwrap()).collect();
        let mut number = 0;
        all.retain(|_| {
            number += 1;
            number % 3 == 0 || number > parts * 3
        });
        let extent = space.allocate(parts * 2, usize::MAX).unwrap();
        assert_eq!(extent.parts().len() as u64, parts);
        let mut source = [OldExtent { extent, stretches: core::iter::once(0..parts * 2).collect() }];
        retain_longest(&mut source);
        assert_eq!(source[0].parts().count(), PARTS_MAX);
        assert_eq!(source[0].blocks(), PARTS_MAX as u64 * 2);
    }

    #[test]
    fn of_more_stretches_than_an_extent_may_have_parts_the_longest_are_kept() {
        let space = Space::new(0, 4096);
        let source = |lens: &[u64]| {
            let extent = space.allocate(lens.iter().map(|len| len + 1).sum(), 1).unwrap();
            let mut start = 0;
            let stretches = lens.iter().map(|len| {
                let stretch = start..start + len;
                start = stretch.end + 1;
                stretch
            });
            let stretches = stretches.collect();
            OldExtent { extent, stretches }
        };
        let lens = |source: &OldExtent| {
            source.stretches.iter().map(|kept| kept.end - kept.start).collect::<Vec<u64>>()
        };
        let few: Vec<u64> = (1..=PARTS_MAX as u64).collect();
        let mut sources = [source(&few)];
        retain_longest(&mut sources);
        assert_eq!(lens(&sources[0]), few, "all of them fit");
        let most = PARTS_MAX as u64 + 5;
        let (odd, even): (Vec<u64>, Vec<u64>) = (1..=most).partition(|len| len % 2 == 1);
        let mut sources = [source(&odd), source(&even)];
        retain_longest(&mut sources);
        assert_eq!([lens(&sources[0]), lens(&sources[1])], [Vec::from(&odd[3..]), Vec::from(&even[2..])]);
        let mut alike = [source(&[3; PARTS_MAX - 1]), source(&[3; 2])];
        retain_longest(&mut alike);
        assert_eq!(
            alike.map(|source| source.stretches.len()),
            [PARTS_MAX - 1, 1],
            "the first of those that are alike"
        );
    }
}
