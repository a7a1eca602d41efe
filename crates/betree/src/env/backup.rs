//! Backups: the blocks of a checkpoint, read while others go on.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use super::Env;
use crate::engine::checkpoint::Committed;
use crate::engine::unnamed_blocks::Hold;
use crate::error::{Error, Result};
use crate::format::superblock::error_record;
use crate::format::superblock::scrub_record::ScrubRecord;
use crate::format::superblock::{Superblock, slots};
use crate::invariant::internal;
use crate::io::AlignedBuf;
use crate::planted::{self, Bug};
use crate::space::{BlockRange, Extent};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most blocks of a piece.
const PIECE_BLOCKS_MAX: u64 = 256;
/// Slots of the node table that are looked at under its lock at a time.
const SLOTS_AT_ONCE: usize = 4096;

/// The volume as of a checkpoint, block by block. Its blocks stay as they are until it is dropped; writers
/// go on, and the space of what they replace or delete comes back then. Where space is short, the backup
/// ends before a change is refused: it then returns [`Error::ViewEnded`].
///
/// The pieces make a volume of their own: what no piece covers may have any contents, zeros for example. The
/// superblocks come last, so that a copy that was broken off is no volume. Clones share their blocks in the
/// copy as they do here. It has the same UUID and label.
pub struct Backup {
    env: Arc<Env>,
    hold: Arc<Hold>,
    superblock: Superblock,
    /// Without the superblocks.
    bytes: u64,
    /// Still to be read, in ascending order.
    rest: alloc::vec::IntoIter<BlockRange>,
    /// The first of them, as far as it is not read yet.
    at: BlockRange,
    superblocks_are_read: bool,
    piece: AlignedBuf,
}

impl Env {
    /// Begins a backup of this moment, with a checkpoint.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// let mut backup = env.backup()?;
    /// let mut copy = vec![0; backup.volume_bytes() as usize];
    /// while let Some((offset, bytes)) = backup.next_piece()? {
    ///     let offset = offset as usize;
    ///     copy[offset..offset + bytes.len()].copy_from_slice(bytes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`checkpoint`](Env::checkpoint); [`Error::ReadOnly`] for a volume that takes no changes.
    pub fn backup(self: &Arc<Self>) -> Result<Backup> {
        self.writable_now()?;
        let mut committed = self.checkpoint.lock();
        self.checkpoint_as(false, &mut committed)?;
        let extents = self.extents_of(&committed);
        let ranges = ranges_of(&extents);
        let bytes = ranges.iter().map(|range| range.len_blocks * BLOCK).sum();
        let hold = self.engine.unnamed.begin_backup(extents);
        // Everything is in the checkpoint, and nothing in the log.
        let tail = error_record::removed_from(&ScrubRecord::removed_from(&committed.superblock.tail));
        let superblock = Superblock { clean: true, tail, ..committed.superblock.clone() };
        Ok(Backup {
            env: self.clone(),
            hold,
            superblock,
            bytes,
            rest: ranges.into_iter(),
            at: BlockRange::default(),
            superblocks_are_read: false,
            piece: AlignedBuf::default(),
        })
    }

    /// The extents that the last checkpoint names, and perhaps others. While the caller holds the checkpoint
    /// lock, no node gets another extent, and one that leaves the table leaves its extent there.
    fn extents_of(&self, committed: &Committed) -> Vec<Arc<Extent>> {
        let mut extents = Vec::from_iter(committed.directories().cloned());
        let mut first = if planted::is(Bug::BackupHoldsNoNodes) { usize::MAX } else { 0 };
        loop {
            // Others need the table meanwhile.
            let Some(more) = self.engine.table.lock().extents_in(first, SLOTS_AT_ONCE) else { break };
            extents.extend(more);
            first += SLOTS_AT_ONCE;
        }
        let table = self.engine.table.lock();
        extents.extend(table.page_extents().map(|(_, extent)| extent.clone()));
        extents.extend(table.retired().iter().cloned());
        extents
    }
}

impl Backup {
    /// The size of the volume in bytes; the copy must have room for it.
    pub fn volume_bytes(&self) -> u64 {
        self.superblock.volume_bytes
    }

    /// The bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.bytes + slots::BYTES
    }

    /// The next piece, of whole blocks: the offset of its first byte on the volume, and its bytes. `None`
    /// after the last one, the superblocks. What the device returns is not verified; a check of the copy
    /// finds damage.
    ///
    /// # Errors
    /// [`Error::ViewEnded`], or the device's.
    pub fn next_piece(&mut self) -> Result<Option<(u64, &[u8])>> {
        if self.at.len_blocks == 0 {
            match self.rest.next() {
                Some(range) => self.at = range,
                None if self.superblocks_are_read => return Ok(None),
                None => {
                    self.refuse_if_ended()?;
                    self.superblocks_are_read = true;
                    self.piece = slots::image(&self.superblock)?;
                    return Ok(Some((0, self.piece.as_slice())));
                }
            }
        }
        let len_blocks = self.at.len_blocks.min(PIECE_BLOCKS_MAX);
        let offset = self.at.start_block * BLOCK;
        self.piece.grow_to(PIECE_BLOCKS_MAX as usize)?;
        let piece = self.piece.as_mut_slice().get_mut(..(len_blocks * BLOCK) as usize);
        let piece = piece.ok_or_else(|| internal!("a piece has its blocks"))?;
        self.env.engine.store.disk.read_at(offset, piece)?;
        // If it ends later, others write later.
        if self.hold.has_ended() {
            return Err(Error::ViewEnded);
        }
        self.at.start_block += len_blocks;
        self.at.len_blocks -= len_blocks;
        Ok(Some((offset, piece)))
    }

    fn refuse_if_ended(&self) -> Result<()> {
        if self.hold.has_ended() { Err(Error::ViewEnded) } else { Ok(()) }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.env.engine.unnamed.end_backup(&self.hold);
    }
}

/// The blocks of these extents, in ascending order, each once.
fn ranges_of(extents: &[Arc<Extent>]) -> Vec<BlockRange> {
    let mut parts: Vec<BlockRange> = extents.iter().flat_map(|extent| extent.all_parts()).copied().collect();
    parts.sort_unstable_by_key(|part| part.start_block);
    let mut ranges: Vec<BlockRange> = Vec::with_capacity(parts.len());
    for part in parts {
        let end = part.start_block + part.len_blocks;
        match ranges.last_mut() {
            Some(last) if part.start_block <= last.start_block + last.len_blocks => {
                last.len_blocks = last.len_blocks.max(end - last.start_block);
            }
            _ => ranges.push(part),
        }
    }
    ranges
}
