//! Requests read from /dev/fuse, and replies written to it.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::pool::Pool;
use super::reader_gate::{ReaderGate, leave_gate, leave_gate_where_it_waits};
use crate::freeze::{AroundWaits, around_waits};
use crate::protocol::init::PAYLOAD_BYTES_MAX;
use crate::protocol::{Answerer, NotifySink, Outcome, THREAD_NAME};
use crate::wire::{Body, InHeader, OutHeader};

/// The longest request: a WRITE's payload, with room for its header and structure.
pub const REQUEST_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 4096;

/// How long FORGETs may gather if no other requests come by /dev/fuse: one by one, each would wake a thread.
const FORGETS_GATHER: Duration = Duration::from_millis(2);

/// Sends notices through /dev/fuse, for both transports.
pub struct DeviceSink(pub Arc<OwnedFd>);

impl NotifySink for DeviceSink {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::writev(&self.0, parts).map(drop)
    }
}

/// A reader of /dev/fuse, for one thread.
#[derive(Clone)]
pub struct Reader {
    /// The connection.
    pub device: Arc<OwnedFd>,
    /// Answers the requests.
    pub answerer: Arc<dyn Answerer>,
    /// The gate before each read.
    pub reader_gate: Arc<ReaderGate>,
    /// The threads that read.
    pub pool: Arc<Pool>,
    /// Whether only FORGETs come this way, as with io_uring.
    pub only_forgets: bool,
}

/// Whether a reader is one of the usual ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It reads until the connection ends.
    Usual,
    /// It reads as long as others wait for the end of a freeze.
    StandIn,
}

impl AroundWaits for Reader {
    fn begins(&self) {
        leave_gate();
        self.pool.wait_begins(|| {
            let reader = self.clone();
            thread::Builder::new().name(format!("{THREAD_NAME}-dev")).spawn(move || {
                if let Err(error) = reader.run(Kind::StandIn) {
                    tracing::error!("cannot read from the kernel: {error}");
                }
            })
        });
    }

    fn ends(&self) {
        self.pool.wait_ends();
    }
}

impl Reader {
    /// Answers requests until the connection ends, or the thread is not needed any more.
    ///
    /// # Errors
    /// The operating system's, of reading.
    pub fn run(&self, kind: Kind) -> io::Result<()> {
        let mut request = vec![0; REQUEST_BYTES_MAX];
        let mut out = vec![0; PAYLOAD_BYTES_MAX];
        leave_gate_where_it_waits();
        around_waits(Rc::new(self.clone()));
        loop {
            if kind == Kind::StandIn && self.pool.lets_go() {
                leave_gate();
                return Ok(());
            }
            self.reader_gate.pass();
            let len = match read(&self.device, &mut request) {
                Ok(Some(len)) => len,
                ended => {
                    leave_gate();
                    self.answerer.ended();
                    return ended.map(drop);
                }
            };
            let Some((header, body)) = parts(&request, len) else {
                tracing::error!("the kernel sent {len} bytes that are no request");
                continue;
            };
            match self.answerer.answer(&header, Body::Joined(body), &mut out) {
                Outcome::Reply(answer) => {
                    let answer = answer.map(|len| out.get(..len).unwrap_or_default());
                    reply(&self.device, header.unique, answer);
                }
                Outcome::Silent if self.only_forgets => thread::sleep(FORGETS_GATHER),
                Outcome::Silent => {}
            }
        }
    }
}

/// Reads one request; `None` when the connection has ended.
///
/// # Errors
/// The operating system's.
pub fn read(device: &OwnedFd, request: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(device, &mut *request) {
            Ok(len) => return Ok(Some(len)),
            // Unmounted or aborted.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
            // ENOENT: the request was withdrawn before it was read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Splits a request into header and body; `None` if it is too short.
pub fn parts(request: &[u8], len: usize) -> Option<(InHeader, &[u8])> {
    InHeader::read_from_prefix(request.get(..len)?).ok()
}

/// Sends a reply.
pub fn reply(device: &OwnedFd, unique: u64, answer: Result<&[u8], Errno>) {
    let (bytes, error) = match answer {
        Ok(bytes) => (bytes, 0),
        Err(errno) => (&[][..], -errno.raw_os_error()),
    };
    let header = OutHeader { len: (size_of::<OutHeader>() + bytes.len()) as u32, error, unique };
    match rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(bytes)]) {
        // ENOENT: the caller was killed meanwhile. ENODEV: the volume was unmounted.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(errno) => tracing::error!("the kernel does not take a reply: {errno}"),
    }
}
