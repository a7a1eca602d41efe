//! The superblock: what a volume is and where its last checkpoint stands.
//!
//! One block, kept in four copies at the volume's start; [`slots`] decides which copy counts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use crate::error::{Error, Result};
use crate::format::tail::TaggedTail;
use crate::health::ErrorRecord;
use crate::settings::{Geometry, NodeCopies, Options};
use crate::space::BlockRange;
use features::Features;
use identity::UpsertId;
use raw::generation_of;

pub(crate) mod error_record;
pub(crate) mod features;
pub(crate) mod growth_limit;
pub(crate) mod identity;
pub(crate) mod node_copies;
mod raw;
pub(crate) mod scrub_record;
pub(crate) mod slots;
pub(crate) mod table_copy;

pub use identity::{Identity, LABEL_BYTES_MAX};

/// The format that this program reads and writes.
pub const VERSION: u32 = 6;
/// The most dictionaries of a volume.
pub(crate) const DICTS_MAX: usize = 8;
/// The smallest log in bytes.
pub(crate) const LOG_BYTES_MIN: u64 = 16 * BLOCK_BYTES as u64;

/// The largest node, basement or table page, in bytes.
const PART_BYTES_MAX: u32 = 1 << 28;
/// The largest volume, in bytes.
pub(crate) const VOLUME_BYTES_MAX: u64 = 1 << 60;
/// The least number of nodes that fit on a volume beside its log.
pub(crate) const NODES_MIN: u64 = 16;
/// Counters that grow by one or by a record's length never come near the end of their type.
pub(crate) const COUNTER_MAX: u64 = 1 << 62;

/// A superblock in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The volume's identity.
    pub identity: Identity,
    /// The volume's features that not every version knows.
    pub features: Features,
    /// One more than that of the superblock before it.
    pub generation: u64,
    /// Whether the volume was closed with everything in the checkpoint and nothing in the log.
    pub clean: bool,
    /// The parameters from mkfs. `geometry.dicts` is the number of valid entries of `dicts`.
    pub geometry: Geometry,
    /// The volume's size in bytes, which may grow; the device may be larger.
    pub volume_bytes: u64,
    /// First byte of the log.
    pub log_offset: u64,
    /// Size of a page of the node table in bytes.
    pub table_page_bytes: u32,
    /// The dictionaries; those beyond `geometry.dicts` are zero.
    pub dicts: [DictRoot; DICTS_MAX],
    /// The upsert function of each dictionary.
    pub upserts: Vec<UpsertId>,
    /// The place of the node table's directory.
    pub table: TablePlace,
    /// Where replay begins.
    pub log_start: LogStart,
    /// The MSN after the last one in the checkpoint.
    pub next_msn: u64,
    /// Values of later versions, kept by every write of the superblock.
    pub tail: TaggedTail,
}

/// A dictionary's root in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DictRoot {
    /// The root node's slot in the node table.
    pub slot: u32,
    /// The generation of that slot.
    pub generation: u32,
    /// Every message up to this MSN is in the checkpoint.
    pub applied_msn: u64,
}

/// The most parts of the node table's directory.
pub(crate) const DIRECTORY_PARTS_MAX: usize = 16;

/// The place of the node table's directory: all zero while there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TablePlace {
    /// First byte on the volume.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// xxh3-64 of these bytes.
    pub checksum: u64,
    /// The parts of its extent after the first, then zeros.
    pub further_parts: [BlockRange; DIRECTORY_PARTS_MAX - 1],
}

impl TablePlace {
    /// The place of `len` bytes in these parts.
    pub(crate) fn new(parts: &[BlockRange], len: u32, checksum: u64) -> TablePlace {
        let mut place = TablePlace { len, checksum, ..TablePlace::default() };
        place.offset = parts.first().map_or(0, |p| p.start_block * BLOCK_BYTES as u64);
        for (to, part) in place.further_parts.iter_mut().zip(parts.iter().skip(1)) {
            *to = *part;
        }
        place
    }

    /// The parts of its extent; the first has the blocks that are not in the others.
    pub fn parts(&self) -> Vec<BlockRange> {
        let further: Vec<BlockRange> =
            self.further_parts.iter().take_while(|p| p.len_blocks > 0).copied().collect();
        let blocks = u64::from(self.len).div_ceil(BLOCK_BYTES as u64);
        let elsewhere = further.iter().fold(0u64, |sum, p| sum.saturating_add(p.len_blocks));
        let len_blocks = blocks.saturating_sub(elsewhere);
        let mut parts = Vec::from([BlockRange { start_block: self.offset / BLOCK_BYTES as u64, len_blocks }]);
        parts.extend(further);
        parts
    }
}

/// A place in the log: of a segment that is there or will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStart {
    /// The epoch of the log; each recovery begins a new one.
    pub epoch: u64,
    /// The segment's number within its epoch.
    pub seq: u64,
    /// The segment's first byte, counted from the log's start (or it stands at the log's start).
    pub position: u64,
}

/// The result of decoding a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Good(Box<Superblock>),
    /// It does not begin as a superblock.
    NotOurs,
    /// It is whole, with another format version.
    OfVersion {
        version: u32,
    },
    /// It is whole, and has features that must be known.
    Incompatible {
        bits: u64,
    },
    /// It begins as a superblock, and is torn, rotten or senseless.
    Bad {
        why: &'static str,
    },
}

impl Superblock {
    /// The errors that were counted on the volume: [`Env::errors`](crate::Env::errors) as of this superblock.
    pub fn errors(&self) -> ErrorRecord {
        error_record::of(&self.tail).unwrap_or_default()
    }

    /// The size up to which the volume grows by itself, in bytes; 0 if it does not.
    pub fn growth_limit_bytes(&self) -> u64 {
        growth_limit::of(&self.tail)
    }

    /// How many copies interior nodes above the parents of leaves are to have.
    pub fn node_copies(&self) -> NodeCopies {
        node_copies::of(&self.tail)
    }

    /// Sets the upsert function of each dictionary that has none. Refuses one that differs from a
    /// dictionary's, and a volume with fewer dictionaries than are used.
    ///
    /// # Errors
    /// [`Error::OtherUpsert`]; [`Error::BadIdentity`] for a name that cannot be stored;
    /// [`Error::NoSuchDictionary`].
    pub(crate) fn bind(&mut self, options: &Options) -> Result<()> {
        let given = UpsertId::of(&*options.upsert)?;
        for (dict, known) in (0..).zip(&mut self.upserts) {
            if known.name.is_empty() {
                known.clone_from(&given);
            } else if *known != given {
                let (made_with, opened_with) = (alloc::format!("{known}"), alloc::format!("{given}"));
                return Err(Error::OtherUpsert { dict, made_with, opened_with });
            }
        }
        let dicts = self.geometry.dicts;
        if dicts < options.dicts_min { Err(Error::NoSuchDictionary { id: dicts }) } else { Ok(()) }
    }

    /// Checks the rules for every superblock, so that arithmetic on its fields needs no further checks:
    /// places are whole blocks inside the volume, sizes and counters are far from overflow.
    pub(crate) fn validate(&self) -> core::result::Result<(), &'static str> {
        let Superblock { geometry, volume_bytes, log_offset, log_start, table, .. } = self;
        let whole = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES as u64);
        let part = |bytes: u32| (1..=PART_BYTES_MAX).contains(&bytes);
        let log_end = log_offset.saturating_add(geometry.log_bytes);
        let first_blocks = table.parts().first().map_or(0, |p| p.len_blocks);
        let table_end = table.offset.saturating_add(first_blocks * BLOCK_BYTES as u64);
        let dicts = usize::from(geometry.dicts);
        if let Some(why) = geometry.mismatch() {
            return Err(why);
        }
        let require = [
            (whole(*volume_bytes) && *volume_bytes <= VOLUME_BYTES_MAX, "the volume's size is senseless"),
            (whole(*log_offset) && *log_offset >= slots::BYTES, "the log's place is senseless"),
            (whole(geometry.log_bytes) && geometry.log_bytes >= LOG_BYTES_MIN, "the log's size is senseless"),
            (log_end <= *volume_bytes, "the log is not within the volume"),
            (part(geometry.node_bytes), "the size of nodes is senseless"),
            (part(geometry.basement_bytes), "the size of basements is senseless"),
            (
                u64::from(geometry.node_bytes) * NODES_MIN <= volume_bytes.saturating_sub(geometry.log_bytes),
                "the volume is too small for its nodes",
            ),
            (
                self.table_page_bytes == geometry.table_page_bytes()
                    && whole(u64::from(self.table_page_bytes)),
                "the size of table pages is senseless",
            ),
            ((1..=DICTS_MAX).contains(&dicts), "the number of dictionaries is senseless"),
            (
                self.dicts.iter().skip(dicts).all(|d| *d == DictRoot::default()),
                "a dictionary beyond the last has a root",
            ),
            (
                whole(log_start.position) && log_start.position < geometry.log_bytes,
                "the log's start is not within the log",
            ),
            (self.next_msn > 0, "the number of the next change is senseless"),
            (
                self.generation.max(self.next_msn).max(log_start.epoch).max(log_start.seq) <= COUNTER_MAX,
                "a counter is senseless",
            ),
            (self.upserts.len() == dicts, "not every dictionary has its upsert function"),
            (
                self.upserts.iter().all(|u| u.name.len() <= identity::UPSERT_NAME_BYTES_MAX),
                "the name of an upsert function is too long",
            ),
            (self.identity.validate().is_ok(), "the label cannot be stored"),
            (self.tail.as_bytes().len() <= raw::TAIL_BYTES_MAX, "there are too many tagged values"),
            (
                self.dicts.iter().all(|d| d.applied_msn <= self.next_msn),
                "a dictionary is ahead of the volume",
            ),
            (
                *table == TablePlace::default()
                    || whole(table.offset)
                        && first_blocks > 0
                        && table_end <= *volume_bytes
                        && (table.offset >= log_end
                            || table.offset >= slots::BYTES && table_end <= *log_offset),
                "the table's place is senseless",
            ),
        ];
        require.iter().find(|(holds, _)| !holds).map_or(Ok(()), |&(_, why)| Err(why))
    }
}

#[cfg(test)]
mod tests;
