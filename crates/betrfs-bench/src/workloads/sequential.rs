//! Sequential writing and reading of a large file.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Result, ensure};

use super::Workload;

const NAME: &str = "large";
const MIB: usize = 1 << 20;
const BLOCK_BYTES: usize = 4096;

/// The bytes of a file, a MiB at a time: each block differs, and none compresses. They cost next to nothing,
/// because making them is timed.
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// The source of all parts.
    pub fn new() -> Pattern {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let words = (0..MIB / 8).flat_map(|_| {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        Pattern(words.collect())
    }

    /// The n-th MiB.
    pub fn mib(&mut self, number: u64) -> &[u8] {
        for block in self.0.chunks_exact_mut(BLOCK_BYTES) {
            block[..8].copy_from_slice(&number.to_le_bytes());
        }
        &self.0
    }
}

/// Makes a file.
pub fn fill(path: &Path, mib: u64) -> Result<()> {
    let mut pattern = Pattern::new();
    // Opened as by dd and cp.
    let mut file = File::options().write(true).create_new(true).open(path)?;
    for number in 0..mib {
        file.write_all(pattern.mib(number))?;
    }
    Ok(file.sync_all()?)
}

/// Fails unless a file is as [`fill`] made it.
pub fn verify(path: &Path, mib: u64) -> Result<()> {
    let mut pattern = Pattern::new();
    let mut file = File::open(path)?;
    let mut piece = vec![0; MIB];
    for number in 0..mib {
        file.read_exact(&mut piece)?;
        ensure!(piece == pattern.mib(number), "MiB {number} is wrong");
    }
    ensure!(file.read(&mut piece)? == 0, "it is too long");
    Ok(())
}

/// Writes 1 MiB a call.
pub struct Write {
    /// The file's size in MiB.
    pub mib: u64,
}

impl Workload for Write {
    fn name(&self) -> &'static str {
        "write"
    }

    fn about(&self) -> String {
        format!("write a file of {} MiB in order", self.mib)
    }

    fn writes(&self) -> bool {
        true
    }

    fn run(&self, dir: &Path) -> Result<()> {
        fill(&dir.join(NAME), self.mib)
    }

    fn check(&self, dir: &Path) -> Result<()> {
        verify(&dir.join(NAME), self.mib)
    }
}

/// Reads 1 MiB a call.
pub struct Read {
    /// The file's size in MiB.
    pub mib: u64,
}

impl Workload for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn about(&self) -> String {
        format!("read a file of {} MiB in order, cold", self.mib)
    }

    fn writes(&self) -> bool {
        false
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        fill(&dir.join(NAME), self.mib)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        let mut file = File::open(dir.join(NAME))?;
        let mut piece = vec![0; MIB];
        let mut read_bytes = 0;
        loop {
            match file.read(&mut piece)? {
                0 => break,
                some => read_bytes += some as u64,
            }
        }
        ensure!(read_bytes == self.mib << 20, "it read {read_bytes} bytes");
        Ok(())
    }

    fn check(&self, dir: &Path) -> Result<()> {
        verify(&dir.join(NAME), self.mib)
    }
}
