//! Runs: an input is the number of one, and its contents before compression.

use betree_sim::MemDevice;

use crate::structures::Image;

/// Puts an input in the place of a run.
///
/// # Errors
/// Why the sound volume has none; the device's, in words.
pub fn forge(input: &[u8]) -> Result<MemDevice, String> {
    let mut image = Image::sound()?;
    let Some((chosen, raw)) = input.split_first() else { return image.device() };
    let runs = image.runs();
    let (node, run) = runs.get(usize::from(*chosen) % runs.len().max(1)).ok_or("no run")?;
    image.put_run(node, run, raw);
    image.device()
}

/// The runs of the sound volume.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(image) = Image::sound() else { return Vec::new() };
    let runs = image.runs();
    let numbered = runs.iter().zip(0..=u8::MAX);
    numbered.map(|((node, run), chosen)| [&[chosen], &image.run(node, run)[..]].concat()).collect()
}
