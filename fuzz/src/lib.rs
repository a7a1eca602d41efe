//! Fuzz targets: functions that take any bytes, and must neither panic, nor run for ever, nor take more
//! memory than the bound of [`volume`]. Numbers in a volume come with checksums that fit.
//!
//! A [`Target`] has a corpus, the files of a folder in `fuzz/corpus/`. [`runner::run`] changes inputs of the
//! corpus at random, without feedback from the code that an input reaches.
#![forbid(unsafe_code)]

pub mod header;
pub mod image;
pub mod log;
pub mod mutate;
pub mod page;
pub mod pairs;
pub mod requests;
pub mod run;
pub mod runner;
pub mod structures;
pub mod superblock;
pub mod volume;

use betree_sim::MemDevice;

/// What is fuzzed: a module of this name.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// What an input is for.
    pub input: Input,
    /// Inputs made by the program, from which the corpus began.
    pub examples: fn() -> Vec<Vec<u8>>,
}

/// What an input of a target is for.
#[derive(Clone, Copy)]
pub enum Input {
    /// It forges a part of the sound volume, which is then used in every way.
    Volume(fn(&[u8]) -> Result<MemDevice, String>),
    /// The function takes it, and returns what is wrong.
    Other(fn(&[u8]) -> Result<(), String>),
}

impl Target {
    /// Takes an input.
    ///
    /// # Errors
    /// What is wrong.
    pub fn try_input(&self, input: &[u8]) -> Result<(), String> {
        match self.input {
            Input::Volume(forge) => volume::use_all(forge(input)?),
            Input::Other(try_input) => try_input(input),
        }
    }
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    Target { name: "superblock", input: Input::Volume(superblock::forge), examples: superblock::examples },
    Target { name: "log", input: Input::Volume(log::forge), examples: log::examples },
    Target { name: "page", input: Input::Volume(page::forge), examples: page::examples },
    Target { name: "header", input: Input::Volume(header::forge), examples: header::examples },
    Target { name: "run", input: Input::Volume(run::forge), examples: run::examples },
    Target { name: "image", input: Input::Volume(image::forge), examples: image::examples },
    Target { name: "pairs", input: Input::Volume(pairs::forge), examples: pairs::examples },
    Target { name: "requests", input: Input::Other(requests::try_input), examples: requests::examples },
];
