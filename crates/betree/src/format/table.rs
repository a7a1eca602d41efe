//! Pages of the node table, and the directory that lists them.
//!
//! A page is a head and one fixed entry per slot; the directory is a head and one fixed entry per page. An
//! entry has the first part of its extent; the further parts of all extents follow the entries, in their
//! order. Both are copy-on-write extents; a page's checksum is in the directory, the directory's in the
//! superblock.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::space::BlockRange;

const PAGE_MAGIC: u32 = 0x6570_7462;
const DIRECTORY_MAGIC: u32 = 0x6964_7462;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: U32,
    index: U32,
    entries: U32,
    further_parts: U32,
}

/// A slot of the node table as stored. All zeros: never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StoredSlot {
    pub start_block: U64,
    pub header_checksum: U64,
    pub len_blocks: U32,
    pub header_len: U32,
    pub generation: U32,
    pub references: U32,
    pub height: u8,
    /// 1: holds a node, 0: free (its generation still counts).
    pub used: u8,
    /// 1: the second half of the extent's blocks is a second copy of the first half.
    pub copied: u8,
    pub reserved: [u8; 5],
}

/// A page's place as stored in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StoredPage {
    pub start_block: U64,
    pub checksum: U64,
    pub len_blocks: U32,
    pub len_bytes: U32,
}

/// A part of an extent after the first, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StoredPart {
    /// The index of the entry whose extent it belongs to. It never decreases from part to part.
    pub entry: U32,
    pub len_blocks: U32,
    pub start_block: U64,
}

/// Entries that each have an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries<T> {
    pub entries: Vec<T>,
    further_parts: Vec<StoredPart>,
}

impl<T> Entries<T> {
    /// No entries.
    pub(crate) fn new() -> Entries<T> {
        Entries { entries: Vec::new(), further_parts: Vec::new() }
    }

    /// Appends an entry. It holds the first of its `parts` itself.
    pub(crate) fn push(&mut self, entry: T, parts: &[BlockRange]) {
        let index = U32::new(self.entries.len() as u32);
        self.entries.push(entry);
        self.further_parts.extend(parts.iter().skip(1).map(|part| StoredPart {
            entry: index,
            len_blocks: U32::new(part.len_blocks as u32),
            start_block: U64::new(part.start_block),
        }));
    }

    /// The parts of an entry's extent; `first` is the one in the entry itself.
    pub(crate) fn parts_of(&self, index: usize, first: BlockRange) -> Vec<BlockRange> {
        let from = self.further_parts.partition_point(|p| (p.entry.get() as usize) < index);
        let further = self.further_parts.iter().skip(from).take_while(|p| p.entry.get() as usize == index);
        let further = further.map(|p| BlockRange {
            start_block: p.start_block.get(),
            len_blocks: u64::from(p.len_blocks.get()),
        });
        core::iter::once(first).chain(further).collect()
    }
}

impl StoredSlot {
    /// The first part of the node's extent.
    pub(crate) fn first_part(&self) -> BlockRange {
        BlockRange { start_block: self.start_block.get(), len_blocks: u64::from(self.len_blocks.get()) }
    }

    /// The parts of the node's extent and those of its second copy, if it has one; `parts` are all that the
    /// page has for the slot. `None` if they have no halves.
    pub(crate) fn halves(
        &self,
        parts: Vec<BlockRange>,
    ) -> Option<(Vec<BlockRange>, Option<Vec<BlockRange>>)> {
        match self.copied {
            0 => Some((parts, None)),
            1 => {
                let blocks: u64 = parts.iter().map(|part| part.len_blocks).sum();
                let mut before = 0;
                let count = parts.iter().take_while(|part| {
                    before += part.len_blocks;
                    before <= blocks / 2
                });
                let (first, second) = parts.split_at_checked(count.count())?;
                let is_half = first.iter().map(|part| part.len_blocks).sum::<u64>() * 2 == blocks;
                (is_half && blocks > 0).then(|| (first.to_vec(), Some(second.to_vec())))
            }
            _ => None,
        }
    }
}

impl StoredPage {
    /// The first part of the page's extent.
    pub(crate) fn first_part(&self) -> BlockRange {
        BlockRange { start_block: self.start_block.get(), len_blocks: u64::from(self.len_blocks.get()) }
    }
}

/// The bytes of a further part of an extent in a page or the directory.
pub(crate) const PART_BYTES: u64 = size_of::<StoredPart>() as u64;

const _: () = assert!(size_of::<Head>() == 16);
const _: () = assert!(size_of::<StoredPart>() == 16);
const _: () = assert!(size_of::<StoredSlot>() == 40);
const _: () = assert!(size_of::<StoredPage>() == 24);

/// The number of slots in a page of `page_bytes` bytes.
pub(crate) fn slots_per_page(page_bytes: u32) -> u32 {
    (page_bytes.saturating_sub(size_of::<Head>() as u32) / size_of::<StoredSlot>() as u32).max(1)
}

/// The longest page of `slots` slots in bytes, on a volume of `blocks` blocks: each further part of an extent
/// has at least one of them.
pub(crate) fn page_bytes_max(slots: u32, blocks: u64) -> u64 {
    longest(size_of::<StoredSlot>(), slots.into(), blocks)
}

/// The longest directory of `pages` pages in bytes, on a volume of `blocks` blocks.
pub(crate) fn directory_bytes_max(pages: u64, blocks: u64) -> u64 {
    longest(size_of::<StoredPage>(), pages, blocks)
}

fn longest(entry_bytes: usize, entries: u64, parts: u64) -> u64 {
    let entries_bytes = entries.saturating_mul(entry_bytes as u64);
    parts.saturating_mul(PART_BYTES).saturating_add(entries_bytes).saturating_add(size_of::<Head>() as u64)
}

fn encode<T: IntoBytes + Immutable>(magic: u32, index: u32, all: &Entries<T>) -> Vec<u8> {
    let head = Head {
        magic: U32::new(magic),
        index: U32::new(index),
        entries: U32::new(all.entries.len() as u32),
        further_parts: U32::new(all.further_parts.len() as u32),
    };
    let mut out = head.as_bytes().to_vec();
    out.extend_from_slice(all.entries.as_bytes());
    out.extend_from_slice(all.further_parts.as_bytes());
    out
}

fn decode<T: FromBytes + Immutable + KnownLayout + Unaligned + Copy>(
    magic: u32,
    index: u32,
    bytes: &[u8],
) -> Option<Entries<T>> {
    let (head, rest) = Head::ref_from_prefix(bytes).ok()?;
    if head.magic.get() != magic || head.index.get() != index {
        return None;
    }
    let (entries, rest) = <[T]>::ref_from_prefix_with_elems(rest, head.entries.get() as usize).ok()?;
    let count = head.further_parts.get() as usize;
    let (parts, rest) = <[StoredPart]>::ref_from_prefix_with_elems(rest, count).ok()?;
    let in_order = parts.is_sorted_by_key(|p| p.entry.get());
    let belong = parts.last().is_none_or(|p| (p.entry.get() as usize) < entries.len());
    (rest.is_empty() && in_order && belong)
        .then(|| Entries { entries: entries.to_vec(), further_parts: parts.to_vec() })
}

/// What may be left of entries whose checksum does not match: each stands at the place of its number,
/// whatever is damaged beside it. Nothing of it is verified.
pub(crate) struct Remains<T> {
    pub entries: Vec<T>,
    /// By entry.
    further_parts: BTreeMap<u32, Vec<BlockRange>>,
}

impl<T: FromBytes + Immutable + KnownLayout + Unaligned + Copy> Remains<T> {
    /// The number of entries is that of the head if the head can be that of page `index`, else `usual`, or as
    /// many as there is room for.
    fn of(magic: u32, index: u32, bytes: &[u8], usual: u64) -> Remains<T> {
        let none = || Remains { entries: Vec::new(), further_parts: BTreeMap::new() };
        let Ok((head, rest)) = Head::ref_from_prefix(bytes) else { return none() };
        let room = rest.len() / size_of::<T>();
        let is_head = head.magic.get() == magic && head.index.get() == index;
        let counted = Some(head.entries.get() as usize).filter(|count| is_head && *count <= room);
        let count = counted.unwrap_or(room.min(usize::try_from(usual).unwrap_or(usize::MAX)));
        let Ok((entries, rest)) = <[T]>::ref_from_prefix_with_elems(rest, count) else { return none() };
        let parts = rest.chunks_exact(size_of::<StoredPart>()).filter_map(|part| {
            let part = StoredPart::ref_from_bytes(part).ok()?;
            Some((part.entry.get(), part.start_block.get(), u64::from(part.len_blocks.get())))
        });
        let mut further_parts: BTreeMap<u32, Vec<BlockRange>> = BTreeMap::new();
        for (entry, start_block, len_blocks) in parts.filter(|(entry, ..)| (*entry as usize) < count) {
            further_parts.entry(entry).or_default().push(BlockRange { start_block, len_blocks });
        }
        Remains { entries: entries.to_vec(), further_parts }
    }

    /// The parts that may be those of an entry's extent; `first` is the one in the entry itself.
    pub(crate) fn parts_of(&self, index: usize, first: BlockRange) -> Vec<BlockRange> {
        let further = u32::try_from(index).ok().and_then(|index| self.further_parts.get(&index));
        core::iter::once(first).chain(further.into_iter().flatten().copied()).collect()
    }
}

impl Remains<StoredSlot> {
    /// What may be left of page `index`, usually of `slots_per_page` slots.
    pub(crate) fn of_page(index: u32, bytes: &[u8], slots_per_page: u32) -> Remains<StoredSlot> {
        Remains::of(PAGE_MAGIC, index, bytes, slots_per_page.into())
    }
}

impl Remains<StoredPage> {
    /// What may be left of the directory, of at most `pages_max` pages.
    pub(crate) fn of_directory(bytes: &[u8], pages_max: u64) -> Remains<StoredPage> {
        Remains::of(DIRECTORY_MAGIC, 0, bytes, pages_max)
    }
}

/// A page's bytes.
pub(crate) fn encode_page(index: u32, slots: &Entries<StoredSlot>) -> Vec<u8> {
    encode(PAGE_MAGIC, index, slots)
}

/// A page's slots, if these bytes are that page.
pub(crate) fn decode_page(index: u32, bytes: &[u8]) -> Option<Entries<StoredSlot>> {
    decode(PAGE_MAGIC, index, bytes)
}

/// The directory's bytes.
pub(crate) fn encode_directory(pages: &Entries<StoredPage>) -> Vec<u8> {
    encode(DIRECTORY_MAGIC, 0, pages)
}

/// The length in bytes of the directory that begins with these bytes, if one may.
pub(crate) fn directory_len(bytes: &[u8]) -> Option<u64> {
    let (head, _) = Head::ref_from_prefix(bytes).ok()?;
    let entries_bytes = u64::from(head.entries.get()) * size_of::<StoredPage>() as u64;
    let parts_bytes = u64::from(head.further_parts.get()) * PART_BYTES;
    let is_head = head.magic.get() == DIRECTORY_MAGIC && head.index.get() == 0;
    is_head.then_some(size_of::<Head>() as u64 + entries_bytes + parts_bytes)
}

/// The directory's pages, if these bytes are a directory.
pub(crate) fn decode_directory(bytes: &[u8]) -> Option<Entries<StoredPage>> {
    decode(DIRECTORY_MAGIC, 0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_a_node_with_a_copy_have_two_halves() {
        let slot = |copied| {
            let zeros = [0; size_of::<StoredSlot>()];
            StoredSlot { copied, ..StoredSlot::read_from_bytes(&zeros).unwrap() }
        };
        let parts = |lens: &[u64]| -> Vec<BlockRange> {
            lens.iter().map(|len| BlockRange { start_block: 100 * len, len_blocks: *len }).collect()
        };
        for (all, first) in [(&[3, 3][..], 1), (&[1, 2, 3], 2), (&[6, 1, 5], 1), (&[4, 1, 2, 3], 2)] {
            let (before, behind) = (parts(&all[..first]), parts(&all[first..]));
            assert_eq!(slot(1).halves(parts(all)), Some((before, Some(behind))), "{all:?}");
            assert_eq!(slot(0).halves(parts(all)), Some((parts(all), None)));
        }
        for none in [&[][..], &[2], &[1, 2], &[2, 1], &[1, 4, 3], &[0]] {
            assert_eq!(slot(1).halves(parts(none)), None, "{none:?}");
        }
        assert_eq!(slot(2).halves(parts(&[1, 1])), None);
    }
}
