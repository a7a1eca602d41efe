//! The node table: an input is a page or the directory, told apart by the magic. A page takes the place of
//! the one with its index.

use crate::image::Image;
use crate::volume::use_all;

const DIRECTORY_MAGIC: &[u8] = b"btdi";

/// Uses a volume with such an input.
///
/// # Errors
/// What is wrong.
pub fn try_input(input: &[u8]) -> Result<(), String> {
    use_all(forge(input)?.device()?)
}

/// Puts an input in the place of a page or the directory.
///
/// # Errors
/// Why the sound volume has none.
pub fn forge(input: &[u8]) -> Result<Image, String> {
    let mut image = Image::sound()?;
    if input.starts_with(DIRECTORY_MAGIC) {
        image.put_directory(input);
        return Ok(image);
    }
    let wanted = input.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |at| u32::from_le_bytes(*at));
    let indices = image.page_indices();
    let index = if indices.contains(&wanted) { wanted } else { *indices.first().ok_or("no page")? };
    image.put_page(index, input);
    Ok(image)
}

/// The directory and the pages of the sound volume.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(image) = Image::sound() else { return Vec::new() };
    let pages = image.page_indices().into_iter().map(|index| image.page(index));
    std::iter::once(image.directory()).chain(pages).collect()
}
