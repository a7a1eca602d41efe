//! The server's end: answers requests, and tells waiting clients how the volume was closed.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use betree::{ScrubOptions, ScrubStep};
use betrfs::{QuotaLimits, Report, Scrubbed};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::backup::{self, BackupPart};
use super::peer::{Peer, Requires, requires};
use super::private::PrivateSocket;
use super::shares::Shares;
use super::timed::{Timed, write_until};
use super::turn::Turn;
use super::{
    BACKUP, CHECK, CLEAN, CLOSING, FAREWELL, FREEZE, HEARD, LAYOUT, LIVE, LOOK_EVERY, MAP, ORDER, OVER, PING,
    QUOTA, SCRUB, STATUS, THAW, UNMOUNT,
};
use super::{Order, check, closing, freeze, layout, map, name_of, order, quota, scrub, unmount};
use crate::closing::CloseState;
use crate::file_map::MapExtent;
use crate::freeze::{End, FreezeError, Step};
use crate::layout::Layout;

/// How long a server waits for a client's request, and for the client to read the answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Number of clients that may wait for the farewell; one more drops the first of the user who has most.
pub(super) const WAITING_MAX: usize = 64;
/// Number of clients of a socket that have made no request yet.
const CONNECTIONS_MAX: usize = 64;
/// The longest request: an order with a label of 255 bytes, each of them escaped.
const REQUEST_BYTES_MAX: u64 = 2048;

/// What a server answers with.
pub trait Served: Send + Sync {
    /// The answer to `status`.
    fn status(&self) -> Vec<u8>;

    /// Whether the mount is over.
    fn is_over(&self) -> bool;

    /// How far the close of the volume is.
    fn close_state(&self) -> CloseState;

    /// Checks the volume while it is used: [`Volume::check_in_use`](betrfs::Volume::check_in_use).
    ///
    /// # Errors
    /// The volume's.
    fn check(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> betrfs::Result<Report>;

    /// Scrubs the volume while it is used: [`Volume::scrub`](betrfs::Volume::scrub).
    ///
    /// # Errors
    /// The volume's.
    fn scrub(
        &self,
        options: ScrubOptions,
        step: &mut dyn FnMut(ScrubStep) -> ControlFlow<()>,
    ) -> betrfs::Result<Scrubbed>;

    /// Reads the volume as of one moment, until `take` breaks it off:
    /// [`Volume::backup`](betrfs::Volume::backup).
    ///
    /// # Errors
    /// The volume's.
    fn backup(&self, take: &mut dyn FnMut(BackupPart<'_>) -> ControlFlow<()>) -> betrfs::Result<()>;

    /// What lies where on the volume, in at most `cells_max` cells: [`Layout::of`].
    ///
    /// # Errors
    /// The volume's.
    fn layout(&self, cells_max: u32) -> betrfs::Result<Layout>;

    /// Where the bytes of a file lie, of `len` from `offset` on: [`Volume::map`](betrfs::Volume::map). The
    /// token is that of the file as a source of copies.
    ///
    /// # Errors
    /// The volume's, and a token that is not known.
    fn map(&self, token: u64, offset: u64, len: u64) -> betrfs::Result<Vec<MapExtent>>;

    /// Changes the volume; returns the number for the answer, 0 if there is none to tell. Calls `go_on` while
    /// that takes long, with how much is done, and of how much; it may end it.
    ///
    /// # Errors
    /// The volume's; it is unchanged then.
    fn carry_out(
        &self,
        order: &Order,
        go_on: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> betrfs::Result<u64>;

    /// Gives a directory a quota, or its quota these limits:
    /// [`Volume::set_quota_while`](betrfs::Volume::set_quota_while). The token is that of the directory as a
    /// source of copies. Calls `go_on` with the number of records that were counted; it may end it.
    ///
    /// # Errors
    /// The volume's, and a token that is not known; nothing has changed then.
    fn set_quota(
        &self,
        token: u64,
        limits: QuotaLimits,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> betrfs::Result<()>;

    /// Freezes the volume for some time, or until the thaw:
    /// [`Freezer::freeze`](crate::freeze::Freezer::freeze).
    ///
    /// # Errors
    /// [`FreezeError`].
    fn freeze(
        &self,
        time: Option<Duration>,
        tell: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<End, FreezeError>;

    /// Ends the freeze with this number, or any; `false` if there is none. Does not wait for its end.
    fn thaw(&self, number: Option<u64>) -> bool;

    /// Waits for the end of a freeze that is about to end.
    fn await_thaw(&self);

    /// Whether a process has the capability to administer file systems.
    fn is_administrator(&self, process: u32) -> bool;

    /// Whether any user may have the mount removed.
    fn is_removed_for_all(&self) -> bool;

    /// Removes the mount with this number, if it is the server's own.
    ///
    /// # Errors
    /// A sentence: the mount is in use or frozen, for example.
    fn unmount(&self, number: u64) -> Result<(), String>;
}

/// The work that takes long, each for one client at a time.
#[derive(Default)]
struct Turns {
    check: Turn,
    scrub: Turn,
    backup: Turn,
    layout: Turn,
    map: Turn,
    order: Turn,
    closing: Turn,
    unmount: Turn,
}

/// The server's end.
pub struct Control {
    listeners: Vec<UnixListener>,
    _private: Option<PrivateSocket>,
    /// The name of the abstract socket.
    name: Option<String>,
    pub(super) waiting: Arc<Mutex<Shares<UnixStream>>>,
    is_ended: Arc<AtomicBool>,
    /// The work of which a client gets a report.
    pub(super) reported: [Turn; 2],
}

impl Control {
    /// Listens for the mount with this device number.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen(device: (u32, u32), unique: u64, served: Arc<dyn Served>) -> io::Result<Control> {
        let name = format!("{}{unique:016x}", name_of(device));
        let private = PrivateSocket::listen(&name).unwrap_or_else(|error| {
            tracing::warn!("other users can get in the way of commands for this mount: {error}");
            None
        });
        let (private, listener) = private.unzip();
        let mut listeners = Vec::from_iter(listener);
        let is_found_by_all = private.is_none() || served.is_removed_for_all();
        if is_found_by_all {
            listeners.push(UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?);
        }
        let turns = Arc::new(Turns::default());
        let control = Control {
            listeners,
            _private: private,
            name: is_found_by_all.then_some(name),
            waiting: Arc::new(Mutex::new(Shares::new(WAITING_MAX))),
            is_ended: Arc::new(AtomicBool::new(false)),
            reported: [turns.check.clone(), turns.scrub.clone()],
        };
        for listener in &control.listeners {
            let acceptor = Acceptor {
                served: Arc::clone(&served),
                waiting: Arc::clone(&control.waiting),
                turns: Arc::clone(&turns),
                connections: Arc::new(Mutex::new(Shares::new(CONNECTIONS_MAX))),
            };
            let (listener, is_ended) = (listener.try_clone()?, Arc::clone(&control.is_ended));
            let accept = move || {
                for stream in listener.incoming() {
                    if is_ended.load(Ordering::Acquire) {
                        return;
                    }
                    match stream {
                        Ok(stream) => acceptor.accept(stream),
                        // Out of descriptors, for example.
                        Err(_) => thread::sleep(LOOK_EVERY),
                    }
                }
            };
            thread::Builder::new().name("betrfs-control".into()).spawn(accept)?;
        }
        Ok(control)
    }

    /// The name of the abstract socket, if there is one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Waits for a check and a scrub that the end of the mount has interrupted, until their clients know.
    pub fn await_reports(&self) {
        let until = Instant::now() + PATIENCE;
        while self.reported.iter().any(Turn::is_taken) && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Sends the outcome of the close to the waiting clients. Does not block: the message fits into a
    /// socket's buffer.
    pub fn tell<E: Display>(&self, closed: &Result<(), E>) {
        let message = closed.as_ref().err().map_or_else(|| CLEAN.to_owned(), ToString::to_string);
        for mut stream in self.waiting.lock().take() {
            let told = stream.set_nonblocking(true).and_then(|()| stream.write_all(message.as_bytes()));
            if let Err(error) = told {
                tracing::debug!("a client no longer waits for the farewell: {error}");
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the thread, which drops what it serves, and with it the connection's descriptor.
        self.is_ended.store(true, Ordering::Release);
        for listener in &self.listeners {
            if let Err(errno) = rustix::net::shutdown(listener, Shutdown::Both) {
                tracing::debug!("the socket is not shut down: {errno}");
            }
        }
    }
}

/// Accepts the connections of a socket.
struct Acceptor {
    served: Arc<dyn Served>,
    waiting: Arc<Mutex<Shares<UnixStream>>>,
    turns: Arc<Turns>,
    /// Those that have made no request yet.
    connections: Arc<Mutex<Shares<Arc<UnixStream>>>>,
}

impl Acceptor {
    /// Answers a connection in a thread of its own: a client that is silent holds up no other.
    fn accept(&self, stream: UnixStream) {
        let peer = match Peer::of(&stream) {
            Ok(peer) if peer.may(Requires::AnyUser, &*self.served) => peer,
            _ => return,
        };
        let stream = Arc::new(stream);
        if let Some(gone) = self.connections.lock().push(peer.uid(), Arc::clone(&stream)) {
            // Its thread ends then.
            let _ = gone.shutdown(std::net::Shutdown::Both);
        }
        let (served, waiting) = (Arc::clone(&self.served), Arc::clone(&self.waiting));
        let (turns, connections) = (Arc::clone(&self.turns), Arc::clone(&self.connections));
        let answering = thread::Builder::new().name("betrfs-asked".into()).spawn(move || {
            let request = greet(&stream, &peer, &*served);
            connections.lock().retain(|other| !Arc::ptr_eq(other, &stream));
            let answered = request.and_then(|request| {
                let stream = stream.try_clone()?;
                answer(stream, &request, peer.uid(), &served, &waiting, &turns)
            });
            if let Err(error) = answered {
                tracing::debug!("a client of the control socket got no answer: {error}");
            }
        });
        if let Err(error) = answering {
            tracing::debug!("no thread for a client of the control socket: {error}");
        }
    }
}

/// Greets a client; returns its request, if the client may make it.
fn greet(stream: &UnixStream, peer: &Peer, served: &dyn Served) -> io::Result<String> {
    let greeting = if served.is_over() { OVER } else { LIVE };
    write_until(stream, greeting.as_bytes(), Instant::now() + PATIENCE)?;
    let request = request(stream)?;
    let requires = requires(&request).ok_or(Errno::INVAL)?;
    match peer.may(requires, served) {
        true => Ok(request),
        false => {
            if requires == Requires::Administration && peer.is_owner() {
                // Each of these requests can be answered so.
                let why = b"failed only root with the capability CAP_SYS_ADMIN may do that\n";
                write_until(stream, why, Instant::now() + PATIENCE)?;
            }
            Err(Errno::PERM.into())
        }
    }
}

/// Answers a request that the client may make.
fn answer(
    stream: UnixStream,
    request: &str,
    uid: u32,
    served: &Arc<dyn Served>,
    waiting: &Mutex<Shares<UnixStream>>,
    turns: &Turns,
) -> io::Result<()> {
    if let Some(number) = request.strip_prefix(UNMOUNT) {
        return unmount::answer(stream, number, served, &turns.unmount);
    }
    if let Some(words) = request.strip_prefix(SCRUB) {
        return scrub::answer(stream, words, served, &turns.scrub);
    }
    if let Some(words) = request.strip_prefix(LAYOUT) {
        return layout::answer(stream, words, served, &turns.layout);
    }
    if let Some(words) = request.strip_prefix(MAP) {
        return map::answer(stream, words, served, &turns.map);
    }
    if let Some(text) = request.strip_prefix(ORDER) {
        return order::answer(stream, text, served, &turns.order);
    }
    if let Some(text) = request.strip_prefix(QUOTA) {
        return quota::answer(stream, text, served);
    }
    if let Some(seconds) = request.strip_prefix(FREEZE) {
        return freeze::freeze(stream, seconds, served);
    }
    if let Some(which) = request.strip_prefix(THAW) {
        return freeze::thaw(stream, which, served);
    }
    match request {
        STATUS => write_until(&stream, &served.status(), Instant::now() + PATIENCE),
        CHECK => check::answer(stream, served, &turns.check),
        BACKUP => backup::answer(stream, served, &turns.backup),
        CLOSING => closing::answer(stream, served, &turns.closing),
        PING => write_until(&stream, HEARD.as_bytes(), Instant::now() + PATIENCE),
        FAREWELL => {
            let mut waiting = waiting.lock();
            // Sent under the lock, so that the client reads it before the farewell.
            write_until(&stream, HEARD.as_bytes(), Instant::now() + PATIENCE)?;
            // What is dropped here is heard as the end of the server.
            drop(waiting.push(uid, stream));
            Ok(())
        }
        _ => Err(Errno::INVAL.into()),
    }
}

/// Reads a request: everything up to the end of a line.
pub(super) fn request(stream: &UnixStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    let mut bytes = Timed { stream, until }.take(REQUEST_BYTES_MAX);
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        bytes.read_exact(&mut byte)?;
        line.extend(byte);
    }
    String::from_utf8(line).map_err(io::Error::other)
}
