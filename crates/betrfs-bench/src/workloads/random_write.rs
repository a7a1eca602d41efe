//! Small writes all over a large file that is not in memory.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};

use super::Workload;
use super::sequential::{Pattern, fill};

const NAME: &str = "random";
const WRITE_BYTES: u64 = 4;
const MIB: u64 = 1 << 20;

/// Writes of four bytes at random places.
pub struct RandomWrite {
    /// The file's size in MiB.
    pub file_mib: u64,
    /// How many writes.
    pub writes: u64,
}

impl RandomWrite {
    /// Each write's place and bytes: the same in every round, and no two overlap in part.
    fn writes(&self) -> impl Iterator<Item = (u64, [u8; WRITE_BYTES as usize])> {
        let slots = self.file_mib * MIB / WRITE_BYTES;
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        (0..self.writes).map(move |number| {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % slots * WRITE_BYTES, (number as u32).to_be_bytes())
        })
    }
}

impl Workload for RandomWrite {
    fn name(&self) -> &'static str {
        "random"
    }

    fn about(&self) -> String {
        format!(
            "write {WRITE_BYTES} bytes at {} random places of a file of {} MiB, cold",
            self.writes, self.file_mib
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        fill(&dir.join(NAME), self.file_mib)
    }

    fn run(&self, dir: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).open(dir.join(NAME))?;
        for (at, bytes) in RandomWrite::writes(self) {
            file.write_all_at(&bytes, at)?;
        }
        Ok(())
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let file = File::open(dir.join(NAME))?;
        let last: BTreeMap<u64, _> = RandomWrite::writes(self).collect();
        let mut pattern = Pattern::new();
        let mut piece = vec![0; MIB as usize];
        for number in 0..self.file_mib {
            let mut expected = pattern.mib(number).to_vec();
            for (at, bytes) in last.range(number * MIB..(number + 1) * MIB) {
                let from = (at - number * MIB) as usize;
                expected[from..from + bytes.len()].copy_from_slice(bytes);
            }
            file.read_exact_at(&mut piece, number * MIB)?;
            ensure!(piece == expected, "MiB {number} is wrong");
        }
        Ok(())
    }
}
