//! Deletes of blocks, whole or in part.

use core::ops::Range;

use betree::{Batch, PairCompression};

use crate::planted::{self, Bug};
use crate::schema::block::{self, BLOCK};
use crate::schema::{DATA, Flags, Record, key};
use crate::types::FileType;

/// Number of blocks that are deleted one by one: a range delete costs every later query.
pub(crate) const POINT_DELETES_MAX: u64 = 8;

/// Deletes the blocks `[first, end)`, the last of which is the file's last.
pub(crate) fn delete_blocks(batch: &mut Batch, own: &[u8], first: u64, end: u64) {
    if end.saturating_sub(first) > POINT_DELETES_MAX {
        let (lo, hi) = key::blocks_from(own, first);
        batch.delete_range(DATA, &lo, &hi);
    } else {
        for number in first..end {
            batch.delete(DATA, &key::block(own, number));
        }
    }
}

/// Deletes an entry's own keys in `data`.
pub(crate) fn delete_data(batch: &mut Batch, own: &[u8], record: &Record) {
    if record.file_type == FileType::Regular {
        delete_blocks(batch, own, 0, record.size.div_ceil(BLOCK));
        batch.mark_freeing(record.blocks().saturating_mul(BLOCK));
    }
    if planted::is(Bug::AttributesLeftBehind) {
        return;
    }
    if record.quota().is_some() {
        batch.delete(DATA, &key::quota_use(own));
    }
    if record.flags.has(Flags::LARGE_XATTRS) {
        let (lo, hi) = key::xattrs(own);
        batch.delete_range(DATA, &lo, &hi);
    }
}

/// Makes `[from, end)` read as zeros; `end` is not past the size. The blocks that keep a part ask for a
/// compression. Returns the range of the blocks deleted
/// whole: its first block, and the one behind it.
pub(crate) fn punch(
    batch: &mut Batch,
    own: &[u8],
    size: u64,
    Range { start: from, end }: Range<u64>,
    asked: PairCompression,
) -> (u64, u64) {
    // Whole blocks are deleted; the last block of the file counts as whole up to the size.
    let first = from.div_ceil(BLOCK);
    let after = if end == size { size.div_ceil(BLOCK) } else { end / BLOCK };
    batch.compress_as(asked);
    let mut zero = |at: u64, to: u64| {
        if at < to {
            let delta = block::zero((at % BLOCK) as usize, (to - at) as usize);
            batch.upsert(DATA, &key::block(own, at / BLOCK), &delta);
        }
    };
    zero(from, end.min(first.saturating_mul(BLOCK)));
    if first <= after && after.saturating_mul(BLOCK) < end {
        zero(after * BLOCK, end);
    }
    batch.compress_as(PairCompression::Usual);
    if first < after {
        if after == size.div_ceil(BLOCK) {
            delete_blocks(batch, own, first, after);
        } else {
            let (lo, hi) = key::blocks(own, first, after);
            batch.delete_range(DATA, &lo, &hi);
        }
    }
    (first, after)
}
