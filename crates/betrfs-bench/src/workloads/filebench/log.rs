//! The log of a web server: records of all threads, in the order of their writes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::data::{Rng, bytes};

const SEED: u64 = 0x7765_6273;
/// A record begins with the seed of its content, and its size.
const HEADER_BYTES: usize = 16;

/// A record: the seed of its content, and its size with the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    seed: u64,
    len: u64,
}

impl Record {
    /// The bytes in the log.
    pub fn bytes(self) -> Vec<u8> {
        let mut record = Vec::with_capacity(self.len as usize);
        record.extend_from_slice(&self.seed.to_le_bytes());
        record.extend_from_slice(&self.len.to_le_bytes());
        record.extend_from_slice(&bytes(self.seed, 0, self.len as usize - HEADER_BYTES));
        record
    }
}

/// The records of one thread.
#[derive(Clone, Debug)]
pub struct Records {
    rng: Rng,
    content_bytes_max: u64,
}

impl Records {
    /// Those of a thread, each of at most `bytes_max`.
    pub fn new(thread: u64, bytes_max: u64) -> Records {
        Records { rng: Rng::of_stream(SEED, thread), content_bytes_max: bytes_max - HEADER_BYTES as u64 }
    }
}

impl Iterator for Records {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let seed = self.rng.next_u64();
        Some(Record { seed, len: HEADER_BYTES as u64 + 1 + self.rng.below_u64(self.content_bytes_max) })
    }
}

/// Fails unless a log has each of the records once, whole, and nothing else.
pub fn ensure_has(log: &[u8], records: impl Iterator<Item = Record>) -> Result<()> {
    let mut due: BTreeMap<u64, u64> = records.map(|record| (record.seed, record.len)).collect();
    let mut rest = log;
    while let Some((header, _)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let number = u128::from_le_bytes(*header);
        let (seed, len) = (number as u64, (number >> 64) as u64);
        let at = log.len() - rest.len();
        ensure!(due.remove(&seed) == Some(len), "at {at} of the log is no record that is due");
        let (found, behind) = rest.split_at_checked(len as usize).context("the log ends in a record")?;
        ensure!(found == Record { seed, len }.bytes(), "the record at {at} of the log is wrong");
        rest = behind;
    }
    ensure!(rest.is_empty() && due.is_empty(), "{} records of the log are missing", due.len());
    Ok(())
}
