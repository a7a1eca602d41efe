//! Checkpoints: the state in memory becomes the state that the superblock points to.
//!
//! A checkpoint captures, in one moment, the versions of nodes that are not on the device and the node table.
//! Versions never change, so writers continue at once and make new versions. Then it writes nodes, pages and
//! directory, syncs, and writes the superblock. Only here, and in recovery, is a root installed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::Ordering;
use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::dict::Dict;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::events;
use crate::format::superblock::table_copy::TableCopy;
use crate::format::superblock::{DICTS_MAX, DIRECTORY_PARTS_MAX, DictRoot, Superblock, TablePlace, slots};
use crate::format::table::{encode_directory, encode_page};
use crate::health::ErrorRecord;
use crate::invariant::internal;
use crate::io::AlignedBuf;
use crate::message::Msn;
use crate::node::Node;
use crate::node_id::NodeId;
use crate::planted;
use crate::space::{BlockRange, Extent};
use crate::store::{COPIED_FROM_HEIGHT, Outgoing, STEP_BLOCKS_MIN};
use crate::table::{CapturedTable, PagePlace};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most discards after a checkpoint.
const DISCARDS_MAX: usize = 4096;
/// The most blocks of a discard: no extent gets them meanwhile.
const DISCARD_BLOCKS_MAX: u64 = 16 << 10;

/// The free space that a trim discards.
#[derive(Clone, Copy)]
pub(crate) struct Discards {
    /// The first block.
    pub start_block: u64,
    /// The block after the last one.
    pub end_block: u64,
    /// The fewest free blocks in a row that are worth a discard.
    pub blocks_min: u64,
}

impl Discards {
    /// Those of the whole volume.
    pub const ALL: Discards = Discards { start_block: 0, end_block: u64::MAX, blocks_min: 0 };

    /// The part of a free range to discard; `None` if there is none, or it is too short.
    fn of(&self, free: BlockRange) -> Option<BlockRange> {
        let start_block = free.start_block.max(self.start_block);
        let end_block = free.start_block.saturating_add(free.len_blocks).min(self.end_block);
        let len_blocks = end_block.saturating_sub(start_block);
        (len_blocks >= self.blocks_min.max(1)).then_some(BlockRange { start_block, len_blocks })
    }
}

/// The last checkpoint, which the superblock on the device points to.
pub(crate) struct Committed {
    pub superblock: Superblock,
    /// The extent of the node table's directory.
    pub directory: Option<Arc<Extent>>,
    /// That of the second copy of the node table, if there is one.
    pub directory_copy: Option<Arc<Extent>>,
    /// The counts of errors that the volume has, as far as its superblock has room for them.
    pub kept_errors: ErrorRecord,
    /// Whether the second copy of a newer superblock was begun, and has failed: its first copy counts, and
    /// must stay.
    pub is_half_stored: bool,
}

impl Committed {
    /// The last checkpoint of a volume that keeps no counts of errors.
    pub fn without_errors(
        superblock: Superblock,
        directory: Option<Arc<Extent>>,
        directory_copy: Option<Arc<Extent>>,
    ) -> Committed {
        let kept_errors = ErrorRecord::default();
        Committed { superblock, directory, directory_copy, kept_errors, is_half_stored: false }
    }

    /// The extents of both directories.
    pub fn directories(&self) -> impl Iterator<Item = &Arc<Extent>> {
        self.directory.iter().chain(&self.directory_copy)
    }
}

/// Written nodes of a dictionary.
#[derive(Default)]
struct Written {
    bytes: u64,
    /// The first error.
    failure: Option<Error>,
}

/// The state of an engine at one moment, to be written.
pub(crate) struct Captured {
    dirty: Vec<HashMap<NodeId, Arc<Node>>>,
    table: CapturedTable,
    roots: [DictRoot; DICTS_MAX],
    next_msn: Msn,
    /// The time of the capture, if there is a clock: nanoseconds since 1970-01-01 00:00 UTC.
    at_ns: Option<i64>,
}

impl Captured {
    /// The first sequence number that replay needs.
    pub fn first_unapplied(&self, dicts: usize) -> Msn {
        let applied = self.roots.iter().take(dicts).map(|d| d.applied_msn).min();
        applied.map_or(0, |msn| msn + 1).min(self.next_msn)
    }

    /// Whether it equals the checkpoint `committed`.
    pub fn is_same(&self, committed: &Superblock) -> bool {
        self.dirty.iter().all(HashMap::is_empty)
            && self.table.is_clean()
            && self.roots == committed.dicts
            && self.next_msn == committed.next_msn
    }
}

impl Engine {
    /// Captures the current state. The caller holds the commit lock, so that no batch is in it by half.
    pub fn capture(&self, next_msn: Msn) -> Captured {
        self.store.expect_messages_before(next_msn);
        let mut states: Vec<_> = self.dicts.iter().map(|d| d.state.write()).collect();
        let mut table = self.table.lock();
        let mut roots = [DictRoot::default(); DICTS_MAX];
        let mut dirty = Vec::with_capacity(states.len());
        for (state, root) in states.iter_mut().zip(&mut roots) {
            let oldest = state.frozen.front().map_or(state.active.first_msn(), |m| m.first_msn());
            let applied_msn = oldest.unwrap_or(next_msn) - 1;
            *root = DictRoot { slot: state.root.slot, generation: state.root.generation, applied_msn };
            dirty.push(state.capture_dirty());
        }
        Captured { dirty, table: table.capture(), roots, next_msn, at_ns: self.store.disk.health.now_ns() }
    }

    /// Writes a captured state and makes it the volume's, with the log beginning at the superblock's
    /// `log_start`. A batch that is only partly in it must be durable in the log already. `on_progress` is
    /// called whenever nodes have become clean.
    ///
    /// # Errors
    /// Any error of the work; the next checkpoint writes what is missing.
    pub fn write_checkpoint(
        &self,
        committed: &mut Committed,
        mut captured: Captured,
        superblock: Superblock,
        on_progress: &dyn Fn(),
    ) -> Result<()> {
        let nodes = captured.dirty.iter().map(HashMap::len).sum();
        // Not earlier: writers wait while it is captured.
        events::checkpoint_captured(captured.next_msn, nodes, captured.table.pages_len());
        self.counters.checkpoints_under_way.store(1, Ordering::Relaxed);
        let written = self.write_captured(committed, &mut captured, superblock, on_progress);
        self.counters.checkpoints_under_way.store(0, Ordering::Relaxed);
        match written {
            Ok(bytes) => {
                self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
                self.dicts.iter().for_each(Dict::retry_unread_dead);
                let health = &self.store.disk.health;
                if self.store.space.unbacked_blocks() == 0 {
                    health.device_has_room();
                }
                let took_ns = captured.at_ns.zip(health.now_ns()).map(|(from, to)| to.saturating_sub(from));
                events::checkpoint_committed(committed.superblock.generation, bytes, took_ns);
                // Dropping the captured state frees the extents that only the last checkpoint named.
                Ok(())
            }
            Err(error) => {
                for (dict, dirty) in self.dicts.iter().zip(&captured.dirty) {
                    let mut state = dict.state.write();
                    dirty.values().for_each(|node| state.capture_done(node, None));
                }
                self.table.lock().give_back(captured.table);
                events::checkpoint_failed(&error);
                Err(error)
            }
        }
    }

    /// After a checkpoint on a sparse device: allocates storage for the reserve, and looks whether a full
    /// disk has room again.
    pub fn replenish(&self) {
        let _ = match self.store.disk.health.is_device_full() {
            true => self.store.back_more(STEP_BLOCKS_MIN).map(drop),
            // A change that needs the reserve meets the error again.
            false => self.room().back_reserve(),
        };
    }

    /// Discards the blocks that checkpoints have freed, the longest ranges first. The caller holds the
    /// checkpoint lock, and the superblock that does not name these blocks is durable.
    pub fn discard_freed(&self) {
        for _ in 0..DISCARDS_MAX {
            // What is kept is discarded another time.
            let blocks_max = self.room().spare_blocks().min(DISCARD_BLOCKS_MAX);
            let range = if blocks_max > 0 { self.store.space.take_untold(blocks_max) } else { None };
            let Some(range) = range else { return };
            let told = self.store.disk.discard(range.start_block * BLOCK, range.len_blocks * BLOCK);
            self.store.space.give_back_told(range);
            if let Err(error) = told {
                self.store.disk.health.note_failed_work(&error);
                return;
            }
        }
    }

    /// The free ranges in a part of the volume, cut to the length of a discard.
    pub fn free_pieces(&self, part: &Discards) -> Vec<BlockRange> {
        let pieces = |range: BlockRange| {
            let end = range.start_block.saturating_add(range.len_blocks);
            let starts = (range.start_block..end).step_by(DISCARD_BLOCKS_MAX as usize);
            starts.map(move |start_block| BlockRange {
                start_block,
                len_blocks: DISCARD_BLOCKS_MAX.min(end - start_block),
            })
        };
        let free = self.store.space.free_ranges().into_iter();
        free.filter_map(|range| part.of(range)).flat_map(pieces).collect()
    }

    /// Discards a range if all of it is free, but for what a sparse device keeps allocated; returns the
    /// number of its blocks, or 0. The caller holds the checkpoint lock.
    ///
    /// # Errors
    /// The device's.
    pub fn discard_if_free(&self, range: BlockRange) -> Result<u64> {
        let space = &self.store.space;
        let mut range = range;
        if !space.take_doubted(range) {
            let len_blocks = range.len_blocks.min(self.room().spare_blocks());
            range =
                BlockRange { start_block: range.start_block + (range.len_blocks - len_blocks), len_blocks };
            if !space.take_free(range) {
                return Ok(0);
            }
        }
        let told = self.store.disk.discard(range.start_block * BLOCK, range.len_blocks * BLOCK);
        self.store.space.give_back_told(range);
        told.map(|()| range.len_blocks)
    }

    /// Returns the number of bytes of nodes and of the node table that it has written.
    fn write_captured(
        &self,
        committed: &mut Committed,
        captured: &mut Captured,
        superblock: Superblock,
        on_progress: &dyn Fn(),
    ) -> Result<u64> {
        if planted::is(planted::Bug::ExtentReusedOneCheckpointEarly) {
            captured.table.retired.clear();
        }
        let generation = committed.superblock.generation + 1;
        self.store.generation.store(generation, Ordering::Relaxed);
        let mut written_bytes = 0;
        for (index, dict) in self.dicts.iter().enumerate() {
            let captured_of = captured.dirty.get(index).zip(captured.roots.get(index));
            let (dirty, root) = captured_of.ok_or_else(|| internal!("every dictionary is captured"))?;
            let order = in_key_order(dirty, NodeId { slot: root.slot, generation: root.generation });
            written_bytes += self.write_nodes(dict, order, &mut captured.table, on_progress)?;
        }
        let pages: Vec<_> = captured.table.pages().collect();
        for (index, slots) in pages {
            let bytes = encode_page(index, &slots);
            let extent = self.write_extent(&bytes, usize::MAX)?;
            written_bytes += extent.len_blocks() * BLOCK_BYTES as u64;
            let place =
                PagePlace { extent, copy: None, len_bytes: bytes.len() as u32, checksum: xxh3_64(&bytes) };
            self.table.lock().page_written(index, place, &mut captured.table);
        }
        let bytes = encode_directory(&self.table.lock().directory());
        let directory = self.write_extent(&bytes, DIRECTORY_PARTS_MAX)?;
        written_bytes += directory.len_blocks() * BLOCK_BYTES as u64;
        // Last of all: what must be written has its place already.
        let copied_bytes = || self.counters.copy_bytes.load(Ordering::Relaxed);
        let before_bytes = copied_bytes();
        let (copy, directory_copy) = self.write_table_copy(&captured.table)?.unzip();
        written_bytes += copied_bytes().saturating_sub(before_bytes);
        if !planted::is(planted::Bug::MissingSyncBeforeSuperblock) {
            self.store.disk.sync()?;
        }
        let mut tail = superblock.tail.clone();
        let is_named = TableCopy::put(copy.as_ref(), generation, &mut tail);
        let superblock = Superblock {
            tail,
            generation,
            dicts: captured.roots,
            table: TablePlace::new(directory.parts(), bytes.len() as u32, xxh3_64(&bytes)),
            next_msn: captured.next_msn,
            ..superblock
        };
        slots::store_first(&self.store.disk, &superblock)?;
        committed.is_half_stored = true;
        slots::store_second(&self.store.disk, &superblock)?;
        committed.is_half_stored = false;
        committed.superblock = superblock;
        captured.table.retired.extend(committed.directory.replace(directory));
        let last = core::mem::replace(&mut committed.directory_copy, directory_copy.filter(|_| is_named));
        captured.table.retired.extend(last);
        Ok(written_bytes)
    }

    /// Writes nodes of a dictionary, several at a time if the platform lends threads for it. Returns the
    /// number of bytes written.
    fn write_nodes(
        &self,
        dict: &Dict,
        order: Vec<Arc<Node>>,
        table: &mut CapturedTable,
        on_progress: &dyn Fn(),
    ) -> Result<u64> {
        let mut written = Written::default();
        for node in order {
            if node.height >= COPIED_FROM_HEIGHT {
                self.note_room_for_copies();
            }
            let last = self.table.lock().place(node.id);
            self.store.writeback.write(&self.store, dict.index as u8, node, last);
            self.nodes_written(dict, self.store.writeback.take_done(), table, &mut written);
            on_progress();
            if written.failure.is_some() {
                break;
            }
        }
        self.nodes_written(dict, self.store.writeback.finish(), table, &mut written);
        written.failure.map_or(Ok(written.bytes), Err)
    }

    fn nodes_written(
        &self,
        dict: &Dict,
        done: Vec<Result<Outgoing>>,
        table: &mut CapturedTable,
        written: &mut Written,
    ) {
        for result in done {
            match result {
                Ok(outgoing) => {
                    self.store.node_written(&outgoing);
                    self.counters.kept_bytes.fetch_add(outgoing.kept_bytes, Ordering::Relaxed);
                    let named = self.table.lock().written(outgoing.node.id, &outgoing.place, table);
                    dict.state.write().capture_done(&outgoing.node, named.is_ok().then_some(&outgoing.place));
                    written.bytes += outgoing.written_bytes();
                    written.failure = written.failure.take().or(named.err());
                }
                Err(error) => written.failure = written.failure.take().or(Some(error)),
            }
        }
    }

    fn write_extent(&self, bytes: &[u8], parts_max: usize) -> Result<Arc<Extent>> {
        let blocks = bytes.len().div_ceil(BLOCK_BYTES);
        let extent = self.store.allocate(blocks as u64, parts_max, &[]);
        let extent = extent.ok_or_else(|| self.store.no_room(blocks as u64))?;
        self.write_to(&extent, bytes)?;
        Ok(extent)
    }

    /// Writes bytes of the node table to an extent that was allocated for them.
    pub(super) fn write_to(&self, extent: &Extent, bytes: &[u8]) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(bytes.len().div_ceil(BLOCK_BYTES))?;
        let room = buffer.as_mut_slice().get_mut(..bytes.len());
        room.ok_or_else(|| internal!("a buffer has its blocks"))?.copy_from_slice(bytes);
        self.store.disk.write_extent(extent, buffer.as_slice())
    }
}

/// The dirty nodes from left to right, each before its children, so that a scan reads the device in ascending
/// order. Nodes with clean parents come last: they changed alone.
fn in_key_order(dirty: &HashMap<NodeId, Arc<Node>>, root: NodeId) -> Vec<Arc<Node>> {
    let mut order = Vec::with_capacity(dirty.len());
    let mut seen: hashbrown::HashSet<NodeId> = hashbrown::HashSet::new();
    let mut rest: Vec<NodeId> = dirty.keys().copied().collect();
    rest.sort_unstable();
    let mut stack = alloc::vec![root];
    while let Some(id) = stack.pop().or_else(|| rest.pop()) {
        let Some(node) = dirty.get(&id) else { continue };
        if seen.insert(id) {
            order.push(node.clone());
            stack.extend(node.edges().iter().rev().filter_map(|e| e.child));
        }
    }
    order
}
