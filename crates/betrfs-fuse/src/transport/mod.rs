//! How requests travel: by io_uring where the kernel offers that, else by reads of /dev/fuse.
//!
//! What decides the speed of small operations is that a request is answered on the CPU of whoever
//! sent it, by a thread that is woken there and by no other (measured: 10 µs a request, against 64
//! across CPUs). So nothing is handed from thread to thread; only who waits for the disk leaves the
//! next request to another ([`queues`], [`turnstile`]).

mod convert;
mod device;
mod dispatch;
mod giving_way;
mod kernel_cache;
mod notices;
mod panics;
mod queues;
mod ring;
mod turnstile;

use std::fmt;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::server::Server;
use crate::wire::{self, InitIn, InitOut, Opcode, init};
use device::Reader;
use dispatch::Dispatch;
use notices::Notices;
pub use panics::abort_on_stray_panics;
pub use queues::enable as enable_io_uring;
use queues::{Broken, Queues};
pub use turnstile::SlowDevice;
use turnstile::Turnstile;

/// What the names of the threads that answer begin with.
const THREAD_NAME: &str = "betrfs-fuse";
/// The largest write or read in one request.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// How many read-ahead requests may wait at once, and when the kernel holds back.
const BACKGROUND_MAX: u16 = 64;
const BACKGROUND_CONGESTED: u16 = 48;
/// Threads that wait at /dev/fuse at a time; more of them make it slower.
const READERS_AT_A_TIME: usize = 2;
/// Threads that read from /dev/fuse, those that wait for something counted.
const READERS: usize = 16;

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By io_uring; the mount fails where that is not offered.
    IoUring,
    /// By /dev/fuse alone.
    Device,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::IoUring => "io_uring",
            Transport::Device => "device",
        })
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(name: &str) -> Result<Transport, String> {
        let all = [Transport::IoUring, Transport::Device];
        let found = all.into_iter().find(|transport| transport.to_string() == name);
        found.ok_or_else(|| format!("`{name}` is neither io_uring nor device"))
    }
}

/// A connection to the kernel that has been greeted and is not yet served.
pub struct Connection {
    device: Arc<OwnedFd>,
    dispatch: Dispatch,
    queues: Option<Queues>,
}

impl Connection {
    /// Takes over the descriptor of /dev/fuse that a mount was made with, and greets the kernel.
    /// Requests travel as `wanted`, or else as best they can.
    ///
    /// # Errors
    /// The operating system's, or that the kernel cannot do what is needed.
    pub fn greet(device: OwnedFd, server: &Arc<Server>, wanted: Option<Transport>) -> io::Result<Connection> {
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
        let notices = Notices::start(Arc::clone(&device))?;
        let dispatch = Dispatch::new(Arc::clone(server), Arc::clone(&device), notices, theirs.minor);
        let offered = u64::from(theirs.flags) | u64::from(theirs.flags2) << 32;
        let queues = match (wanted, offered & init::OVER_IO_URING != 0) {
            (Some(Transport::Device), _) | (None, false) => None,
            (Some(Transport::IoUring), false) => {
                return Err(io::Error::other("the kernel does not offer io_uring"));
            }
            (_, true) => match Queues::prepare(&device, &dispatch) {
                Ok(queues) => Some(queues),
                Err(error) if wanted.is_some() => return Err(error),
                Err(error) => {
                    tracing::info!("io_uring is not used: {error}");
                    None
                }
            },
        };
        let by_ring = if queues.is_some() { init::OVER_IO_URING } else { 0 };
        let ours = answer_init(&theirs, offered & (WANTED | by_ring), rustix::param::page_size());
        device::reply(&device, header.unique, Ok(ours.as_bytes()));
        server.set_transport(if queues.is_some() { Transport::IoUring } else { Transport::Device });
        Ok(Connection { device, dispatch, queues })
    }

    /// How requests travel.
    pub fn transport(&self) -> Transport {
        if self.queues.is_some() { Transport::IoUring } else { Transport::Device }
    }

    /// Whether the kernel has ended the connection.
    pub fn is_over(&self) -> impl Fn() -> bool + Send + 'static {
        let device = Arc::clone(&self.device);
        move || {
            let mut state = [PollFd::new(&*device, PollFlags::empty())];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let polled = rustix::event::poll(&mut state, Some(&now));
            polled.is_ok() && state.iter().any(|state| state.revents().contains(PollFlags::ERR))
        }
    }

    /// Answers requests until the kernel ends the connection. Where some could not be answered any more, `abort` is
    /// called, which ends it.
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
        let reader = Reader {
            device: self.device,
            dispatch: self.dispatch,
            turnstile: Arc::new(Turnstile::new(if only_forgets { 1 } else { READERS_AT_A_TIME })),
            only_forgets,
        };
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let reader = reader.clone();
            let thread = thread::Builder::new().name(format!("{THREAD_NAME}-dev"));
            readers.push(thread.spawn(move || reader.run())?);
        }
        let workers = self.queues.map(|queues| queues.serve(&broken)).unwrap_or_default();
        let mut served = Ok(());
        for reader in readers {
            served = served.and(reader.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        }
        for worker in workers {
            if worker.join().is_err() {
                served = served.and(Err(io::Error::other("a thread panicked")));
            }
        }
        let failure = failure.lock().take();
        failure.map_or(served, |errno| Err(errno.into()))
    }
}

/// What is asked of the kernel; what it does not offer is left out.
///
/// Not FUSE_ASYNC_DIO: with it, a direct write by io_submit(2) ends without a word to the file's pages, and whoever
/// reads through these meanwhile keeps what was there before, for ever. Without it the kernel drops the pages once
/// more after the write, before it tells that it has ended.
const WANTED: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::BIG_WRITES
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::ALLOW_IDMAP
    | init::INIT_EXT;

/// What the kernel says in INIT. Before FUSE 7.36 (Linux 5.17) that ends behind the lower half of the flags.
fn read_init(body: &[u8]) -> Result<InitIn, Errno> {
    if body.len() < offset_of!(InitIn, flags2) {
        return Err(Errno::INVAL);
    }
    let mut theirs = InitIn::default();
    theirs.as_mut_bytes().iter_mut().zip(body).for_each(|(ours, byte)| *ours = *byte);
    Ok(theirs)
}

/// What is agreed with a kernel whose pages have this size.
fn answer_init(theirs: &InitIn, flags: u64, page_bytes: usize) -> InitOut {
    InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR,
        max_readahead: theirs.max_readahead,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_CONGESTED,
        max_write: PAYLOAD_BYTES_MAX as u32,
        time_gran: 1,
        max_pages: (PAYLOAD_BYTES_MAX / page_bytes.max(1)) as u16,
        ..InitOut::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_has_more_pages_than_its_payload() {
        for (page_bytes, pages) in [(4096, 256), (16 << 10, 64), (64 << 10, 16)] {
            let ours = answer_init(&InitIn::default(), 0, page_bytes);
            assert_eq!((ours.max_pages, ours.max_write), (pages, PAYLOAD_BYTES_MAX as u32));
        }
    }

    #[test]
    fn the_greeting_of_any_kernel_is_read() {
        let theirs = InitIn {
            major: 7,
            minor: 31,
            max_readahead: 131_072,
            flags: init::INIT_EXT as u32,
            flags2: 1 << 9,
            unused: [u32::MAX; 11],
        };
        let read = read_init(theirs.as_bytes()).unwrap();
        assert_eq!(read.as_bytes(), theirs.as_bytes());
        // As Linux 5.1 to 5.16 send it.
        let read = read_init(&theirs.as_bytes()[..16]).unwrap();
        assert_eq!((read.major, read.minor, read.max_readahead), (7, 31, 131_072));
        assert_eq!((read.flags, read.flags2, read.unused), (theirs.flags, 0, [0; 11]));
        assert_eq!(read_init(&theirs.as_bytes()[..15]).err(), Some(Errno::INVAL));
        // What a later one adds is not looked at.
        let longer = [theirs.as_bytes(), &[0xff; 16]].concat();
        assert_eq!(read_init(&longer).unwrap().as_bytes(), theirs.as_bytes());
    }
}
