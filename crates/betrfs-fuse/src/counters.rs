//! Counters of the kernel's requests, by kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::wire::Opcode;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCount {
    /// Requests received.
    pub count: u64,
    /// Requests answered with an error (an absent name is no error).
    pub errors: u64,
}

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    errors: AtomicU64,
}

/// Counts of kernel requests since the mount.
pub struct Counters {
    /// Indexed by opcode; some numbers are no opcode.
    cells: [Cell; Opcode::END],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { cells: std::array::from_fn(|_| Cell::default()) }
    }
}

impl Counters {
    /// Counts a request when it arrives.
    pub fn arrived(&self, opcode: Opcode) {
        if let Some(cell) = self.cells.get(opcode as usize) {
            cell.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that was answered with an error.
    pub fn failed(&self, opcode: Opcode) {
        if let Some(cell) = self.cells.get(opcode as usize) {
            cell.errors.fetch_add(1, Ordering::Relaxed);
        }
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
        counters.failed(Opcode::Rename);
        let seen = counters.snapshot();
        assert_eq!(seen.len(), Opcode::ALL.len());
        assert!(seen.values().all(|s| s.count == 1));
        assert_eq!(seen["rename"], RequestCount { count: 1, errors: 1 });
        assert_eq!(seen["copy_file_range"].errors, 0);
    }
}
