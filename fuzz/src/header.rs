//! Headers of nodes: an input is one behind its checksum. It takes the place of the node in the slot that it
//! names.

use betree_sim::MemDevice;

use crate::structures::{HEADER_FRONT_BYTES, Image};

/// The place of the slot in an input.
const SLOT_AT: usize = 40 - HEADER_FRONT_BYTES;

/// Puts an input in the place of a header.
///
/// # Errors
/// Why the sound volume has none; the device's, in words.
pub fn forge(input: &[u8]) -> Result<MemDevice, String> {
    let mut image = Image::sound()?;
    let slot =
        input.get(SLOT_AT..).and_then(|rest| rest.first_chunk()).map_or(0, |at| u32::from_le_bytes(*at));
    let named = image.nodes.iter().find(|node| node.slot == slot);
    let node = named.or_else(|| image.nodes.get(slot as usize % image.nodes.len().max(1)));
    let node = node.cloned().ok_or("no node")?;
    image.put_header(&node, input);
    image.device()
}

/// The headers of the sound volume.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(image) = Image::sound() else { return Vec::new() };
    image.nodes.iter().map(|node| image.header(node)).collect()
}
