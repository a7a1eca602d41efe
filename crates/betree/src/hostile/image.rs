//! An image whose structures can be changed, with checksums that fit the new contents.

use std::ops::Range;
use std::sync::Arc;
use std::vec::Vec;

use betree_platform::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;

use crate::format::limits::Limits;
use crate::format::node::{Entries, Header, RunRef, seal};
use crate::format::segment;
use crate::format::superblock::slots;
use crate::format::superblock::table_copy::TableCopy;
use crate::format::superblock::{Decoded, Superblock};
use crate::format::table::{
    Entries as Listed, StoredPage, StoredSlot, decode_directory, decode_page, encode_directory, encode_page,
    slots_per_page,
};
use crate::io::Disk;
use crate::io::mem::MemDevice;
use crate::space::BlockRange;

/// The bytes of a volume.
#[derive(Clone)]
pub(super) struct Image {
    pub bytes: Vec<u8>,
}

/// A change of the bytes of one structure, whose length stays.
pub(super) type Patch<'p> = &'p dyn Fn(&mut [u8]);

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Image {
    pub fn device(&self) -> Arc<MemDevice> {
        MemDevice::holding(self.bytes.clone())
    }

    pub fn superblock(&self) -> Superblock {
        slots::load(&Disk::new(self.device())).unwrap().superblock
    }

    pub fn limits(&self) -> Limits {
        let superblock = self.superblock();
        Limits::of(&superblock.geometry, superblock.volume_bytes / BLOCK)
    }

    fn get(&self, parts: &[BlockRange], len: usize) -> Vec<u8> {
        let blocks = parts.iter().flat_map(|p| p.start_block..p.start_block + p.len_blocks);
        let all: Vec<u8> = blocks.flat_map(|block| self.bytes[places(block)].to_vec()).collect();
        all[..len].to_vec()
    }

    fn set(&mut self, parts: &[BlockRange], bytes: &[u8]) {
        let blocks = parts.iter().flat_map(|p| p.start_block..p.start_block + p.len_blocks);
        for (block, chunk) in blocks.zip(bytes.chunks(BLOCK_BYTES)) {
            let start = places(block).start;
            self.bytes[start..start + chunk.len()].copy_from_slice(chunk);
        }
    }

    /// Changes all four copies of the superblock.
    pub fn patch_superblock(&mut self, patch: Patch<'_>) {
        for block in 0..4 {
            let block = &mut self.bytes[places(block)];
            patch(block);
            let sum = xxh3_64(&block[..BLOCK_BYTES - 8]);
            block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// The volume without a second copy of its node table, as an earlier version leaves it: so that a page
    /// and the directory are changed in one place.
    pub fn without_table_copy(mut self) -> Image {
        for block in 0..4 {
            let block = &mut self.bytes[places(block)];
            let Decoded::Good(mut superblock) = Superblock::decode(block) else { panic!("a sound image") };
            assert!(TableCopy::put(None, superblock.generation, &mut superblock.tail));
            superblock.encode(block).unwrap();
        }
        self
    }

    fn directory(&self) -> Vec<u8> {
        let place = self.superblock().table;
        self.get(&place.parts(), place.len as usize)
    }

    /// Changes the node table's directory.
    pub fn patch_directory(&mut self, patch: Patch<'_>) {
        let place = self.superblock().table;
        let mut bytes = self.directory();
        patch(&mut bytes);
        self.set(&place.parts(), &bytes);
        let sum = xxh3_64(&bytes).to_le_bytes();
        // The copies of the generation before keep the checksum of another directory: only the newest counts.
        self.patch_superblock(&|block| {
            if block[112..120] == place.offset.to_le_bytes() {
                block[128..136].copy_from_slice(&sum);
            }
        });
    }

    pub fn directory_len(&self) -> usize {
        self.directory().len()
    }

    fn page(&self, index: usize) -> (Vec<BlockRange>, StoredPage) {
        let pages = decode_directory(&self.directory()).unwrap();
        let page = pages.entries[index];
        (pages.parts_of(index, page.first_part()), page)
    }

    pub fn page_bytes(&self, index: usize) -> Vec<u8> {
        let (parts, page) = self.page(index);
        self.get(&parts, page.len_bytes.get() as usize)
    }

    /// The page of a slot, and the slot's entry there.
    pub fn page_of(&self, slot: u32) -> (usize, usize) {
        let per_page = slots_per_page(self.superblock().table_page_bytes);
        ((slot / per_page) as usize, (slot % per_page) as usize)
    }

    /// The first block of a page of the node table.
    pub fn page_start(&self, index: usize) -> u64 {
        self.page(index).1.start_block.get()
    }

    /// Changes a page of the node table.
    pub fn patch_page(&mut self, index: usize, patch: Patch<'_>) {
        let mut bytes = self.page_bytes(index);
        patch(&mut bytes);
        let (parts, page) = self.page(index);
        self.set(&parts, &bytes);
        self.set_page(index, StoredPage { checksum: xxh3_64(&bytes).into(), ..page });
    }

    /// Gives a node other parts. The page keeps its blocks.
    pub fn set_parts(&mut self, slot: u32, parts: &[BlockRange]) {
        let (index, entry) = self.page_of(slot);
        let slots = decode_page(index as u32, &self.page_bytes(index)).unwrap();
        let mut changed = Listed::new();
        for (at, stored) in slots.entries.iter().enumerate() {
            let own = slots.parts_of(at, stored.first_part());
            let own = if at == entry { parts } else { own.as_slice() };
            let (start_block, len_blocks) = (own[0].start_block.into(), (own[0].len_blocks as u32).into());
            changed.push(StoredSlot { start_block, len_blocks, ..*stored }, own);
        }
        let bytes = encode_page(index as u32, &changed);
        let (parts, page) = self.page(index);
        assert_eq!(bytes.len().div_ceil(BLOCK_BYTES), page.len_blocks.get() as usize);
        self.set(&parts, &bytes);
        let len_bytes = (bytes.len() as u32).into();
        self.set_page(index, StoredPage { len_bytes, checksum: xxh3_64(&bytes).into(), ..page });
    }

    /// Changes what the directory says of a page.
    pub fn set_page(&mut self, index: usize, page: StoredPage) {
        let mut pages = decode_directory(&self.directory()).unwrap();
        pages.entries[index] = page;
        let directory = encode_directory(&pages);
        self.patch_directory(&|bytes| bytes.copy_from_slice(&directory));
    }

    /// What the directory says of a page.
    pub fn stored_page(&self, index: usize) -> StoredPage {
        self.page(index).1
    }

    /// All blocks of the last checkpoint but its superblocks: those of log, node table and nodes.
    pub fn blocks_of_checkpoint(&self) -> Vec<u64> {
        let superblock = self.superblock();
        let log = superblock.log_offset / BLOCK;
        let log = BlockRange { start_block: log, len_blocks: superblock.geometry.log_bytes / BLOCK };
        let count = decode_directory(&self.directory()).unwrap().entries.len();
        let pages = (0..count).flat_map(|index| self.page(index).0);
        // A page that is bad leads to no node.
        let slots = (0..count).filter_map(|index| decode_page(index as u32, &self.page_bytes(index)));
        let nodes = slots.flat_map(|slots| {
            let used = slots.entries.iter().enumerate().filter(|(_, stored)| stored.used == 1);
            used.flat_map(|(entry, stored)| slots.parts_of(entry, stored.first_part())).collect::<Vec<_>>()
        });
        let all = core::iter::once(log).chain(superblock.table.parts()).chain(pages).chain(nodes);
        let all = all.flat_map(|part| part.start_block..part.start_block.saturating_add(part.len_blocks));
        all.filter(|block| *block >= log.start_block).collect()
    }

    /// Slot, parts and header length of each node.
    pub fn nodes(&self) -> Vec<(u32, Vec<BlockRange>, usize)> {
        let mut all = Vec::new();
        let mut slot = 0;
        for index in 0..decode_directory(&self.directory()).unwrap().entries.len() {
            let page = decode_page(index as u32, &self.page_bytes(index)).unwrap();
            for (entry, stored) in page.entries.iter().enumerate() {
                if stored.used == 1 {
                    let parts = page.parts_of(entry, stored.first_part());
                    all.push((slot, parts, stored.header_len.get() as usize));
                }
                slot += 1;
            }
        }
        all
    }

    /// The header of a node.
    pub fn header_bytes(&self, slot: u32) -> Vec<u8> {
        let (_, parts, len) = self.nodes().into_iter().find(|(other, ..)| *other == slot).unwrap();
        self.get(&parts, len)
    }

    pub fn header(&self, slot: u32) -> Header {
        Header::decode(&self.header_bytes(slot), u64::MAX, &self.limits(), u64::MAX).ok().unwrap()
    }

    /// Changes the header of a node, but for its length and checksum.
    pub fn patch_header(&mut self, slot: u32, patch: Patch<'_>) {
        let mut bytes = self.header_bytes(slot);
        patch(&mut bytes);
        seal(&mut bytes);
        self.put_header(slot, &bytes);
    }

    /// Replaces a node's header by another one. If that is longer the runs move, and must fit into the extent
    /// behind it.
    pub fn set_header(&mut self, slot: u32, header: &Header) {
        let (_, parts, old_len) = self.nodes().into_iter().find(|(other, ..)| *other == slot).unwrap();
        let len = parts.iter().map(|p| p.len_blocks as usize * BLOCK_BYTES).sum();
        let all = self.get(&parts, len);
        let Some(grown) = header.encode().len().checked_sub(old_len) else {
            return self.put_header(slot, &header.encode());
        };
        let mut header = header.clone();
        let runs: Vec<&mut RunRef> = match &mut header.entries {
            Entries::Leaf(basements) => basements.iter_mut().flat_map(|(_, runs)| runs).collect(),
            Entries::Interior(edges) => edges.iter_mut().flat_map(|edge| &mut edge.partition).collect(),
        };
        runs.into_iter().for_each(|run| run.offset += grown as u32);
        assert!(all[len - grown..].iter().all(|byte| *byte == 0), "there is room behind the runs");
        self.set_contents(slot, old_len + grown, &all[old_len..len - grown]);
        self.put_header(slot, &header.encode());
    }

    fn put_header(&mut self, slot: u32, bytes: &[u8]) {
        let (_, parts, _) = self.nodes().into_iter().find(|(other, ..)| *other == slot).unwrap();
        self.set(&parts, bytes);
        let (index, entry) = self.page_of(slot);
        let mut page = decode_page(index as u32, &self.page_bytes(index)).unwrap();
        page.entries[entry].header_checksum = u64::from_le_bytes(*bytes[8..].first_chunk().unwrap()).into();
        page.entries[entry].header_len = (bytes.len() as u32).into();
        let page = encode_page(index as u32, &page);
        self.patch_page(index, &|bytes| bytes.copy_from_slice(&page));
    }

    /// Bytes of a node's extent, counted through its parts.
    pub fn contents(&self, slot: u32, range: Range<usize>) -> Vec<u8> {
        let (_, parts, _) = self.nodes().into_iter().find(|(other, ..)| *other == slot).unwrap();
        self.get(&parts, range.end)[range].to_vec()
    }

    pub fn set_contents(&mut self, slot: u32, at: usize, bytes: &[u8]) {
        let (_, parts, _) = self.nodes().into_iter().find(|(other, ..)| *other == slot).unwrap();
        let len = parts.iter().map(|p| p.len_blocks as usize * BLOCK_BYTES).sum();
        let mut all = self.get(&parts, len);
        all[at..at + bytes.len()].copy_from_slice(bytes);
        self.set(&parts, &all);
    }

    /// The segments of the log that a replay reads.
    pub fn segments(&self) -> Vec<Range<usize>> {
        let superblock = self.superblock();
        let mut at = (superblock.log_offset + superblock.log_start.position) as usize;
        let mut all = Vec::new();
        let mut seq = superblock.log_start.seq;
        while let Some(header) = segment::Header::decode(&self.bytes[at..]) {
            if header.id.epoch != superblock.log_start.epoch || header.id.seq != seq {
                break;
            }
            let end = at + header.segment_bytes() as usize;
            all.push(at..end);
            (at, seq) = (end, seq + 1);
        }
        all
    }

    /// Changes a segment of the log, header and records.
    pub fn patch_segment(&mut self, place: &Range<usize>, patch: Patch<'_>) {
        let bytes = &mut self.bytes[place.clone()];
        patch(bytes);
        let sum = xxh3_64(&bytes[segment::HEADER_BYTES..]);
        bytes[64..72].copy_from_slice(&sum.to_le_bytes());
        let sum = xxh3_64(&bytes[..72]);
        bytes[72..80].copy_from_slice(&sum.to_le_bytes());
    }
}

fn places(block: u64) -> Range<usize> {
    let start = block as usize * BLOCK_BYTES;
    start..start + BLOCK_BYTES
}
