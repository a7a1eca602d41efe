//! A drive at work: requests come from any thread, and each is answered when the model says.
//!
//! One thread is the drive's electronics and its arm. It sleeps until the next answer is due, the head
//! is free for what waits, or a request comes.

use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::output::tell;

use super::model::{Counters, Model, Nanos};

/// After so long without a request the drive writes what waits in its cache.
const IDLE_NS: Nanos = 10_000_000;
/// A read that waits for longer than this comes before those that are nearer to the head.
const PATIENCE_NS: Nanos = 100_000_000;

/// Tells whoever asked that it is done.
pub type Answer = Box<dyn FnOnce() + Send>;

/// What a drive is asked.
pub enum Request {
    /// To read a range of bytes.
    Read(Range<u64>),
    /// To write a range of bytes; it is answered when the drive has it in its cache.
    Write(Range<u64>),
    /// To bring everything that was answered to the surface.
    Flush,
}

/// A request for a range that waits.
struct Waiting {
    came: Nanos,
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
    /// The earliest is the greatest: a heap gives that first.
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

#[derive(Default)]
struct Electronics {
    model: Model,
    reads: Vec<Waiting>,
    /// In the order in which they came.
    writes: VecDeque<Waiting>,
    flushes: Vec<(Nanos, Answer)>,
    due: BinaryHeap<Due>,
    /// When the last request came.
    asked_at: Nanos,
    /// Reads and the cache's writes take turns when both have to wait.
    write_is_next: bool,
}

impl Electronics {
    fn ask(&mut self, came: Nanos, request: Request, answer: Answer) {
        self.asked_at = self.asked_at.max(came);
        match request {
            Request::Read(range) => {
                self.model.asked_to_read(&range);
                self.reads.push(Waiting { came, range, answer });
            }
            Request::Write(range) => self.writes.push_back(Waiting { came, range, answer }),
            Request::Flush => {
                self.model.asked_to_flush();
                self.flushes.push((came, answer));
            }
        }
    }

    /// When whoever came first of those that want the cache emptied came: those who come later wait.
    fn flush_came(&self) -> Nanos {
        self.flushes.first().map_or(Nanos::MAX, |(came, _)| *came)
    }

    /// Does all that there is to do at a moment; until when there is nothing more to do, unless
    /// something comes.
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

    /// Answers what needs no head.
    fn answer_from_memory(&mut self, now: Nanos) {
        let flush_came = self.flush_came();
        while let Some(write) = self.writes.front().filter(|write| write.came <= flush_came) {
            // Where there is no room for one, those behind it wait too.
            let Some(at) = self.model.write(now, &write.range) else { break };
            self.due.extend(self.writes.pop_front().map(|write| Due { at, answer: write.answer }));
        }
        let mut number = 0;
        while let Some(read) = self.reads.get(number) {
            match self.model.read_from_memory(now, &read.range) {
                Some(at) if read.came <= flush_came => {
                    let answer = self.reads.swap_remove(number).answer;
                    self.due.push(Due { at, answer });
                }
                _ => number += 1,
            }
        }
        if self.model.dirty_bytes() == 0 {
            // The surface has it when the head is done.
            let at = self.model.free_at().max(now);
            for (_, answer) in self.flushes.drain(..) {
                self.due.push(Due { at, answer });
            }
        }
    }

    /// Gives the head, which is free, the next thing to do; whether there was any.
    fn move_head(&mut self, now: Nanos) -> bool {
        let wants_room = !self.writes.is_empty() || !self.flushes.is_empty() || self.model.is_half_dirty();
        let read = if wants_room && self.write_is_next { None } else { self.next_read(now) };
        if let Some(number) = read {
            let read = self.reads.swap_remove(number);
            let at = self.model.read(self.model.free_at().max(read.came), &read.range);
            self.due.push(Due { at, answer: read.answer });
            self.write_is_next = true;
            return true;
        }
        self.write_is_next = false;
        let is_idle = self.reads.is_empty() && now >= self.asked_at + IDLE_NS;
        if wants_room {
            // It has been waiting for the head, so no time was lost since that was free.
            let since = self.model.free_at().max(self.asked_at.min(now));
            self.model.destage(since).is_some()
        } else {
            is_idle && self.model.destage(now).is_some()
        }
    }

    /// The read that the head gets to first, or one that has waited for too long.
    fn next_read(&self, now: Nanos) -> Option<usize> {
        let flush_came = self.flush_came();
        let early = self.reads.iter().enumerate().filter(|(_, read)| read.came <= flush_came);
        let cost = |read: &Waiting| {
            let is_late = now.saturating_sub(read.came) > PATIENCE_NS;
            if is_late {
                0
            } else {
                1 + self.model.read_takes(self.model.free_at().max(read.came), &read.range)
            }
        };
        early.min_by_key(|(_, read)| (cost(read), read.came)).map(|(number, _)| number)
    }

    /// Takes out the answers that are due.
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
}

impl Shared {
    fn now(&self) -> Nanos {
        u64::try_from(self.switched_on.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }
}

/// When a request came.
#[derive(Clone, Copy)]
pub struct Came(Nanos);

/// A drive that is switched on, for as long as the process lives.
#[derive(Clone)]
pub struct Drive(Arc<Shared>);

impl Drive {
    /// Switches one on.
    pub fn new() -> std::io::Result<Drive> {
        let shared = Arc::new(Shared {
            electronics: Mutex::default(),
            has_come: Condvar::new(),
            switched_on: Instant::now(),
        });
        let drive = Drive(Arc::clone(&shared));
        thread::Builder::new().name("drive".into()).spawn(move || run(&shared))?;
        Ok(drive)
    }

    /// A request comes. What its bytes take to move is not the drive's time.
    pub fn receives(&self) -> Came {
        Came(self.0.now())
    }

    /// Asks it for something.
    pub fn ask(&self, Came(came): Came, request: Request, answer: Answer) {
        let mut electronics = self.0.electronics.lock().unwrap_or_else(PoisonError::into_inner);
        electronics.ask(came, request, answer);
        drop(electronics);
        self.0.has_come.notify_one();
    }

    /// Whether it makes haste from now on.
    pub fn set_in_haste(&self, in_haste: bool) {
        let now = self.0.now();
        let mut electronics = self.0.electronics.lock().unwrap_or_else(PoisonError::into_inner);
        electronics.model.set_in_haste(now, in_haste);
        drop(electronics);
        self.0.has_come.notify_one();
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.0.electronics.lock().unwrap_or_else(PoisonError::into_inner).model.counters()
    }
}

fn run(shared: &Shared) {
    // The kernel may otherwise let a sleeper sleep on for 50 microseconds, a tenth of a short seek.
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tell(format_args!("betrfs-bench: the emulated disk's clock is coarse: {error}"));
    }
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
                // To a moment of the monotonic clock, not for a time: so nothing adds up.
                let wait = Duration::from_nanos(at.saturating_sub(shared.now()));
                shared.has_come.wait_timeout(electronics, wait).unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.has_come.wait(electronics).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

#[cfg(test)]
mod tests;
