//! From blocks to bytes.

use alloc::vec::Vec;

use crate::error::Result;
use crate::op::Op;
use crate::schema::block::{BLOCK, BLOCK_BYTES};
use crate::schema::key::DataTag;
use crate::schema::{DATA, Record, damaged, key};

/// Fills `out` with the bytes at `offset`. `out` is not empty and does not reach past the size.
pub(crate) fn read_blocks(
    op: &Op<'_>,
    own: &[u8],
    record: &Record,
    offset: u64,
    out: &mut [u8],
) -> Result<()> {
    let (first, last) = (offset / BLOCK, (offset + out.len() as u64 - 1) / BLOCK);
    let mut filled = 0;
    if first == last {
        let at = key::block(own, first);
        let block = read_block(op, &at, record)?;
        copy_block(&at, first, &block, offset, out, &mut filled)?;
        fill_up(out, filled);
        return Ok(());
    }
    match read_by_scan(op, own, record, (offset, first, last), out) {
        // What was written over known damage stands between lost keys, which a scan does not pass.
        Err(error) if error.is_known_damage() => {}
        scanned => return scanned,
    }
    for number in first..=last {
        let at = key::block(own, number);
        let block = read_block(op, &at, record)?;
        copy_block(&at, number, &block, offset, out, &mut filled)?;
    }
    fill_up(out, filled);
    Ok(())
}

/// As [`read_blocks`], by a scan of the blocks from `first` to `last`.
fn read_by_scan(
    op: &Op<'_>,
    own: &[u8],
    record: &Record,
    (offset, first, last): (u64, u64, u64),
    out: &mut [u8],
) -> Result<()> {
    let is_sparse = record.is_sparse();
    let lost = |number| Err(damaged(&key::block(own, number), "the block is lost"));
    let (mut expected, mut filled) = (first, 0);
    let (from, to) = key::blocks(own, 0, record.size.div_ceil(BLOCK));
    // A step for each block, and one that finds the end.
    let steps = (last - first + 2) as usize;
    let mut blocks = op.scan_of_whole(DATA, key::blocks(own, first, last + 1), Some((from, to)), steps);
    while let Some((at, block)) = blocks.next()? {
        let Some((_, DataTag::Block(number))) = key::split_data(at) else {
            return Err(damaged(at, "it is no key of a block"));
        };
        if number != expected && !is_sparse {
            return lost(expected);
        }
        copy_block(at, number, block, offset, out, &mut filled)?;
        expected = number + 1;
    }
    if expected <= last && !is_sparse {
        return lost(expected);
    }
    fill_up(out, filled);
    Ok(())
}

/// A block as it is stored, perhaps short: the rest reads as zeros. In a hole it is empty.
pub(crate) fn read_block(op: &Op<'_>, at: &[u8], record: &Record) -> Result<Vec<u8>> {
    match op.get(DATA, at)? {
        Some(block) if block.len() > BLOCK_BYTES => Err(damaged(at, "the block is too long")),
        Some(block) => Ok(block),
        None if record.is_sparse() => Ok(Vec::new()),
        None => Err(damaged(at, "the block is lost")),
    }
}

/// Fills the rest of `out` with zeros.
fn fill_up(out: &mut [u8], filled: usize) {
    out.iter_mut().skip(filled).for_each(|byte| *byte = 0);
}

/// Copies a block's bytes from `offset` on. The bytes between `filled` and the block are in a hole, or behind
/// a block stored short, and become zeros; `filled` then is behind the copied bytes.
fn copy_block(
    at: &[u8],
    number: u64,
    block: &[u8],
    offset: u64,
    out: &mut [u8],
    filled: &mut usize,
) -> Result<()> {
    if block.len() > BLOCK_BYTES {
        return Err(damaged(at, "the block is too long"));
    }
    let start = number.saturating_mul(BLOCK);
    let (to, from) = if start >= offset {
        ((start - offset) as usize, block)
    } else {
        (0, block.get((offset - start) as usize..).unwrap_or(&[]))
    };
    let (before, room) = out.split_at_mut_checked(to).unwrap_or_default();
    fill_up(before, *filled);
    let len = from.len().min(room.len());
    if let (Some(room), Some(from)) = (room.get_mut(..len), from.get(..len)) {
        room.copy_from_slice(from);
    }
    *filled = to + len;
    Ok(())
}
