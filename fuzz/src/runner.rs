//! Runs: inputs from the corpus and from seeds, each within its bounds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use betree_sim::harness::guarded;
use seeded::Rng;

use crate::Target;
use crate::mutate::mutate;
use crate::volume::MEMORY_BYTES_MAX;

/// The corpus of a target, in the order of its files' names.
///
/// # Errors
/// The operating system's.
pub fn corpus(target: &Target) -> std::io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder(target))? {
        paths.push(entry?.path());
    }
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// The folder of a target's corpus.
pub fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Tries an input, which must neither panic nor run for longer than a minute.
///
/// # Errors
/// What is wrong.
pub fn try_guarded(target: &Target, input: &[u8], what: &str) -> Result<(), String> {
    guarded(what, || target.try_input(input))
}

/// Tries inputs of these seeds until the time is over; returns how many.
///
/// # Errors
/// The first that is wrong, with its seed.
pub fn run(target: &Target, seeds: std::ops::Range<u64>, time: Duration) -> Result<u64, String> {
    let corpus = corpus(target).map_err(|error| format!("the corpus of {}: {error}", target.name))?;
    let begun = Instant::now();
    let before = memory_peak_bytes();
    let mut tried = 0;
    for seed in seeds {
        if begun.elapsed() >= time {
            break;
        }
        let input = mutate(&mut Rng::new(seed), &corpus);
        let what = format!("{} --seed {seed}", target.name);
        try_guarded(target, &input, &what).map_err(|why| format!("{what}: {why}"))?;
        let taken = memory_peak_bytes().saturating_sub(before);
        if taken > MEMORY_BYTES_MAX {
            return Err(format!("{what}: {taken} bytes of memory, {MEMORY_BYTES_MAX} at most"));
        }
        tried += 1;
    }
    Ok(tried)
}

/// The most memory that the process has had so far; 0 where the system does not tell.
pub fn memory_peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
