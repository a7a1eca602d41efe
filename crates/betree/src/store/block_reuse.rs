//! Which blocks of earlier extents a new version of a node keeps.
//!
//! A leaf of a file server's volume changes in a few places at a time. On a device that seeks, it is written
//! whole all the same, so that a scan finds it in one place. On other devices its new extent is a new part,
//! with the header and the changed pieces, followed by blocks of other extents with the unchanged pieces: the
//! node's last extent, and extents of nodes that it was made of (a split leaf's, for one half). Of a piece
//! with newer messages the blocks of the older messages are kept.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use betree_platform::BLOCK_BYTES;

use crate::cache::{OnDevice, Piece};
use crate::format::node::RunRef;
use crate::planted;
use crate::run::Run;
use crate::space::{BlockRange, Extent};

/// The most parts of kept blocks in a node, beside its new blocks: each may be a read of its own for a scan.
const PARTS_MAX: usize = 48;
/// A shorter stretch is written anew, unless it is one of [`SHARE_MIN`] parts of a small node.
const STRETCH_BLOCKS_MIN: u64 = 4;
const SHARE_MIN: u64 = 32;
/// A node is written whole unless at least one part in this many of its blocks can be kept.
const WORTH: u64 = 4;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The runs of a piece in blocks that its node may keep.
pub(super) struct Unchanged {
    pub stored: OnDevice,
    /// The messages newer than those runs.
    pub newer: Option<Arc<Run>>,
}

impl Unchanged {
    /// The reusable runs of a piece; `last` is its node's last extent, if there is one. Blocks of other
    /// extents count only if other nodes may inherit them, and those with a bad copy never. For a node that
    /// is to have a second copy, only blocks count that have one.
    pub fn of(piece: &Piece, last: Option<&Arc<Extent>>, wants_copy: bool) -> Option<Unchanged> {
        let (stored, newer) = piece.reusable_runs()?;
        if stored.extent.is_bad() || wants_copy && stored.extent.copy().is_none() {
            return None;
        }
        let is_ours = last.is_some_and(|last| Arc::ptr_eq(last, &stored.extent));
        (is_ours || stored.extent.is_reusable()).then_some(Unchanged { stored, newer })
    }

    fn stored_bytes(&self) -> u64 {
        self.stored.runs.iter().map(|run| u64::from(run.stored_len)).sum()
    }
}

/// Stretches of blocks of earlier extents that the next extent inherits.
#[derive(Default)]
pub(super) struct BlockReuse {
    from: Vec<OldExtent>,
}

/// The kept blocks of one extent.
struct OldExtent {
    extent: Arc<Extent>,
    /// In blocks of the extent, in order.
    stretches: Vec<Range<u64>>,
}

impl OldExtent {
    /// The beginning of a stretch that lies in at most `parts_max` parts on the volume, and the number of its
    /// parts.
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
        self.parts_in(&self.extent)
    }

    /// The blocks on the volume of these stretches in the extent, or in its second copy.
    fn parts_in<'s>(&'s self, extent: &'s Extent) -> impl Iterator<Item = BlockRange> + 's {
        let places = self.stretches.iter().flat_map(|kept| {
            extent.places(kept.start * BLOCK, (kept.end - kept.start) * BLOCK).collect::<Vec<_>>()
        });
        places.map(|(at, len)| BlockRange { start_block: at / BLOCK, len_blocks: len / BLOCK })
    }
}

impl BlockReuse {
    /// Plans the kept blocks of a node with these pieces, whose `unchanged` runs are in blocks that it may
    /// keep; or should keep, however few, if `is_wanted`.
    pub fn plan(pieces: &[Arc<Piece>], unchanged: &[Option<Unchanged>], is_wanted: bool) -> BlockReuse {
        let bytes = |(piece, unchanged): (&Arc<Piece>, &Option<Unchanged>)| {
            let newer =
                |unchanged: &Unchanged| unchanged.newer.as_ref().map_or(0, |run| run.as_bytes().len());
            let all = |unchanged: &Unchanged| unchanged.stored_bytes() + newer(unchanged) as u64;
            unchanged.as_ref().map_or(piece.raw_bytes() as u64, all)
        };
        let node_blocks = pieces.iter().zip(unchanged).map(bytes).sum::<u64>() / BLOCK;
        let mut old_extents: Vec<OldExtent> = Vec::new();
        for OnDevice { extent, runs } in unchanged.iter().flatten().map(|unchanged| &unchanged.stored) {
            let there = runs
                .iter()
                .map(|run| (u64::from(run.offset), u64::from(run.offset) + u64::from(run.stored_len)))
                .map(|(start, end)| start / BLOCK..end.div_ceil(BLOCK));
            match old_extents.iter_mut().find(|old| Arc::ptr_eq(&old.extent, extent)) {
                Some(old) => old.stretches.extend(there),
                None => old_extents.push(OldExtent { extent: extent.clone(), stretches: there.collect() }),
            }
        }
        for old in &mut old_extents {
            old.stretches = joined(core::mem::take(&mut old.stretches));
        }
        let shortest = if is_wanted { 0 } else { (node_blocks / SHARE_MIN).min(STRETCH_BLOCKS_MIN) };
        for old in &mut old_extents {
            old.stretches.retain(|kept| kept.end - kept.start >= shortest);
        }
        retain_longest(&mut old_extents);
        for old in &mut old_extents {
            let got = old.stretches.iter().flat_map(|kept| old.extent.inherit(kept.clone()));
            old.stretches = got.collect();
        }
        let kept = BlockReuse { from: old_extents };
        let blocks = kept.from.iter().map(OldExtent::blocks).sum::<u64>();
        let is_worth_it = blocks > 0 && (is_wanted || blocks * WORTH >= node_blocks);
        // Offsets in an extent have 32 bits. Only a forged node is so large.
        if is_worth_it && blocks * BLOCK < 1 << 30 {
            return kept;
        }
        kept.release();
        BlockReuse::default()
    }

    /// Leaves the blocks to other nodes: this one is not written with them.
    pub fn release(&self) {
        for OldExtent { extent, stretches } in &self.from {
            stretches.iter().for_each(|kept| extent.release_inherited(kept));
        }
    }

    /// The offset of a run in the kept blocks, put one after the other; `None` if they do not hold the run.
    pub fn offset_of(&self, extent: &Arc<Extent>, run: &RunRef) -> Option<u64> {
        let start = u64::from(run.offset);
        let end = start + u64::from(run.stored_len);
        let mut before = 0;
        for old in &self.from {
            for kept in &old.stretches {
                let is_here = Arc::ptr_eq(&old.extent, extent);
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

    /// The blocks of their second copies; `None` if one has none.
    pub fn parts_of_copies(&self) -> Option<Vec<BlockRange>> {
        let mut parts = Vec::new();
        for old in &self.from {
            parts.extend(old.parts_in(old.extent.copy()?));
        }
        Some(parts)
    }
}

/// Keeps the longest stretches that lie in [`PARTS_MAX`] parts together, and the beginning of the first that
/// does not fit: one stretch may be an extent of many parts. Of equally long stretches the first are kept.
fn retain_longest(old_extents: &mut [OldExtent]) {
    let mut stretches: Vec<(usize, Range<u64>)> = Vec::new();
    for (number, old) in old_extents.iter_mut().enumerate() {
        stretches.extend(old.stretches.drain(..).map(|kept| (number, kept)));
    }
    stretches.sort_by_key(|(_, kept)| core::cmp::Reverse(kept.end - kept.start));
    let mut parts_left = PARTS_MAX;
    for (number, stretch) in stretches {
        let old = &mut old_extents[number];
        let (kept, parts) = old.within(&stretch, parts_left);
        if parts == 0 {
            break;
        }
        parts_left -= parts;
        old.stretches.push(kept);
    }
    for old in old_extents {
        old.stretches.sort_unstable_by_key(|kept| kept.start);
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
        let unchanged: Vec<_> =
            pieces.iter().map(|piece| Unchanged::of(piece, Some(&extent), false)).collect();
        let kept = BlockReuse::plan(&pieces, &unchanged, false);
        assert_eq!(kept.parts().len(), PARTS_MAX);
        let is_kept = |piece: &Arc<Piece>| {
            piece.stored().is_some_and(|stored| kept.offset_of(&extent, &stored.runs[0]).is_some())
        };
        assert_eq!(pieces.iter().filter(|piece| is_kept(piece)).count(), PARTS_MAX);
    }

    #[test]
    fn of_an_extent_in_too_many_parts_only_the_allowed_number_is_kept() {
        let space = Space::new(0, 4096);
        let parts = PARTS_MAX as u64 + 12;
        // Two free blocks lie between each two used ones.
        let mut all: Vec<Arc<Extent>> = (0..4096).map(|_| space.allocate(1, 1).unwrap()).collect();
        let mut number = 0;
        all.retain(|_| {
            number += 1;
            number % 3 == 0 || number > parts * 3
        });
        let extent = space.allocate(parts * 2, usize::MAX).unwrap();
        assert_eq!(extent.parts().len() as u64, parts);
        let mut old = [OldExtent { extent, stretches: core::iter::once(0..parts * 2).collect() }];
        retain_longest(&mut old);
        assert_eq!(old[0].parts().count(), PARTS_MAX);
        assert_eq!(old[0].blocks(), PARTS_MAX as u64 * 2);
    }

    #[test]
    fn the_longest_of_too_many_stretches_are_kept() {
        let space = Space::new(0, 4096);
        let old = |lens: &[u64]| {
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
        let lens =
            |old: &OldExtent| old.stretches.iter().map(|kept| kept.end - kept.start).collect::<Vec<u64>>();
        let few: Vec<u64> = (1..=PARTS_MAX as u64).collect();
        let mut old_extents = [old(&few)];
        retain_longest(&mut old_extents);
        assert_eq!(lens(&old_extents[0]), few, "all of them fit");
        let most = PARTS_MAX as u64 + 5;
        let (odd, even): (Vec<u64>, Vec<u64>) = (1..=most).partition(|len| len % 2 == 1);
        let mut old_extents = [old(&odd), old(&even)];
        retain_longest(&mut old_extents);
        assert_eq!(
            [lens(&old_extents[0]), lens(&old_extents[1])],
            [Vec::from(&odd[3..]), Vec::from(&even[2..])]
        );
        let mut alike = [old(&[3; PARTS_MAX - 1]), old(&[3; 2])];
        retain_longest(&mut alike);
        assert_eq!(
            alike.map(|old| old.stretches.len()),
            [PARTS_MAX - 1, 1],
            "the first of equally long ones"
        );
    }
}
