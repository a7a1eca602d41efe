//! Whole small images: an input is a list of edits (kind of a structure, its number, first byte as u16,
//! length, bytes) of the sound volume. So several structures are forged at once, and agree in part.

use betree_sim::MemDevice;

use crate::structures::Image;

const SUPERBLOCK: u8 = 0;
const DIRECTORY: u8 = 1;
const PAGE: u8 = 2;
const HEADER: u8 = 3;
const RUN: u8 = 4;
const KINDS: u8 = 5;
/// The most edits of an input.
const EDITS_MAX: usize = 16;

/// Makes the edits of an input, one after the other.
///
/// # Errors
/// Why the sound volume was not read; the device's, in words.
pub fn forge(input: &[u8]) -> Result<MemDevice, String> {
    let mut image = Image::sound()?;
    let mut rest = input;
    for _ in 0..EDITS_MAX {
        let Some(([kind, chosen, low, high, len], after)) = rest.split_first_chunk() else { break };
        let (bytes, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        edit(&mut image, kind % KINDS, usize::from(*chosen), |whole| {
            let Some(at) = at.checked_rem(whole.len()) else { return };
            let end = whole.len().min(at + bytes.len());
            whole[at..end].copy_from_slice(&bytes[..end - at]);
        });
    }
    image.device()
}

/// Changes a structure, found by a number that may be too large.
fn edit(image: &mut Image, kind: u8, chosen: usize, change: impl Fn(&mut [u8])) {
    match kind {
        SUPERBLOCK => {
            // Both copies of a generation.
            for copy in [chosen % 2 * 2, chosen % 2 * 2 + 1] {
                let mut bytes = image.superblock(copy);
                change(&mut bytes);
                image.put_superblock(copy, &bytes);
            }
        }
        DIRECTORY => {
            let mut bytes = image.directory();
            change(&mut bytes);
            image.put_directory(&bytes);
        }
        PAGE => {
            let indices = image.page_indices();
            let Some(index) = indices.get(chosen % indices.len().max(1)) else { return };
            let mut bytes = image.page(*index);
            change(&mut bytes);
            image.put_page(*index, &bytes);
        }
        HEADER => {
            let Some(node) = image.nodes.get(chosen % image.nodes.len().max(1)).cloned() else { return };
            let mut bytes = image.header(&node);
            change(&mut bytes);
            image.put_header(&node, &bytes);
        }
        _ => {
            let runs = image.runs();
            let Some((node, run)) = runs.get(chosen % runs.len().max(1)) else { return };
            let mut bytes = image.run(node, run);
            change(&mut bytes);
            image.put_run(node, run, &bytes);
        }
    }
}

/// One edit of each kind, and all of them.
pub fn examples() -> Vec<Vec<u8>> {
    let edits: [&[u8]; 5] = [
        // The next MSN; the references to the first node; the count of entries; a byte within a key.
        &[SUPERBLOCK, 1, 80, 0, 2, 255, 255],
        &[DIRECTORY, 0, 8, 0, 4, 2, 0, 0, 0],
        &[PAGE, 0, 44, 0, 4, 9, 0, 0, 0],
        &[HEADER, 1, 36, 0, 1, 2],
        &[RUN, 0, 14, 0, 2, 7, 7],
    ];
    edits.iter().map(|edit| edit.to_vec()).chain([edits.concat()]).collect()
}
