//! The unit of allocation.

/// Blocks in a row, counted from the volume's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockRange {
    pub start_block: u64,
    pub len_blocks: u64,
}
