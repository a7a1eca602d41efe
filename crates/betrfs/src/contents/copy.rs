//! Copies of an entry's keys in `data`.

use betree::Batch;

use super::POINT_DELETES_MAX;
use crate::error::Result;
use crate::op::Op;
use crate::schema::block::BLOCK;
use crate::schema::{DATA, Flags, Record, key};
use crate::types::FileType;

/// Copies an entry's own keys in `data`; a few blocks are copied one by one.
pub(crate) fn copy_data(
    op: &Op<'_>,
    batch: &mut Batch,
    record: &Record,
    from: &[u8],
    to: &[u8],
) -> Result<()> {
    if record.flags.has(Flags::LARGE_XATTRS) {
        batch.clone_range(DATA, &key::xattr(from, b""), &key::xattr(to, b""));
    }
    if record.file_type != FileType::Regular || record.size == 0 {
        return Ok(());
    }
    let is_small = record.size <= POINT_DELETES_MAX * BLOCK;
    match if is_small { op.blocks_to_move(from)? } else { None } {
        Some(blocks) => blocks.iter().for_each(|(rest, block)| batch.put(DATA, &[to, rest].concat(), block)),
        None => batch.clone_range(DATA, &key::all_blocks(from), &key::all_blocks(to)),
    }
    Ok(())
}
