//! The engine's background threads in an ordinary program.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use betree::{Env, State};

/// The number of threads for an environment, and the periods of syncs and checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct WorkersOptions {
    /// The number of threads that flush and write nodes.
    pub threads: usize,
    /// The longest time that a commit stays in memory alone.
    pub sync_every: Duration,
    /// The time between checkpoints of a changing volume.
    pub checkpoint_every: Duration,
}

impl Default for WorkersOptions {
    fn default() -> WorkersOptions {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        WorkersOptions {
            threads: cores.clamp(1, 4),
            sync_every: Duration::from_secs(5),
            checkpoint_every: Duration::from_secs(60),
        }
    }
}

/// The number of readahead threads, which is the number of leaves read at a time.
const READERS: usize = 2;
/// The number of writeback threads of checkpoints and ingests, which is the number of writes at a time.
const WRITERS: usize = 2;

/// The threads that do an environment's background work, until this is stopped or dropped.
pub struct Workers {
    env: Arc<Env>,
    threads: Vec<JoinHandle<()>>,
    /// The timer ends when this is dropped.
    stop_timer: Option<mpsc::Sender<()>>,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started; the others are stopped.
    pub fn start(env: Arc<Env>, options: WorkersOptions) -> io::Result<Workers> {
        let (stop_timer, stopped) = mpsc::channel();
        let mut workers = Workers { env, threads: Vec::new(), stop_timer: Some(stop_timer) };
        for i in 0..options.threads {
            let env = Arc::clone(&workers.env);
            let spawned =
                thread::Builder::new().name(format!("betrfs-work-{i}")).spawn(move || env.run_worker())?;
            workers.threads.push(spawned);
        }
        for i in 0..READERS {
            let env = Arc::clone(&workers.env);
            let named = thread::Builder::new().name(format!("betrfs-ahead-{i}"));
            workers.threads.push(named.spawn(move || env.run_readahead())?);
        }
        for i in 0..WRITERS {
            let env = Arc::clone(&workers.env);
            let named = thread::Builder::new().name(format!("betrfs-write-{i}"));
            workers.threads.push(named.spawn(move || env.run_writeback())?);
        }
        let timer = Timer::new(Arc::clone(&workers.env), options);
        let spawned =
            thread::Builder::new().name("betrfs-timer".into()).spawn(move || timer.run(&stopped))?;
        workers.threads.push(spawned);
        Ok(workers)
    }

    /// Ends the threads and waits for them. Unwritten data stays in memory.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if self.env.refuse_if_forked().is_err() {
            // The threads are the parent's. With this reference nothing of the environment is dropped here:
            // they may have held its locks.
            let threads = (std::mem::take(&mut self.threads), self.stop_timer.take());
            std::mem::forget((threads, Arc::clone(&self.env)));
            return;
        }
        self.stop_timer = None;
        self.env.stop();
        for thread in self.threads.drain(..) {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!("the background thread {name} panicked");
            }
        }
    }
}

struct Timer {
    env: Arc<Env>,
    options: WorkersOptions,
    /// [`betree::Stats::commits`] as of the last sync and checkpoint that succeeded.
    synced_commits: u64,
    checkpointed_commits: u64,
    next_checkpoint: Instant,
    /// Whether the volume took no changes at the last look.
    was_read_only: bool,
    reported: bool,
}

impl Timer {
    fn new(env: Arc<Env>, options: WorkersOptions) -> Timer {
        let next_checkpoint = Instant::now() + options.checkpoint_every;
        // Commits from before the start of the threads may not be durable: so 0.
        Timer {
            env,
            options,
            synced_commits: 0,
            checkpointed_commits: 0,
            next_checkpoint,
            was_read_only: false,
            reported: false,
        }
    }

    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let tick = self.options.sync_every.min(self.options.checkpoint_every);
        while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
            self.tick(Instant::now());
        }
    }

    fn tick(&mut self, now: Instant) {
        let commits = self.env.stats().commits;
        let is_read_only = matches!(self.env.state(), State::ReadOnly(_));
        let has_failed = is_read_only && !std::mem::replace(&mut self.was_read_only, is_read_only);
        if now >= self.next_checkpoint || has_failed {
            self.keep_errors();
        }
        if now >= self.next_checkpoint {
            self.next_checkpoint = now + self.options.checkpoint_every;
            if commits != self.checkpointed_commits && self.succeeded(self.env.checkpoint(), "checkpoint") {
                self.checkpointed_commits = commits;
                self.synced_commits = commits;
            }
        }
        if commits != self.synced_commits && self.succeeded(self.env.sync(), "sync") {
            self.synced_commits = commits;
        }
    }

    /// Keeps the counts of errors, so that a crash takes those of a short time away at most.
    fn keep_errors(&self) {
        if let Err(error) = self.env.keep_errors() {
            tracing::warn!("the counts of errors could not be kept on the volume: {error}");
        }
    }

    /// Reports the first of several failures in a row; writers get the others as errors.
    fn succeeded(&mut self, result: betree::Result<()>, what: &str) -> bool {
        if let Err(error) = &result
            && !std::mem::replace(&mut self.reported, true)
        {
            tracing::error!("the periodic {what} failed: {error}");
        }
        self.reported &= result.is_err();
        result.is_ok()
    }
}

#[cfg(test)]
mod tests;
