//! Requests by io_uring: a queue for each CPU, and for each queue threads bound to its CPU.
//!
//! A request goes to the queue of the CPU on which its sender runs, and there to the thread that became free
//! last. Each thread has one entry. So a thread that waits for the disk holds up nobody: it holds no other
//! request, and the next request goes to another thread. Where threads wait for the end of a freeze, more are
//! started, each with an entry of its own ([`Pool`]).

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::thread::CpuSet;

use super::device::DeviceSink;
use super::pool::{Budget, Pool};
use super::ring::Entry;
use super::starvation::{Watch, Watched};
use crate::freeze::{AroundWaits, around_waits};
use crate::protocol::init::PAYLOAD_BYTES_MAX;
use crate::protocol::{Answerer, Outcome, SHORT_REPLY_BYTES_MAX, THREAD_NAME, ask_for_request};
use crate::wire::{Body, Opcode};

/// The kernel's switch for io_uring, for the whole machine.
const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";
const CPUS_POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const CPUS_ONLINE: &str = "/sys/devices/system/cpu/online";

/// Number of threads wanted, including those that wait for the disk.
const THREADS: usize = 16;
/// Minimum and maximum number of threads for each queue.
const THREADS_PER_QUEUE: (usize, usize) = (2, 8);
/// With more CPUs (mostly places for CPUs to be plugged in), io_uring is not used.
const QUEUES_MAX: usize = 256;

/// Has the kernel offer io_uring to later mounts.
///
/// # Errors
/// The operating system's: there is no such parameter, or only root may set it.
pub fn enable() -> io::Result<()> {
    if std::fs::read_to_string(ENABLE)?.trim() == "Y" {
        return Ok(());
    }
    std::fs::write(ENABLE, "Y")?;
    tracing::info!("set {ENABLE} to Y");
    Ok(())
}

/// Called when a thread's entry fails while the connection lasts, with the CPU and the error: requests for
/// that entry would wait for ever.
pub type Broken = Arc<dyn Fn(usize, Errno) + Send + Sync>;

/// Threads, each with a ring, that wait for the start.
pub struct Queues {
    queues: Vec<Threads>,
}

/// The threads of a queue, each with what it begins to serve with.
type Threads = Vec<(Sender<Start>, JoinHandle<()>)>;

/// What the threads of a queue share.
#[derive(Clone)]
struct Start {
    broken: Broken,
    pool: Arc<Pool>,
}

/// Threads that serve.
pub struct Serving {
    threads: Vec<JoinHandle<()>>,
    pools: Vec<Arc<Pool>>,
}

impl Serving {
    /// Waits for their end; `false` if one panicked.
    pub fn join(self) -> bool {
        let usual = self.threads.into_iter().map(|thread| thread.join().is_ok());
        let usual_are_well = usual.fold(true, |all, is_well| all & is_well);
        self.pools.iter().fold(usual_are_well, |all, pool| all & pool.join())
    }
}

impl Queues {
    /// Starts the threads.
    ///
    /// # Errors
    /// The operating system's: io_uring may be forbidden.
    pub fn prepare(device: &Arc<OwnedFd>, answerer: &Arc<dyn Answerer>) -> io::Result<Queues> {
        let possible = cpus(&std::fs::read_to_string(CPUS_POSSIBLE)?);
        let online = cpus(&std::fs::read_to_string(CPUS_ONLINE)?);
        let queues = possible.last().map_or(0, |last| last + 1);
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(io::Error::other(format!("there may be {queues} CPUs")));
        }
        let (least, most) = THREADS_PER_QUEUE;
        let per_queue = (THREADS / online.len().max(1)).clamp(least, most);
        let watch = Watch::start(&format!("{THREAD_NAME}-watch"))
            .inspect_err(|error| tracing::info!("threads that answer do not give way to others: {error}"))
            .ok();
        let (started, all_started) = mpsc::channel();
        let mut all = Vec::new();
        for qid in 0..queues {
            // The kernel wants all queues served, even those of absent CPUs.
            let count = if online.contains(&qid) { per_queue } else { 1 };
            let mut threads = Vec::new();
            for _ in 0..count {
                let (device, answerer) = (Arc::clone(device), Arc::clone(answerer));
                let worker = Worker { qid, device, answerer, watch: watch.clone() };
                let (begin, begun) = mpsc::channel();
                let started = started.clone();
                let thread = thread::Builder::new()
                    .name(format!("{THREAD_NAME}-{qid}"))
                    .spawn(move || worker.run(&started, &begun))?;
                threads.push((begin, thread));
            }
            all.push(threads);
        }
        let count = all.iter().map(Vec::len).sum();
        // On an error, the drop of the threads' channels ends them.
        all_started.iter().take(count).collect::<io::Result<Vec<()>>>()?;
        Ok(Queues { queues: all })
    }

    /// Lets the threads answer requests until the connection ends. More are started by the budget.
    pub fn serve(self, broken: &Broken, budget: &Budget) -> Serving {
        let (mut threads, mut pools) = (Vec::new(), Vec::new());
        for queue in self.queues {
            let pool = Arc::new(Pool::new(queue.len(), budget.clone()));
            let start = Start { broken: Arc::clone(broken), pool: Arc::clone(&pool) };
            pools.push(pool);
            for (begin, thread) in queue {
                // A thread that has ended has no ring to serve.
                let _ = begin.send(start.clone());
                threads.push(thread);
            }
        }
        Serving { threads, pools }
    }
}

#[derive(Clone)]
struct Worker {
    qid: usize,
    device: Arc<OwnedFd>,
    answerer: Arc<dyn Answerer>,
    /// None if the thread does not give way to others.
    watch: Option<Watch>,
}

/// A worker that has begun.
struct Begun {
    worker: Worker,
    start: Start,
}

impl AroundWaits for Begun {
    fn begins(&self) {
        self.start.pool.wait_begins(|| {
            let (worker, start) = (self.worker.clone(), self.start.clone());
            let thread = thread::Builder::new().name(format!("{THREAD_NAME}-{}", self.worker.qid));
            thread.spawn(move || worker.stand_in(&start))
        });
    }

    fn ends(&self) {
        self.start.pool.wait_ends();
    }
}

impl Worker {
    /// Serves as one of the usual threads of its queue.
    fn run(self, started: &Sender<io::Result<()>>, begun: &Receiver<Start>) {
        let (entry, told) = match self.prepare() {
            Ok(entry) => (Some(entry), started.send(Ok(()))),
            Err(error) => (None, started.send(Err(error))),
        };
        // If `begun` is closed, the mount failed.
        if let (Some(mut entry), Ok(()), Ok(start)) = (entry, told, begun.recv()) {
            let registered = entry.register(|| ());
            self.end(registered.and_then(|()| self.serve(&mut entry, &start)), &start);
        }
    }

    /// Serves beside the usual threads of its queue, until the connection ends.
    fn stand_in(&self, start: &Start) {
        let unasked = |error: io::Error| {
            tracing::warn!("no entry in place of one that waits for the end of a freeze: {error}");
            start.pool.lost();
        };
        let mut entry = match self.prepare() {
            Ok(entry) => entry,
            Err(error) => return unasked(error),
        };
        // What found no entry is the kernel's to give to an entry that an answer frees: this one has none to
        // give before it gets a request.
        let ask = || ask_for_request(&DeviceSink(Arc::clone(&self.device)));
        match entry.register(ask) {
            Ok(()) => self.end(self.serve(&mut entry, start), start),
            Err(Errno::NOTCONN | Errno::CONNABORTED) => self.answerer.ended(),
            Err(errno) => unasked(errno.into()),
        }
    }

    fn end(&self, served: Result<(), Errno>, start: &Start) {
        match served {
            Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED) => self.answerer.ended(),
            Err(errno) => (start.broken)(self.qid, errno),
        }
    }

    /// Binds the thread to its queue's CPU.
    fn bind(&self) {
        let mut cpu = CpuSet::new();
        cpu.set(self.qid);
        if let Err(errno) = rustix::thread::sched_setaffinity(None, &cpu) {
            tracing::debug!("a thread is not bound to CPU {}: {errno}", self.qid);
        }
    }

    /// Makes the thread and its entry ready to serve.
    fn prepare(&self) -> io::Result<Entry> {
        self.bind();
        let qid = u16::try_from(self.qid).map_err(io::Error::other)?;
        let mut entry = Entry::new(Arc::clone(&self.device), qid, PAYLOAD_BYTES_MAX)?;
        entry.try_out()?;
        Ok(entry)
    }

    /// Has the thread give way to others, if it may compete with them again.
    fn give_way(&self) -> Option<Watched> {
        let entered = self.watch.as_ref()?.enter();
        entered.inspect_err(|error| tracing::debug!("a thread does not give way: {error}")).ok()
    }

    /// Answers the requests of a registered entry, the first of which is there.
    fn serve(&self, entry: &mut Entry, start: &Start) -> Result<(), Errno> {
        around_waits(Rc::new(Begun { worker: self.clone(), start: start.clone() }));
        let watched = self.give_way();
        // A copy of the request's payload, whose memory the reply takes.
        let mut names = Vec::new();
        loop {
            if let Some(watched) = &watched {
                watched.begins();
            }
            let mut message = entry.message()?;
            let (header, about) = (message.header()?, message.about()?);
            let mut structure = [0; 128];
            structure.copy_from_slice(message.structure());
            let rest = message.payload.get(..about.payload_len as usize).ok_or(Errno::INVAL)?;
            let outcome = if header.opcode == Opcode::Write as u32 {
                let mut out = [0; SHORT_REPLY_BYTES_MAX];
                let body = Body::Split { structure: &structure, rest };
                let outcome = self.answerer.answer(&header, body, &mut out);
                message.payload.get_mut(..out.len()).ok_or(Errno::INVAL)?.copy_from_slice(&out);
                outcome
            } else {
                names.clear();
                names.extend_from_slice(rest);
                let body = Body::Split { structure: &structure, rest: &names };
                self.answerer.answer(&header, body, message.payload)
            };
            let answer = match outcome {
                Outcome::Reply(answer) => answer,
                // Others than those that were asked for come by /dev/fuse.
                Outcome::Silent => Ok(0),
            };
            message.reply(header.unique, answer)?;
            if let Some(watched) = &watched {
                watched.ends();
            }
            entry.commit(about.commit_id)?;
        }
    }
}

/// The numbers in a list like `0-3,8`.
fn cpus(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpus("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cpus("0\n"), [0]);
        assert!(cpus("").is_empty());
    }
}
