//! Nodes by their headers: a scan of the whole device.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use crate::error::Result;
use crate::format::limits::Limits;
use crate::format::node::{Entries, Front, Header, RunRef};
use crate::format::superblock::Superblock;
use crate::io::{AlignedBuf, Disk};
use crate::node_id::NodeId;
use crate::space::Extent;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// How much is read at once, in blocks.
const CHUNK_BLOCKS: usize = 256;

/// A node that was found by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub id: NodeId,
    pub height: u8,
    /// The checkpoint for which it was written.
    pub checkpoint: u64,
    /// Its first byte on the device.
    pub offset: u64,
    pub extent_blocks: u32,
    /// How many blocks of its extent stand in a row from its first byte on; others, which an earlier extent
    /// had, follow elsewhere.
    pub own_blocks: u64,
    pub header_len: u32,
    pub header_checksum: u64,
}

/// What a scan looks for.
pub(super) struct Sought<'s> {
    pub superblock: &'s Superblock,
    pub limits: &'s Limits,
    /// Whether the node in a slot is wanted.
    pub is_wanted: &'s dyn Fn(u32) -> bool,
}

/// The newest node of each wanted slot, by its slot. A node of a later checkpoint than the superblock's is
/// none: no superblock names it. Blocks that cannot be read are passed over.
///
/// Reads the device once, and at most once more for headers that are longer than what is read at once.
///
/// # Errors
/// [`Error::NoMemory`](crate::error::Error::NoMemory).
pub(super) fn scan(disk: &Disk, sought: &Sought<'_>) -> Result<BTreeMap<u32, Found>> {
    let superblock = sought.superblock;
    let end = superblock.volume_bytes.min(disk.len()) / BLOCK * BLOCK;
    let start = superblock.log_offset.saturating_add(superblock.geometry.log_bytes);
    let mut long = LongHeaders { buffer: AlignedBuf::default(), left_bytes: end };
    let mut found = BTreeMap::new();
    each_block(disk, start, end, &mut |offset, bytes| {
        let front = Front::of(bytes, &superblock.identity.volume_id);
        let Some(front) = front.filter(|front| sought.may_be(front, &found)) else { return };
        let header = match bytes.get(..front.header_len as usize) {
            Some(header) => Some(header),
            None => long.read(disk, offset, front.header_len),
        };
        if let Some(node) = header.and_then(|header| sought.node(header, &front, offset, end)) {
            found.insert(node.id.slot, node);
        }
    })?;
    Ok(found)
}

/// Calls `each` with the first byte of each block in `[start, end)`, and the bytes from there on up to the
/// end of what was read at once. Blocks that cannot be read are zeros.
///
/// # Errors
/// [`Error::NoMemory`](crate::error::Error::NoMemory).
pub(super) fn each_block(disk: &Disk, start: u64, end: u64, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
    let mut chunk = AlignedBuf::zeroed(CHUNK_BLOCKS)?;
    let mut at = start;
    while at < end {
        let len = (end - at).min(CHUNK_BLOCKS as u64 * BLOCK);
        let Some(bytes) = chunk.as_mut_slice().get_mut(..len as usize) else { break };
        read_past(disk, at, bytes);
        let mut rest: &[u8] = bytes;
        while !rest.is_empty() {
            each(at + len - rest.len() as u64, rest);
            rest = rest.get(BLOCK_BYTES..).unwrap_or_default();
        }
        at += len;
    }
    Ok(())
}

/// Bytes at the start of an extent, if they can be read.
pub(super) fn read_bytes(disk: &Disk, extent: &Extent, len: usize) -> Option<Vec<u8>> {
    let mut buffer = AlignedBuf::zeroed(len.div_ceil(BLOCK_BYTES)).ok()?;
    disk.read_extent(extent, 0, buffer.as_mut_slice()).ok()?;
    buffer.as_slice().get(..len).map(<[u8]>::to_vec)
}

impl Sought<'_> {
    /// Whether a header may be that of a wanted node, and newer than what was found for its slot.
    fn may_be(&self, front: &Front, found: &BTreeMap<u32, Found>) -> bool {
        let is_newer =
            |known: &Found| (known.id.generation, known.checkpoint) < (front.id.generation, front.checkpoint);
        u64::from(front.id.slot) < self.limits.slots
            && u64::from(front.header_len) <= self.limits.header_bytes
            // The superblock of generation 0 of a new volume names nodes of generation 1.
            && front.checkpoint <= self.superblock.generation.max(1)
            && (self.is_wanted)(front.id.slot)
            && found.get(&front.id.slot).is_none_or(is_newer)
    }

    /// The node of a whole header, if that is right.
    fn node(&self, bytes: &[u8], front: &Front, offset: u64, end: u64) -> Option<Found> {
        let header_checksum = Header::checksum(bytes)?;
        let extent_bytes = u64::from(front.extent_blocks).checked_mul(BLOCK)?;
        if front.extent_blocks == 0 || extent_bytes > end.saturating_sub(offset) {
            return None;
        }
        let header = Header::decode(bytes, extent_bytes, self.limits, self.superblock.next_msn).ok()?;
        Some(Found {
            id: header.id,
            height: header.height,
            checkpoint: header.origin.checkpoint,
            offset,
            extent_blocks: header.extent_blocks,
            own_blocks: own_blocks(&header, front.header_len),
            header_len: front.header_len,
            header_checksum,
        })
    }
}

/// The blocks that were written with a header: its runs follow it without a gap.
fn own_blocks(header: &Header, header_len: u32) -> u64 {
    let mut runs: Vec<(u32, u32)> = match &header.entries {
        Entries::Leaf(basements) => basements.iter().flat_map(|(_, runs)| runs).map(place_of).collect(),
        Entries::Interior(edges) => edges.iter().flat_map(|edge| &edge.partition).map(place_of).collect(),
    };
    runs.sort_unstable();
    let mut end = u64::from(header_len);
    for (offset, len) in runs {
        if u64::from(offset) != end {
            break;
        }
        end += u64::from(len);
    }
    end.div_ceil(BLOCK)
}

fn place_of(run: &RunRef) -> (u32, u32) {
    (run.offset, run.stored_len)
}

/// Reads of headers that reach beyond what was read at once. A forged device could have one in each block, so
/// they get no more reads than the device has bytes.
struct LongHeaders {
    buffer: AlignedBuf,
    left_bytes: u64,
}

impl LongHeaders {
    fn read(&mut self, disk: &Disk, offset: u64, len: u32) -> Option<&[u8]> {
        let blocks = (len as usize).div_ceil(BLOCK_BYTES);
        let bytes = blocks as u64 * BLOCK;
        self.left_bytes = self.left_bytes.checked_sub(bytes)?;
        if offset.checked_add(bytes)? > disk.len() {
            return None;
        }
        self.buffer.grow_to(blocks).ok()?;
        disk.read_at(offset, self.buffer.as_mut_slice().get_mut(..blocks * BLOCK_BYTES)?).ok()?;
        self.buffer.as_slice().get(..len as usize)
    }
}

/// Reads bytes; blocks that cannot be read are zeros.
pub(super) fn read_past(disk: &Disk, at: u64, bytes: &mut [u8]) {
    if disk.read_at(at, bytes).is_ok() {
        return;
    }
    for (index, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
        if disk.read_at(at.saturating_add(index as u64 * BLOCK), block).is_err() {
            block.fill(0);
        }
    }
}
