//! Storing the data of a file anew, compressed as its directory wants it now.
//!
//! A block is put again as it is, with another wish for its compression; the rest is the engine's.
//! Headers of nodes tell what most of a piece asks for, so pieces that are as they should be are not
//! read. The few blocks in them that ask for something else keep their wish: they are stored as wanted.
//! A batch holds the file as a write does, after its blocks were read without a lock. Neither the
//! file's bytes nor its record change, so nobody who has them in memory has to be told.

use alloc::vec::Vec;
use core::ops::Range;

use betree::debug::StoredAs;
use betree::{Batch, Cursor, Level, PairCompression, Sharing};

use crate::error::{Error, Result};
use crate::names::{Inode, State};
use crate::op::{Op, OpKind};
use crate::rules::{check_file, refuse_if_immutable, refuse_key_in_snapshot};
use crate::schema::block::{BLOCK, BLOCK_BYTES};
use crate::schema::key::DataTag;
use crate::schema::{DATA, damaged, key};
use crate::types::{InodeId, SeekWhat};
use crate::volume::Volume;
use crate::volume::map::FileExtent;

/// The bytes of a file that one call looks at, about.
const STEP_BYTES: u64 = 4 << 20;
/// How far a call goes further, to the end of a piece: half a piece that was written anew would decide for
/// the other half.
const PIECE_REST_BYTES: u64 = 256 << 10;

/// What becomes of blocks that are not compressed as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompress {
    /// They are counted.
    Count,
    /// They are written anew, but for those that copies or snapshots share.
    Own,
    /// They are written anew. What is shared takes room a second time.
    OwnAndShared,
}

/// What was found in a part of a file, and done with it. A part within one piece counts by its share of the
/// piece, holes in it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recompressed {
    /// The first byte that was not looked at; `None` at the end of the file.
    pub next: Option<u64>,
    /// What the part took as stored, in bytes; what is in memory alone counts in full.
    pub stored_bytes: u64,
    /// Bytes of the file that were not compressed as wanted, and that nothing else shares.
    pub own_bytes: u64,
    /// The same of those that copies or snapshots share.
    pub shared_bytes: u64,
    /// Bytes of the file that were written anew.
    pub written_bytes: u64,
}

impl Volume {
    /// Writes blocks of a file anew that are not compressed as its properties want it: of some 4 MiB from
    /// the byte `from` on, behind the hole there. The next call goes on at [`next`](Recompressed::next).
    /// A call for `owner` is refused if the file is another user's; `None` stands for everyone.
    ///
    /// Others may use the file meanwhile: no change of theirs is lost, writers wait no longer than for a
    /// write of 1 MiB, and readers not at all. Times and bytes of the file stay as they are. What is as
    /// wanted is not read, except beside blocks that ask for something else in one piece of about 64 KiB, and
    /// in the first piece of a call that does not only count.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{DataCompression, InodeId, PropertyChange, Recompress, SetProperties};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create_with(dir, b"file", &new_file, &[7; 10_000])?.node;
    /// let compression = PropertyChange::Set(DataCompression::None);
    /// volume.set_properties(dir, &SetProperties { compression, ..SetProperties::default() }, None)?;
    /// let written = volume.recompress(file, 0, Recompress::Own, None)?;
    /// assert_eq!((written.written_bytes, written.next), (10_000, None));
    /// assert_eq!(volume.recompress(file, 0, Recompress::Own, None)?.written_bytes, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::Protected`] for an immutable file; [`Error::InSnapshot`];
    /// [`Error::IsADirectory`] and [`Error::Invalid`] for what is no file; [`Error::NoSpace`]. A part may
    /// have been written anew.
    pub fn recompress(
        &self,
        node: InodeId,
        from: u64,
        what: Recompress,
        owner: Option<u32>,
    ) -> Result<Recompressed> {
        let op = self.query_for_objects(OpKind::Recompress);
        let (size, is_sparse, wanted) = {
            let _shared = self.namespace.shared();
            let inode = self.inode(node)?;
            let state = inode.state.read();
            let (_, wanted) = to_recompress(&inode, &state, owner)?;
            (state.record.size, state.record.is_sparse(), wanted)
        };
        let from = match is_sparse {
            true => match self.seek_with(&op, node, from, SeekWhat::Data) {
                Err(Error::NoSuchPlace) => return Ok(Recompressed::default()),
                sought => sought?,
            },
            false => from,
        };
        let from = from / BLOCK * BLOCK;
        let mut end = size.min(from.saturating_add(STEP_BYTES));
        let mut found = Recompressed::default();
        let mut unlike: Vec<Range<u64>> = Vec::new();
        for extent in self.map(node, from, end.saturating_sub(from).saturating_add(PIECE_REST_BYTES))? {
            if extent.offset >= end {
                break;
            }
            end = end.max(extent.offset.saturating_add(extent.len));
            found.stored_bytes += stored_bytes(&extent);
            let is_as_wanted = is_as_wanted(&extent, wanted);
            // What was written anew before may have made the first piece what it is.
            let is_looked_into =
                what != Recompress::Count && extent.offset == from && extent.level == Level::Leaf;
            if is_as_wanted && !is_looked_into {
                continue;
            }
            let bytes = if is_as_wanted { 0 } else { size.saturating_sub(extent.offset).min(extent.len) };
            if extent.sharing == Sharing::Shared {
                found.shared_bytes += bytes;
                if what == Recompress::Own {
                    continue;
                }
            } else {
                found.own_bytes += bytes;
            }
            let blocks = extent.offset / BLOCK..(extent.offset + extent.len) / BLOCK;
            match unlike.last_mut() {
                Some(last) if last.end == blocks.start => last.end = blocks.end,
                _ => unlike.push(blocks),
            }
        }
        found.next = (end < size).then_some(end);
        if what != Recompress::Count {
            for blocks in unlike {
                found.written_bytes += self.write_anew(&op, node, blocks, owner)?;
            }
        }
        Ok(found)
    }

    /// Writes those of these blocks anew that ask for another compression than is wanted, in batches; returns
    /// their bytes.
    fn write_anew(
        &self,
        op: &Op<'_>,
        node: InodeId,
        Range { start: mut first, end }: Range<u64>,
        owner: Option<u32>,
    ) -> Result<u64> {
        let mut written_bytes = 0;
        while first < end {
            let (own, wanted, view) = {
                let _shared = self.namespace.shared();
                let inode = self.inode(node)?;
                let state = inode.state.read();
                let (own, wanted) = to_recompress(&inode, &state, owner)?;
                (own, wanted, self.env.view())
            };
            let in_batch = self.env.batch_bytes_max() / (BLOCK_BYTES + own.len() + 64);
            let in_batch = (self.piece_bytes / BLOCK).min(in_batch as u64).max(1);
            let blocks = first..end.min(first.saturating_add(in_batch));
            first = blocks.end;
            // In a view, without a lock: this reads from the device, and what follows finds it in memory.
            let in_view = op.scan_of(&view, DATA, key::blocks(&own, blocks.start, blocks.end));
            let (batch, _) = unlike(in_view, wanted)?;
            if !batch.is_empty() {
                self.env.throttle(batch.bytes())?;
                written_bytes += self.write_batch_anew(op, node, blocks, owner)?;
            }
        }
        Ok(written_bytes)
    }

    /// Writes blocks anew in one batch.
    fn write_batch_anew(
        &self,
        op: &Op<'_>,
        node: InodeId,
        blocks: Range<u64>,
        owner: Option<u32>,
    ) -> Result<u64> {
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        // Held for reading until the commit: nobody changes the blocks meanwhile, and readers go on.
        let state = inode.state.read();
        let (own, wanted) = to_recompress(&inode, &state, owner)?;
        let blocks = op.scan(DATA, key::blocks(&own, blocks.start, blocks.end));
        let (batch, bytes) = unlike(blocks, wanted)?;
        op.commit(&batch)?;
        Ok(bytes)
    }
}

/// The key of a file that may be written anew for this owner, and the compression that its properties want.
fn to_recompress(inode: &Inode, state: &State, owner: Option<u32>) -> Result<(Vec<u8>, PairCompression)> {
    check_file(&state.record)?;
    if owner.is_some_and(|owner| owner != state.record.uid) {
        return Err(Error::NotPermitted);
    }
    refuse_if_immutable(&state.record)?;
    let own = inode.own_key()?;
    refuse_key_in_snapshot(&own, &state.record)?;
    Ok((own, Volume::asked_by(inode, &state.record)))
}

/// Those of these blocks that ask for another compression, as puts that ask for the wanted one, and their
/// bytes.
fn unlike(mut blocks: Cursor<'_>, wanted: PairCompression) -> Result<(Batch, u64)> {
    let (mut batch, mut bytes) = (Batch::new(), 0);
    batch.compress_as(wanted);
    while blocks.next()?.is_some() {
        let (asked, Some((at, block))) = (blocks.asked(), blocks.pair()) else { break };
        let Some((_, DataTag::Block(_))) = key::split_data(at) else {
            return Err(damaged(at, "it is no key of a block"));
        };
        if asked != wanted {
            batch.put(DATA, at, block);
            bytes += block.len() as u64;
        }
    }
    Ok((batch, bytes))
}

/// Whether the blocks of an extent are stored as they would be if they were written anew.
fn is_as_wanted(extent: &FileExtent, wanted: PairCompression) -> bool {
    let is_raw = || {
        let mut runs = extent.runs.iter();
        wanted == PairCompression::None
            && !extent.is_in_memory
            && runs.all(|run| run.stored_as == StoredAs::Raw)
    };
    extent.asked == Some(wanted) || is_raw()
}

/// What an extent takes as stored.
fn stored_bytes(extent: &FileExtent) -> u64 {
    if extent.runs.is_empty() {
        return extent.len;
    }
    let share = |stored: u64, raw: u64| {
        let share = u128::from(stored) * u128::from(extent.len) / u128::from(raw.max(1));
        u64::try_from(share).unwrap_or(stored).min(stored)
    };
    extent.runs.iter().map(|run| share(run.stored_bytes, run.raw_bytes)).sum()
}
