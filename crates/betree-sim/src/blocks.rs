//! Sparse storage by blocks, cheap to copy.

use std::collections::HashMap;
use std::sync::Arc;

use betree_platform::BLOCK_BYTES;

/// The contents of one block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// Blocks by their number; one that was never written is all zeros. Copies share contents until
/// they are written.
#[derive(Clone, Default)]
pub(crate) struct Blocks {
    written: HashMap<u64, Arc<Block>>,
}

impl Blocks {
    pub fn get(&self, number: u64) -> Option<&Arc<Block>> {
        self.written.get(&number)
    }

    pub fn clear(&mut self, number: u64) {
        self.written.remove(&number);
    }

    /// Copies a block into a buffer of its size.
    pub fn read(&self, number: u64, buf: &mut [u8]) {
        match self.get(number) {
            Some(block) => buf.copy_from_slice(block.as_slice()),
            None => buf.fill(0),
        }
    }

    /// Copies a buffer of a block's size into a block, in place where no copy shares it.
    pub fn write(&mut self, number: u64, buf: &[u8]) {
        let block = self.written.entry(number).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
        Arc::make_mut(block).copy_from_slice(buf);
    }

    /// The numbers of the blocks that were written, ascending.
    pub fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.written.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}

/// The numbers of the blocks of a byte range.
pub(crate) fn numbers_of(offset: u64, len: u64) -> std::ops::Range<u64> {
    let block = BLOCK_BYTES as u64;
    offset / block..(offset + len).div_ceil(block)
}
