//! Background work: who calls for it, who does it, and who waits until it has been done.
//!
//! A piece of work is whatever the caller of [`Scheduler::serve`] does in one step. This type knows nothing
//! of it: it is what threads agree on, small enough for a model checker.

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
    /// The number of pieces that were done: nobody waits for one that is past.
    done: u64,
    /// The number of calls for work.
    calls: u64,
    /// The want of space that the last piece met.
    starved: Option<Error>,
}

impl Scheduler {
    /// Calls for work that may have come up.
    pub fn call(&self) {
        self.state.lock().calls += 1;
        self.wanted.notify_all();
    }

    /// Tells all who wait that a piece was done; `starved` is the want of space that it met.
    pub fn tell_done(&self, starved: Option<Error>) {
        let mut state = self.state.lock();
        state.done += 1;
        state.starved = starved;
        drop(state);
        self.done.notify_all();
    }

    /// Does pieces of work until [`stop`](Scheduler::stop), and sleeps when a piece found nothing to do until
    /// somebody calls. `piece` returns whether it did something.
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

    /// Makes every [`serve`](Scheduler::serve) return, now and later.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wanted.notify_all();
        self.done.notify_all();
    }

    /// Waits while something `is_crowded`, a *write stall*: for pieces of others, or, where nobody serves, by
    /// doing the pieces `alone`, which returns whether it did something.
    ///
    /// # Errors
    /// Those of `refuse`, which is asked before each wait; those of `alone`; the want of space that a piece
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
            // A piece that was done before that is told to nobody any more.
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

    /// Writers fill a room, and pieces of work empty it by one.
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

    // A writer or a worker that waits for ever is a deadlock, which the model checker tells.

    #[test]
    fn every_writer_is_let_in_by_those_who_serve() {
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
    fn every_writer_is_let_in_where_those_who_serve_are_stopped_meanwhile() {
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
    fn a_writer_is_woken_by_whoever_else_makes_room() {
        under_any_schedule(|| {
            let toy = Arc::new(Toy::default());
            toy.full.store(ROOM, SeqCst);
            // The worker finds nothing to do: the room is made by another, as checkpoints and clones do.
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
