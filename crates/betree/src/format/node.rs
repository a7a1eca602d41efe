//! The header of a node on the device.
//!
//! A node is one extent: the header, then its pieces one after the other. The header names the node's volume,
//! dictionary and id, and has its own length and checksum, so that a scan of a damaged volume recognizes it
//! without the node table. The table holds the same length and checksum.
//!
//! ```text
//! header:   magic u32 | header length u32 | checksum u64 | volume id u8 × 16 | checkpoint u64 | slot u32
//!           | generation u32 | extent length in blocks u32 | dictionary u8 | height u8 | reserved u16
//!           | entries u32 | reserved u32 | lo cut | hi cut | entries | sections u16 | sections
//! cut:      side u8 (1: after) | length u32 | bytes
//! run:      offset u32 | stored length u32 | raw length u32 | codec u8 | range deletes u24 | checksum u64
//! leaf:     first key length u32 | first key | runs
//! interior: hi cut | strip length u32 | prepend length u32 | prepend | child | longest key u32 | runs
//!           | GOTOs u32 | GOTOs
//! child:    slot u32 (all ones: none) | generation u32 | node table u16 (0: there is one as yet)
//! runs:     count u32 | (run | last msn u64) of each
//! GOTO:     lo cut | hi cut | strip length u32 | prepend length u32 | prepend | child | longest key u32
//! section:  kind u16 | offset u32 | length u32 | checksum u64
//! ```
//! The checksum is over the header's bytes behind it. The checkpoint is the generation of the superblock for
//! which the node was written. Offsets of runs and sections count from the extent's start; their checksums
//! are over the stored bytes. A codec is 0 none, 1 LZ4, 2 zstd in its lower two bits, and above them the code
//! of the compression that most bytes of the run ask for.
//!
//! The runs of an interior entry are its partition: each has messages newer than all in the runs before. The
//! runs of a leaf's entry are its basement: the first has its pairs, with last msn 0 unless messages are
//! among them; the others have messages over them. The count of range deletes in a run is its weight before
//! it is read; a count that does not fit is stored as the greatest.
//!
//! Sections are for data that later versions store beside the pieces; this version writes none. A reader must
//! know every kind with the top bit set. It ignores any other unknown kind, and drops it when the node is
//! written anew.

mod reader;
mod writer;

use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use reader::Reader;
use writer::Writer;

use super::limits::Limits;
use crate::error::Error;
use crate::key::{Cut, Translation};
use crate::message::{Goto, Msn, PairCompression};
use crate::node_id::NodeId;

const MAGIC: u32 = 0x6e72_7462;
const NO_CHILD: u32 = u32::MAX;
/// The most raw bytes per stored byte of LZ4: one byte stands for 255 bytes more of a match.
const LZ4_RATIO_MAX: u64 = 255;
/// The same for zstd: a block of at most 128 KiB takes at least four bytes.
const ZSTD_RATIO_MAX: u64 = (128 << 10) / 4;

/// The greatest count of range deletes that a run's reference holds.
const RANGES_MAX: u32 = (1 << 24) - 1;

/// The bits of a codec beside those of the compression that the run asks for.
const CODEC_BITS: u32 = 2;

/// How a run is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredAs {
    /// As it is.
    #[default]
    Raw,
    /// An LZ4 block.
    Lz4,
    /// A zstd frame.
    Zstd,
}

impl StoredAs {
    fn from_code(code: u32) -> Option<StoredAs> {
        match code {
            0 => Some(StoredAs::Raw),
            1 => Some(StoredAs::Lz4),
            2 => Some(StoredAs::Zstd),
            _ => None,
        }
    }

    /// The codec of a run's reference: this in its lower bits, and what the run asks for above them.
    fn with_asked(self, asked: PairCompression) -> u32 {
        self as u32 | u32::from(asked.code()) << CODEC_BITS
    }

    /// The parts of the codec of a run's reference.
    fn and_asked(codec: u8) -> Option<(StoredAs, PairCompression)> {
        let stored_as = StoredAs::from_code(u32::from(codec) & ((1 << CODEC_BITS) - 1))?;
        Some((stored_as, PairCompression::from_code(codec >> CODEC_BITS)?))
    }

    /// The most raw bytes in `stored_len` stored ones. A run that claims more gets no memory.
    fn raw_len_max(self, stored_len: u32) -> u64 {
        let stored_len = u64::from(stored_len);
        match self {
            StoredAs::Raw => stored_len,
            StoredAs::Lz4 => stored_len * LZ4_RATIO_MAX,
            StoredAs::Zstd => stored_len * ZSTD_RATIO_MAX,
        }
    }
}

/// The place and form of a run inside its node's extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunRef {
    /// Its first byte, counted from the extent's start.
    pub offset: u32,
    /// Its stored length in bytes.
    pub stored_len: u32,
    /// Its length before compression in bytes.
    pub raw_len: u32,
    /// The compression.
    pub stored_as: StoredAs,
    /// The compression that most of its bytes ask for: that which it was tried with.
    pub asked: PairCompression,
    /// The number of range deletes in it, at most 2²⁴ - 1.
    pub ranges: u32,
    /// xxh3-64 of the stored bytes.
    pub checksum: u64,
    /// The newest message in it; 0 for pairs.
    pub last_msn: Msn,
}

/// An edge as stored; its lower bound is the upper bound of the edge before.
#[derive(Clone, Debug)]
pub struct StoredEdge {
    /// The upper bound.
    pub hi: Cut,
    /// From the node's coordinates to the child's.
    pub translation: Translation,
    /// `None` for a null edge.
    pub child: Option<NodeId>,
    /// No key in or below the child is longer, in the child's coordinates, in bytes.
    pub longest_key: u32,
    /// Empty if nothing is pending.
    pub partition: Vec<RunRef>,
    /// The pending GOTOs, in order.
    pub gotos: Vec<Goto>,
}

/// The volume, dictionary and checkpoint of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The volume's id, which never changes.
    pub volume_id: [u8; 16],
    /// The dictionary by its number.
    pub dict: u8,
    /// The generation of the superblock for which the node was written.
    pub checkpoint: u64,
}

/// The place of data that a later version stores beside the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The kind of its data.
    pub kind: u16,
    /// Its first byte, counted from the extent's start.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
    /// xxh3-64 of them.
    pub checksum: u64,
}

impl Section {
    /// The bit of the kinds that a reader of the node must know.
    pub(crate) const MUST_BE_KNOWN: u16 = 1 << 15;
}

/// The contents of a header.
#[derive(Clone, Debug)]
pub struct Header {
    /// Its volume, dictionary and checkpoint.
    pub origin: Origin,
    /// Its id in the node table.
    pub id: NodeId,
    /// The number of blocks of the node's extent.
    pub extent_blocks: u32,
    /// 0 for a leaf.
    pub height: u8,
    /// The lower bound, in the node's own coordinates.
    pub lo: Cut,
    /// The upper bound.
    pub hi: Cut,
    /// Basements or edges.
    pub entries: Entries,
    /// Data of later versions beside them.
    pub sections: Vec<Section>,
}

/// The first fields of a header, before anything is verified: enough to tell whether the rest is worth a
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    /// The header's length in bytes.
    pub header_len: u32,
    /// The checkpoint for which the node was written.
    pub checkpoint: u64,
    pub id: NodeId,
    /// The number of blocks of the node's extent.
    pub extent_blocks: u32,
}

impl Front {
    /// The front of a header at the start of a block, if a node of this volume may begin there.
    pub fn of(block: &[u8], volume_id: &[u8; 16]) -> Option<Front> {
        let (magic, rest) = block.split_first_chunk::<4>()?;
        let (header_len, rest) = rest.split_first_chunk::<4>()?;
        let (_checksum, rest) = rest.split_first_chunk::<8>()?;
        let (of_volume, rest) = rest.split_first_chunk::<16>()?;
        let (checkpoint, rest) = rest.split_first_chunk::<8>()?;
        let (slot, rest) = rest.split_first_chunk::<4>()?;
        let (generation, rest) = rest.split_first_chunk::<4>()?;
        let extent_blocks = rest.first_chunk::<4>()?;
        let front = Front {
            header_len: u32::from_le_bytes(*header_len),
            checkpoint: u64::from_le_bytes(*checkpoint),
            id: NodeId { slot: u32::from_le_bytes(*slot), generation: u32::from_le_bytes(*generation) },
            extent_blocks: u32::from_le_bytes(*extent_blocks),
        };
        (u32::from_le_bytes(*magic) == MAGIC && of_volume == volume_id).then_some(front)
    }
}

/// Why a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// The mismatch, in words.
    Wrong(&'static str),
    /// It has something of a kind that only later versions know.
    Unknown { what: &'static str, number: u64 },
}

impl From<&'static str> for BadHeader {
    fn from(why: &'static str) -> BadHeader {
        BadHeader::Wrong(why)
    }
}

impl BadHeader {
    /// The error for a header at byte `offset`; `wrong` makes the error of a mismatch.
    pub fn into_error(self, offset: u64, wrong: impl FnOnce(&str) -> Error) -> Error {
        match self {
            BadHeader::Wrong(why) => wrong(why),
            BadHeader::Unknown { what, number } => Error::UnknownKind { what, number, offset },
        }
    }
}

/// The bytes of a header that only name the node's origin, and are not kept in memory.
pub(crate) const ORIGIN_BYTES: usize = 46;
/// The bytes before the checksummed ones of a header: magic, length, checksum.
const CHECKED_FROM: usize = 16;

/// The parts of a node as stored.
#[derive(Clone, Debug)]
pub enum Entries {
    /// First keys and basements, none without a run.
    Leaf(Vec<(Vec<u8>, Vec<RunRef>)>),
    /// Edges with their partitions.
    Interior(Vec<StoredEdge>),
}

impl Header {
    /// The header's bytes. Their number does not depend on the places of the runs.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer { out: Vec::new() };
        out.u32(MAGIC);
        // Length and checksum, once they are known.
        out.u32(0);
        out.u64(0);
        out.out.extend_from_slice(&self.origin.volume_id);
        out.u64(self.origin.checkpoint);
        out.u32(self.id.slot);
        out.u32(self.id.generation);
        out.u32(self.extent_blocks);
        out.out.extend_from_slice(&[self.origin.dict, self.height, 0, 0]);
        out.u32(match &self.entries {
            Entries::Leaf(basements) => basements.len() as u32,
            Entries::Interior(edges) => edges.len() as u32,
        });
        out.u32(0);
        out.cut(&self.lo);
        out.cut(&self.hi);
        match &self.entries {
            Entries::Leaf(basements) => {
                for (first, runs) in basements {
                    out.bytes(first);
                    out.runs(runs);
                }
            }
            Entries::Interior(edges) => {
                for edge in edges {
                    out.cut(&edge.hi);
                    out.u32(edge.translation.strip_len as u32);
                    out.bytes(&edge.translation.prepend);
                    out.child(edge.child.unwrap_or(NodeId { slot: NO_CHILD, generation: 0 }));
                    out.u32(edge.longest_key);
                    out.runs(&edge.partition);
                    out.u32(edge.gotos.len() as u32);
                    for goto in &edge.gotos {
                        out.cut(&goto.lo);
                        out.cut(&goto.hi);
                        out.u32(goto.translation.strip_len as u32);
                        out.bytes(&goto.translation.prepend);
                        out.child(goto.target);
                        out.u32(goto.longest_key);
                    }
                }
            }
        }
        out.out.extend_from_slice(&(self.sections.len() as u16).to_le_bytes());
        for section in &self.sections {
            out.out.extend_from_slice(&section.kind.to_le_bytes());
            out.u32(section.offset);
            out.u32(section.len);
            out.u64(section.checksum);
        }
        let mut header = out.out;
        seal(&mut header);
        header
    }

    /// The checksum in a header's bytes; `None` if the length in them is another, or the checksum does not
    /// match.
    pub(crate) fn checksum(bytes: &[u8]) -> Option<u64> {
        let (head, checked) = bytes.split_at_checked(CHECKED_FROM)?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let (len, sum) = rest.split_first_chunk::<4>()?;
        let sum = u64::from_le_bytes(*sum.first_chunk()?);
        let is_one = u32::from_le_bytes(*magic) == MAGIC && u32::from_le_bytes(*len) as usize == bytes.len();
        (is_one && xxh3_64(checked) == sum).then_some(sum)
    }

    /// Decodes a header from exactly its bytes, for a node in an extent of `extent_bytes`. Refuses contents
    /// over the limits, and messages with the number `next_msn` or a later one. The caller verifies the
    /// checksum.
    ///
    /// # Errors
    /// The mismatch.
    pub(crate) fn decode(
        bytes: &[u8],
        extent_bytes: u64,
        limits: &Limits,
        next_msn: Msn,
    ) -> Result<Header, BadHeader> {
        let mut from = Reader {
            rest: bytes,
            extent_bytes,
            stored_left: extent_bytes,
            raw_left: limits.contents_bytes,
            next_msn,
        };
        if from.u32()? != MAGIC || from.u32()? as usize != bytes.len() {
            return Err("no node starts here".into());
        }
        from.take(size_of::<u64>())?;
        let volume_id = *from.take(16)?.first_chunk().ok_or("the header ends too early")?;
        let checkpoint = from.u64()?;
        let id = NodeId { slot: from.u32()?, generation: from.u32()? };
        let extent_blocks = from.u32()?;
        let &[dict, height, 0, 0] = from.take(4)? else { return Err("reserved bytes are in use".into()) };
        let origin = Origin { volume_id, dict, checkpoint };
        let count = from.u32()?;
        if from.u32()? != 0 {
            return Err("reserved bytes are in use".into());
        }
        let (lo, hi) = (from.cut()?, from.cut()?);
        if lo >= hi {
            return Err("the bounds are out of order".into());
        }
        let entries = if height == 0 {
            let mut basements: Vec<(Vec<u8>, Vec<RunRef>)> = Vec::new();
            for _ in 0..count {
                let first = from.bound()?.to_vec();
                if basements.last().is_some_and(|(last, _)| *last >= first) {
                    return Err("basements out of order".into());
                }
                if lo.is_above(&first) || !hi.is_above(&first) {
                    return Err("a basement outside of the node".into());
                }
                let runs = from.runs()?;
                if runs.is_empty() {
                    return Err("a basement without a run".into());
                }
                basements.push((first, runs));
            }
            Entries::Leaf(basements)
        } else {
            let mut edges: Vec<StoredEdge> = Vec::new();
            for _ in 0..count {
                let edge = from.edge()?;
                let edge_lo = edges.last().map_or(&lo, |last| &last.hi);
                if edge.hi <= *edge_lo {
                    return Err("edges out of order".into());
                }
                if edge.translation.strip_len > crate::key::shared_len(edge_lo, &edge.hi) {
                    return Err("an edge that strips more than its window shares".into());
                }
                let mut end = edge_lo;
                for goto in &edge.gotos {
                    if goto.lo < *end || goto.hi <= goto.lo || goto.hi > edge.hi {
                        return Err("GOTOs out of order".into());
                    }
                    if goto.translation.strip_len > crate::key::shared_len(&goto.lo, &goto.hi) {
                        return Err("a GOTO that strips more than its range shares".into());
                    }
                    end = &goto.hi;
                }
                if edge.child.is_none() && !edge.gotos.is_empty() {
                    return Err("a GOTO without a child below it".into());
                }
                edges.push(edge);
            }
            if edges.last().is_none_or(|last| last.hi != hi) {
                return Err("edges that do not span the node".into());
            }
            Entries::Interior(edges)
        };
        let sections = from.sections()?;
        if !from.rest.is_empty() {
            return Err("bytes after the last section".into());
        }
        Ok(Header { origin, id, extent_blocks, height, lo, hi, entries, sections })
    }
}

/// Puts length and checksum into a header's bytes.
pub(crate) fn seal(header: &mut [u8]) {
    let len = header.len() as u32;
    let sum = header.get(CHECKED_FROM..).map_or(0, xxh3_64);
    if let Some(room) = header.get_mut(4..CHECKED_FROM) {
        let (len_at, sum_at) = room.split_at_mut(4);
        len_at.copy_from_slice(&len.to_le_bytes());
        sum_at.copy_from_slice(&sum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
