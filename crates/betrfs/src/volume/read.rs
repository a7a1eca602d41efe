//! Reading bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::{Error, Result};
use crate::node::{Inode, State};
use crate::schema::block::{BLOCK, BLOCK_BYTES};
use crate::schema::key::DataTag;
use crate::schema::{DATA, Flags, Record, damaged, key};
use crate::types::{FileType, NodeId};
use crate::volume::Volume;
use crate::volume::op::{Op, OpKind};

const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Whether an object has bytes.
pub(super) fn check_file(record: &Record) -> Result<()> {
    match record.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("it is no file")),
    }
}

impl Volume {
    /// Replaces the contents of `out` by up to `len` bytes from `offset` on: fewer only at the end
    /// of the file.
    ///
    /// # Errors
    /// [`Error::Damaged`] where a block is missing that was not left out on purpose.
    pub fn read(&self, node: NodeId, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let op = self.query(OpKind::Read);
        let _shared = self.namespace.read();
        let inode = self.inode(node)?;
        let state = inode.state.read();
        check_file(&state.record)?;
        let end = offset.saturating_add(len as u64).min(state.record.size);
        if offset < end {
            let own = inode.own_key()?;
            let bytes = (end - offset) as usize;
            out.try_reserve(bytes).map_err(|_| betree::Error::NoMemory { bytes: bytes as u64 })?;
            out.resize(bytes, 0);
            read_blocks(&op, &own, &state.record, offset, end, out)?;
        }
        self.was_read(&inode, &state);
        Ok(())
    }

    /// Keeps the time of the last read as `relatime` does, in memory: it is put with the record's
    /// next change, and otherwise lost when the inode is dropped.
    fn was_read(&self, inode: &Arc<Inode>, state: &State) {
        let atime_ns = inode.atime_ns.load(Relaxed);
        let now_ns = self.home.now_ns();
        let is_old = atime_ns <= state.record.mtime_ns.max(state.record.ctime_ns)
            || now_ns.saturating_sub(atime_ns) >= DAY_NS;
        if is_old {
            inode.atime_ns.store(now_ns, Relaxed);
        }
    }
}

/// Reads `[offset, end)`, not past the size, into `out`, which is all zeros.
fn read_blocks(
    op: &Op<'_>,
    own: &[u8],
    record: &Record,
    offset: u64,
    end: u64,
    out: &mut [u8],
) -> Result<()> {
    let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
    let is_sparse = record.flags.has(Flags::SPARSE);
    if first == last {
        let at = key::block(own, first);
        return match op.get(DATA, &at)? {
            Some(block) => copy_block(&at, first, &block, offset, out),
            None if is_sparse => Ok(()),
            None => Err(damaged(&at, "the block is lost")),
        };
    }
    let lost = |number| Err(damaged(&key::block(own, number), "the block is lost"));
    let mut expected = first;
    let mut blocks = op.scan(DATA, key::blocks(own, first, last + 1));
    while let Some((at, block)) = blocks.next()? {
        let Some((_, DataTag::Block(number))) = key::split_data(at) else {
            return Err(damaged(at, "it is no key of a block"));
        };
        if number != expected && !is_sparse {
            return lost(expected);
        }
        copy_block(at, number, block, offset, out)?;
        expected = number + 1;
    }
    if expected <= last && !is_sparse { lost(expected) } else { Ok(()) }
}

/// Copies what a block has of the bytes from `offset` on.
fn copy_block(at: &[u8], number: u64, block: &[u8], offset: u64, out: &mut [u8]) -> Result<()> {
    if block.len() > BLOCK_BYTES {
        return Err(damaged(at, "the block is too long"));
    }
    let start = number.saturating_mul(BLOCK);
    let (to, from) = if start >= offset {
        ((start - offset) as usize, block)
    } else {
        (0, block.get((offset - start) as usize..).unwrap_or(&[]))
    };
    for (to, from) in out.iter_mut().skip(to).zip(from) {
        *to = *from;
    }
    Ok(())
}
