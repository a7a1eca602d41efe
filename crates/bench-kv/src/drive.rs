//! Threads that work on one database for a time, while another makes it durable every second.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::stores::Synced;
use crate::workloads::Done;

/// The time from one sync to the next.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);
/// The clock is read once for this number of questions.
const QUESTIONS_A_LOOK: u32 = 8;

/// The end of a thread's time.
pub struct Time {
    end: Instant,
    questions: u32,
    is_over: bool,
}

impl Time {
    /// Time that ends at a moment.
    pub fn until(end: Instant) -> Time {
        Time { end, questions: 0, is_over: false }
    }

    /// Whether it is over now, by the clock.
    pub fn is_over_now(&mut self) -> bool {
        self.is_over = Instant::now() >= self.end;
        self.is_over
    }

    /// Whether it was over at the last look at the clock, or is now. Asked before each short operation; never
    /// before the first, so that each thread does something.
    pub fn is_over(&mut self) -> bool {
        if self.questions % QUESTIONS_A_LOOK == QUESTIONS_A_LOOK - 1 {
            self.is_over_now();
        }
        self.questions = self.questions.wrapping_add(1);
        self.is_over
    }
}

/// Lets a thread work with each handle until `step` is over, and makes all that was done durable, every
/// second and in the end. Returns the work of all threads.
///
/// # Errors
/// That of a thread, or of a sync.
pub fn drive<S: Synced + ?Sized>(
    handles: Vec<Box<S>>,
    mut syncing: Box<S>,
    step: Duration,
    work: &(impl Fn(u64, &mut S, &mut Time) -> Result<Done> + Sync),
) -> Result<Done> {
    let end = Instant::now() + step;
    let done = thread::scope(|scope| {
        let (stop, stopped) = channel::<()>();
        let syncing = &mut syncing;
        let syncs = scope.spawn(move || {
            while stopped.recv_timeout(SYNC_EVERY) == Err(RecvTimeoutError::Timeout) {
                syncing.sync()?;
            }
            Ok(())
        });
        let threads: Vec<_> = handles
            .into_iter()
            .zip(0..)
            .map(|(mut handle, number)| {
                scope.spawn(move || work(number, &mut *handle, &mut Time::until(end)))
            })
            .collect();
        let mut sum = Ok(Done::default());
        for thread in threads {
            let done = thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the workload panicked")));
            sum = sum.and_then(|sum| Ok(sum + done?));
        }
        drop(stop);
        let synced: Result<()> =
            syncs.join().unwrap_or_else(|_| Err(anyhow!("the thread that syncs panicked")));
        synced.and(sum)
    })?;
    syncing.sync()?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Counts syncs.
    struct Counting(Arc<AtomicU64>);

    impl Synced for Counting {
        fn sync(&mut self) -> Result<()> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    fn run(step: Duration, work: impl Fn(u64) -> Result<Done> + Sync) -> (Result<Done>, u64) {
        let syncs = Arc::new(AtomicU64::new(0));
        let handle = || Box::new(Counting(syncs.clone()));
        let done = drive(vec![handle(), handle()], handle(), step, &|thread, _, time| {
            while !time.is_over() {}
            work(thread)
        });
        (done, syncs.load(Ordering::SeqCst))
    }

    fn one(thread: u64) -> Result<Done> {
        let counters = [("conflicts".to_owned(), 1)].into();
        Ok(Done { operations: 1 + thread, user_bytes: 10, counters })
    }

    #[test]
    fn the_work_of_all_threads_is_added_and_made_durable() {
        let (done, syncs) = run(Duration::from_millis(1), one);
        let done = done.unwrap();
        assert_eq!((done.operations, done.user_bytes, done.counters["conflicts"], syncs), (3, 20, 2, 1));
        let (_, syncs) = run(SYNC_EVERY + SYNC_EVERY / 2, one);
        assert!(syncs >= 2, "one after a second, and one in the end");
    }

    #[test]
    fn a_thread_that_fails_or_panics_makes_all_fail() {
        let fail = |thread| if thread == 1 { Err(anyhow!("it failed")) } else { one(thread) };
        assert_eq!(run(Duration::ZERO, fail).0.unwrap_err().to_string(), "it failed");
        let panic = |thread| if thread == 0 { panic!("on purpose") } else { one(thread) };
        assert!(run(Duration::ZERO, panic).0.is_err());
    }
}
