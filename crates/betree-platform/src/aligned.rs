//! Buffers aligned for direct I/O.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_BYTES;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// A zeroed buffer of whole blocks that begins at a block boundary in memory.
pub struct AlignedBuf {
    blocks: Vec<Block>,
}

impl AlignedBuf {
    /// A buffer of at least `len` bytes.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn of_bytes(len: usize) -> Result<AlignedBuf, TryReserveError> {
        let count = len.div_ceil(BLOCK_BYTES);
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(count)?;
        blocks.resize(count, Block::new_zeroed());
        Ok(AlignedBuf { blocks })
    }

    /// The buffer's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.blocks.as_slice().as_bytes()
    }

    /// The buffer's bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.blocks.as_mut_slice().as_mut_bytes()
    }
}

/// Whether direct I/O takes this buffer as it is.
pub fn is_aligned(buf: &[u8]) -> bool {
    buf.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_block_boundaries_and_hold_whole_blocks() {
        for (len, whole) in [(0, 0), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
            let mut buf = AlignedBuf::of_bytes(len).unwrap();
            assert_eq!(buf.bytes().len(), whole);
            assert!(is_aligned(buf.bytes_mut()));
            assert!(buf.bytes().iter().all(|b| *b == 0));
        }
        let buf = AlignedBuf::of_bytes(4096).unwrap();
        assert!(!is_aligned(&buf.bytes()[1..]));
    }
}
