//! Pages of the node table, and the directory that lists them.
//!
//! A page is a head and one fixed entry per slot; the directory is a head and one fixed entry per
//! page. Both are copy-on-write extents; a page's checksum stands in the directory, the directory's
//! in the superblock.

use alloc::vec::Vec;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const PAGE_MAGIC: u32 = 0x6570_7462;
const DIRECTORY_MAGIC: u32 = 0x6964_7462;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: U32,
    index: U32,
    entries: U32,
    reserved: U32,
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
    pub reserved: [u8; 6],
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

const _: () = assert!(size_of::<Head>() == 16);
const _: () = assert!(size_of::<StoredSlot>() == 40);
const _: () = assert!(size_of::<StoredPage>() == 24);

/// How many slots a page of that size holds.
pub(crate) fn slots_per_page(page_bytes: u32) -> u32 {
    (page_bytes.saturating_sub(size_of::<Head>() as u32) / size_of::<StoredSlot>() as u32).max(1)
}

fn encode<T: IntoBytes + Immutable>(magic: u32, index: u32, entries: &[T]) -> Vec<u8> {
    let head = Head {
        magic: U32::new(magic),
        index: U32::new(index),
        entries: U32::new(entries.len() as u32),
        reserved: U32::ZERO,
    };
    let mut out = head.as_bytes().to_vec();
    out.extend_from_slice(entries.as_bytes());
    out
}

fn decode<T: FromBytes + Immutable + KnownLayout + Unaligned + Copy>(
    magic: u32,
    index: u32,
    bytes: &[u8],
) -> Option<Vec<T>> {
    let (head, rest) = Head::ref_from_prefix(bytes).ok()?;
    if head.magic.get() != magic || head.index.get() != index {
        return None;
    }
    let (entries, rest) = <[T]>::ref_from_prefix_with_elems(rest, head.entries.get() as usize).ok()?;
    rest.is_empty().then(|| entries.to_vec())
}

/// A page's bytes.
pub(crate) fn encode_page(index: u32, slots: &[StoredSlot]) -> Vec<u8> {
    encode(PAGE_MAGIC, index, slots)
}

/// A page's slots, if these bytes are that page.
pub(crate) fn decode_page(index: u32, bytes: &[u8]) -> Option<Vec<StoredSlot>> {
    decode(PAGE_MAGIC, index, bytes)
}

/// The directory's bytes.
pub(crate) fn encode_directory(pages: &[StoredPage]) -> Vec<u8> {
    encode(DIRECTORY_MAGIC, 0, pages)
}

/// The directory's pages, if these bytes are a directory.
pub(crate) fn decode_directory(bytes: &[u8]) -> Option<Vec<StoredPage>> {
    decode(DIRECTORY_MAGIC, 0, bytes)
}
