//! Fuzz targets: functions that take any bytes, and must neither panic, nor run for ever, nor take more
//! memory than the bound of [`volume`]. Numbers in a volume come with checksums that fit.
//!
//! A [`Target`] has a corpus, the files of a folder in `fuzz/corpus/`. [`run::run`] changes inputs of the
//! corpus at random, without feedback from the code that an input reaches.
#![forbid(unsafe_code)]

pub mod edits;
pub mod headers;
pub mod image;
pub mod log;
pub mod mutate;
pub mod pairs;
pub mod requests;
pub mod run;
pub mod runs;
pub mod superblock;
pub mod tables;
pub mod volume;

/// What is fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Takes an input; returns what is wrong.
    pub try_input: fn(&[u8]) -> Result<(), String>,
    /// Inputs made by the program, from which the corpus began.
    pub examples: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    Target { name: "superblock", try_input: superblock::try_input, examples: superblock::examples },
    Target { name: "log", try_input: log::try_input, examples: log::examples },
    Target { name: "page", try_input: tables::try_input, examples: tables::examples },
    Target { name: "header", try_input: headers::try_input, examples: headers::examples },
    Target { name: "run", try_input: runs::try_input, examples: runs::examples },
    Target { name: "image", try_input: edits::try_input, examples: edits::examples },
    Target { name: "pairs", try_input: pairs::try_input, examples: pairs::examples },
    Target { name: "requests", try_input: requests::try_input, examples: requests::examples },
];
