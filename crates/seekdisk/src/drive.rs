//! A drive at work: any thread sends requests, and each is answered at the time of the model.
//!
//! One thread is the drive's electronics and its arm. It sleeps until the next answer is due, until the head
//! is free for a waiting request, or until a request comes.

use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::model::{Counters, Model, Nanos};

/// How long the drive is without a request before it writes back its cache.
const IDLE_NS: Nanos = 10_000_000;
/// A read that has waited longer precedes reads nearer to the head.
const READ_WAIT_NS_MAX: Nanos = 100_000_000;

/// Sends the answer to a request.
pub type Answer = Box<dyn FnOnce() + Send>;

/// A request to a drive.
pub enum Request {
    /// Reads a range of bytes.
    Read(Range<u64>),
    /// Writes a range of bytes; it is answered once the drive has them in its cache.
    Write(Range<u64>),
    /// Writes everything that was answered to the surface.
    Flush,
}

/// A read or write that waits.
struct Waiting {
    arrived: Nanos,
    range: Range<u64>,
    answer: Answer,
}

/// An answer that is due at a moment.
struct Due {
    at: Nanos,
    answer: Answer,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest, because a heap pops the greatest first.
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

#[derive(Default)]
struct Electronics {
    model: Model,
    reads: Vec<Waiting>,
    /// In the order of their arrival.
    writes: VecDeque<Waiting>,
    flushes: Vec<(Nanos, Answer)>,
    due: BinaryHeap<Due>,
    /// When the last request arrived.
    asked_at: Nanos,
    /// Reads and write-backs take turns when both wait.
    write_is_next: bool,
}

impl Electronics {
    fn ask(&mut self, arrived: Nanos, request: Request, answer: Answer) {
        self.asked_at = self.asked_at.max(arrived);
        match request {
            Request::Read(range) => {
                self.model.asked_to_read(&range);
                self.reads.push(Waiting { arrived, range, answer });
            }
            Request::Write(range) => self.writes.push_back(Waiting { arrived, range, answer }),
            Request::Flush => {
                self.model.asked_to_flush();
                self.flushes.push((arrived, answer));
            }
        }
    }

    /// When the first waiting flush arrived: later requests wait for it.
    fn flush_arrived(&self) -> Nanos {
        self.flushes.first().map_or(Nanos::MAX, |(arrived, _)| *arrived)
    }

    /// Does everything due at `now`. Returns the time of the next work, unless a request comes before.
    fn work(&mut self, now: Nanos) -> Option<Nanos> {
        loop {
            self.answer_from_memory(now);
            if self.model.free_at() > now || !self.move_head(now) {
                break;
            }
        }
        let head = (self.model.free_at() > now && self.wants_head()).then_some(self.model.free_at());
        let idle = (self.model.dirty_bytes() > 0).then_some(self.asked_at + IDLE_NS);
        let due = self.due.peek().map(|due| due.at);
        [head, idle.map(|at| at.max(self.model.free_at())), due].into_iter().flatten().min()
    }

    fn wants_head(&self) -> bool {
        let is_asked = !self.reads.is_empty() || !self.writes.is_empty() || !self.flushes.is_empty();
        is_asked || self.model.is_half_dirty()
    }

    /// Answers the requests that need no head.
    fn answer_from_memory(&mut self, now: Nanos) {
        let flush_arrived = self.flush_arrived();
        while let Some(write) = self.writes.front().filter(|write| write.arrived <= flush_arrived) {
            // If the cache has no room for one write, later ones wait too.
            let Some(at) = self.model.write(now, &write.range) else { break };
            self.due.extend(self.writes.pop_front().map(|write| Due { at, answer: write.answer }));
        }
        let mut number = 0;
        while let Some(read) = self.reads.get(number) {
            match self.model.read_from_memory(now, &read.range) {
                Some(at) if read.arrived <= flush_arrived => {
                    let answer = self.reads.swap_remove(number).answer;
                    self.due.push(Due { at, answer });
                }
                _ => number += 1,
            }
        }
        if self.model.dirty_bytes() == 0 {
            // The data is on the surface once the head is done.
            let at = self.model.free_at().max(now);
            for (_, answer) in self.flushes.drain(..) {
                self.due.push(Due { at, answer });
            }
        }
    }

    /// Gives the free head its next task. Returns whether there was one.
    fn move_head(&mut self, now: Nanos) -> bool {
        let wants_room = !self.writes.is_empty() || !self.flushes.is_empty() || self.model.is_half_dirty();
        let read = if wants_room && self.write_is_next { None } else { self.next_read(now) };
        if let Some(number) = read {
            let read = self.reads.swap_remove(number);
            let at = self.model.read(self.model.free_at().max(read.arrived), &read.range);
            self.due.push(Due { at, answer: read.answer });
            self.write_is_next = true;
            return true;
        }
        self.write_is_next = false;
        let is_idle = self.reads.is_empty() && now >= self.asked_at + IDLE_NS;
        if wants_room {
            // The data was waiting for the head, so the write-back starts when the head became free.
            let since = self.model.free_at().max(self.asked_at.min(now));
            self.model.destage(since).is_some()
        } else {
            is_idle && self.model.destage(now).is_some()
        }
    }

    /// The read that the head reaches first, or one that has waited too long.
    fn next_read(&self, now: Nanos) -> Option<usize> {
        let flush_arrived = self.flush_arrived();
        let early = self.reads.iter().enumerate().filter(|(_, read)| read.arrived <= flush_arrived);
        let cost = |read: &Waiting| {
            let is_late = now.saturating_sub(read.arrived) > READ_WAIT_NS_MAX;
            if is_late {
                0
            } else {
                1 + self.model.read_takes(self.model.free_at().max(read.arrived), &read.range)
            }
        };
        early.min_by_key(|(_, read)| (cost(read), read.arrived)).map(|(number, _)| number)
    }

    /// Removes and returns the answers that are due.
    fn take_due(&mut self, now: Nanos) -> Vec<Answer> {
        let mut answers = Vec::new();
        while self.due.peek().is_some_and(|due| due.at <= now) {
            answers.extend(self.due.pop().map(|due| due.answer));
        }
        answers
    }
}

struct Shared {
    electronics: Mutex<Electronics>,
    has_come: Condvar,
    switched_on: Instant,
    /// Whether the thread's sleeps are exact; set when the thread has started.
    clock: OnceLock<Result<(), Errno>>,
}

impl Shared {
    fn now(&self) -> Nanos {
        u64::try_from(self.switched_on.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }
}

/// The time at which a request arrived at a drive.
#[derive(Clone, Copy)]
pub struct Arrival(Nanos);

/// A running drive; it runs as long as the process lives.
#[derive(Clone)]
pub struct Drive(Arc<Shared>);

impl Drive {
    /// Starts a drive.
    ///
    /// # Errors
    /// Its thread cannot be started.
    pub fn new() -> std::io::Result<Drive> {
        let shared = Arc::new(Shared {
            electronics: Mutex::default(),
            has_come: Condvar::new(),
            switched_on: Instant::now(),
            clock: OnceLock::new(),
        });
        let drive = Drive(Arc::clone(&shared));
        thread::Builder::new().name("drive".into()).spawn(move || run(&shared))?;
        Ok(drive)
    }

    /// Why the drive's sleeps are not exact, if they are not.
    pub fn clock_error(&self) -> Option<Errno> {
        self.0.clock.wait().err()
    }

    /// The arrival of a request, now. Moving its bytes after that is not the drive's time.
    pub fn arrival(&self) -> Arrival {
        Arrival(self.0.now())
    }

    /// Sends a request; `answer` is called, on the drive's thread, when it is done.
    pub fn ask(&self, Arrival(arrived): Arrival, request: Request, answer: Answer) {
        let mut electronics = self.0.electronics.lock().unwrap_or_else(PoisonError::into_inner);
        electronics.ask(arrived, request, answer);
        drop(electronics);
        self.0.has_come.notify_one();
    }

    /// Starts or ends fast-forward.
    pub fn set_fast_forward(&self, on: bool) {
        let now = self.0.now();
        let mut electronics = self.0.electronics.lock().unwrap_or_else(PoisonError::into_inner);
        electronics.model.set_fast_forward(now, on);
        drop(electronics);
        self.0.has_come.notify_one();
    }

    /// The drive's counters since it was started.
    pub fn counters(&self) -> Counters {
        self.0.electronics.lock().unwrap_or_else(PoisonError::into_inner).model.counters()
    }
}

fn run(shared: &Shared) {
    // The kernel may otherwise let a sleeper sleep on for 50 microseconds, a tenth of a short seek.
    // It is set nowhere else.
    let _ = shared.clock.set(rustix::thread::set_current_timer_slack(NonZeroU64::new(1)));
    let mut electronics = shared.electronics.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = shared.now();
        let next = electronics.work(now);
        let answers = electronics.take_due(now);
        if !answers.is_empty() {
            drop(electronics);
            answers.into_iter().for_each(|answer| answer());
            electronics = shared.electronics.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        electronics = match next {
            Some(at) => {
                // Until a time of the monotonic clock: errors do not add up.
                let wait = Duration::from_nanos(at.saturating_sub(shared.now()));
                shared.has_come.wait_timeout(electronics, wait).unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.has_come.wait(electronics).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

#[cfg(test)]
mod tests;
