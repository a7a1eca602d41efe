//! The scale of workloads and the format of results.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The amount of work of each workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// A few seconds in all, to see that everything works
    Tiny,
    /// A quarter of the data in a quarter of the memory
    Quarter,
    /// The amount of the published figures
    Full,
}

impl Scale {
    /// The value for this scale; a quarter has that of the full scale.
    pub fn pick<T>(self, tiny: T, full: T) -> T {
        match self {
            Scale::Tiny => tiny,
            Scale::Quarter | Scale::Full => full,
        }
    }

    /// The amount for this scale; a quarter has a quarter of the full scale's.
    pub fn part(self, tiny: u64, full: u64) -> u64 {
        match self {
            Scale::Quarter => full / 4,
            Scale::Tiny | Scale::Full => self.pick(tiny, full),
        }
    }

    /// The memory limit in bytes, given that of the full scale.
    pub fn memory_bytes(self, full_bytes: u64) -> u64 {
        match self {
            // With less, the programs themselves do not fit.
            Scale::Quarter => (full_bytes / 4).max(256 << 20),
            Scale::Tiny | Scale::Full => full_bytes,
        }
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// A table, for people
    Text,
    /// One JSON document, for programs
    Json,
}
