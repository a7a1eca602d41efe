//! Requests read from /dev/fuse, and replies written to it.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::reader_gate::{ReaderGate, leave_gate, leave_gate_where_it_waits};
use crate::protocol::init::PAYLOAD_BYTES_MAX;
use crate::protocol::{Answerer, NotifySink, Outcome};
use crate::wire::{Body, InHeader, OutHeader};

/// The longest request: a WRITE's payload, and what stands before it.
pub const REQUEST_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 4096;

/// How long FORGETs are left to gather where nothing else comes this way: one by one, each would
/// wake a thread.
const FORGETS_GATHER: Duration = Duration::from_millis(2);

/// Sends notices by /dev/fuse, whichever way requests travel.
pub struct DeviceSink(pub Arc<OwnedFd>);

impl NotifySink for DeviceSink {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::writev(&self.0, parts).map(drop)
    }
}

/// What a thread that reads from /dev/fuse needs.
#[derive(Clone)]
pub struct Reader {
    /// The connection.
    pub device: Arc<OwnedFd>,
    /// What answers.
    pub answerer: Arc<dyn Answerer>,
    /// Where it waits for its turn.
    pub reader_gate: Arc<ReaderGate>,
    /// Whether nothing but FORGETs is to be expected.
    pub only_forgets: bool,
}

impl Reader {
    /// Answers requests until the connection ends.
    ///
    /// # Errors
    /// The operating system's, of reading.
    pub fn run(&self) -> io::Result<()> {
        let mut request = vec![0; REQUEST_BYTES_MAX];
        let mut out = vec![0; PAYLOAD_BYTES_MAX];
        leave_gate_where_it_waits();
        loop {
            self.reader_gate.pass();
            let len = match read(&self.device, &mut request) {
                Ok(Some(len)) => len,
                ended => {
                    leave_gate();
                    return ended.map(drop);
                }
            };
            let Some((header, body)) = parts(&request, len) else {
                tracing::error!("the kernel sent a request of {len} bytes that is none");
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
            // Unmounted, or aborted by hand.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
            // A request that was taken back before it was read (ENOENT), or a signal.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A request's header and what follows it.
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
        // ENOENT: whoever asked was killed meanwhile. ENODEV: it was unmounted.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(errno) => tracing::error!("the kernel does not take a reply: {errno}"),
    }
}
