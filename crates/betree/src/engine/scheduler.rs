//! Background work: calls for it, threads that do it, and writers that wait for it.
//!
//! A piece of work is one step of the caller of [`Scheduler::serve`]. This type knows nothing of its content:
//! it only coordinates threads, and is small enough for a model checker.

use betree_platform::sync::{Condvar, Mutex};

use crate::error::{Error, Result};

/// See the module.
#[derive(Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    /// Work may have come up.
    wanted: Condvar,
    /// Work has been done.
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that serve.
    workers: usize,
    stop: bool,
    /// The number of pieces done, so that no thread waits for a past one.
    done: u64,
    /// The number of calls for work.
    calls: u64,
    /// The want of space that the last piece met, if any.
    starved: Option<Error>,
}

impl Scheduler {
    /// Calls for work that may have come up.
    pub fn call(&self) {
        self.state.lock().calls += 1;
        self.wanted.notify_all();
    }

    /// Wakes the waiting threads after a piece of work; `starved` is the want of space that it met.
    pub fn tell_done(&self, starved: Option<Error>) {
        let mut state = self.state.lock();
        state.done += 1;
        state.starved = starved;
        drop(state);
        self.done.notify_all();
    }

    /// Does pieces of work until [`stop`](Scheduler::stop). After a piece that found nothing to do, it sleeps
    /// until the next [`call`](Scheduler::call). `piece` returns whether it did something.
    pub fn serve(&self, mut piece: impl FnMut() -> bool) {
        self.state.lock().workers += 1;
        let mut seen = 0;
        loop {
            let busy = piece();
            let mut state = self.state.lock();
            while !busy && state.calls == seen && !state.stop {
                state = self.wanted.wait(state);
            }
            seen = if busy { seen } else { state.calls };
            if state.stop {
                state.workers -= 1;
                drop(state);
                self.done.notify_all();
                return;
            }
        }
    }

    /// Whether threads serve.
    pub fn has_workers(&self) -> bool {
        let state = self.state.lock();
        state.workers > 0 && !state.stop
    }

    /// Makes every [`serve`](Scheduler::serve) return, now and later.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wanted.notify_all();
        self.done.notify_all();
    }

    /// Waits while `is_crowded` (a *write stall*): for pieces of the serving threads or, if no thread serves,
    /// by doing pieces with `alone`, which returns whether it did something.
    ///
    /// # Errors
    /// Those of `refuse`, which is called before each wait; those of `alone`; the want of space that a piece
    /// met.
    pub fn throttle(
        &self,
        is_crowded: impl Fn() -> bool,
        refuse: impl Fn() -> Result<()>,
        alone: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        while is_crowded() {
            let (before, is_alone) = {
                let state = self.state.lock();
                (state.done, state.workers == 0 || state.stop)
            };
            // A piece that was done before the count was read wakes no thread any more.
            if !is_crowded() {
                return Ok(());
            }
            refuse()?;
            if is_alone {
                if !alone()? {
                    return Ok(());
                }
                continue;
            }
            self.call();
            let mut state = self.state.lock();
            while state.done == before && state.workers > 0 && !state.stop {
                state = self.done.wait(state);
            }
            if let Some(error) = &state.starved {
                return Err(error.clone());
            }
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use std::sync::Arc;
    use std::vec::Vec;

    use betree_platform::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use shuttle::thread;

    use super::Scheduler;

    const ROOM: usize = 2;
    const CHANGES: usize = 4;

    /// Writers fill the room, and each piece of work empties it by one.
    #[derive(Default)]
    struct Toy {
        scheduler: Scheduler,
        full: AtomicUsize,
        taken: AtomicUsize,
    }

    impl Toy {
        fn is_crowded(&self) -> bool {
            self.full.load(SeqCst) >= ROOM
        }

        fn piece(&self) -> bool {
            let emptied = self.full.fetch_update(SeqCst, SeqCst, |full| full.checked_sub(1)).is_ok();
            if emptied {
                self.scheduler.tell_done(None);
            }
            emptied
        }

        fn write(&self) {
            for _ in 0..CHANGES {
                let throttled = self.scheduler.throttle(|| self.is_crowded(), || Ok(()), || Ok(self.piece()));
                assert_eq!(throttled, Ok(()));
                self.full.fetch_add(1, SeqCst);
                self.taken.fetch_add(1, SeqCst);
            }
        }
    }

    fn under_any_schedule(once: fn()) {
        shuttle::check_random(once, 2000);
        shuttle::check_pct(once, 2000, 4);
    }

    fn spawn(toy: &Arc<Toy>, run: impl FnOnce(&Toy) + Send + 'static) -> thread::JoinHandle<()> {
        let toy = toy.clone();
        thread::spawn(move || run(&toy))
    }

    fn join(threads: Vec<thread::JoinHandle<()>>) {
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "a thread ended badly"));
    }

    // A writer or a worker that waits for ever is a deadlock, which the model checker reports.

    #[test]
    fn serving_threads_let_every_writer_in() {
        under_any_schedule(|| {
            let toy = Arc::new(Toy::default());
            let workers: Vec<_> =
                (0..2).map(|_| spawn(&toy, |toy| toy.scheduler.serve(|| toy.piece()))).collect();
            join((0..2).map(|_| spawn(&toy, Toy::write)).collect());
            toy.scheduler.stop();
            join(workers);
            assert_eq!(toy.taken.load(SeqCst), 2 * CHANGES);
        });
    }

    #[test]
    fn every_writer_is_let_in_when_the_serving_threads_stop() {
        under_any_schedule(|| {
            let toy = Arc::new(Toy::default());
            let worker = spawn(&toy, |toy| toy.scheduler.serve(|| toy.piece()));
            let stopper = spawn(&toy, |toy| toy.scheduler.stop());
            join((0..2).map(|_| spawn(&toy, Toy::write)).collect());
            join(Vec::from([worker, stopper]));
            assert_eq!(toy.taken.load(SeqCst), 2 * CHANGES);
        });
    }

    #[test]
    fn a_writer_is_woken_by_any_thread_that_makes_room() {
        under_any_schedule(|| {
            let toy = Arc::new(Toy::default());
            toy.full.store(ROOM, SeqCst);
            // The worker finds nothing to do: another thread makes the room, as checkpoints and clones do.
            let worker = spawn(&toy, |toy| toy.scheduler.serve(|| false));
            let writer = spawn(&toy, |toy| {
                let throttled = toy.scheduler.throttle(|| toy.is_crowded(), || Ok(()), || Ok(toy.piece()));
                assert_eq!(throttled, Ok(()));
            });
            let other = spawn(&toy, |toy| {
                toy.full.store(0, SeqCst);
                toy.scheduler.tell_done(None);
            });
            join(Vec::from([writer, other]));
            toy.scheduler.stop();
            join(Vec::from([worker]));
        });
    }
}
