//! Reading the node table of the last checkpoint.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;

use crate::env::disputed::{self, OnDispute};
use crate::error::{Error, Result};
use crate::format::limits::Limits;
use crate::format::superblock::Superblock;
use crate::format::superblock::table_copy::TableCopy;
use crate::format::table::{
    Entries, StoredPage, StoredSlot, decode_directory, decode_page, directory_bytes_max, page_bytes_max,
    slots_per_page,
};
use crate::io::{AlignedBuf, Disk};
use crate::space::{BlockRange, Extent, Space};
use crate::table::{Disputed, PagePlace, Table, Unclaimed};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// What errors call the directory of the second copy.
pub(crate) const DIRECTORY_COPY: &str = "the directory of the node table's second copy";

/// A node table as it was read.
pub(crate) struct ReadTable {
    pub table: Table,
    /// The extent of its directory, if that could be read.
    pub directory: Option<Arc<Extent>>,
    /// That of the second copy, if there is one that can be read.
    pub directory_copy: Option<Arc<Extent>>,
    /// The damage of parts of which the other copy is good. They are to be written anew with the next
    /// checkpoint.
    pub healed: Vec<Error>,
    /// Nodes whose blocks others claim too.
    pub disputed: Disputed,
}

/// A page of the node table that cannot be read, and whose second copy cannot either.
pub(crate) struct LostPage {
    pub index: u32,
    /// The parts of its extent with its length in bytes, and those of its second copy if it has one.
    pub places: Vec<(Vec<BlockRange>, u32)>,
    /// Whether the device does not read one of them.
    pub is_unread: bool,
    pub error: Error,
}

/// Reads the node table and claims the extents that it names. A part that is damaged is read from its second
/// copy, if that is good. The directory and each page must not be longer
/// than their entries need, nor list more than the volume has room for. Calls `lost` with each page that
/// cannot be known; if `lost` returns `Ok`, the others are read.
///
/// # Errors
/// Those of `lost`; that of the directory, if it cannot be read; that of a disputed node, if these are
/// refused.
pub(crate) fn read_table(
    disk: &Disk,
    space: &Arc<Space>,
    superblock: &Superblock,
    on_dispute: OnDispute,
    lost: &mut dyn FnMut(LostPage) -> Result<()>,
) -> Result<ReadTable> {
    let reader = TableReader::new(disk, space, superblock);
    let mut healed = Vec::new();
    let first = reader.directory();
    let second = reader.directory_copy();
    let (directory, directory_copy, pages, copies) = match (first, second) {
        (Ok((directory, pages)), Some(Ok((copy, copies)))) => {
            (Some(directory), Some(copy), pages, Some(copies))
        }
        (Ok((directory, pages)), None) => (Some(directory), None, pages, None),
        (Ok((directory, pages)), Some(Err(error))) => {
            healed.push(error);
            (Some(directory), None, pages, None)
        }
        // What it leads to are the copies; the pages themselves are not known.
        (Err(error), Some(Ok((copy, copies)))) => {
            disk.health.note_copy_used(&error);
            healed.push(error);
            (None, Some(copy), copies, None)
        }
        (Err(error), _) => return Err(error),
    };
    // Before the nodes, whatever blocks these claim.
    let extents = (0..).zip(&pages.entries).map(|(index, page)| {
        let parts = pages.parts_of(index, page.first_part());
        let copy = copies.as_ref().and_then(|copies| Some((copies, copies.entries.get(index)?)));
        let copy = copy.map(|(copies, copy)| (copies.parts_of(index, copy.first_part()), copy));
        // A page that was not copied has its only place in both directories.
        let copy = copy.filter(|(copied, _)| *copied != parts);
        let extent = reader.claim(parts);
        // A copy that cannot be claimed is none.
        (extent, copy.and_then(|(parts, copy)| Some((reader.claim(parts).ok()?, copy))))
    });
    let extents: Vec<_> = extents.collect();
    let is_last = |index: usize| index + 1 == pages.entries.len();
    let mut table = Table::new(reader.slots_per_page());
    let mut unclaimed = Vec::new();
    let mut not_claimed = |node: Unclaimed| match on_dispute {
        OnDispute::Refuse => Err(disputed::refusal(node)),
        OnDispute::Look => {
            unclaimed.push(node);
            Ok(())
        }
    };
    // Slots whose second copy cannot be claimed are written anew without it.
    let mut bad_copies = Vec::new();
    for (index, (page, (extent, copy))) in pages.entries.iter().zip(extents).enumerate() {
        let at = PageAt { index, is_last: is_last(index) };
        match (extent.and_then(|extent| reader.page(extent, page, at)), copy) {
            (Ok((place, slots)), copy) => {
                let copy = copy.map(|(copy, _)| copy);
                let copy = copy.filter(|copy| copy.len_blocks() == place.extent.len_blocks());
                let claim = |slot: &StoredSlot, parts| reader.claim_node(slot, parts, &mut bad_copies);
                table.push_page(PagePlace { copy, ..place }, &slots, claim, &mut not_claimed)?;
            }
            (Err(error), copy) => match copy.map(|(extent, copy)| reader.page(extent, copy, at)) {
                Some(Ok((place, slots))) => {
                    disk.health.note_copy_used(&error);
                    healed.push(error);
                    let claim = |slot: &StoredSlot, parts| reader.claim_node(slot, parts, &mut bad_copies);
                    table.push_page(place, &slots, claim, &mut not_claimed)?;
                    table.touch_page(index as u32);
                }
                second @ (Some(Err(_)) | None) => {
                    let is_unread =
                        matches!(error, Error::Device(_)) || matches!(second, Some(Err(Error::Device(_))));
                    let directories = core::iter::once(&pages).chain(&copies);
                    let mut places: Vec<_> = directories
                        .filter_map(|pages| {
                            let page = pages.entries.get(index)?;
                            Some((pages.parts_of(index, page.first_part()), page.len_bytes.get()))
                        })
                        .collect();
                    // A page that was not copied has its only place in both directories.
                    places.dedup();
                    lost(LostPage { index: index as u32, places, is_unread, error: error.clone() })?;
                    table.push_lost_page(error);
                }
            },
        }
        if !bad_copies.is_empty() {
            table.touch_page(index as u32);
            healed.append(&mut bad_copies);
        }
    }
    if !healed.is_empty() && (directory.is_none() || directory_copy.is_none()) {
        // The other directory led to what is a second copy of each.
        (0..pages.entries.len()).for_each(|index| table.touch_page(index as u32));
    }
    let directories = [directory.clone(), directory_copy.clone()];
    let disputed = disputed::settle(disk, space, superblock, &mut table, &directories, unclaimed);
    Ok(ReadTable { table, directory, directory_copy, healed, disputed })
}

/// Where a page stands in the node table.
#[derive(Clone, Copy)]
pub(crate) struct PageAt {
    pub index: usize,
    /// Only the last page may be incomplete.
    pub is_last: bool,
}

/// Reads the parts of a node table, and claims their extents.
pub(crate) struct TableReader<'r> {
    disk: &'r Disk,
    space: &'r Arc<Space>,
    superblock: &'r Superblock,
    limits: Limits,
}

impl<'r> TableReader<'r> {
    pub(crate) fn new(disk: &'r Disk, space: &'r Arc<Space>, superblock: &'r Superblock) -> TableReader<'r> {
        let limits = Limits::of(&superblock.geometry, space.total_blocks());
        TableReader { disk, space, superblock, limits }
    }

    /// Where it claims blocks.
    pub(crate) fn space(&self) -> &'r Arc<Space> {
        self.space
    }

    /// The limits of the volume.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The number of slots of each page but the last.
    pub(crate) fn slots_per_page(&self) -> u32 {
        slots_per_page(self.superblock.table_page_bytes)
    }

    /// The most pages that the volume allows.
    pub(crate) fn pages_max(&self) -> u64 {
        self.limits.slots.div_ceil(u64::from(self.slots_per_page()))
    }

    /// Claims the extent of a node or page.
    pub(crate) fn claim(&self, parts: Vec<BlockRange>) -> Result<Arc<Extent>> {
        self.space.claim(parts)
    }

    /// Claims the extent of a node, and its second copy if it has one; `parts` are all that its slot has.
    /// `unclaimed` gets the error of a copy whose blocks are in use or outside.
    ///
    /// # Errors
    /// As [`Space::claim`]; [`Error::Corrupt`] for parts that have no halves where the slot says so.
    pub(crate) fn claim_node(
        &self,
        slot: &StoredSlot,
        parts: Vec<BlockRange>,
        unclaimed: &mut Vec<Error>,
    ) -> Result<Arc<Extent>> {
        let Some((first, copy)) = slot.halves(parts) else {
            let offset = slot.first_part().start_block.saturating_mul(BLOCK);
            let why = "its blocks are not those of two copies".into();
            return Err(Error::Corrupt { what: "a slot of the node table", offset, len: 0, why });
        };
        let (extent, error) = self.space.claim_both(first, copy)?;
        unclaimed.extend(error);
        Ok(extent)
    }

    /// The directory with its extent.
    pub(crate) fn directory(&self) -> Result<(Arc<Extent>, Entries<StoredPage>)> {
        let place = &self.superblock.table;
        self.directory_at("the node table's directory", place.parts(), place.len, place.checksum)
    }

    /// The directory of the second copy with its extent; `None` if there is no such copy.
    pub(crate) fn directory_copy(&self) -> Option<Result<(Arc<Extent>, Entries<StoredPage>)>> {
        let TableCopy { parts, len, checksum } = TableCopy::of(self.superblock)?;
        Some(self.directory_at(DIRECTORY_COPY, parts, len, checksum))
    }

    fn directory_at(
        &self,
        what: &'static str,
        parts: Vec<BlockRange>,
        len: u32,
        checksum: u64,
    ) -> Result<(Arc<Extent>, Entries<StoredPage>)> {
        let directory = self.space.claim(parts)?;
        if u64::from(len) > directory_bytes_max(self.pages_max(), self.limits.blocks) {
            return Err(corrupt(what, &directory, "it is longer than this volume allows"));
        }
        if u64::from(len).div_ceil(BLOCK) > directory.len_blocks() {
            return Err(corrupt(what, &directory, "it is longer than its extent"));
        }
        let bytes = read_checked(self.disk, what, &directory, len, checksum)?;
        let pages = decode_directory(bytes_of(&bytes, len))
            .ok_or_else(|| corrupt(what, &directory, "it does not parse"))?;
        if pages.entries.len() as u64 > self.pages_max() {
            return Err(corrupt(what, &directory, "it has more pages than this volume allows"));
        }
        Ok((directory, pages))
    }

    /// A page with its place, which is `extent`.
    pub(crate) fn page(
        &self,
        extent: Arc<Extent>,
        page: &StoredPage,
        at: PageAt,
    ) -> Result<(PagePlace, Entries<StoredSlot>)> {
        let what = "a page of the node table";
        let per_page = self.slots_per_page();
        let (len_bytes, checksum) = (page.len_bytes.get(), page.checksum.get());
        if u64::from(len_bytes).div_ceil(BLOCK) != extent.len_blocks() {
            return Err(corrupt(what, &extent, "it is not as long as its extent"));
        }
        if u64::from(len_bytes) > page_bytes_max(per_page, self.limits.blocks) {
            return Err(corrupt(what, &extent, "it is longer than this volume allows"));
        }
        let bytes = read_checked(self.disk, what, &extent, len_bytes, checksum)?;
        let slots = decode_page(at.index as u32, bytes_of(&bytes, len_bytes))
            // An incomplete page would shift the ids of all that follow.
            .filter(|slots| slots.entries.len() == per_page as usize || at.is_last)
            .filter(|slots| slots.entries.len() <= per_page as usize)
            .ok_or_else(|| corrupt(what, &extent, "it does not parse as this page"))?;
        Ok((PagePlace { extent, copy: None, len_bytes, checksum }, slots))
    }
}

fn corrupt(what: &'static str, extent: &Extent, why: &str) -> Error {
    Error::Corrupt { what, offset: extent.place(0), len: extent.len_blocks() * BLOCK, why: why.into() }
}

fn bytes_of(buffer: &AlignedBuf, len: u32) -> &[u8] {
    buffer.as_slice().get(..len as usize).unwrap_or_default()
}

/// Reads bytes of the node table, and compares them with their checksum.
pub(crate) fn read_checked(
    disk: &Disk,
    what: &'static str,
    extent: &Extent,
    len: u32,
    checksum: u64,
) -> Result<AlignedBuf> {
    let mut buffer = AlignedBuf::zeroed(extent.len_blocks() as usize)?;
    disk.read_extent(extent, 0, buffer.as_mut_slice())?;
    if xxh3_64(bytes_of(&buffer, len)) != checksum {
        return disk.health.count_damage(Err(Error::Corrupt {
            what,
            offset: extent.place(0),
            len: u64::from(len),
            why: "the checksum does not match".into(),
        }));
    }
    Ok(buffer)
}
