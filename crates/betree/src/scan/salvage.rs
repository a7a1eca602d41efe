//! The node table from what can be read of it, and from headers of nodes.
//!
//! A part that is damaged is read from its second copy, if that is good. Without one, a page or directory
//! whose checksum does not match still has most of its entries, at the places that their numbers give. An
//! entry of the directory is right if its page has the checksum in it; a slot is right if the header of its
//! node has the id, length and checksum in it. What is then missing is looked for on the device.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use super::headers::{self, Found, Sought};
use super::lost_part;
use crate::check::Finding;
use crate::check::table::one_bad;
use crate::env::disputed;
use crate::env::read_table::{LostPage, PageAt, ReadTable, TableReader};
use crate::error::{Error, Result};
use crate::format::limits::Limits;
use crate::format::node::Header;
use crate::format::superblock::Superblock;
use crate::format::table::{Entries, Remains, StoredPage, StoredSlot, directory_bytes_max, page_bytes_max};
use crate::io::{AlignedBuf, Disk};
use crate::node_id::NodeId;
use crate::space::{BlockRange, Extent, Space};
use crate::store::NodePlace;
use crate::table::{Table, Unclaimed};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// References of a node whose count is lost. One that several edges lead to is never changed, only copied.
const SHARED: u32 = 2;

/// The node table as far as it can be known. Calls `tell` with what is lost, and with what stands in for it.
///
/// # Errors
/// [`Error::NoMemory`].
pub(super) fn table(
    disk: &Disk,
    space: &Arc<Space>,
    superblock: &Superblock,
    tell: &mut dyn FnMut(Finding),
) -> Result<Table> {
    let reader = TableReader::new(disk, space, superblock);
    let mut salvage =
        Salvage { disk, superblock, limits: reader.limits(), nodes: Vec::new(), lost: Vec::new() };
    let second = reader.directory_copy().and_then(|copy| Some(copy.ok()?.1));
    let mut table = match (reader.directory(), second) {
        (Ok((_, pages)), copies) => salvage.pages(&reader, &Directory::Whole { pages, copies }, tell),
        // What it leads to are the copies.
        (Err(error), Some(pages)) => {
            tell(one_bad(&error));
            salvage.pages(&reader, &Directory::Whole { pages, copies: None }, tell)
        }
        (Err(error), None) => {
            tell(lost_part(&error));
            let parts = superblock.table.parts();
            let most = directory_bytes_max(reader.pages_max(), salvage.limits.blocks);
            match salvage.remains(&parts, superblock.table.len, most)? {
                Some(bytes) => {
                    let pages_max = reader.pages_max();
                    let pages = Directory::Damaged(Remains::of_directory(&bytes, pages_max), error);
                    salvage.pages(&reader, &pages, tell)
                }
                None => {
                    salvage.lost.push((0, u32::MAX));
                    Ok(Table::lost(reader.slots_per_page(), error))
                }
            }
        }
    }?;
    salvage.scan(space)?.into_iter().for_each(|count| tell(Finding::by_header(count)));
    let limits = salvage.limits;
    for node in core::mem::take(&mut salvage.nodes) {
        if u64::from(node.id.slot) < limits.slots
            && let Some(place) = salvage.place(&node)
        {
            table.put_salvaged(node.id, node.height, node.references, Some(place));
        }
    }
    Ok(table)
}

/// Adds the nodes of rotten pages to a table that is read for a repair: those whose slots agree with the
/// headers of their nodes. So nothing is guessed, and what other slots had is lost: a header alone may be of
/// an older state of its node. The next checkpoint writes these pages anew. A node whose blocks are not free
/// is a disputed one. A root that is lost stays in the table without a place.
///
/// What headers show of nodes of other slots is held: who takes the repair back may find it.
///
/// # Errors
/// That of a page of which not most slots agree, or that the device does not read: it may later, and then
/// names blocks that the repair would write over. [`Error::NoMemory`].
pub(super) fn find_pages(
    disk: &Disk,
    space: &Arc<Space>,
    superblock: &Superblock,
    pages: &[LostPage],
    read: &mut ReadTable,
) -> Result<()> {
    let reader = TableReader::new(disk, space, superblock);
    let (limits, per_page) = (reader.limits(), reader.slots_per_page());
    let mut salvage = Salvage { disk, superblock, limits, nodes: Vec::new(), lost: Vec::new() };
    for LostPage { index, places, is_unread, error } in pages {
        let first = index.saturating_mul(per_page);
        let Agreement { agree, differ } = salvage.page(places, *index, first, per_page)?;
        if *is_unread || agree <= differ {
            return Err(error.clone());
        }
        read.disputed.held.extend(places.iter().filter_map(|(parts, _)| space.claim_free(parts)));
    }
    let table = &mut read.table;
    let mut unclaimed = Vec::new();
    for node in core::mem::take(&mut salvage.nodes) {
        let Salvaged { id, height, references, parts, copy, header_len, header_checksum } = node;
        if u64::from(id.slot) >= limits.slots {
            continue;
        }
        match space.claim_both(parts.clone(), copy.clone()) {
            Ok((extent, _)) => {
                let place = NodePlace { extent, header_len, header_checksum };
                table.put_salvaged(id, height, references, Some(place));
            }
            Err(why) => {
                table.put_salvaged(id, height, references, None);
                unclaimed.push(Unclaimed { id, parts, copy, header_len, header_checksum, why });
            }
        }
    }
    let is_wanted = |slot: u32| salvage.is_lost(slot);
    let sought = Sought { superblock, limits: &limits, is_wanted: &is_wanted };
    for Found { offset, extent_blocks, .. } in headers::scan(disk, &sought)?.into_values() {
        let blocks = BlockRange { start_block: offset / BLOCK, len_blocks: extent_blocks.into() };
        read.disputed.held.extend(space.claim_free(&[blocks]));
    }
    table.renew_lost();
    let directories = [read.directory.clone(), read.directory_copy.clone()];
    let disputed = disputed::settle(disk, space, superblock, table, &directories, unclaimed);
    read.disputed.nodes.extend(disputed.nodes);
    read.disputed.held.extend(disputed.held);
    let dicts = usize::from(superblock.geometry.dicts);
    for root in superblock.dicts.iter().take(dicts) {
        let id = NodeId { slot: root.slot, generation: root.generation };
        if !table.holds(id) && table.why_lost(id).is_some() {
            table.put_salvaged(id, 0, 1, None);
        }
    }
    Ok(())
}

/// How many slots of a damaged page agree with the headers of their nodes, and how many others are in use.
struct Agreement {
    agree: u32,
    differ: u32,
}

/// A node of a lost slot.
struct Salvaged {
    id: NodeId,
    height: u8,
    references: u32,
    /// The parts of its extent, and those of its second copy if that is known.
    parts: Vec<BlockRange>,
    copy: Option<Vec<BlockRange>>,
    header_len: u32,
    header_checksum: u64,
}

/// The directory of the node table.
enum Directory {
    Whole {
        pages: Entries<StoredPage>,
        /// That of the second copy, if it is whole too.
        copies: Option<Entries<StoredPage>>,
    },
    /// What is left of it, and why it is damaged.
    Damaged(Remains<StoredPage>, Error),
}

impl Directory {
    fn len(&self) -> usize {
        match self {
            Directory::Whole { pages, .. } => pages.entries.len(),
            Directory::Damaged(pages, _) => pages.entries.len(),
        }
    }

    /// A page with the parts of its extent.
    fn page(&self, index: usize) -> Option<(StoredPage, Vec<BlockRange>)> {
        match self {
            Directory::Whole { pages, .. } => {
                let page = *pages.entries.get(index)?;
                Some((page, pages.parts_of(index, page.first_part())))
            }
            Directory::Damaged(pages, _) => {
                let page = *pages.entries.get(index)?;
                Some((page, pages.parts_of(index, page.first_part())))
            }
        }
    }

    /// Whether its entries can be believed as they are.
    fn is_whole(&self) -> bool {
        matches!(self, Directory::Whole { .. })
    }

    /// The second copy of a page whose first one has these parts, with the parts of its extent.
    fn copy(&self, index: usize, first: &[BlockRange]) -> Option<(StoredPage, Vec<BlockRange>)> {
        let Directory::Whole { copies: Some(copies), .. } = self else { return None };
        let page = *copies.entries.get(index)?;
        let parts = copies.parts_of(index, page.first_part());
        // A page that was not copied has its only place in both directories.
        (parts != first).then_some((page, parts))
    }
}

/// What was found so far.
struct Salvage<'s> {
    disk: &'s Disk,
    superblock: &'s Superblock,
    limits: Limits,
    nodes: Vec<Salvaged>,
    /// Slots of which nothing is known, in order: from, to.
    lost: Vec<(u32, u32)>,
}

impl Salvage<'_> {
    /// Reads the pages. Those that are damaged leave their slots to `nodes` and `lost`.
    fn pages(
        &mut self,
        reader: &TableReader<'_>,
        directory: &Directory,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<Table> {
        let per_page = reader.slots_per_page();
        let mut table = Table::new(per_page);
        // Entries of a damaged directory behind its last page are none.
        let mut waiting: Vec<Error> = Vec::new();
        let mut unclaimed = Vec::new();
        let is_last = |index: usize| index + 1 == directory.len() && directory.is_whole();
        let read_page = |index: usize| {
            let (page, parts) = directory.page(index)?;
            let at = PageAt { index, is_last: is_last(index) };
            let read = |(page, parts): (StoredPage, Vec<BlockRange>)| {
                reader.claim(parts).and_then(|extent| reader.page(extent, &page, at))
            };
            let read = read((page, parts.clone())).or_else(|error| {
                let copy = directory.copy(index, &parts).and_then(|copy| read(copy).ok());
                copy.inspect(|_| tell(one_bad(&error))).ok_or(error)
            });
            Some((page, parts, read))
        };
        // Before the nodes, whatever blocks these claim.
        let read: Vec<_> = (0..directory.len()).map_while(read_page).collect();
        for (index, (page, parts, read)) in read.into_iter().enumerate() {
            let (place, slots) = match read {
                Ok(read) => read,
                Err(error) if directory.is_whole() => {
                    tell(lost_part(&error));
                    let first = (index as u32).saturating_mul(per_page);
                    table.push_lost_page(error);
                    let mut places = Vec::from([(parts.clone(), page.len_bytes.get())]);
                    let copy = directory.copy(index, &parts);
                    places.extend(copy.map(|(page, parts)| (parts, page.len_bytes.get())));
                    self.page(&places, index as u32, first, per_page)?;
                    continue;
                }
                Err(error) => {
                    waiting.push(error);
                    continue;
                }
            };
            for error in waiting.drain(..) {
                tell(lost_part(&error));
                let first = table.slots_len();
                table.push_lost_page(error);
                self.lost.push((first, first.saturating_add(per_page)));
            }
            let mut bad_copies = Vec::new();
            let claim = |slot: &StoredSlot, parts| reader.claim_node(slot, parts, &mut bad_copies);
            table.push_page(place, &slots, claim, &mut |node| {
                unclaimed.push(node);
                Ok(())
            })?;
            bad_copies.iter().for_each(|error| tell(one_bad(error)));
        }
        if let Directory::Damaged(_, error) = directory {
            // Nothing says which page was the last.
            let first = table.slots_len();
            table.push_lost_rest(error.clone());
            self.lost.push((first, u32::MAX));
        }
        let disputed =
            disputed::settle(self.disk, reader.space(), self.superblock, &mut table, &[], unclaimed);
        disputed.nodes.iter().for_each(|node| tell(Finding::disputed(node)));
        Ok(table)
    }

    /// Takes what is right of a damaged page, or else of its second copy.
    fn page(
        &mut self,
        places: &[(Vec<BlockRange>, u32)],
        index: u32,
        first: u32,
        per_page: u32,
    ) -> Result<Agreement> {
        let end = first.saturating_add(per_page);
        let most = page_bytes_max(per_page, self.limits.blocks);
        let mut copies = Vec::new();
        for (parts, len_bytes) in places {
            let bytes = self.remains(parts, *len_bytes, most)?;
            copies.extend(bytes.map(|bytes| Remains::of_page(index, &bytes, per_page)));
        }
        let mut agreement = Agreement { agree: 0, differ: 0 };
        for (slot, entry) in (first..end).zip(0..) {
            let node = |slots: &Remains<StoredSlot>| self.node(slot, slots.entries.get(entry)?, slots, entry);
            if let Some(node) = copies.iter().find_map(node) {
                self.nodes.push(node);
                agreement.agree += 1;
                continue;
            }
            let mut stored = copies.iter().filter_map(|slots| slots.entries.get(entry));
            agreement.differ += u32::from(stored.any(|stored| stored.used != 0));
            match self.lost.last_mut() {
                Some((_, end)) if *end == slot => *end = slot + 1,
                _ => self.lost.push((slot, slot + 1)),
            }
        }
        Ok(agreement)
    }

    /// The node of a slot in a damaged page, if the node's header agrees with the slot.
    fn node(
        &self,
        slot: u32,
        stored: &StoredSlot,
        slots: &Remains<StoredSlot>,
        entry: usize,
    ) -> Option<Salvaged> {
        let (header_len, header_checksum) = (stored.header_len.get(), stored.header_checksum.get());
        if stored.used != 1 || header_len == 0 || u64::from(header_len) > self.limits.header_bytes {
            return None;
        }
        let (parts, copy) = stored.halves(slots.parts_of(entry, stored.first_part()))?;
        let (id, height) = (NodeId { slot, generation: stored.generation.get() }, stored.height);
        let references = stored.references.get();
        let node = Salvaged { id, height, references, parts, copy, header_len, header_checksum };
        let extent = self.place(&node)?.extent;
        let blocks = (header_len as usize).div_ceil(BLOCK_BYTES);
        if blocks as u64 > extent.len_blocks() {
            return None;
        }
        let is_right = |bytes: &Vec<u8>| Header::checksum(bytes) == Some(header_checksum);
        let read = |extent| headers::read_bytes(self.disk, extent, header_len as usize).filter(is_right);
        let bytes = read(&extent).or_else(|| read(extent.copy()?))?;
        let extent_bytes = extent.len_blocks() * BLOCK;
        let header = Header::decode(&bytes, extent_bytes, &self.limits, self.superblock.next_msn).ok()?;
        let is_right = header.id == id
            && header.height == height
            && u64::from(header.extent_blocks) == extent.len_blocks();
        is_right.then_some(node)
    }

    /// Where a node is, in a space of its own.
    fn place(&self, node: &Salvaged) -> Option<NodePlace> {
        let copy = node.copy.clone().and_then(|parts| self.extent(parts));
        let extent = copy.into_iter().fold(self.extent(node.parts.clone())?, Extent::with_copy);
        Some(NodePlace { extent, header_len: node.header_len, header_checksum: node.header_checksum })
    }

    /// Blocks that may be those of a node, for reading: in a space of their own, as what was found by chance
    /// may overlap with others.
    fn extent(&self, parts: Vec<BlockRange>) -> Option<Arc<Extent>> {
        let end = self.superblock.volume_bytes.min(self.disk.len()) / BLOCK;
        Space::new(0, end).claim(parts).ok()
    }

    /// The bytes of a damaged page or directory, with zeros for blocks that cannot be read. `None` if there
    /// is no telling where it is.
    fn remains(&self, parts: &[BlockRange], len_bytes: u32, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(extent) = self.extent(parts.to_vec()) else { return Ok(None) };
        let blocks = extent.len_blocks();
        if u64::from(len_bytes).div_ceil(BLOCK) != blocks || u64::from(len_bytes) > most {
            return Ok(None);
        }
        let mut buffer = AlignedBuf::zeroed(blocks as usize)?;
        let mut rest = buffer.as_mut_slice();
        for (at, len) in extent.places(0, blocks * BLOCK) {
            let Some((part, after)) = rest.split_at_mut_checked(len as usize) else { break };
            headers::read_past(self.disk, at, part);
            rest = after;
        }
        Ok(buffer.as_slice().get(..len_bytes as usize).map(<[u8]>::to_vec))
    }

    /// Whether nothing is known of a slot.
    fn is_lost(&self, slot: u32) -> bool {
        let behind = self.lost.partition_point(|(from, _)| *from <= slot);
        behind.checked_sub(1).and_then(|at| self.lost.get(at)).is_some_and(|(_, to)| slot < *to)
    }

    /// Looks for the nodes of lost slots on the whole device. One in blocks that another node has is of an
    /// older checkpoint, and is left. Returns the number of nodes that were found; `None` if no slot is lost.
    fn scan(&mut self, space: &Arc<Space>) -> Result<Option<u64>> {
        if self.lost.is_empty() {
            return Ok(None);
        }
        let is_wanted = |slot: u32| self.is_lost(slot);
        let sought = Sought { superblock: self.superblock, limits: &self.limits, is_wanted: &is_wanted };
        let mut found: Vec<Found> = headers::scan(self.disk, &sought)?.into_values().collect();
        found.sort_by_key(|node| core::cmp::Reverse(node.checkpoint));
        let mut taken = Vec::new();
        let mut count = 0u64;
        for node in found {
            let (start_block, all_blocks) = (node.offset / BLOCK, u64::from(node.extent_blocks));
            let own = BlockRange { start_block, len_blocks: node.own_blocks.min(all_blocks) };
            let Ok(own) = space.claim(alloc::vec![own]) else { continue };
            taken.push(own);
            let parts = alloc::vec![BlockRange { start_block, len_blocks: all_blocks }];
            let Found { id, height, header_len, header_checksum, .. } = node;
            let (references, copy) = (SHARED, None);
            let node = Salvaged { id, height, references, parts, copy, header_len, header_checksum };
            if self.place(&node).is_some() {
                self.nodes.push(node);
                count += 1;
            }
        }
        Ok(Some(count))
    }
}
