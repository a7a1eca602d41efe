//! Writing behind the back of whoever encodes: threads that the home lends take buffers to the
//! device, so that a checkpoint makes the next one meanwhile and the device has several in hand.
//!
//! One checkpoint at a time uses it. Without such threads it writes by itself.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_sys::BLOCK_BYTES;
use betree_sys::sync::{Condvar, Mutex};

use crate::error::Result;
use crate::io::{AlignedBuf, Disk};
use crate::space::Extent;

/// Buffers that wait or are being written at once, at most: one for each of two threads, and one
/// ready for whoever is done first.
const IN_FLIGHT_MAX: usize = 3;

/// A buffer on its way to an extent.
pub(crate) struct Job {
    pub buffer: AlignedBuf,
    pub extent: Arc<Extent>,
    /// How much of the extent, from its start on, is to be written.
    pub blocks: usize,
    /// By what it is known when it is done.
    pub ticket: usize,
}

#[derive(Default)]
struct State {
    threads: usize,
    waiting: VecDeque<Job>,
    being_written: usize,
    done: Vec<(usize, Result<()>)>,
    spare: Vec<AlignedBuf>,
    stop: bool,
}

/// Buffers on their way to the device.
#[derive(Default)]
pub(crate) struct Behind {
    state: Mutex<State>,
    wanted: Condvar,
    finished: Condvar,
}

fn write(disk: &Disk, job: &Job) -> Result<()> {
    let len = job.blocks * BLOCK_BYTES;
    disk.write_extent(&job.extent, job.buffer.as_slice().get(..len).unwrap_or_default())
}

impl State {
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.being_written
    }

    fn finish(&mut self, job: Job, result: Result<()>) {
        self.done.push((job.ticket, result));
        if self.threads > 0 {
            self.spare.push(job.buffer);
        }
    }
}

impl Behind {
    /// A buffer of a job that is done, to be filled anew. It holds what it held.
    pub fn spare(&self) -> AlignedBuf {
        self.state.lock().spare.pop().unwrap_or_default()
    }

    /// Gives a buffer, of at least that many blocks, to be written at the start of its extent.
    pub fn write(&self, disk: &Disk, job: Job) {
        let mut state = self.state.lock();
        if state.threads > 0 {
            while state.in_flight() >= IN_FLIGHT_MAX {
                state = self.finished.wait(state);
            }
            state.waiting.push_back(job);
            self.wanted.notify_one();
            return;
        }
        drop(state);
        let result = write(disk, &job);
        self.state.lock().finish(job, result);
    }

    /// What was written since this was last asked, by its ticket, and how that went.
    pub fn take_done(&self) -> Vec<(usize, Result<()>)> {
        core::mem::take(&mut self.state.lock().done)
    }

    /// Waits for all that was given, and lets go of the buffers. What was written since
    /// [`take_done`](Behind::take_done) was last asked.
    pub fn finish(&self) -> Vec<(usize, Result<()>)> {
        let mut state = self.state.lock();
        while state.in_flight() > 0 {
            state = self.finished.wait(state);
        }
        state.spare.clear();
        core::mem::take(&mut state.done)
    }

    /// Writes what is given, until [`stop`](Behind::stop) and until nothing waits any more.
    pub fn serve(&self, disk: &Disk) {
        let mut state = self.state.lock();
        state.threads += 1;
        loop {
            match state.waiting.pop_front() {
                Some(job) => {
                    state.being_written += 1;
                    drop(state);
                    let result = write(disk, &job);
                    state = self.state.lock();
                    state.being_written -= 1;
                    state.finish(job, result);
                    self.finished.notify_all();
                }
                None if state.stop => break,
                None => state = self.wanted.wait(state),
            }
        }
        state.threads -= 1;
    }

    /// Makes every [`serve`](Behind::serve) return, now and later.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wanted.notify_all();
    }
}
