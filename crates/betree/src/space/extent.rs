//! Places on the volume, and their owners.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::block_range::BlockRange;
use super::free_map::FreeMap;
use super::inheritance::Inheritance;
use super::refcounts::RefCounts;
use crate::error::{Error, Result};
use crate::planted::{self, Bug};

/// The allocatable part of a volume, in blocks of [`BLOCK_BYTES`] counted from the volume's start.
///
/// Its lock is taken last: nothing else is locked under it, and an [`Extent`] may be dropped under
/// any other lock.
pub(crate) struct Space {
    blocks: Mutex<Blocks>,
    first_block: u64,
    total_blocks: AtomicU64,
    /// The number of parts of all extents beyond their first ones.
    pub(super) further_parts: AtomicU64,
    /// Whether storage from before the opening was looked for.
    is_searched: AtomicBool,
}

/// The free blocks, and those that several extents hold.
struct Blocks {
    /// All of them have storage, as far as the device may lack any: see `unbacked`.
    free: FreeMap,
    /// Free blocks for which a sparse device may have no storage: no extent gets them before that is
    /// allocated (`store/backing.rs`). `None` if the device never lacks any.
    unbacked: Option<FreeMap>,
    /// Blocks that became free since the last discards, if the device gets discards.
    untold: Option<FreeMap>,
    refcounts: RefCounts,
}

/// Blocks in use, in one part if possible; dropping it frees the blocks that no other extent holds.
///
/// Bytes of an extent are counted through its parts in their order.
pub(crate) struct Extent {
    pub(super) space: Arc<Space>,
    parts: Box<[BlockRange]>,
    inheritance: Mutex<Inheritance>,
    /// As many blocks elsewhere with the same bytes, if there are any.
    pub(super) copy: Option<Arc<Extent>>,
    /// Whether a block of it or of its copy was found to be bad.
    pub(super) is_bad: AtomicBool,
}

impl Blocks {
    /// Takes free blocks: by `in_one` if there is a gap for them, else in at most `parts_max` parts.
    fn allocate(
        &mut self,
        blocks: u64,
        parts_max: usize,
        in_one: impl FnOnce(&mut FreeMap, u64) -> Option<u64>,
    ) -> Option<Vec<BlockRange>> {
        self.free.hand_out(blocks);
        let parts = match in_one(&mut self.free, blocks) {
            Some(start_block) => Vec::from([BlockRange { start_block, len_blocks: blocks }]),
            None => self.free.gather(blocks, parts_max)?,
        };
        if let Some(untold) = &mut self.untold {
            parts.iter().for_each(|part| untold.remove_within(part.start_block, part.len_blocks));
        }
        Some(parts)
    }

    /// Makes used or discarded blocks free that may have no storage.
    fn give_unbacked(&mut self, start_block: u64, len_blocks: u64) {
        self.unbacked.as_mut().unwrap_or(&mut self.free).give_back(start_block, len_blocks);
    }

    /// These parts, and behind them blocks that another extent holds too.
    fn and_kept(&mut self, mut parts: Vec<BlockRange>, kept: &[BlockRange]) -> Vec<BlockRange> {
        for part in kept {
            self.refcounts.add(*part);
            match parts.last_mut() {
                Some(last) if last.start_block + last.len_blocks == part.start_block => {
                    last.len_blocks += part.len_blocks;
                }
                _ => parts.push(*part),
            }
        }
        parts
    }
}

impl Space {
    /// `total_blocks` free blocks from `first_block` on (superblocks and log lie before).
    pub(crate) fn new(first_block: u64, total_blocks: u64) -> Arc<Space> {
        let total_blocks = total_blocks.min(u64::MAX - first_block);
        let free = FreeMap::new(first_block, total_blocks);
        let blocks =
            Mutex::new(Blocks { free, unbacked: None, untold: None, refcounts: RefCounts::default() });
        Arc::new(Space {
            blocks,
            first_block,
            total_blocks: AtomicU64::new(total_blocks),
            further_parts: AtomicU64::new(0),
            is_searched: AtomicBool::new(false),
        })
    }

    /// Adds free blocks behind the last one.
    pub(crate) fn grow(&self, more_blocks: u64) {
        let mut blocks = self.blocks.lock();
        let end = self.end_block();
        let more_blocks = more_blocks.min(u64::MAX - end);
        if more_blocks > 0 {
            // First: what is free is never more than all.
            self.total_blocks.fetch_add(more_blocks, Ordering::Relaxed);
            let Blocks { free, unbacked, .. } = &mut *blocks;
            unbacked.as_mut().unwrap_or(free).extend(end, more_blocks);
        }
    }

    /// As [`allocate_before`](Space::allocate_before), with new blocks alone.
    #[cfg(test)]
    pub(crate) fn allocate(self: &Arc<Space>, blocks: u64, parts_max: usize) -> Option<Arc<Extent>> {
        self.allocate_before(blocks, parts_max, &[])
    }

    /// Allocates `blocks` blocks: in one part, right behind the last allocation or in another gap, if a gap
    /// is large enough; else in as few parts as the gaps allow, at most `parts_max`. Behind them the extent
    /// has the `kept` blocks, which an extent of the caller holds. `None` if too few blocks are free and have
    /// storage, if they would need more parts, or if `blocks` is 0.
    pub(crate) fn allocate_before(
        self: &Arc<Space>,
        blocks: u64,
        parts_max: usize,
        kept: &[BlockRange],
    ) -> Option<Arc<Extent>> {
        self.allocate_by(FreeMap::allocate, blocks, parts_max, kept)
    }

    /// As [`allocate_before`](Space::allocate_before), as near to the end of the volume as a gap allows: far
    /// from what was allocated before.
    pub(crate) fn allocate_last(
        self: &Arc<Space>,
        blocks: u64,
        parts_max: usize,
        kept: &[BlockRange],
    ) -> Option<Arc<Extent>> {
        self.allocate_by(FreeMap::allocate_last, blocks, parts_max, kept)
    }

    fn allocate_by(
        self: &Arc<Space>,
        in_one: impl FnOnce(&mut FreeMap, u64) -> Option<u64>,
        blocks: u64,
        parts_max: usize,
        kept: &[BlockRange],
    ) -> Option<Arc<Extent>> {
        let mut all = self.blocks.lock();
        let parts = all.allocate(blocks, parts_max, in_one)?;
        let parts = all.and_kept(parts, kept);
        drop(all);
        Some(self.extent(parts))
    }

    /// Claims exactly these parts, which the node table names, while a volume is opened.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the place in bytes, if any of them is outside or in use already.
    pub(crate) fn claim(self: &Arc<Space>, parts: Vec<BlockRange>) -> Result<Arc<Extent>> {
        let free = &mut self.blocks.lock().free;
        for (index, part) in parts.iter().enumerate() {
            if !free.take(part.start_block, part.len_blocks) {
                for taken in parts.iter().take(index) {
                    free.give_back(taken.start_block, taken.len_blocks);
                }
                return Err(self.refusal(part.start_block, part.len_blocks));
            }
        }
        Ok(self.extent(parts))
    }

    /// Claims what of these parts is free; `None` if nothing is.
    pub(crate) fn claim_free(self: &Arc<Space>, parts: &[BlockRange]) -> Option<Arc<Extent>> {
        let mut taken = Vec::new();
        {
            let free = &mut self.blocks.lock().free;
            for part in parts {
                free.take_within(part.start_block, part.len_blocks, &mut |range| taken.push(range));
            }
        }
        (!taken.is_empty()).then(|| self.extent(taken))
    }

    /// Parts that others may claim too, as an extent in a space of its own, which ends with the device: it
    /// holds no block, and no version of a node keeps any of it.
    ///
    /// # Errors
    /// As [`claim`](Space::claim), if they can be no extent at all: one is empty or behind the device's end,
    /// or two overlap.
    pub(crate) fn disputed(parts: Vec<BlockRange>, device_blocks: u64) -> Result<Arc<Extent>> {
        let extent = Space::new(0, device_blocks).claim(parts)?;
        extent.inherit(0..extent.len_blocks());
        Ok(extent)
    }

    /// The blocks of those extents that are of this space.
    pub(crate) fn blocks_of<'x>(self: &Arc<Space>, extents: impl Iterator<Item = &'x Arc<Extent>>) -> u64 {
        extents.filter(|extent| Arc::ptr_eq(&extent.space, self)).map(|extent| extent.all_blocks()).sum()
    }

    fn extent(self: &Arc<Space>, parts: Vec<BlockRange>) -> Arc<Extent> {
        debug_assert!(!parts.is_empty(), "an extent has a part: the table's entries have, and so has a gap");
        self.further_parts.fetch_add(parts.len().saturating_sub(1) as u64, Ordering::Relaxed);
        Arc::new(Extent {
            space: Arc::clone(self),
            parts: parts.into(),
            inheritance: Mutex::default(),
            copy: None,
            is_bad: AtomicBool::new(false),
        })
    }

    /// Hands free blocks at the end out only as the others get short: for a device that ends where its
    /// contents end. After the last [`claim`](Space::claim), and before
    /// [`doubt_backing`](Space::doubt_backing). Returns the first of these blocks.
    pub(crate) fn withhold_end(&self) -> u64 {
        self.blocks.lock().free.withhold_end(self.end_block())
    }

    /// Treats all free blocks, and those to come by growth and discards, as such for which the device may
    /// have no storage.
    pub(crate) fn doubt_backing(&self) {
        let Blocks { free, unbacked, .. } = &mut *self.blocks.lock();
        let none = FreeMap::new(free.cursor(), 0);
        unbacked.get_or_insert(core::mem::replace(free, none));
    }

    /// The number of free blocks for which the device may have no storage.
    pub(crate) fn unbacked_blocks(&self) -> u64 {
        self.blocks.lock().unbacked.as_ref().map_or(0, FreeMap::free_blocks)
    }

    /// The number of free blocks that have storage.
    pub(crate) fn backed_blocks(&self) -> u64 {
        self.blocks.lock().free.free_blocks()
    }

    /// Whether this many blocks in a row are free and have storage.
    pub(crate) fn has_backed(&self, blocks: u64) -> bool {
        self.blocks.lock().free.largest() >= blocks
    }

    /// Takes at most `blocks_max` free blocks in a row that may have no storage, where the last allocation
    /// ended or in the next gap. The caller allocates it and calls [`give_backed`](Space::give_backed), or
    /// [`give_back_told`](Space::give_back_told) if that fails.
    pub(crate) fn take_unbacked(&self, blocks_max: u64) -> Option<BlockRange> {
        let Blocks { free, unbacked, .. } = &mut *self.blocks.lock();
        let unbacked = unbacked.as_mut()?;
        unbacked.hand_out(blocks_max);
        let (start_block, len) = unbacked.range_from(free.cursor())?;
        let len_blocks = len.min(blocks_max);
        unbacked.take(start_block, len_blocks).then_some(BlockRange { start_block, len_blocks })
    }

    /// As [`take_unbacked`](Space::take_unbacked), this many blocks at the end of the last gap, if no gap
    /// with storage has them behind it.
    pub(crate) fn take_last_unbacked(&self, blocks: u64) -> Option<BlockRange> {
        let Blocks { free, unbacked, .. } = &mut *self.blocks.lock();
        let unbacked = unbacked.as_mut()?;
        unbacked.hand_out(blocks);
        let (last, _) = unbacked.iter().next_back()?;
        if free.iter().next_back().is_some_and(|(start, len)| start > last && len >= blocks) {
            return None;
        }
        let start_block = unbacked.allocate_last(blocks)?;
        Some(BlockRange { start_block, len_blocks: blocks })
    }

    /// Hands out so many blocks of those withheld, which may have storage from before the opening.
    pub(crate) fn hand_out_doubted(&self, blocks: u64) {
        if let Some(unbacked) = &mut self.blocks.lock().unbacked {
            unbacked.hand_out_more(blocks);
        }
    }

    /// Takes exactly these blocks, if all of them are free and may have no storage.
    pub(crate) fn take_doubted(&self, range: BlockRange) -> bool {
        let unbacked = &mut self.blocks.lock().unbacked;
        unbacked.as_mut().is_some_and(|map| map.take(range.start_block, range.len_blocks))
    }

    /// The free ranges that may have no storage, in order of place.
    pub(crate) fn doubted_ranges(&self) -> Vec<BlockRange> {
        let range = |(start_block, len_blocks)| BlockRange { start_block, len_blocks };
        self.blocks.lock().unbacked.iter().flat_map(FreeMap::iter).map(range).collect()
    }

    /// Notes that storage from before the opening was looked for. Whether it was before.
    pub(crate) fn note_searched(&self) -> bool {
        self.is_searched.swap(true, Ordering::Relaxed)
    }

    /// Makes blocks free that have storage.
    pub(crate) fn give_backed(&self, range: BlockRange) {
        self.blocks.lock().free.give_back(range.start_block, range.len_blocks);
    }

    /// Notes from now on which blocks become free, for [`take_untold`](Space::take_untold).
    pub(crate) fn note_freed(&self) {
        self.blocks.lock().untold.get_or_insert_with(|| FreeMap::new(self.first_block, 0));
    }

    /// Takes at most `blocks_max` blocks in a row that became free since the last discards; `None` if there
    /// are no more. No extent gets them until the caller has discarded them and calls
    /// [`give_back_told`](Space::give_back_told).
    pub(crate) fn take_untold(&self, blocks_max: u64) -> Option<BlockRange> {
        let Blocks { free, untold, .. } = &mut *self.blocks.lock();
        let untold = untold.as_mut()?;
        let (start_block, len) = untold.largest_range()?;
        let len_blocks = len.min(blocks_max);
        (untold.take(start_block, len_blocks) && free.take(start_block, len_blocks))
            .then_some(BlockRange { start_block, len_blocks })
    }

    /// Takes a range for a discard if all of it is free and has storage: no extent gets a part of it until
    /// [`give_back_told`](Space::give_back_told).
    pub(crate) fn take_free(&self, range: BlockRange) -> bool {
        let Blocks { free, untold, .. } = &mut *self.blocks.lock();
        let is_taken = free.take(range.start_block, range.len_blocks);
        if let Some(untold) = untold.as_mut().filter(|_| is_taken) {
            untold.remove_within(range.start_block, range.len_blocks);
        }
        is_taken
    }

    /// Returns a range that was taken for a discard to the free blocks.
    pub(crate) fn give_back_told(&self, range: BlockRange) {
        self.blocks.lock().give_unbacked(range.start_block, range.len_blocks);
    }

    /// The number of parts of all extents in use beyond their first ones; those of copies all count.
    pub(crate) fn further_parts(&self) -> u64 {
        self.further_parts.load(Ordering::Relaxed)
    }

    fn refusal(&self, start: u64, len: u64) -> Error {
        let (first, end) = (self.first_block, self.end_block());
        let inside = start >= first && start.checked_add(len).is_some_and(|e| e <= end);
        let why = match (len, inside) {
            (0, _) => format!("the extent at block {start} is empty"),
            (_, false) => format!("blocks {start}+{len} are not within {first}..{end}"),
            (_, true) => format!("some of blocks {start}+{len} are in use already"),
        };
        let block = BLOCK_BYTES as u64;
        let (offset, len) = (start.saturating_mul(block), len.saturating_mul(block));
        Error::Corrupt { what: "extent", offset, len, why }
    }

    /// Blocks that no extent holds.
    pub(crate) fn free_blocks(&self) -> u64 {
        let blocks = self.blocks.lock();
        blocks.free.free_blocks() + blocks.unbacked.as_ref().map_or(0, FreeMap::free_blocks)
    }

    /// Blocks in all.
    pub(crate) fn total_blocks(&self) -> u64 {
        self.total_blocks.load(Ordering::Relaxed)
    }

    /// The first block.
    pub(crate) fn first_block(&self) -> u64 {
        self.first_block
    }

    /// The block behind the last one.
    pub(crate) fn end_block(&self) -> u64 {
        self.first_block.saturating_add(self.total_blocks())
    }

    /// The free ranges in order of place.
    pub(crate) fn free_ranges(&self) -> Vec<BlockRange> {
        let range = |(start_block, len_blocks)| BlockRange { start_block, len_blocks };
        let blocks = self.blocks.lock();
        let maps = || core::iter::once(&blocks.free).chain(&blocks.unbacked);
        let withheld = maps().filter_map(FreeMap::withheld);
        let mut ranges: Vec<BlockRange> = maps().flat_map(FreeMap::iter).chain(withheld).map(range).collect();
        ranges.sort_unstable_by_key(|range| range.start_block);
        ranges
    }
}

impl Extent {
    /// Its parts, at least one.
    pub(crate) fn parts(&self) -> &[BlockRange] {
        &self.parts
    }

    /// The blocks of all parts.
    pub(crate) fn len_blocks(&self) -> u64 {
        self.parts.iter().map(|p| p.len_blocks).sum()
    }

    /// The places on the volume of a range of its bytes: (first byte, length) of each contiguous piece. Bytes
    /// beyond its end are left out.
    pub(crate) fn places(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = offset.saturating_add(len);
        let mut next = 0u64;
        self.parts.iter().filter_map(move |part| {
            let from = next;
            next += part.len_blocks * BLOCK_BYTES as u64;
            let (start, stop) = (offset.max(from), end.min(next));
            (start < stop).then(|| (part.start_block * BLOCK_BYTES as u64 + (start - from), stop - start))
        })
    }

    /// Lets other nodes inherit its blocks: its own node has moved or is gone.
    pub(crate) fn make_reusable(&self) {
        self.inheritance.lock().is_reusable = true;
    }

    /// Whether nodes other than its own may inherit its blocks.
    pub(crate) fn is_reusable(&self) -> bool {
        self.inheritance.lock().is_reusable || planted::is(Bug::BlocksOfTheLivingTaken)
    }

    /// Inherits a range of its blocks, counted through its parts, for the next extent of a node. Returns the
    /// blocks without an heir so far: no two nodes ever name the same block.
    pub(crate) fn inherit(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        self.inheritance.lock().take(blocks)
    }

    /// Cancels an inheritance, for the node is written without these blocks.
    pub(crate) fn release_inherited(&self, blocks: &Range<u64>) {
        self.inheritance.lock().release(blocks);
    }

    /// The place on the volume of one of its bytes; its start, if it has no such byte.
    pub(crate) fn place(&self, offset: u64) -> u64 {
        let start = self.parts.first().map_or(0, |p| p.start_block * BLOCK_BYTES as u64);
        self.places(offset, 1).next().map_or(start, |(at, _)| at)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let further = self.parts.len().saturating_sub(1) + usize::from(self.copy.is_some());
        let further = further as u64;
        if planted::is(Bug::NodeCopyNotFreed) {
            core::mem::forget(self.copy.take());
        }
        self.space.further_parts.fetch_sub(further, Ordering::Relaxed);
        let Blocks { free, untold, refcounts, .. } = &mut *self.space.blocks.lock();
        for part in &self.parts {
            for range in refcounts.release(*part) {
                free.give_back(range.start_block, range.len_blocks);
                if let Some(untold) = untold {
                    untold.give_back(range.start_block, range.len_blocks);
                }
            }
        }
    }
}

impl core::fmt::Debug for Extent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut list = f.debug_list();
        list.entries(self.parts.iter().map(|p| format!("{}+{}", p.start_block, p.len_blocks))).finish()
    }
}

#[cfg(test)]
mod tests;
