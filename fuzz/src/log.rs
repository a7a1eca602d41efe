//! Segments of the log: an input is a header without its checksums, and records. It takes the place of the
//! last segment that a replay reads.

use betree_platform::BLOCK_BYTES;
use betree_sim::MemDevice;
use xxhash_rust::xxh3::xxh3_64;

use crate::volume::{VOLUME_BYTES, read_blocks, sample, write_blocks};

const MAGIC: &[u8] = b"BetrLog\x01";
/// The header without its two checksums, and with them.
const FIELDS_BYTES: usize = 64;
const HEADER_BYTES: usize = 80;
/// The most bytes of records of an input.
const RECORDS_BYTES_MAX: usize = 64 << 10;

/// Puts an input in the place of the last segment.
///
/// # Errors
/// The device's, in words.
pub fn forge(input: &[u8]) -> Result<MemDevice, String> {
    let device = sample()?;
    let all = read_blocks(&device, 0, VOLUME_BYTES as usize / BLOCK_BYTES);
    let last = places(&all).pop().ok_or("the sound volume has no log")?;
    let (fields, records) = input.split_at(input.len().min(FIELDS_BYTES));
    let mut records = records[..records.len().min(RECORDS_BYTES_MAX)].to_vec();
    // The checksum is of the zeros at the end too.
    records.resize((HEADER_BYTES + records.len()).next_multiple_of(BLOCK_BYTES) - HEADER_BYTES, 0);
    let mut segment = fields.to_vec();
    segment.resize(FIELDS_BYTES, 0);
    segment.extend_from_slice(&xxh3_64(&records).to_le_bytes());
    segment.extend_from_slice(&xxh3_64(&segment).to_le_bytes());
    segment.extend_from_slice(&records);
    write_blocks(&device, (last / BLOCK_BYTES) as u64, &segment)?;
    Ok(device)
}

/// The places of segments, in the order of their numbers.
fn places(all: &[u8]) -> Vec<usize> {
    let mut found: Vec<(u64, usize)> = all
        .chunks(BLOCK_BYTES)
        .enumerate()
        .filter(|(_, block)| block.starts_with(MAGIC))
        .map(|(number, block)| {
            let seq = block[24..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            (seq, number * BLOCK_BYTES)
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, at)| at).collect()
}

/// The segments of the sound volume.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(device) = sample() else { return Vec::new() };
    let all = read_blocks(&device, 0, VOLUME_BYTES as usize / BLOCK_BYTES);
    let example = |at: usize| {
        let segment = &all[at..];
        let len = segment[56..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        [&segment[..FIELDS_BYTES], &segment[HEADER_BYTES..HEADER_BYTES + len]].concat()
    };
    places(&all).into_iter().map(example).collect()
}
