//! Runs: an input is the number of one, and its contents before compression.

use crate::image::Image;
use crate::volume::use_all;

/// Uses a volume with such an input.
///
/// # Errors
/// What is wrong.
pub fn try_input(input: &[u8]) -> Result<(), String> {
    use_all(forge(input)?.device()?)
}

/// Puts an input in the place of a run.
///
/// # Errors
/// Why the sound volume has none.
pub fn forge(input: &[u8]) -> Result<Image, String> {
    let mut image = Image::sound()?;
    let Some((chosen, raw)) = input.split_first() else { return Ok(image) };
    let runs = image.runs();
    let (node, run) = runs.get(usize::from(*chosen) % runs.len().max(1)).ok_or("no run")?;
    image.put_run(node, run, raw);
    Ok(image)
}

/// The runs of the sound volume.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(image) = Image::sound() else { return Vec::new() };
    let runs = image.runs();
    let numbered = runs.iter().zip(0..=u8::MAX);
    numbered.map(|((node, run), chosen)| [&[chosen], &image.run(node, run)[..]].concat()).collect()
}
