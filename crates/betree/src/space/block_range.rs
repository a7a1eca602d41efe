//! The unit of allocation.

/// Blocks in a row, counted from the volume's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub start_block: u64,
    /// The number of blocks.
    pub len_blocks: u64,
}
