//! Requests by io_uring: a queue for each CPU, and for each queue threads bound to its CPU.
//!
//! A request goes to the queue of the CPU on which its sender runs, and there to the thread that became free
//! last. Each thread has one entry. So a thread that waits for the disk holds up nobody: it holds no other
//! request, and the next request goes to another thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::thread::CpuSet;

use super::ring::Entry;
use crate::protocol::init::PAYLOAD_BYTES_MAX;
use crate::protocol::{Answerer, Outcome, SHORT_REPLY_BYTES_MAX, THREAD_NAME};
use crate::sched_idle::set_sched_idle;
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
    threads: Vec<(Sender<Broken>, JoinHandle<()>)>,
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
        let (started, all_started) = mpsc::channel();
        let mut threads = Vec::new();
        for qid in 0..queues {
            // The kernel wants all queues served, even those of absent CPUs.
            let count = if online.contains(&qid) { per_queue } else { 1 };
            for _ in 0..count {
                let worker = Worker { qid, device: Arc::clone(device), answerer: Arc::clone(answerer) };
                let (begin, begun) = mpsc::channel();
                let started = started.clone();
                let thread = thread::Builder::new()
                    .name(format!("{THREAD_NAME}-{qid}"))
                    .spawn(move || worker.run(&started, &begun))?;
                threads.push((begin, thread));
            }
        }
        // On an error, the drop of the threads' channels ends them.
        all_started.iter().take(threads.len()).collect::<io::Result<Vec<()>>>()?;
        Ok(Queues { threads })
    }

    /// Lets the threads answer requests until the connection ends.
    pub fn serve(self, broken: &Broken) -> Vec<JoinHandle<()>> {
        let begin = |(begin, thread): (Sender<Broken>, JoinHandle<()>)| {
            // A thread that has ended has no ring to serve.
            let _ = begin.send(Arc::clone(broken));
            thread
        };
        self.threads.into_iter().map(begin).collect()
    }
}

struct Worker {
    qid: usize,
    device: Arc<OwnedFd>,
    answerer: Arc<dyn Answerer>,
}

impl Worker {
    fn run(self, started: &Sender<io::Result<()>>, begun: &Receiver<Broken>) {
        let mut cpu = CpuSet::new();
        cpu.set(self.qid);
        if let Err(errno) = rustix::thread::sched_setaffinity(None, &cpu) {
            tracing::debug!("a thread is not bound to CPU {}: {errno}", self.qid);
        }
        if let Err(error) = set_sched_idle() {
            tracing::debug!("a thread does not give way: {error}");
        }
        let entry = u16::try_from(self.qid)
            .map_err(io::Error::other)
            .and_then(|qid| Entry::new(Arc::clone(&self.device), qid, PAYLOAD_BYTES_MAX))
            .and_then(|mut entry| entry.try_out().map(|()| entry).map_err(io::Error::from));
        let (entry, told) = match entry {
            Ok(entry) => (Some(entry), started.send(Ok(()))),
            Err(error) => (None, started.send(Err(error))),
        };
        // If `begun` is closed, the mount failed.
        if let (Some(mut entry), Ok(()), Ok(broken)) = (entry, told, begun.recv()) {
            match self.serve(&mut entry) {
                Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED) => {}
                Err(errno) => broken(self.qid, errno),
            }
        }
    }

    fn serve(&self, entry: &mut Entry) -> Result<(), Errno> {
        // A copy of the request's payload, whose memory the reply takes.
        let mut names = Vec::new();
        entry.register()?;
        loop {
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
                // Such requests come by /dev/fuse.
                Outcome::Silent => Ok(0),
            };
            message.reply(header.unique, answer)?;
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
