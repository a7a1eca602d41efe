//! Copies of an entry's keys in `data`.

use alloc::vec::Vec;

use betree::Batch;

use super::POINT_DELETES_MAX;
use crate::error::Result;
use crate::op::Op;
use crate::schema::block::BLOCK;
use crate::schema::{DATA, Flags, Record, XattrValue, key};
use crate::types::FileType;

/// Copies an entry's own keys in `data`; a few blocks are copied one by one.
pub(crate) fn copy_data(
    op: &Op<'_>,
    batch: &mut Batch,
    record: &Record,
    from: &[u8],
    to: &[u8],
) -> Result<()> {
    let is_small = record.file_type == FileType::Regular && record.size <= POINT_DELETES_MAX * BLOCK;
    match if is_small && record.size > 0 { op.blocks_to_move(from)? } else { None } {
        Some(blocks) => {
            clone_xattrs(batch, record, from, to);
            blocks.iter().for_each(|(rest, block)| batch.put(DATA, &[to, rest].concat(), block));
        }
        None => clone_data(batch, record, from, to),
    }
    Ok(())
}

/// As [`copy_data`], and reads nothing: blocks that cannot be read come along.
pub(crate) fn clone_data(batch: &mut Batch, record: &Record, from: &[u8], to: &[u8]) {
    clone_xattrs(batch, record, from, to);
    if record.file_type == FileType::Regular && record.size > 0 {
        batch.clone_range(DATA, &key::all_blocks(from), &key::all_blocks(to));
    }
}

/// As [`copy_data`], of a small file, block by block and attribute by attribute: what cannot be read is left
/// out, so that reading it from the copy is an error too. The record is the copy's. Tells whether the file is
/// small enough.
pub(crate) fn copy_readable(
    op: &Op<'_>,
    batch: &mut Batch,
    record: &mut Record,
    from: &[u8],
    to: &[u8],
) -> Result<bool> {
    if record.size > POINT_DELETES_MAX * BLOCK {
        return Ok(false);
    }
    let (mut holes, mut is_lost) = (Vec::new(), false);
    let blocks = if record.file_type == FileType::Regular { record.size.div_ceil(BLOCK) } else { 0 };
    for number in 0..blocks {
        match readable(op.get(DATA, &key::block(from, number)))? {
            Some(Some(block)) => batch.put(DATA, &key::block(to, number), &block),
            Some(None) => holes.push(number),
            None => is_lost = true,
        }
    }
    if is_lost && record.is_sparse() {
        // An absent block would be a hole. An empty one reads as zeros.
        record.make_dense();
        holes.iter().for_each(|number| batch.put(DATA, &key::block(to, *number), &[]));
    }
    for attr in record.xattrs.iter().filter(|attr| matches!(attr.value, XattrValue::Stored(_))) {
        if let Some(Some(value)) = readable(op.get(DATA, &key::xattr(from, &attr.name)))? {
            batch.put(DATA, &key::xattr(to, &attr.name), &value);
        }
    }
    Ok(true)
}

/// What was read; `None` of what was lost.
fn readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_loss() => Ok(None),
        read => read.map(Some),
    }
}

fn clone_xattrs(batch: &mut Batch, record: &Record, from: &[u8], to: &[u8]) {
    if record.flags.has(Flags::LARGE_XATTRS) {
        batch.clone_range(DATA, &key::xattr(from, b""), &key::xattr(to, b""));
    }
}
