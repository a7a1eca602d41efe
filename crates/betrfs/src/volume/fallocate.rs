//! Room for a file, and holes: making and finding them.

use alloc::vec::Vec;
use core::ops::Range;

use betree::Batch;

use crate::FILE_BYTES_MAX;
use crate::contents::{punch, resize};
use crate::error::{Error, Result};
use crate::names::{Inode, State};
use crate::op::{Op, OpKind};
use crate::rules::{check_file, refuse_if_immutable, refuse_if_protected, refuse_key_in_snapshot};
use crate::schema::block::BLOCK;
use crate::schema::key::DataTag;
use crate::schema::{Amount, DATA, damaged, key};
use crate::types::{FallocateMode, InodeId, SeekWhat};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;

/// Number of blocks looked at in one step, while others wait: 16 MiB.
const SEEK_BLOCKS: u64 = 4096;

impl Volume {
    /// Allocates, punches or zeroes a range of a file. Set-id bits stay: a caller without the privilege to
    /// keep them clears them before, with [`SetAttr::kill_set_id`](crate::SetAttr::kill_set_id).
    ///
    /// Allocated or zeroed blocks that are not stored yet have room set aside, which no other file gets,
    /// until they are written, cut off or punched, or the volume is closed.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{FallocateMode, InodeId};
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, &[7; 12_288])?.node;
    /// volume.fallocate(file, FallocateMode::PunchHole, 4096, 4096)?;
    ///
    /// let mut bytes = Vec::new();
    /// volume.read(file, 4000, 200, &mut bytes)?;
    /// assert_eq!(bytes, [[7; 96].as_slice(), &[0; 104]].concat());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range; [`Error::FileTooLarge`]; [`Error::NoSpace`] if the room is not
    /// there, [`Error::QuotaExceeded`] if a quota has none: its room is not set aside. Nothing was changed.
    pub fn fallocate(&self, node: InodeId, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::FileTooLarge)?;
        let op = self.update(OpKind::Fallocate, 0)?;
        let allocates = mode != FallocateMode::PunchHole;
        // Before any lock is taken: the search may read the whole file.
        let holes = match mode {
            FallocateMode::PunchHole => Vec::new(),
            FallocateMode::Allocate { .. } => self.holes(&op, node, offset, end)?,
            FallocateMode::Zero { .. } => match self.holes(&op, node, offset, end) {
                // Some blocks were lost: none is counted as stored.
                Err(error) if error.is_known_damage() => alloc::vec![offset / BLOCK..end.div_ceil(BLOCK)],
                holes => holes?,
            },
        };
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        check_file(&state.record)?;
        match mode {
            FallocateMode::Allocate { .. } => refuse_if_immutable(&state.record)?,
            FallocateMode::PunchHole | FallocateMode::Zero { .. } => refuse_if_protected(&state.record)?,
        }
        let own = inode.own_key()?;
        refuse_key_in_snapshot(&own, &state.record)?;
        self.refuse_without_quota(&op, (&inode, state.record.nlink), &holes, end)?;
        let promised = self.allocate_ahead(&inode, &holes, end)?;
        let changed = self.change_range(&op, &own, &inode, &mut state, mode, offset..end);
        match &changed {
            Err(_) => promised.iter().for_each(|blocks| self.end_allocation(&inode, blocks)),
            Ok(()) if !allocates => self.end_allocation(&inode, &(offset.div_ceil(BLOCK)..end / BLOCK)),
            Ok(()) => {}
        }
        changed
    }

    /// Refuses to allocate blocks of a file with that many names, up to the byte `end`, that a quota has no
    /// room for.
    fn refuse_without_quota(
        &self,
        op: &Op<'_>,
        (inode, nlink): (&Inode, u32),
        blocks: &[Range<u64>],
        end: u64,
    ) -> Result<()> {
        if blocks.is_empty() || !self.quotas.are_in_use() {
            return Ok(());
        }
        let end = end.next_multiple_of(512);
        let bytes = |blocks: &Range<u64>| {
            blocks.end.saturating_mul(BLOCK).min(end).saturating_sub(blocks.start.saturating_mul(BLOCK))
        };
        let bytes = i64::try_from(blocks.iter().map(bytes).sum::<u64>()).unwrap_or(i64::MAX);
        match self.counted_path(op, inode, nlink)? {
            Some(path) => self.hold(op, &path, Amount { bytes, objects: 0 }).map(drop),
            None => Ok(()),
        }
    }

    /// The changes of [`fallocate`](Volume::fallocate) to a file, without the room set aside.
    fn change_range(
        &self,
        op: &Op<'_>,
        own: &[u8],
        inode: &Inode,
        state: &mut State,
        mode: FallocateMode,
        Range { start: offset, end }: Range<u64>,
    ) -> Result<()> {
        let mut record = with_atime(inode, state);
        let mut batch = Batch::new();
        // A block that loses a part is replaced by the rest, and a hole at the end takes nothing.
        batch.mark_replacing();
        let asked = Self::asked_by(inode, &record);
        let (zeroes, extends) = match mode {
            FallocateMode::Allocate { keep_size } => (false, !keep_size),
            FallocateMode::PunchHole => (true, false),
            FallocateMode::Zero { keep_size } => (true, !keep_size),
        };
        if zeroes && offset < record.size {
            self.new_blocks(op, own, &record, offset..end.min(record.size))?;
            let (first, after) = punch(&mut batch, own, record.size, offset..end.min(record.size), asked);
            let before = record.blocks();
            record.make_sparse().remove(first, after);
            if first < after && (end <= record.size || !extends) {
                batch.mark_freeing(before.saturating_sub(record.blocks()).saturating_mul(BLOCK));
            }
        }
        if extends && end > record.size {
            resize(&mut batch, own, &mut record, end, asked);
        }
        if record.size == state.record.size && batch.is_empty() {
            return Ok(());
        }
        let now_ns = self.platform.now_ns();
        (record.mtime_ns, record.ctime_ns) = (now_ns, now_ns);
        self.commit_record_at(own, op, batch, inode, state, record)
    }

    /// The first place at or behind `offset` that is data, or that is a hole. The end of the file is a hole.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{InodeId, SeekWhat, SetAttr};
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// volume.setattr(file, &SetAttr { size: Some(1 << 20), ..SetAttr::default() })?;
    /// assert_eq!(volume.seek(file, 0, SeekWhat::Data)?, 0);
    /// assert_eq!(volume.seek(file, 0, SeekWhat::Hole)?, 4096);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchPlace`] if there is none, or `offset` is not before the end.
    pub fn seek(&self, node: InodeId, offset: u64, what: SeekWhat) -> Result<u64> {
        self.seek_with(&self.query(OpKind::Fallocate), node, offset, what)
    }

    /// A [`seek`](Volume::seek) as a part of an operation.
    pub(super) fn seek_with(&self, op: &Op<'_>, node: InodeId, offset: u64, what: SeekWhat) -> Result<u64> {
        let mut from = offset / BLOCK;
        loop {
            match op.without_waiting(|| self.seek_from(op, node, offset, from, what))? {
                Sought::Found(place) => return Ok(place),
                Sought::NotBefore(block) => from = block,
            }
        }
    }

    /// A step of [`seek`](Volume::seek) from a block on. A search for a hole may have to read the whole file,
    /// and others must not wait for that.
    fn seek_from(
        &self,
        op: &Op<'_>,
        node: InodeId,
        offset: u64,
        from: u64,
        what: SeekWhat,
    ) -> Result<Sought> {
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let state = inode.state.read();
        check_file(&state.record)?;
        let size = state.record.size;
        if offset >= size {
            return Err(Error::NoSuchPlace);
        }
        if !state.record.is_sparse() {
            return Ok(Sought::Found(if what == SeekWhat::Data { offset } else { size }));
        }
        let own = inode.own_key()?;
        let end = size.div_ceil(BLOCK);
        // A hole is skipped at no cost, and data follows it.
        let stop = if what == SeekWhat::Data { end } else { end.min(from.saturating_add(SEEK_BLOCKS)) };
        let mut next = from;
        let mut blocks =
            op.scan_of_whole(DATA, key::blocks(&own, from, stop), None, SEEK_BLOCKS as usize + 1);
        while let Some((at, _)) = blocks.next()? {
            let Some((_, DataTag::Block(number))) = key::split_data(at) else {
                return Err(damaged(at, "it is no key of a block"));
            };
            match what {
                SeekWhat::Data => return Ok(Sought::Found(offset.max(number.saturating_mul(BLOCK)))),
                SeekWhat::Hole if number != next => break,
                SeekWhat::Hole => next += 1,
            }
        }
        match what {
            SeekWhat::Data => Err(Error::NoSuchPlace),
            SeekWhat::Hole if next == stop && stop < end => Ok(Sought::NotBefore(stop)),
            SeekWhat::Hole => Ok(Sought::Found(offset.max(next.saturating_mul(BLOCK)).min(size))),
        }
    }
}

/// The result of one step of a seek.
enum Sought {
    /// The place, in bytes.
    Found(u64),
    /// The place is not before this block.
    NotBefore(u64),
}
