//! A superblock from what else is on the device, where all four copies are lost.
//!
//! The directory of a node table has the checksums of its pages, and these have the checksums of the headers
//! of their nodes. So a directory that was found shows by itself whether it is one, and of which checkpoint:
//! the newest of its nodes tells. The root of a dictionary is the node with all keys to which fewer edges
//! lead than the table counts references. A dictionary of which no such node can be read gets one that
//! cannot be read and is the highest of its kind: its keys are lost, and the dictionary is there. Sizes are
//! those that a new volume on this device would get.
//!
//! What no structure repeats is not made up: label, UUID and feature words are empty. Where one pair alone is
//! lost, the other one has them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use betree_platform::BLOCK_BYTES;
use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::headers::{each_block, read_bytes};
use crate::env::recover::log_area;
use crate::error::Result;
use crate::format::limits::Limits;
use crate::format::node::{Entries as NodeEntries, Header, RunRef};
use crate::format::segment::{Header as Segment, volume_hash};
use crate::format::superblock::features::Features;
use crate::format::superblock::identity::UpsertId;
use crate::format::superblock::table_copy::TableCopy;
use crate::format::superblock::{
    COUNTER_MAX, DICTS_MAX, DictRoot, Identity, LOG_BYTES_MIN, LogStart, Superblock, TablePlace, slots,
};
use crate::format::table::{
    Entries, StoredPage, StoredSlot, decode_directory, decode_page, directory_len, slots_per_page,
};
use crate::format::tail::TaggedTail;
use crate::io::Disk;
use crate::key::Cut;
use crate::message::Msn;
use crate::node_id::NodeId;
use crate::settings::Geometry;
use crate::space::{BlockRange, Space};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// How many directories are looked at, the first on the device. A table leaves few behind: each checkpoint
/// overwrites older ones.
const DIRECTORIES_MAX: usize = 1024;
/// The longest directory and page that are looked at, in bytes.
const PART_BYTES_MAX: u64 = 256 << 20;

/// The superblock of the newest checkpoint of which a whole node table is left; `None` if there is none. It
/// has at least `dicts_min` dictionaries.
///
/// Reads the device once, and for each directory of a table that is whole the headers of its nodes.
///
/// # Errors
/// [`Error::NoMemory`](crate::error::Error::NoMemory).
pub(super) fn by_scan(disk: &Disk, dicts_min: u8) -> Result<Option<Superblock>> {
    newest_of(disk, Roots::AtLeast(dicts_min), None)
}

/// A superblock in place of a lost pair beside which `copy` is the newest that is left: of a newer
/// checkpoint, if a whole node table of one is found, else of the state that `copy` has. Returns it with
/// whether it is newer. What a scan cannot find is that of `copy`. Its generation is one of the lost pair, so
/// that it can be written there while the copies that are left stay.
///
/// # Errors
/// [`Error::NoMemory`](crate::error::Error::NoMemory).
pub(super) fn beside(disk: &Disk, copy: &Superblock) -> Result<(Superblock, bool)> {
    let volume_id = &copy.identity.volume_id;
    let area = log_area(copy);
    let in_log = log_start(disk, area.offset, area.len, volume_id)?;
    // Nothing was logged since.
    let log_start = if in_log.epoch < copy.log_start.epoch { copy.log_start } else { in_log };
    let of_lost_pair = |generation: u64| {
        let next = generation.max(copy.generation.saturating_add(1));
        next.saturating_add(u64::from(next & 1 == copy.generation & 1))
    };
    let is_newer = |found: &Superblock| {
        (found.generation, found.next_msn) > (copy.generation, copy.next_msn)
            && found.geometry.dicts == copy.geometry.dicts
            && found.table != copy.table
    };
    let found = newest_of(disk, Roots::Read, Some(volume_id))?.filter(is_newer).and_then(|mut found| {
        for (dict, of_copy) in found.dicts.iter_mut().zip(&copy.dicts) {
            dict.applied_msn = dict.applied_msn.max(of_copy.applied_msn);
        }
        let newer = Superblock {
            generation: of_lost_pair(found.generation),
            clean: false,
            dicts: found.dicts,
            table: found.table,
            log_start,
            next_msn: found.next_msn.max(copy.next_msn),
            ..copy.clone()
        };
        newer.validate().is_ok().then_some(newer)
    });
    if let Some(newer) = found {
        return Ok((newer, true));
    }
    let mut same = Superblock { generation: of_lost_pair(0), ..copy.clone() };
    // If it was opened since, and the log of that begins at its beginning, the changes are all there.
    if same.clean && log_start.epoch > same.log_start.epoch && log_start.seq == 1 {
        (same.clean, same.log_start) = (false, log_start);
    }
    // The place of the second copy counts for one generation alone. If there was room for it, there is.
    let _is_put = TableCopy::put(TableCopy::of(copy).as_ref(), same.generation, &mut same.tail);
    Ok((same, false))
}

/// Which roots a superblock needs.
#[derive(Clone, Copy)]
enum Roots {
    /// Such that can be read: there is a state without lost ones.
    Read,
    /// As many as this at least, whether they can be read or not.
    AtLeast(u8),
}

/// The superblock of the newest checkpoint of a volume, or of any.
fn newest_of(disk: &Disk, wanted: Roots, volume_id: Option<&[u8; 16]>) -> Result<Option<Superblock>> {
    let end = disk.len() / BLOCK * BLOCK;
    let mut directories = Vec::new();
    each_block(disk, slots::BYTES, end, &mut |offset, bytes| {
        let len = directory_len(bytes).filter(|len| *len <= PART_BYTES_MAX);
        if directories.len() < DIRECTORIES_MAX {
            directories.extend(len.map(|len| (offset, len)));
        }
    })?;
    let mut newest: Option<Checkpoint> = None;
    for (offset, len) in directories {
        let found = Checkpoint::at(disk, end, offset, len)
            .filter(|found| volume_id.is_none_or(|volume_id| found.volume_id == *volume_id));
        if let Some(found) = found
            && newest.as_ref().is_none_or(|known| known.age() < found.age())
        {
            newest = Some(found);
        }
    }
    newest.map(|found| found.superblock(disk, end, wanted)).transpose().map(Option::flatten)
}

/// A checkpoint whose node table is whole.
struct Checkpoint {
    table: TablePlace,
    geometry: Geometry,
    volume_id: [u8; 16],
    generation: u64,
    nodes: HashMap<NodeId, Seen>,
    /// Nodes whose headers cannot be read.
    unread: HashMap<NodeId, Unread>,
    /// The newest message in the nodes of each dictionary.
    last_msn: [Msn; DICTS_MAX],
    /// The first block that belongs to a node or to the table.
    first_block: u64,
}

/// A node of the table.
struct Seen {
    dict: u8,
    height: u8,
    has_all_keys: bool,
    /// References in the table, less those from edges and GOTOs that were found.
    unexplained: i64,
}

/// What the table alone says of a node.
struct Unread {
    height: u8,
    unexplained: i64,
}

impl Checkpoint {
    fn at(disk: &Disk, end: u64, offset: u64, len: u64) -> Option<Checkpoint> {
        let blocks = len.div_ceil(BLOCK);
        let own = BlockRange { start_block: offset / BLOCK, len_blocks: blocks };
        let bytes = bytes_of(disk, end, &[own], len)?;
        let pages = decode_directory(&bytes)?;
        let table = TablePlace::new(&[own], u32::try_from(len).ok()?, xxh3_64(&bytes));
        let all = whole_pages(disk, end, &pages)?;
        let mut found = Checkpoint {
            table,
            geometry: geometry_of(end, all.first().filter(|_| all.len() > 1).map(|page| page.entries.len()))?,
            volume_id: [0; 16],
            generation: 0,
            nodes: HashMap::new(),
            unread: HashMap::new(),
            last_msn: [0; DICTS_MAX],
            first_block: own.start_block,
        };
        let per_page = slots_per_page(found.geometry.table_page_bytes());
        for page in &pages.entries {
            found.first_block = found.first_block.min(page.start_block.get());
        }
        let mut edges: Vec<NodeId> = Vec::new();
        for (index, page) in (0u32..).zip(&all) {
            for (entry, slot) in (0u32..).zip(&page.entries).filter(|(_, slot)| slot.used == 1) {
                let number = index.checked_mul(per_page)?.checked_add(entry)?;
                let id = NodeId { slot: number, generation: slot.generation.get() };
                let parts = page.parts_of(entry as usize, slot.first_part());
                // Nobody has verified it: a log before it that is none makes no sense.
                let is_behind_log = |start: &u64| *start >= (slots::BYTES + LOG_BYTES_MIN) / BLOCK;
                let starts = parts.iter().map(|part| part.start_block).filter(is_behind_log);
                found.first_block = starts.fold(found.first_block, u64::min);
                let (own, copy) = slot.halves(parts).unwrap_or_default();
                let mut is_read = found.node(disk, end, id, slot, &own, &mut edges).is_some();
                if let Some(copy) = copy.filter(|_| !is_read) {
                    is_read = found.node(disk, end, id, slot, &copy, &mut edges).is_some();
                }
                if !is_read {
                    let unexplained = slot.references.get().into();
                    found.unread.insert(id, Unread { height: slot.height, unexplained });
                }
            }
        }
        for child in edges {
            if let Some(seen) = found.nodes.get_mut(&child) {
                seen.unexplained -= 1;
            } else if let Some(unread) = found.unread.get_mut(&child) {
                unread.unexplained -= 1;
            }
        }
        (found.generation > 0).then_some(found)
    }

    /// Takes a node whose header is the one that its slot names. One that is damaged is left out.
    fn node(
        &mut self,
        disk: &Disk,
        end: u64,
        id: NodeId,
        slot: &StoredSlot,
        parts: &[BlockRange],
        edges: &mut Vec<NodeId>,
    ) -> Option<()> {
        let limits = Limits::of(&self.geometry, end / BLOCK);
        let len = u64::from(slot.header_len.get());
        if len > limits.header_bytes {
            return None;
        }
        let bytes = bytes_of(disk, end, parts, len)?;
        if Header::checksum(&bytes) != Some(slot.header_checksum.get()) {
            return None;
        }
        let extent_bytes = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.len_blocks))?;
        let header = Header::decode(&bytes, extent_bytes.checked_mul(BLOCK)?, &limits, COUNTER_MAX).ok()?;
        let last_msn = self.last_msn.get_mut(usize::from(header.origin.dict))?;
        if header.id != id || self.generation > 0 && header.origin.volume_id != self.volume_id {
            return None;
        }
        self.volume_id = header.origin.volume_id;
        self.generation = self.generation.max(header.origin.checkpoint).min(COUNTER_MAX);
        let newest = |runs: &[RunRef]| runs.iter().map(|run| run.last_msn).max().unwrap_or(0);
        match &header.entries {
            NodeEntries::Leaf(basements) => {
                basements.iter().for_each(|(_, runs)| *last_msn = (*last_msn).max(newest(runs)));
            }
            NodeEntries::Interior(all) => {
                for edge in all {
                    *last_msn = (*last_msn).max(newest(&edge.partition));
                    edges.extend(edge.child);
                    edges.extend(edge.gotos.iter().map(|goto| goto.target));
                }
            }
        }
        let seen = Seen {
            dict: header.origin.dict,
            height: header.height,
            has_all_keys: header.lo == Cut::LOW && header.hi == Cut::HIGH,
            unexplained: slot.references.get().into(),
        };
        self.nodes.insert(id, seen);
        Some(())
    }

    /// Grows from checkpoint to checkpoint. A node may be written before the checkpoint that it belongs to
    /// begins, so generations alone do not tell.
    fn age(&self) -> (u64, Option<&Msn>) {
        (self.generation, self.last_msn.iter().max())
    }

    /// The roots of the dictionaries; `None` if one is missing.
    fn roots(&self, wanted: Roots) -> Option<Vec<NodeId>> {
        let mut read: BTreeMap<u8, (u8, NodeId)> = BTreeMap::new();
        for (id, seen) in self.nodes.iter().filter(|(_, seen)| seen.has_all_keys && seen.unexplained > 0) {
            let root = read.entry(seen.dict).or_insert((seen.height, *id));
            *root = (*root).max((seen.height, *id));
        }
        let mut unread: Vec<_> = self.unread.iter().filter(|(_, unread)| unread.unexplained > 0).collect();
        unread.sort_by_key(|(id, unread)| (Reverse(unread.height), **id));
        let (dicts_min, most_unread) = match wanted {
            Roots::Read => (0, 0),
            Roots::AtLeast(dicts_min) => (dicts_min, usize::MAX),
        };
        let mut unread = unread.into_iter().map(|(id, _)| *id).take(most_unread);
        let last = read.keys().next_back()?;
        let dicts = 0..last.saturating_add(1).max(dicts_min);
        dicts.map(|dict| read.get(&dict).map(|(_, id)| *id).or_else(|| unread.next())).collect()
    }

    /// The superblock of the checkpoint; `None` if a dictionary has no root.
    fn superblock(mut self, disk: &Disk, end: u64, wanted: Roots) -> Result<Option<Superblock>> {
        let Some(roots) = self.roots(wanted) else { return Ok(None) };
        let count = roots.len();
        self.geometry.dicts = count as u8;
        let log_blocks_max = self.first_block.saturating_sub(slots::BYTES / BLOCK);
        self.geometry.log_bytes = self.geometry.log_bytes.min(log_blocks_max.saturating_mul(BLOCK));
        let applied_msn = self.last_msn.iter().copied().max().unwrap_or(0);
        let mut dicts = [DictRoot::default(); DICTS_MAX];
        for (dict, id) in dicts.iter_mut().zip(&roots) {
            *dict = DictRoot { slot: id.slot, generation: id.generation, applied_msn };
        }
        let superblock = Superblock {
            identity: Identity::new(self.volume_id, [0; 16]),
            features: Features::default(),
            generation: self.generation,
            clean: false,
            geometry: self.geometry,
            volume_bytes: end,
            log_offset: slots::BYTES,
            table_page_bytes: self.geometry.table_page_bytes(),
            dicts,
            upserts: alloc::vec![UpsertId { name: "".into(), version: 0 }; count],
            table: self.table,
            log_start: log_start(disk, slots::BYTES, self.geometry.log_bytes, &self.volume_id)?,
            next_msn: applied_msn.saturating_add(1),
            tail: TaggedTail::default(),
        };
        Ok(superblock.validate().is_ok().then_some(superblock))
    }
}

/// The geometry of a new volume of this size; its nodes as large as pages of `slots` slots show.
fn geometry_of(volume_bytes: u64, slots: Option<usize>) -> Option<Geometry> {
    let usual = Geometry::for_volume(volume_bytes, 1);
    let fits = |geometry: &Geometry| {
        slots.is_none_or(|slots| slots_per_page(geometry.table_page_bytes()) as usize == slots)
    };
    let sizes = (9..=28).map(|shift| Geometry {
        node_bytes: 1 << shift,
        basement_bytes: usual.basement_bytes.min(1 << shift),
        ..usual
    });
    // The largest of its kind: limits follow from it.
    core::iter::once(usual).chain(sizes.rev()).find(fits)
}

/// The pages of a table, if all of them are whole.
fn whole_pages(disk: &Disk, end: u64, pages: &Entries<StoredPage>) -> Option<Vec<Entries<StoredSlot>>> {
    let read = |(index, page): (usize, &StoredPage)| {
        let parts = pages.parts_of(index, page.first_part());
        let bytes = bytes_of(disk, end, &parts, page.len_bytes.get().into())?;
        let is_whole = xxh3_64(&bytes) == page.checksum.get();
        decode_page(index as u32, &bytes).filter(|_| is_whole)
    };
    pages.entries.iter().enumerate().map(read).collect()
}

/// Bytes at the start of an extent.
fn bytes_of(disk: &Disk, end: u64, parts: &[BlockRange], len: u64) -> Option<Vec<u8>> {
    let extent = Space::new(0, end / BLOCK).claim(parts.to_vec()).ok()?;
    let is_inside = len > 0 && len <= PART_BYTES_MAX && len.div_ceil(BLOCK) <= extent.len_blocks();
    is_inside.then(|| read_bytes(disk, &extent, len as usize)).flatten()
}

/// Where a replay begins: with the first of the whole segments in a row that end with the newest one.
fn log_start(disk: &Disk, log_offset: u64, log_bytes: u64, volume_id: &[u8; 16]) -> Result<LogStart> {
    let hash = volume_hash(volume_id);
    let (mut epoch, mut segments) = (0, BTreeMap::new());
    let end = log_offset.saturating_add(log_bytes);
    each_block(disk, log_offset, end, &mut |offset, bytes| {
        let block = bytes.get(..BLOCK_BYTES).unwrap_or_default();
        let Some(header) = Segment::decode(block).filter(|header| header.id.volume_hash == hash) else {
            return;
        };
        if header.id.epoch > epoch {
            epoch = header.id.epoch;
            segments.clear();
        }
        if header.id.epoch == epoch {
            segments.insert(header.id.seq, (offset - log_offset, header));
        }
    })?;
    let mut start = LogStart { epoch: epoch.min(COUNTER_MAX), seq: 1, position: 0 };
    let mut behind: Option<(u64, u64)> = None;
    for (seq, (position, header)) in segments.into_iter().rev() {
        let len = header.segment_bytes();
        let follows = behind.is_none_or(|(next_seq, next)| {
            next_seq == seq.saturating_add(1) && (next == position.saturating_add(len) || next == 0)
        });
        let blocks = BlockRange { start_block: (log_offset + position) / BLOCK, len_blocks: len / BLOCK };
        let is_whole = len <= Limits::segment_bytes(log_bytes)
            && bytes_of(disk, end, &[blocks], len).is_some_and(|bytes| header.fits(&bytes));
        if follows && is_whole {
            start = LogStart { seq: seq.min(COUNTER_MAX), position, ..start };
            behind = Some((seq, position));
        } else if behind.is_some() {
            break;
        }
    }
    Ok(start)
}
