//! The waits of readers and writers of a database for each other.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};

/// The most batches that readers may be ahead of the slowest writer.
const BATCHES_AHEAD: u64 = 2;

/// The number of reads between two wake-ups of waiting writers; all numbers of reads that they wait for are
/// multiples of it.
const READS_PER_WAKE: u64 = 100;

struct State {
    reads: u64,
    /// The batches of each writer so far.
    batches: Vec<u64>,
    has_failed: bool,
}

/// The reads and batches so far.
pub struct Pace {
    state: Mutex<State>,
    changed: Condvar,
    reads_per_batch: u64,
    reads_total: u64,
}

impl Pace {
    /// Without reads and batches.
    pub fn new(writers: usize, reads_per_batch: u64, reads_total: u64) -> Pace {
        Pace {
            state: Mutex::new(State { reads: 0, batches: vec![0; writers], has_failed: false }),
            changed: Condvar::new(),
            reads_per_batch,
            reads_total,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, state: MutexGuard<'_, State>, not_yet: impl Fn(&State) -> bool) -> Result<()> {
        let state = self
            .changed
            .wait_while(state, |state| !state.has_failed && not_yet(state))
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(!state.has_failed, "another thread has failed");
        Ok(())
    }

    /// Counts a read, and waits while readers are too far ahead.
    pub fn has_read(&self) -> Result<()> {
        let mut state = self.lock();
        state.reads += 1;
        if state.reads.is_multiple_of(READS_PER_WAKE) || state.reads == self.reads_total {
            self.changed.notify_all();
        }
        self.wait_while(state, |state| {
            let slowest = state.batches.iter().min().copied().unwrap_or(0);
            let limit = (slowest + BATCHES_AHEAD) * self.reads_per_batch;
            state.reads >= limit && state.reads < self.reads_total
        })
    }

    /// Reports the number of batches that a writer has written.
    pub fn has_written(&self, writer: usize, batches: u64) {
        let mut state = self.lock();
        if let Some(written) = state.batches.get_mut(writer) {
            *written = batches;
        }
        self.changed.notify_all();
    }

    /// Waits for a number of reads.
    pub fn wait_for_reads(&self, reads: u64) -> Result<()> {
        self.wait_while(self.lock(), |state| state.reads < reads)
    }

    /// Ends all waiting, because a thread has failed.
    pub fn fail(&self) {
        self.lock().has_failed = true;
        self.changed.notify_all();
    }
}
