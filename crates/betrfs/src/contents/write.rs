//! From bytes to blocks, in batches without a query.

use betree::{Batch, PairCompression};

use super::delete_blocks;
use crate::planted::{self, Bug};
use crate::schema::block::{self, BLOCK, BLOCK_BYTES};
use crate::schema::{DATA, Record, key};

/// Bytes that a file's data take in a batch, about.
pub(crate) fn contents_bytes(own: &[u8], data: &[u8]) -> usize {
    data.len() + (data.len() / BLOCK_BYTES + 2) * (own.len() + 64)
}

/// Adds the bytes at `offset` to a file of `size` bytes; they ask for a compression. The blocks in `new` have
/// no other bytes.
pub(crate) fn put_bytes(
    batch: &mut Batch,
    own: &[u8],
    size: u64,
    (offset, data): (u64, &[u8]),
    new: &[u64],
    asked: PairCompression,
) {
    batch.compress_as(asked);
    let (mut at, mut rest) = (offset, data);
    while !rest.is_empty() {
        let number = at / BLOCK;
        let within = (at % BLOCK) as usize;
        let (bytes, after) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
        let block_key = key::block(own, number);
        let end = at + bytes.len() as u64;
        if within == 0 && (bytes.len() == BLOCK_BYTES || end >= size) {
            batch.put(DATA, &block_key, bytes);
        } else if new.contains(&number) {
            let mut whole = alloc::vec![0; within];
            whole.extend_from_slice(bytes);
            batch.put(DATA, &block_key, &whole);
        } else {
            batch.upsert(DATA, &block_key, &block::write(within, bytes));
        }
        (at, rest) = (end, after);
    }
    batch.compress_as(PairCompression::Usual);
}

/// Extends a file to `end` at least; all its blocks from `from` to `end` exist.
pub(crate) fn grow(record: &mut Record, from: u64, end: u64) {
    if record.is_sparse() || from / BLOCK > record.size.div_ceil(BLOCK) {
        record.make_sparse().add(from / BLOCK, end.div_ceil(BLOCK));
    }
    record.size = record.size.max(end);
}

/// Sets the size: blocks beyond it are deleted, and added bytes are a hole. A block that is cut asks for a
/// compression.
pub(crate) fn resize(batch: &mut Batch, own: &[u8], record: &mut Record, size: u64, asked: PairCompression) {
    let (blocks, old_blocks) = (size.div_ceil(BLOCK), record.size.div_ceil(BLOCK));
    if size < record.size {
        let within = (size % BLOCK) as usize;
        if within != 0 && !planted::is(Bug::CutBytesKept) {
            batch.compress_as(asked);
            batch.upsert(DATA, &key::block(own, size / BLOCK), &block::cut(within));
            batch.compress_as(PairCompression::Usual);
        }
        delete_blocks(batch, own, blocks, old_blocks);
        if record.is_sparse() {
            record.make_sparse().remove(blocks, old_blocks);
        }
    } else if blocks > old_blocks {
        record.make_sparse();
    }
    if size == 0 {
        record.make_dense();
    }
    record.size = size;
}
