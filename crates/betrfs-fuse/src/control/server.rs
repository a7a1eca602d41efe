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
use rustix::net::sockopt::socket_peercred;

use super::backup::{self, BackupPart};
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
/// Number of clients that may wait for the farewell; one more drops the first.
pub(super) const WAITING_MAX: usize = 64;
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
    listener: UnixListener,
    pub(super) waiting: Arc<Mutex<Vec<UnixStream>>>,
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
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let is_ended = Arc::new(AtomicBool::new(false));
        let turns = Turns::default();
        let control = Control {
            listener: listener.try_clone()?,
            waiting: Arc::clone(&waiting),
            is_ended: Arc::clone(&is_ended),
            reported: [turns.check.clone(), turns.scrub.clone()],
        };
        thread::Builder::new().name("betrfs-control".into()).spawn(move || {
            for stream in listener.incoming() {
                if is_ended.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else {
                    // Out of descriptors, for example.
                    thread::sleep(LOOK_EVERY);
                    continue;
                };
                if let Err(error) = answer(stream, &served, &waiting, &turns) {
                    tracing::debug!("a client of the control socket got no answer: {error}");
                }
            }
        })?;
        Ok(control)
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
        for mut stream in self.waiting.lock().drain(..) {
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
        if let Err(errno) = rustix::net::shutdown(&self.listener, Shutdown::Both) {
            tracing::debug!("the socket is not shut down: {errno}");
        }
    }
}

/// Answers one connection: of root or of the server's user, or of another one that may have the mount
/// removed.
fn answer(
    mut stream: UnixStream,
    served: &Arc<dyn Served>,
    waiting: &Mutex<Vec<UnixStream>>,
    turns: &Turns,
) -> io::Result<()> {
    let peer = socket_peercred(&stream)?.uid;
    let is_other = !peer.is_root() && peer != rustix::process::geteuid();
    if is_other && !served.is_removed_for_all() {
        return Err(Errno::PERM.into());
    }
    let greeting = if served.is_over() { OVER } else { LIVE };
    write_until(&mut stream, greeting.as_bytes(), Instant::now() + PATIENCE)?;
    let request = request(&stream)?;
    let is_for_all = request.starts_with(UNMOUNT) || [FAREWELL, PING].contains(&request.as_str());
    if is_other && !is_for_all {
        return Err(Errno::PERM.into());
    }
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
    match request.as_str() {
        STATUS => write_until(&mut stream, &served.status(), Instant::now() + PATIENCE),
        CHECK => check::answer(stream, served, &turns.check),
        BACKUP => backup::answer(stream, served, &turns.backup),
        CLOSING => closing::answer(stream, served, &turns.closing),
        PING => write_until(&mut stream, HEARD.as_bytes(), Instant::now() + PATIENCE),
        FAREWELL => {
            let mut waiting = waiting.lock();
            // Sent under the lock, so that the client reads it before the farewell.
            write_until(&mut stream, HEARD.as_bytes(), Instant::now() + PATIENCE)?;
            if waiting.len() == WAITING_MAX {
                waiting.remove(0);
            }
            waiting.push(stream);
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
