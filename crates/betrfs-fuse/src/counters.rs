//! Counters of the kernel's requests, by kind, and of the bytes that they carry.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::{Latencies, Latency};
use crate::wire::Opcode;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCount {
    /// Requests received.
    pub count: u64,
    /// Requests answered with an error (an absent name is no error).
    pub errors: u64,
}

/// Bytes of files' contents that requests carried; copies within the volume, and reads from the kernel's
/// pages, are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataBytes {
    /// Bytes given to readers.
    pub read_bytes: u64,
    /// Bytes taken from writers.
    pub write_bytes: u64,
}

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    errors: AtomicU64,
}

/// Counts of kernel requests since the mount, and their times.
pub struct Counters {
    /// Indexed by opcode; some numbers are no opcode.
    cells: [Cell; Opcode::END],
    latencies: Latencies,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            cells: std::array::from_fn(|_| Cell::default()),
            latencies: Latencies::default(),
            read_bytes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// Counts a request when it arrives.
    pub fn arrived(&self, opcode: Opcode) {
        if let Some(cell) = self.cells.get(opcode as usize) {
            cell.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the answer of a request, and the time that it took.
    pub fn answered<T, E>(&self, opcode: Opcode, took: Duration, answer: &Result<T, E>) {
        self.latencies.add(opcode, took);
        if answer.is_err()
            && let Some(cell) = self.cells.get(opcode as usize)
        {
            cell.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts bytes given to a reader of a file.
    pub fn gave(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes taken from a writer of a file.
    pub fn took(&self, bytes: usize) {
        self.write_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes that requests have carried.
    pub fn data(&self) -> DataBytes {
        DataBytes {
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
        }
    }

    /// The times of all kinds that were answered, by name.
    pub fn latencies(&self) -> BTreeMap<String, Latency> {
        self.latencies.snapshot()
    }

    /// The counts of all kinds that have come, by name.
    pub fn snapshot(&self) -> BTreeMap<String, RequestCount> {
        let seen = Opcode::ALL.iter().filter_map(|opcode| {
            let cell = self.cells.get(*opcode as usize)?;
            let (count, errors) = (cell.count.load(Ordering::Relaxed), cell.errors.load(Ordering::Relaxed));
            (count > 0).then(|| (opcode.name().to_owned(), RequestCount { count, errors }))
        });
        seen.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_cell_of_its_own() {
        let counters = Counters::default();
        Opcode::ALL.iter().for_each(|opcode| counters.arrived(*opcode));
        counters.answered(Opcode::Rename, Duration::ZERO, &Err::<(), ()>(()));
        counters.answered(Opcode::CopyFileRange, Duration::ZERO, &Ok::<(), ()>(()));
        let seen = counters.snapshot();
        assert_eq!(seen.len(), Opcode::ALL.len());
        assert!(seen.values().all(|s| s.count == 1));
        assert_eq!(seen["rename"], RequestCount { count: 1, errors: 1 });
        assert_eq!(seen["copy_file_range"].errors, 0);
        assert_eq!(counters.latencies().into_keys().collect::<Vec<_>>(), ["copy_file_range", "rename"]);
    }

    #[test]
    fn bytes_of_readers_and_writers_are_counted_apart() {
        let counters = Counters::default();
        counters.gave(3);
        counters.took(5);
        counters.took(6);
        assert_eq!(counters.data(), DataBytes { read_bytes: 3, write_bytes: 11 });
    }
}
