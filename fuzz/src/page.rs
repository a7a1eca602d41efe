//! The node table: an input is a page or the directory, told apart by the magic. A page takes the place of
//! the one with its index.

use betree_sim::MemDevice;

use crate::structures::Image;

const DIRECTORY_MAGIC: &[u8] = b"btdi";

/// Puts an input in the place of a page or the directory.
///
/// # Errors
/// Why the sound volume has none; the device's, in words.
pub fn forge(input: &[u8]) -> Result<MemDevice, String> {
    let mut image = Image::sound()?;
    if input.starts_with(DIRECTORY_MAGIC) {
        image.put_directory(input);
        return image.device();
    }
    let wanted = input.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |at| u32::from_le_bytes(*at));
    let indices = image.page_indices();
    let index = if indices.contains(&wanted) { wanted } else { *indices.first().ok_or("no page")? };
    image.put_page(index, input);
    image.device()
}

/// The directory and the pages of the sound volume.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(image) = Image::sound() else { return Vec::new() };
    let pages = image.page_indices().into_iter().map(|index| image.page(index));
    std::iter::once(image.directory()).chain(pages).collect()
}
