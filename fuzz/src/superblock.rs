//! Superblocks: an input is one without its checksum. It takes the place of both copies of a generation: of
//! those slots in which its own number belongs.

use betree_platform::BLOCK_BYTES;
use betree_sim::MemDevice;
use xxhash_rust::xxh3::xxh3_64;

use crate::volume::{read_blocks, sample, write_blocks};

const CHECKSUM_BYTES: usize = 8;
/// The place of the generation.
const GENERATION_AT: usize = 32;

/// Puts an input in the place of superblocks.
///
/// # Errors
/// The device's, in words.
pub fn forge(input: &[u8]) -> Result<MemDevice, String> {
    let device = sample()?;
    let mut block = vec![0; BLOCK_BYTES];
    let len = input.len().min(BLOCK_BYTES - CHECKSUM_BYTES);
    block[..len].copy_from_slice(&input[..len]);
    let sum = xxh3_64(&block[..BLOCK_BYTES - CHECKSUM_BYTES]);
    block[BLOCK_BYTES - CHECKSUM_BYTES..].copy_from_slice(&sum.to_le_bytes());
    let first = 2 * u64::from(block[GENERATION_AT] & 1);
    (first..first + 2).try_for_each(|slot| write_blocks(&device, slot, &block))?;
    Ok(device)
}

/// The superblocks of the sound volume.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(device) = sample() else { return Vec::new() };
    let used = |copy| {
        let block = read_blocks(&device, copy, 1);
        block[..BLOCK_BYTES / 3].to_vec()
    };
    vec![used(0), used(2)]
}
