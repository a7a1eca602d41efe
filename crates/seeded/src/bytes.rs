//! Contents of files, computed again for checks.

use crate::{GOLDEN_RATIO, mix};

const WORD_BYTES: u64 = 8;

/// `len` bytes at `offset` of the endless text of a seed. No part of it compresses, and every part is made
/// without the text before it.
pub fn bytes(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let skip = (offset % WORD_BYTES) as usize;
    let first = offset / WORD_BYTES;
    let words = (skip + len).div_ceil(WORD_BYTES as usize);
    let mut out = Vec::with_capacity(words * WORD_BYTES as usize);
    let seed = mix(seed);
    for word in first..first + words as u64 {
        out.extend_from_slice(&mix(seed.wrapping_add(word.wrapping_mul(GOLDEN_RATIO))).to_le_bytes());
    }
    out.drain(..skip);
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_text_is_the_same_as_of_the_whole() {
        let whole = bytes(7, 0, 1000);
        for (offset, len) in [(0, 1000), (1, 999), (8, 8), (13, 1), (17, 500), (999, 1), (500, 0)] {
            assert_eq!(bytes(7, offset as u64, len), whole[offset..offset + len], "{len} from {offset}");
        }
        assert_ne!(bytes(8, 0, 1000), whole);
    }

    /// Computed apart from this code.
    #[test]
    fn a_seed_has_the_same_text_for_ever() {
        let text =
            [0x87, 0xe7, 0x70, 0xa6, 0x38, 0x9f, 0x8b, 0xb7, 0x4f, 0xbd, 0x0a, 0x4c, 0x1f, 0x89, 0x3b, 0x86];
        assert_eq!(bytes(7, 0, 16), text);
    }
}
