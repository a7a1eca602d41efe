//! Transport of requests: io_uring if the kernel offers it, else reads of /dev/fuse.
//!
//! Small operations are fast when a request is answered on its sender's CPU, by the one thread that is woken
//! there (measured: 10 µs a request, against 64 across CPUs). So no request is handed from thread to thread;
//! only a thread that waits for the disk leaves the next request to another ([`queues`], [`reader_gate`]).

mod device;
mod pool;
mod queues;
mod reader_gate;
mod ring;
mod starvation;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use zerocopy::IntoBytes;

use crate::protocol::init::{Agreement, answer_init, read_init};
use crate::protocol::{Answerer, NotifySink, THREAD_NAME};
use crate::server::Acls;
use crate::wire::{self, InitIn, Opcode, init};
use device::{DeviceSink, Kind, Reader};
use pool::{Budget, Pool};
pub use queues::enable as enable_io_uring;
use queues::{Broken, Queues, Serving};
use reader_gate::ReaderGate;
pub use reader_gate::SlowDevice;

/// Threads that may wait at /dev/fuse at a time; more are slower.
const READERS_AT_A_TIME: usize = 2;
/// Threads that read from /dev/fuse, including those that wait elsewhere.
const READERS: usize = 16;

/// The transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By io_uring; the mount fails if the kernel does not offer it.
    IoUring,
    /// By /dev/fuse alone.
    Device,
}

impl Transport {
    /// Its name in options, in the log and in `betrfs stats`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::IoUring => "io_uring",
            Transport::Device => "device",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(name: &str) -> Result<Transport, String> {
        let all = [Transport::IoUring, Transport::Device];
        let found = all.into_iter().find(|transport| transport.name() == name);
        found.ok_or_else(|| format!("`{name}` is neither io_uring nor device"))
    }
}

/// A connection to the kernel after INIT, not yet served.
pub struct Connection {
    device: Arc<OwnedFd>,
    answerer: Arc<dyn Answerer>,
    queues: Option<Queues>,
}

impl Connection {
    /// Takes the descriptor of /dev/fuse that a mount was made with, and answers INIT. Uses the transport
    /// `wanted`, or the best possible one. `start` makes the answerer from the sink for notices and what was
    /// agreed on.
    ///
    /// # Errors
    /// The operating system's, or a feature that the kernel lacks.
    pub fn greet<A: Answerer + 'static>(
        device: OwnedFd,
        wanted: Option<Transport>,
        acls: Acls,
        start: impl FnOnce(Arc<dyn NotifySink>, Agreement) -> io::Result<A>,
    ) -> io::Result<Connection> {
        let device = Arc::new(device);
        let mut request = vec![0; device::REQUEST_BYTES_MAX];
        let len = device::read(&device, &mut request)?.ok_or(io::ErrorKind::NotConnected)?;
        let (header, body) = device::parts(&request, len).ok_or(io::ErrorKind::InvalidData)?;
        if Opcode::of(header.opcode) != Some(Opcode::Init) {
            return Err(io::Error::other("the kernel's first request is not INIT"));
        }
        let theirs = read_init(body)?;
        if theirs.major != wire::MAJOR || theirs.minor < wire::MINOR_MIN {
            let InitIn { major, minor, .. } = theirs;
            return Err(io::Error::other(format!(
                "the kernel speaks FUSE {major}.{minor}, which is too old"
            )));
        }
        let sink: Arc<dyn NotifySink> = Arc::new(DeviceSink(Arc::clone(&device)));
        let offered = u64::from(theirs.flags) | u64::from(theirs.flags2) << 32;
        let agreed = Agreement::with(theirs.minor, offered, acls);
        let answerer: Arc<dyn Answerer> = Arc::new(start(sink, agreed)?);
        let queues = match (wanted, offered & init::OVER_IO_URING != 0) {
            (Some(Transport::Device), _) | (None, false) => None,
            (Some(Transport::IoUring), false) => {
                return Err(io::Error::other("the kernel does not offer io_uring"));
            }
            (_, true) => match Queues::prepare(&device, &answerer) {
                Ok(queues) => Some(queues),
                Err(error) if wanted.is_some() => return Err(error),
                Err(error) => {
                    tracing::info!("io_uring is not used: {error}");
                    None
                }
            },
        };
        let by_ring = if queues.is_some() { init::OVER_IO_URING } else { 0 };
        let ours = answer_init(&theirs, agreed.flags | by_ring, rustix::param::page_size());
        device::reply(&device, header.unique, Ok(ours.as_bytes()));
        Ok(Connection { device, answerer, queues })
    }

    /// The transport in use.
    pub fn transport(&self) -> Transport {
        if self.queues.is_some() { Transport::IoUring } else { Transport::Device }
    }

    /// Whether the kernel has ended the connection.
    pub fn is_over(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let device = Arc::clone(&self.device);
        move || {
            let mut state = [PollFd::new(&*device, PollFlags::empty())];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let polled = rustix::event::poll(&mut state, Some(&now));
            polled.is_ok() && state.iter().any(|state| state.revents().contains(PollFlags::ERR))
        }
    }

    /// Answers requests until the kernel ends the connection. If a queue fails, calls `abort` to end the
    /// connection, because its requests would wait for ever.
    ///
    /// # Errors
    /// The operating system's.
    pub fn serve(self, abort: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
        let failure = Arc::new(Mutex::new(None));
        let broken: Broken = Arc::new({
            let failure = Arc::clone(&failure);
            move |cpu, errno| {
                tracing::error!("the queue of CPU {cpu} broke: {errno}");
                failure.lock().get_or_insert(errno);
                abort();
            }
        });
        let only_forgets = self.queues.is_some();
        let files_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let budget = Budget::of(files_max);
        let pool = Arc::new(Pool::new(READERS, budget.clone()));
        let reader = Reader {
            device: self.device,
            answerer: self.answerer,
            reader_gate: Arc::new(ReaderGate::new(if only_forgets { 1 } else { READERS_AT_A_TIME })),
            pool: Arc::clone(&pool),
            only_forgets,
        };
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let reader = reader.clone();
            let thread = thread::Builder::new().name(format!("{THREAD_NAME}-dev"));
            readers.push(thread.spawn(move || reader.run(Kind::Usual))?);
        }
        let serving = self.queues.map(|queues| queues.serve(&broken, &budget));
        let mut served = Ok(());
        for reader in readers {
            served = served.and(reader.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        }
        let are_well = [pool.join(), serving.is_none_or(Serving::join)];
        if are_well != [true; 2] {
            served = served.and(Err(io::Error::other("a thread panicked")));
        }
        let failure = failure.lock().take();
        failure.map_or(served, |errno| Err(errno.into()))
    }
}
