//! The threads that answer requests of one queue: as many as usual are free, whoever waits for the end of a
//! freeze.
//!
//! A change that meets a freeze keeps its thread, and by io_uring the entry whose memory holds it: another
//! thread is started in its place, so that reads go on. After the freeze the threads that are too many end,
//! where they can: an entry of io_uring is the kernel's as long as the connection lasts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

/// The most threads of a mount beyond the usual ones. As many changes at least can wait; with more, reads
/// may wait too.
const MORE_THREADS_MAX: usize = 512;

/// How many threads beyond the usual ones may still be started for a mount.
#[derive(Clone)]
pub struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// For a process that may have so many files open: a ring is one, and half of them is left to others.
    pub fn of(files_max: Option<u64>) -> Budget {
        let half = files_max.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX));
        Budget(Arc::new(AtomicUsize::new(half.min(MORE_THREADS_MAX))))
    }

    fn take(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    fn give_back(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// See the module.
pub struct Pool {
    /// How many threads are to be free.
    usual: usize,
    budget: Budget,
    state: Mutex<State>,
}

struct State {
    /// Threads that do not wait for the end of a freeze.
    free: usize,
    /// Those that were started beyond the usual ones.
    more: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of threads that the caller starts.
    pub fn new(usual: usize, budget: Budget) -> Pool {
        Pool { usual, budget, state: Mutex::new(State { free: usual, more: Vec::new() }) }
    }

    /// A thread is about to wait: `start` starts another in its place, if too few are free.
    pub fn wait_begins(&self, start: impl FnOnce() -> io::Result<JoinHandle<()>>) {
        let mut state = self.state.lock();
        state.free = state.free.saturating_sub(1);
        if state.free >= self.usual || !self.budget.take() {
            return;
        }
        match start() {
            Ok(thread) => {
                state.free += 1;
                state.more.retain(|thread| !thread.is_finished());
                state.more.push(thread);
            }
            Err(error) => {
                self.budget.give_back();
                tracing::warn!("no thread in place of one that waits for the end of a freeze: {error}");
            }
        }
    }

    /// A thread has waited.
    pub fn wait_ends(&self) {
        self.state.lock().free += 1;
    }

    /// Whether the calling thread, which was started beyond the usual ones, is not needed any more. It must
    /// end then.
    pub fn lets_go(&self) -> bool {
        let mut state = self.state.lock();
        let is_surplus = state.free > self.usual;
        if is_surplus {
            state.free -= 1;
            self.budget.give_back();
        }
        is_surplus
    }

    /// Notes that a thread that was started beyond the usual ones could not begin to answer requests.
    pub fn lost(&self) {
        let mut state = self.state.lock();
        state.free = state.free.saturating_sub(1);
        self.budget.give_back();
    }

    /// Waits for the end of all threads that were started beyond the usual ones; `false` if one panicked.
    pub fn join(&self) -> bool {
        let mut is_well = true;
        loop {
            let Some(thread) = self.state.lock().more.pop() else { return is_well };
            is_well &= thread.join().is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn free(pool: &Pool) -> usize {
        pool.state.lock().free
    }

    #[test]
    fn as_many_threads_as_usual_are_free_until_the_budget_is_spent() {
        let (pool, started) = (Pool::new(2, Budget::of(Some(6))), AtomicUsize::new(0));
        let start = || {
            started.fetch_add(1, Ordering::Relaxed);
            Ok(thread::spawn(|| ()))
        };
        for waiting in 1..=5_usize {
            pool.wait_begins(start);
            assert_eq!(
                (started.load(Ordering::Relaxed), free(&pool)),
                (waiting.min(3), 2 - waiting.saturating_sub(3))
            );
        }
        // No thread is free: what comes waits in the kernel.
        pool.wait_begins(start);
        assert_eq!(free(&pool), 0);
        (0..5).for_each(|_| pool.wait_ends());
        // Five threads: of the three that were started all are too many.
        assert_eq!([(); 4].map(|()| pool.lets_go()), [true, true, true, false]);
        assert_eq!(free(&pool), 2);
        pool.wait_begins(start);
        assert_eq!((started.load(Ordering::Relaxed), free(&pool)), (4, 2), "the budget is there again");
        assert!(pool.join());
    }

    #[test]
    fn a_thread_that_cannot_be_started_or_cannot_answer_is_not_counted() {
        let pool = Pool::new(1, Budget::of(Some(2)));
        pool.wait_begins(|| Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(free(&pool), 0);
        pool.wait_ends();
        pool.wait_begins(|| Ok(thread::spawn(|| ())));
        assert_eq!(free(&pool), 1);
        pool.lost();
        assert_eq!(free(&pool), 0);
        pool.wait_ends();
        pool.wait_begins(|| Ok(thread::spawn(|| panic!("on purpose"))));
        assert_eq!(free(&pool), 1);
        assert!(!pool.join());
    }

    #[test]
    fn half_of_the_files_are_left_to_others() {
        let all = |files_max| Budget::of(files_max).0.load(Ordering::Relaxed);
        assert_eq!([Some(256), Some(1 << 20), None].map(all), [128, MORE_THREADS_MAX, MORE_THREADS_MAX]);
    }
}
