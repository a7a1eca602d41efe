//! The sound volume with structures that can be replaced one by one: whoever replaces one gets checksums that
//! fit in all that lead to it, from the run's header up to the superblocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use betree::debug::{Entries, Inspector, Owner, RunRef, StoredAs};
use betree_platform::BLOCK_BYTES;
use betree_sim::MemDevice;
use betrfs::Volume;
use xxhash_rust::xxh3::xxh3_64;

use crate::volume::{CACHE_BYTES, VOLUME_BYTES, read_blocks, sample, write_blocks};

/// Magic, length and checksum of a header, which are made here.
pub const HEADER_FRONT_BYTES: usize = 16;
/// Magic and number of entries of a page or the directory.
const PAGE_HEAD_BYTES: usize = 16;
const DIRECTORY_ENTRY_BYTES: usize = 24;
const SLOT_BYTES: usize = 40;
/// The place of the directory's checksum in a superblock, and that of all bytes before it.
const DIRECTORY_SUM_AT: usize = 128;
const SUPERBLOCK_SUM_AT: usize = BLOCK_BYTES - 8;
/// The bytes of a run's place in a header.
const RUN_REF_BYTES: usize = 24;

/// A node of the sound volume. All extents of so small a volume are in one piece.
#[derive(Clone)]
pub struct NodePlace {
    /// Its slot in the node table.
    pub slot: u32,
    extent: Range<usize>,
    header_len: usize,
    runs: Vec<RunRef>,
}

/// The bytes of the sound volume, and the places of its structures.
#[derive(Clone)]
pub struct Image {
    bytes: Vec<u8>,
    directory: Range<usize>,
    /// The extents of pages by their index.
    pages: BTreeMap<u32, Range<usize>>,
    /// All nodes.
    pub nodes: Vec<NodePlace>,
}

impl Image {
    /// The sound volume.
    ///
    /// # Errors
    /// Why its structures were not found.
    pub fn sound() -> Result<Image, String> {
        static SOUND: OnceLock<Result<Image, String>> = OnceLock::new();
        SOUND.get_or_init(Image::find).clone()
    }

    /// Finds the structures of the sound volume.
    fn find() -> Result<Image, String> {
        let device = Arc::new(sample()?);
        let bytes = read_blocks(&device, 0, VOLUME_BYTES as usize / BLOCK_BYTES);
        let mut wrong = Vec::new();
        let mut tell = |found: betree::Finding| wrong.push(found);
        let options = Volume::engine_options(CACHE_BYTES);
        let volume = Inspector::open(device, options, &mut tell).map_err(|error| error.to_string())?;
        let place = volume.superblock().table;
        let (mut pages, mut extents) = (BTreeMap::new(), BTreeMap::new());
        for owned in volume.map() {
            let start = owned.blocks.start_block as usize * BLOCK_BYTES;
            let extent = start..start + owned.blocks.len_blocks as usize * BLOCK_BYTES;
            let known = match owned.owner {
                // Second copies of pages stay as they are.
                Owner::Page(index) if is_first(&bytes, place.offset, index, extent.start) => {
                    pages.insert(index, extent)
                }
                Owner::Node(id) => extents.insert(id, extent),
                _ => None,
            };
            if known.is_some() {
                return Err("an extent of the sound volume is in pieces".into());
            }
        }
        let mut nodes = Vec::new();
        for (id, extent) in extents {
            let header = volume.node(id, &mut tell).and_then(|node| node.header).ok_or("a lost node")?;
            let header_len = number(&bytes, extent.start + 4).ok_or("a header of no bytes")? as usize;
            let runs = match header.entries {
                Entries::Leaf(basements) => basements.into_iter().flat_map(|(_, runs)| runs).collect(),
                Entries::Interior(edges) => edges.into_iter().flat_map(|edge| edge.partition).collect(),
            };
            nodes.push(NodePlace { slot: id.slot, extent, header_len, runs });
        }
        drop(volume);
        if let Some(found) = wrong.first() {
            return Err(format!("the sound volume is damaged: {found:?}"));
        }
        let directory = place.offset as usize..place.offset as usize + place.len as usize;
        Ok(Image { bytes, directory, pages, nodes })
    }

    /// A device with these bytes.
    ///
    /// # Errors
    /// The device's, in words.
    pub fn device(&self) -> Result<MemDevice, String> {
        let device = MemDevice::new(VOLUME_BYTES);
        write_blocks(&device, 0, &self.bytes)?;
        Ok(device)
    }

    /// The bytes of a range of the volume.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// Replaces the first bytes of a range; further ones are cut. Returns how many were written.
    pub fn put(&mut self, range: Range<usize>, bytes: &[u8]) -> usize {
        let Some(room) = self.bytes.get_mut(range) else { return 0 };
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        len
    }

    /// The superblock in one of the four places, without its checksum.
    pub fn superblock(&self, copy: usize) -> Vec<u8> {
        self.bytes(copy * BLOCK_BYTES..copy * BLOCK_BYTES + SUPERBLOCK_SUM_AT).to_vec()
    }

    /// Replaces a superblock, with its checksum.
    pub fn put_superblock(&mut self, copy: usize, bytes: &[u8]) {
        let start = copy * BLOCK_BYTES;
        self.put(start..start + SUPERBLOCK_SUM_AT, bytes);
        let sum = xxh3_64(self.bytes(start..start + SUPERBLOCK_SUM_AT));
        self.put(start + SUPERBLOCK_SUM_AT..start + BLOCK_BYTES, &sum.to_le_bytes());
    }

    /// The directory of the node table.
    pub fn directory(&self) -> Vec<u8> {
        self.bytes(self.directory.clone()).to_vec()
    }

    /// Replaces the directory of the node table.
    pub fn put_directory(&mut self, bytes: &[u8]) {
        self.put(self.directory.clone(), bytes);
        let sum = xxh3_64(&self.directory()).to_le_bytes();
        for copy in 0..4 {
            let mut superblock = self.superblock(copy);
            // The older generation has another directory.
            if number(&superblock, 112) == Some(self.directory.start as u32) {
                superblock[DIRECTORY_SUM_AT..DIRECTORY_SUM_AT + 8].copy_from_slice(&sum);
                self.put_superblock(copy, &superblock);
            }
        }
    }

    /// The indices of the pages of the node table.
    pub fn page_indices(&self) -> Vec<u32> {
        self.pages.keys().copied().collect()
    }

    /// A page of the node table.
    pub fn page(&self, index: u32) -> Vec<u8> {
        let Some(extent) = self.pages.get(&index) else { return Vec::new() };
        let len = number(&self.directory(), page_entry(index) + 20).unwrap_or(0) as usize;
        self.bytes(extent.start..extent.end.min(extent.start + len)).to_vec()
    }

    /// Replaces a page of the node table by one that may have another length.
    pub fn put_page(&mut self, index: u32, bytes: &[u8]) {
        let Some(extent) = self.pages.get(&index).cloned() else { return };
        let len = self.put(extent.clone(), bytes);
        let sum = xxh3_64(self.bytes(extent.start..extent.start + len));
        let mut directory = self.directory();
        let at = page_entry(index);
        if let Some(entry) = directory.get_mut(at..at + DIRECTORY_ENTRY_BYTES) {
            entry[8..16].copy_from_slice(&sum.to_le_bytes());
            entry[20..].copy_from_slice(&(len as u32).to_le_bytes());
        }
        self.put_directory(&directory);
    }

    /// The header of a node behind its checksum.
    pub fn header(&self, node: &NodePlace) -> Vec<u8> {
        let start = node.extent.start;
        self.bytes(start + HEADER_FRONT_BYTES..start + node.header_len).to_vec()
    }

    /// Replaces the header of a node behind its checksum by one that may have another length.
    pub fn put_header(&mut self, node: &NodePlace, rest: &[u8]) {
        let start = node.extent.start;
        let len = self.put(start + HEADER_FRONT_BYTES..node.extent.end, rest);
        let sum = xxh3_64(self.bytes(start + HEADER_FRONT_BYTES..start + HEADER_FRONT_BYTES + len));
        let header_len = (HEADER_FRONT_BYTES + len) as u32;
        self.put(start + 4..start + 8, &header_len.to_le_bytes());
        self.put(start + 8..start + HEADER_FRONT_BYTES, &sum.to_le_bytes());
        let mut first_slot = 0;
        for index in self.page_indices() {
            let mut page = self.page(index);
            let slots = number(&page, 8).unwrap_or(0);
            if let Some(entry) = node.slot.checked_sub(first_slot).filter(|entry| *entry < slots) {
                let at = PAGE_HEAD_BYTES + entry as usize * SLOT_BYTES;
                if let Some(slot) = page.get_mut(at..at + SLOT_BYTES) {
                    slot[8..16].copy_from_slice(&sum.to_le_bytes());
                    slot[20..24].copy_from_slice(&header_len.to_le_bytes());
                }
                return self.put_page(index, &page);
            }
            first_slot += slots;
        }
    }

    /// All runs, by node and number.
    pub fn runs(&self) -> Vec<(NodePlace, RunRef)> {
        self.nodes.iter().flat_map(|node| node.runs.iter().map(|run| (node.clone(), *run))).collect()
    }

    /// A run before compression; empty if it is not what the sound volume says.
    pub fn run(&self, node: &NodePlace, run: &RunRef) -> Vec<u8> {
        let start = node.extent.start + run.offset as usize;
        let stored = self.bytes(start..start + run.stored_len as usize);
        match run.stored_as {
            StoredAs::Raw => stored.to_vec(),
            StoredAs::Lz4 => lz4_flex::block::decompress(stored, run.raw_len as usize).unwrap_or_default(),
            StoredAs::Zstd => Vec::new(),
        }
    }

    /// Replaces a run of the sound volume by one of any contents before compression. What its room does not
    /// take even with compression is cut.
    pub fn put_run(&mut self, node: &NodePlace, run: &RunRef, raw: &[u8]) {
        let room = run.stored_len as usize;
        let packed = lz4_flex::block::compress(raw);
        let (stored, raw_len, codec) = match raw.len() > room && packed.len() <= room {
            true => (&packed[..], raw.len(), 1),
            false => (&raw[..raw.len().min(room)], raw.len().min(room), 0),
        };
        let start = node.extent.start + run.offset as usize;
        self.put(start..start + room, stored);
        let mut header = self.header(node);
        let old = run_ref(run);
        let Some(at) = header.windows(RUN_REF_BYTES).position(|window| window == old) else { return };
        let new = RunRef {
            stored_len: stored.len() as u32,
            raw_len: raw_len as u32,
            checksum: xxh3_64(stored),
            ..*run
        };
        header[at..at + RUN_REF_BYTES].copy_from_slice(&run_ref(&new));
        header[at + 12] = codec;
        self.put_header(node, &header);
    }
}

/// A run's place as it stands in a header.
fn run_ref(run: &RunRef) -> [u8; RUN_REF_BYTES] {
    let codec = match run.stored_as {
        StoredAs::Raw => 0,
        StoredAs::Lz4 => 1,
        StoredAs::Zstd => 2,
    };
    let mut bytes = [0; RUN_REF_BYTES];
    bytes[..4].copy_from_slice(&run.offset.to_le_bytes());
    bytes[4..8].copy_from_slice(&run.stored_len.to_le_bytes());
    bytes[8..12].copy_from_slice(&run.raw_len.to_le_bytes());
    bytes[12..16].copy_from_slice(&(codec | run.ranges << 8).to_le_bytes());
    bytes[16..].copy_from_slice(&run.checksum.to_le_bytes());
    bytes
}

/// Whether a page of the node table begins at a byte, by the directory.
fn is_first(bytes: &[u8], directory: u64, index: u32, start: usize) -> bool {
    let at = directory as usize + page_entry(index);
    number(bytes, at).is_some_and(|block| block as usize * BLOCK_BYTES == start)
}

/// The place of a page's entry in the directory.
fn page_entry(index: u32) -> usize {
    PAGE_HEAD_BYTES + index as usize * DIRECTORY_ENTRY_BYTES
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
