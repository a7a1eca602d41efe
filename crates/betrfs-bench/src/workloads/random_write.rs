//! Small random writes to a large, cold file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};

use super::Workload;
use super::sequential::{Pattern, fill};
use crate::data::{Rng, bytes};

const NAME: &str = "random";
const MIB: u64 = 1 << 20;
const SEED: u64 = 0x7261_6e64;

/// Small writes at random places.
pub struct RandomWrite {
    /// Its name.
    pub name: &'static str,
    /// The file's size in MiB.
    pub file_mib: u64,
    /// The number of writes.
    pub writes: u64,
    /// The size of each.
    pub write_bytes: u64,
    /// The alignment of places.
    pub align_bytes: u64,
    /// The memory limit.
    pub memory_bytes: u64,
}

impl RandomWrite {
    /// The place and bytes of each write, the same in every round.
    fn writes(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        let places = (self.file_mib * MIB - self.write_bytes) / self.align_bytes + 1;
        let mut rng = Rng::of_stream(SEED, self.write_bytes);
        (0..self.writes).map(move |number| {
            let at = rng.below_u64(places) * self.align_bytes;
            (at, bytes(number, 0, self.write_bytes as usize))
        })
    }

    /// The writes that overlap each MiB, in order.
    fn writes_by_mib(&self) -> Vec<Vec<(u64, Vec<u8>)>> {
        let mut by_mib = vec![Vec::new(); self.file_mib as usize];
        for (at, bytes) in self.writes() {
            let last = at + self.write_bytes - 1;
            for mib in at / MIB..=last / MIB {
                by_mib[mib as usize].push((at, bytes.clone()));
            }
        }
        by_mib
    }
}

/// Applies the part of a write that overlaps a MiB.
fn overlay(piece: &mut [u8], piece_at: u64, write_at: u64, bytes: &[u8]) {
    let from = write_at.max(piece_at);
    let until = (write_at + bytes.len() as u64).min(piece_at + piece.len() as u64);
    piece[(from - piece_at) as usize..(until - piece_at) as usize]
        .copy_from_slice(&bytes[(from - write_at) as usize..(until - write_at) as usize]);
}

impl Workload for RandomWrite {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let (bytes, align) = (self.write_bytes, self.align_bytes);
        format!(
            "write {bytes} bytes at {} random multiples of {align} in a file of {} MiB, cold",
            self.writes, self.file_mib
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
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
        let mut pattern = Pattern::new();
        let mut piece = vec![0; MIB as usize];
        for (number, writes) in self.writes_by_mib().into_iter().enumerate() {
            let at = number as u64 * MIB;
            let mut expected = pattern.mib(number as u64).to_vec();
            for (write_at, bytes) in writes {
                overlay(&mut expected, at, write_at, &bytes);
            }
            file.read_exact_at(&mut piece, at)?;
            ensure!(piece == expected, "MiB {number} is wrong");
        }
        ensure!(file.metadata()?.len() == self.file_mib * MIB, "its size is wrong");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_over_a_border_is_in_both_pieces() {
        let write = [1, 2, 3, 4];
        let (mut first, mut second) = ([0; 8], [0; 8]);
        overlay(&mut first, 0, 6, &write);
        overlay(&mut second, 8, 6, &write);
        assert_eq!((first, second), ([0, 0, 0, 0, 0, 0, 1, 2], [3, 4, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn what_is_written_is_what_is_checked() {
        let workload = RandomWrite {
            name: "unaligned",
            file_mib: 3,
            writes: 2000,
            write_bytes: 4096,
            align_bytes: 1,
            memory_bytes: 1 << 30,
        };
        let dir = tempfile::tempdir().unwrap();
        workload.prepare(dir.path()).unwrap();
        assert!(workload.check(dir.path()).is_err());
        workload.run(dir.path()).unwrap();
        workload.check(dir.path()).unwrap();
    }
}
