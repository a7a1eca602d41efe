//! Writing bytes.
//!
//! A write reads nothing, but where a repair has noted losses. A block is put whole where the write covers
//! it up to the end of the file, and changed by an upsert otherwise. A stored block ends at or before the
//! size; a block within the size may be stored short, and reads as zeros from there.

use alloc::vec::Vec;
use core::ops::Range;

use betree::Batch;

use crate::FILE_BYTES_MAX;
use crate::contents::{contents_bytes, drop_capabilities, grow, put_bytes};
use crate::error::{Error, Result};
use crate::op::{Op, OpKind};
use crate::planted::{self, Bug};
use crate::rules::{check_file, refuse_overwrite};
use crate::schema::block::{BLOCK, BLOCK_BYTES};
use crate::schema::{DATA, META, Record, key};
use crate::types::InodeId;
use crate::volume::Volume;
use crate::volume::attributes::with_atime;

/// The most bytes that one call copies: the caller asks again for the rest, and can do other work in between.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// Upper bound of the bytes of a file's record in a batch, without its key: nearly all of it attribute names.
const RECORD_BYTES_MAX: usize = 68 << 10;

/// Whether a write is subject to the file's flags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagCheck {
    Yes,
    /// The data are older than the flags.
    No,
}

/// The room that a write may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// What is free.
    Free,
    /// That, and a part of what is kept for deletes: it replaces as much as it adds.
    Reserve,
}

/// The most blocks that are replaced at once where there is no other room: the reserve may be small.
const REPLACED_BLOCKS_MAX: u64 = 16;

impl Volume {
    /// Writes `data` at `offset` and returns the number of bytes written. A short count means that a later
    /// piece failed; a call that starts there returns the error. Each piece up to a multiple of 1 MiB (less
    /// where the log is small, and under long keys) is atomic: after an error or a crash it is there or not.
    ///
    /// Set-id bits stay, as in [`fallocate`](Volume::fallocate); a program's capabilities are dropped.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create(InodeId::ROOT, b"file", &new_file)?.node;
    /// assert_eq!(volume.write(file, 0, b"hello world")?, 11);
    /// volume.write(file, 6, b"there")?;
    ///
    /// let mut bytes = Vec::new();
    /// volume.read(file, 0, 100, &mut bytes)?;
    /// assert_eq!(bytes, b"hello there");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::FileTooLarge`]; [`Error::NoSpace`]; [`Error::QuotaExceeded`];
    /// [`Error::Protected`]: of an append-only file also before its end. Nothing was written.
    pub fn write(&self, node: InodeId, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_pieces(node, offset, data, FlagCheck::Yes)
    }

    /// As [`Volume::write`], without a check of flags: for data that were written, say to a mapping of the
    /// file, before the flags were set, and arrive after that.
    ///
    /// # Errors
    /// As [`Volume::write`], but for [`Error::Protected`].
    pub fn write_belated(&self, node: InodeId, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_pieces(node, offset, data, FlagCheck::No)
    }

    /// Writes pages of a mapping of the file that a mount's kernel writes back: nobody waits for the answer.
    /// As [`Volume::write`], or as [`Volume::write_belated`]; but where there is no room for them, blocks
    /// that the file has are replaced with room that is otherwise kept for deletes.
    ///
    /// # Errors
    /// As there; of several pages some may be written.
    pub fn write_back(&self, node: InodeId, offset: u64, data: &[u8], is_belated: bool) -> Result<usize> {
        let check = if is_belated { FlagCheck::No } else { FlagCheck::Yes };
        let mut written = 0;
        while let Some(rest) = data.get(written..) {
            let at = offset.saturating_add(written as u64);
            match self.write_pieces(node, at, rest, check) {
                Ok(len) if len == rest.len() => break,
                Ok(len) => written += len,
                Err(error) if error.is_want_of_space() => {
                    self.replace_stored(node, at, rest, check, error)?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(data.len())
    }

    /// Writes those parts of data that replace stored blocks, for which there was no room.
    ///
    /// # Errors
    /// `refused`, if other parts are left; that of a write.
    fn replace_stored(
        &self,
        node: InodeId,
        offset: u64,
        data: &[u8],
        check: FlagCheck,
        refused: Error,
    ) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        let holes = self.holes(&self.query(OpKind::Write), node, offset, end)?;
        let mut done = if holes.is_empty() { Ok(()) } else { Err(refused) };
        let mut at = offset;
        while at < end {
            let block = at / BLOCK;
            if let Some(hole) = holes.iter().find(|hole| hole.contains(&block)) {
                at = hole.end.saturating_mul(BLOCK);
                continue;
            }
            let next_hole =
                holes.iter().map(|hole| hole.start).find(|start| *start > block).unwrap_or(u64::MAX);
            let to = (block + REPLACED_BLOCKS_MAX).min(next_hole).saturating_mul(BLOCK).min(end);
            let part = data.get((at - offset) as usize..(to - offset) as usize).unwrap_or_default();
            match self.write_piece(node, Some(at), part, check, Room::Reserve) {
                Ok((_, written)) if written > 0 => at += written as u64,
                written => {
                    done = done.and(written.map(drop));
                    at = to;
                }
            }
        }
        done
    }

    fn write_pieces(&self, node: InodeId, offset: u64, data: &[u8], check: FlagCheck) -> Result<usize> {
        let end = offset.checked_add(data.len() as u64).ok_or(Error::FileTooLarge)?;
        if end > FILE_BYTES_MAX {
            return Err(Error::FileTooLarge);
        }
        let (mut at, mut rest) = (offset, data);
        loop {
            let len = (self.piece_bytes - at % self.piece_bytes).min(rest.len() as u64);
            let piece = rest.get(..len as usize).unwrap_or(rest);
            match self.write_piece(node, Some(at), piece, check, Room::Free) {
                Ok((_, written)) => {
                    (at, rest) = (at + written as u64, rest.get(written..).unwrap_or_default());
                }
                Err(error) if at == offset => return Err(error),
                Err(_) => return Ok(data.len() - rest.len()),
            }
            if rest.is_empty() {
                return Ok(data.len());
            }
        }
    }

    /// Writes `data` at the file's end, wherever that is by then, and returns the offset and the number of
    /// bytes written: a piece as of [`write`](Volume::write), for which the caller asks again for the rest.
    /// Two appends never write to the same place.
    ///
    /// # Errors
    /// As [`write`](Volume::write).
    pub fn append(&self, node: InodeId, data: &[u8]) -> Result<(u64, usize)> {
        self.write_piece(node, None, data, FlagCheck::Yes, Room::Free)
    }

    /// Writes as much of `data` as one batch takes, at an offset or at the file's end; returns where, and the
    /// number of bytes.
    fn write_piece(
        &self,
        node: InodeId,
        offset: Option<u64>,
        data: &[u8],
        check: FlagCheck,
        room: Room,
    ) -> Result<(u64, usize)> {
        let data = data.get(..self.piece_bytes as usize).unwrap_or(data);
        let op = self.update(OpKind::Write, data.len())?;
        op.without_waiting(|| self.write_piece_in(&op, node, offset, data, (check, room)))
    }

    fn write_piece_in(
        &self,
        op: &Op<'_>,
        node: InodeId,
        offset: Option<u64>,
        data: &[u8],
        (check, room): (FlagCheck, Room),
    ) -> Result<(u64, usize)> {
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let mut state = inode.state.write();
        check_file(&state.record)?;
        let offset = offset.unwrap_or(state.record.size);
        if data.is_empty() {
            return Ok((offset, 0));
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::FileTooLarge);
        }
        if check == FlagCheck::Yes {
            refuse_overwrite(&state.record, offset)?;
        }
        let own = inode.own_key()?;
        let data = self.piece_of(&own, offset, data);
        let mut record = with_atime(&inode, &state);
        let new = self.new_blocks(op, &own, &record, offset..offset + data.len() as u64)?;
        let mut batch = Batch::with_capacity(contents_bytes(&own, data) + own.len() + 256);
        put_bytes(&mut batch, &own, record.size, (offset, data), &new, Self::asked_by(&inode, &record));
        grow(&mut record, offset, offset + data.len() as u64);
        let now_ns = self.platform.now_ns();
        (record.mtime_ns, record.ctime_ns) = (now_ns, now_ns);
        drop_capabilities(&mut batch, &inode, &mut record)?;
        if room == Room::Reserve {
            batch.mark_replacing();
        }
        let drawn = self.draw(&mut batch, &inode, offset, offset + data.len() as u64);
        if planted::is(Bug::SizeBeforeData) {
            let mut early = Batch::new();
            early.put(META, &own, &record.encode());
            op.commit(&early)?;
        }
        self.commit_record_at(&own, op, batch, &inode, &mut state, record)?;
        self.drawn(&inode, &drawn);
        Ok((offset, data.len()))
    }

    /// The blocks of which a range has a part, and which were not there before, though known damage lies over
    /// their keys. Without known damage nothing is read.
    ///
    /// # Errors
    /// Known damage lies over a block that was there. Its other bytes are lost, so nobody could read it.
    pub(super) fn new_blocks(
        &self,
        op: &Op<'_>,
        own: &[u8],
        record: &Record,
        range: Range<u64>,
    ) -> Result<Vec<u64>> {
        let mut new = Vec::new();
        if !self.env.may_have_known_damage() {
            return Ok(new);
        }
        // Blocks between these two are replaced.
        let first = (!range.start.is_multiple_of(BLOCK)).then_some(range.start / BLOCK);
        let last = (!range.end.is_multiple_of(BLOCK) && range.end < record.size).then_some(range.end / BLOCK);
        for number in [first, last].into_iter().flatten() {
            match op.get(DATA, &key::block(own, number)) {
                Err(error) if !error.is_known_damage() || record.may_have_block(number) => return Err(error),
                Err(_) => new.push(number),
                Ok(_) => {}
            }
        }
        Ok(new)
    }

    /// The part of a write that fits into a batch with the file's record: under a long key each block takes
    /// more.
    fn piece_of<'d>(&self, own: &[u8], offset: u64, data: &'d [u8]) -> &'d [u8] {
        let room = self.env.batch_bytes_max().saturating_sub(own.len() + RECORD_BYTES_MAX);
        if contents_bytes(own, data) <= room {
            return data;
        }
        let blocks = (room / (BLOCK_BYTES + own.len() + 64)).max(1);
        let len = blocks.saturating_mul(BLOCK_BYTES) - (offset % BLOCK) as usize;
        data.get(..len).unwrap_or(data)
    }

    /// Copies a range to another file, or to another place in the same file, and returns the number of bytes
    /// copied: fewer than `len` at the end that the source has at the beginning, where the caller has to ask
    /// again for the rest, and where a later piece failed. A range at the same offset in both files is shared
    /// instead of copied, as far as whole blocks go or up to the ends of both files. Set-id bits stay, as in
    /// [`fallocate`](Volume::fallocate).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let from = volume.create_with(InodeId::ROOT, b"from", &new_file, b"hello")?.node;
    /// let to = volume.create(InodeId::ROOT, b"to", &new_file)?.node;
    /// assert_eq!(volume.copy_range(from, 1, to, 0, 100)?, 4);
    ///
    /// let mut bytes = Vec::new();
    /// volume.read(to, 0, 100, &mut bytes)?;
    /// assert_eq!(bytes, b"ello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ranges overlap in one file. Nothing was copied.
    pub fn copy_range(
        &self,
        from: InodeId,
        from_offset: u64,
        to: InodeId,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let overlaps =
            from_offset < to_offset.saturating_add(len) && to_offset < from_offset.saturating_add(len);
        if from == to && overlaps {
            return Err(Error::Invalid("the ranges overlap"));
        }
        if to_offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::FileTooLarge);
        }
        if from_offset == to_offset
            && let Some(shared) = self.share_range(from, to, from_offset, len)?
        {
            return Ok(shared);
        }
        let size = {
            let inode = self.inode(from)?;
            let state = inode.state.read();
            check_file(&state.record)?;
            state.record.size
        };
        // A copy that extends its own source must not go on with what it has written.
        let len = len.min(COPY_BYTES_MAX).min(size.saturating_sub(from_offset));
        let mut done = 0;
        let mut buffer = Vec::new();
        while done < len {
            let piece = (len - done).min(self.piece_bytes) as usize;
            match self.copy_piece(from, from_offset + done, to, to_offset + done, piece, &mut buffer) {
                Ok(written) => done += written as u64,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            if buffer.len() < piece {
                break;
            }
        }
        Ok(done)
    }

    /// Copies up to `len` bytes through `buffer`, which holds no more than were copied afterwards.
    fn copy_piece(
        &self,
        from: InodeId,
        from_offset: u64,
        to: InodeId,
        to_offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<usize> {
        self.read(from, from_offset, len, buffer)?;
        if buffer.is_empty() {
            return Ok(0);
        }
        let written = self.write(to, to_offset, buffer)?;
        buffer.truncate(written);
        Ok(written)
    }
}
