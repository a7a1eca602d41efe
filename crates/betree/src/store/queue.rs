//! A queue of jobs for threads of the platform: several jobs at once, but one part of each job in the order
//! of submission. Jobs apart have no order, and their givers bound their number.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use betree_platform::sync::{Condvar, Mutex};

/// The most jobs that wait or are being done: one for each of two threads, and one ready for the first to
/// finish.
const IN_FLIGHT_MAX: usize = 3;

/// What a thread takes next.
enum Waiting<J, A> {
    /// With its ticket.
    InOrder(u64, J),
    Apart(A),
}

struct State<J, A, D> {
    threads: usize,
    waiting: VecDeque<Waiting<J, A>>,
    /// Jobs in order that wait or are being done.
    in_flight: usize,
    next_ticket: u64,
    /// The ticket whose ordered part is next.
    turn: u64,
    done: Vec<D>,
    stop: bool,
}

/// Jobs `J` and their results `D`, and jobs apart `A`.
pub(super) struct Queue<J, A, D> {
    state: Mutex<State<J, A, D>>,
    wanted: Condvar,
    changed: Condvar,
}

impl<J, A, D> Default for Queue<J, A, D> {
    fn default() -> Self {
        let state = State {
            threads: 0,
            waiting: VecDeque::new(),
            in_flight: 0,
            next_ticket: 0,
            turn: 0,
            done: Vec::new(),
            stop: false,
        };
        Queue { state: Mutex::new(state), wanted: Condvar::new(), changed: Condvar::new() }
    }
}

impl<J, A, D> Queue<J, A, D> {
    /// Submits a job once there is room for it. Returns it if no thread serves: threads may stop while this
    /// waits for room.
    pub fn give(&self, job: J) -> Option<J> {
        let mut state = self.state.lock();
        while state.threads > 0 && state.in_flight >= IN_FLIGHT_MAX {
            state = self.changed.wait(state);
        }
        if state.threads == 0 {
            return Some(job);
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.in_flight += 1;
        state.waiting.push_back(Waiting::InOrder(ticket, job));
        self.wanted.notify_one();
        None
    }

    /// Submits a job apart. Returns it if no thread serves.
    pub fn give_apart(&self, job: A) -> Option<A> {
        let mut state = self.state.lock();
        if state.threads == 0 {
            return Some(job);
        }
        state.waiting.push_back(Waiting::Apart(job));
        self.wanted.notify_one();
        None
    }

    /// Whether a thread serves.
    #[cfg(test)]
    pub fn is_served(&self) -> bool {
        self.state.lock().threads > 0
    }

    /// Adds the result of a job that [`give`](Queue::give) returned.
    pub fn add_done(&self, done: D) {
        self.state.lock().done.push(done);
    }

    /// The results since the last call.
    pub fn take_done(&self) -> Vec<D> {
        core::mem::take(&mut self.state.lock().done)
    }

    /// Waits for all submitted jobs but those apart. Returns the results since the last
    /// [`take_done`](Queue::take_done).
    pub fn finish(&self) -> Vec<D> {
        let mut state = self.state.lock();
        while state.in_flight > 0 {
            state = self.changed.wait(state);
        }
        core::mem::take(&mut state.done)
    }

    /// Does submitted jobs until [`stop`](Queue::stop) is called and none waits: `before`, `in_order` and
    /// `after` of each, or `apart` of a job apart. One thread at a time runs `in_order`, in the order of
    /// submission. The scratch memory is kept while jobs follow each other.
    pub fn serve<B: Default, P, Q>(
        &self,
        before: impl Fn(J, &mut B) -> P,
        in_order: impl Fn(P) -> Q,
        after: impl Fn(Q, &mut B) -> D,
        apart: impl Fn(A),
    ) {
        let mut scratch = B::default();
        let mut state = self.state.lock();
        state.threads += 1;
        loop {
            match state.waiting.pop_front() {
                Some(Waiting::Apart(job)) => {
                    drop(state);
                    apart(job);
                    state = self.state.lock();
                }
                Some(Waiting::InOrder(ticket, job)) => {
                    drop(state);
                    let prepared = before(job, &mut scratch);
                    state = self.state.lock();
                    while state.turn != ticket {
                        state = self.changed.wait(state);
                    }
                    let ordered = in_order(prepared);
                    state.turn += 1;
                    drop(state);
                    self.changed.notify_all();
                    let done = after(ordered, &mut scratch);
                    state = self.state.lock();
                    state.in_flight -= 1;
                    state.done.push(done);
                    self.changed.notify_all();
                }
                None if state.stop => break,
                None => {
                    // The scratch memory is of use only while there are jobs.
                    scratch = B::default();
                    state = self.wanted.wait(state);
                }
            }
        }
        state.threads -= 1;
    }

    /// Makes every [`serve`](Queue::serve) return, now and later.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wanted.notify_all();
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use std::sync::{Arc, Mutex};
    use std::vec::Vec;

    use shuttle::thread;

    use super::Queue;

    const JOBS: usize = 6;

    type Jobs = Queue<usize, usize, usize>;

    fn under_any_schedule(once: fn()) {
        shuttle::check_random(once, 2000);
        shuttle::check_pct(once, 2000, 4);
    }

    /// A queue with two serving threads. `order` lists the jobs as their ordered parts run, and the jobs
    /// apart from `JOBS` on.
    fn served(order: &Arc<Mutex<Vec<usize>>>) -> (Arc<Jobs>, Vec<thread::JoinHandle<()>>) {
        let queue = Arc::new(Jobs::default());
        let serve = || {
            let (queue, order) = (queue.clone(), order.clone());
            thread::spawn(move || {
                let note = |job| order.lock().unwrap_or_else(|e| e.into_inner()).push(job);
                let in_order = |job| {
                    note(job);
                    job
                };
                let after = |job, _: &mut ()| {
                    thread::yield_now();
                    job
                };
                queue.serve(
                    |job, _| job,
                    in_order,
                    after,
                    |job| {
                        thread::yield_now();
                        note(JOBS + job);
                    },
                );
            })
        };
        let threads = Vec::from([serve(), serve()]);
        (queue, threads)
    }

    /// Submits all jobs, does the returned ones, and waits for the rest.
    fn give_all(queue: &Jobs) {
        for job in 0..JOBS {
            if let Some(job) = queue.give(job) {
                queue.add_done(job);
            }
        }
        let mut done = queue.finish();
        done.sort_unstable();
        assert_eq!(done, (0..JOBS).collect::<Vec<_>>());
    }

    #[test]
    fn serving_threads_do_every_job_once_and_in_order() {
        under_any_schedule(|| {
            let order = Arc::default();
            let (queue, threads) = served(&order);
            give_all(&queue);
            queue.stop();
            threads.into_iter().for_each(|t| t.join().unwrap_or_else(|_| panic!("a server ended badly")));
            let order = order.lock().unwrap_or_else(|e| e.into_inner());
            assert!(order.is_sorted(), "{order:?}");
        });
    }

    #[test]
    fn jobs_apart_are_done_once_beside_those_in_order_and_before_the_threads_stop() {
        under_any_schedule(|| {
            let order = Arc::default();
            let (queue, threads) = served(&order);
            let apart = {
                let queue = queue.clone();
                thread::spawn(move || (0..JOBS).filter_map(|job| queue.give_apart(job)).count())
            };
            give_all(&queue);
            let returned = apart.join().unwrap_or_else(|_| panic!("a giver ended badly"));
            queue.stop();
            threads.into_iter().for_each(|t| t.join().unwrap_or_else(|_| panic!("a server ended badly")));
            let mut done = order.lock().unwrap_or_else(|e| e.into_inner()).clone();
            done.retain(|job| *job >= JOBS);
            assert_eq!(done.len() + returned, JOBS, "{done:?}");
            done.sort_unstable();
            done.dedup();
            assert_eq!(done.len() + returned, JOBS, "one was done twice: {done:?}");
        });
    }

    #[test]
    fn every_job_is_done_once_when_the_serving_threads_stop() {
        under_any_schedule(|| {
            let (queue, threads) = served(&Arc::default());
            let stopper = {
                let queue = queue.clone();
                thread::spawn(move || queue.stop())
            };
            // A job that waits without a serving thread is a deadlock, which the model checker reports.
            give_all(&queue);
            threads.into_iter().chain([stopper]).for_each(|t| {
                t.join().unwrap_or_else(|_| panic!("a thread ended badly"));
            });
        });
    }
}
