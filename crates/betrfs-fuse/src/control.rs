//! The control socket: a mount's server reports its status, and how its volume was closed.
//!
//! Questions cannot go through the mount: its server may be stopped, another user's mount refuses even root,
//! and after an unmount no mount is left. So the server listens on an abstract socket. Its name begins with
//! the mount's device number, which the kernel shows without asking a server, and ends at random, so that
//! nobody can take the name in advance. Both sides check the other's user, and no wait is long.
//!
//! The kernel reuses a device number for the next mount while the last server may still be closing its
//! volume: so a connection begins with a word of the server that says whether its mount is over. It carries
//! one request, a line. `status` is answered with JSON; `ping` with a word; `farewell` with a word at once,
//! and with the outcome when the volume is closed and released.

use std::fmt::Display;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, UCred};
use rustix::process::{Pid, Uid};

use crate::errno::is_dead;
use crate::mount_info::MountEntry;

/// How long a server waits for a client's request, and for the client to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a client waits for an answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client hears nothing while it waits for a farewell before it pings the server.
const SILENCE: Duration = Duration::from_secs(5);
/// Interval between two searches for a socket.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Number of clients that may wait for the farewell; one more drops the first.
const WAITING_MAX: usize = 64;
/// The longest request.
const REQUEST_BYTES_MAX: u64 = 64;
/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Number of sockets with the right name that are tried: other users may have made some.
const SOCKETS_MAX: usize = 1000;

/// First word of a connection.
const LIVE: &str = "live\n";
/// As [`LIVE`], after the unmount: the socket's device number may be another mount's by now.
const OVER: &str = "over\n";
const STATUS: &str = "status\n";
const PING: &str = "ping\n";
const FAREWELL: &str = "farewell\n";
/// The answer to `ping`, and the first to `farewell`.
const HEARD: &str = "heard\n";
/// The farewell after a clean close.
const CLEAN: &str = "clean";
/// The error for a connection that ended without a farewell.
const DIED: &str = "its server ended without closing it";

/// Prefix of the name of a mount's socket.
fn name_of((major, minor): (u32, u32)) -> String {
    format!("betrfs-{major}:{minor}-")
}

/// The server's end.
pub struct Control {
    listener: UnixListener,
    waiting: Arc<Mutex<Vec<UnixStream>>>,
    is_ended: Arc<AtomicBool>,
}

impl Control {
    /// Listens for the mount with this device number. `status` returns the answer to `status`, `is_over`
    /// whether the mount is over.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen(
        device: (u32, u32),
        unique: u64,
        status: impl Fn() -> Vec<u8> + Send + 'static,
        is_over: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<Control> {
        let name = format!("{}{unique:016x}", name_of(device));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let is_ended = Arc::new(AtomicBool::new(false));
        let control = Control {
            listener: listener.try_clone()?,
            waiting: Arc::clone(&waiting),
            is_ended: Arc::clone(&is_ended),
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
                if let Err(error) = answer(stream, &status, &is_over, &waiting) {
                    tracing::debug!("a client of the control socket got no answer: {error}");
                }
            }
        })?;
        Ok(control)
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
        // Ends the thread, which drops `is_over` and with it the connection's descriptor.
        self.is_ended.store(true, Ordering::Release);
        if let Err(errno) = rustix::net::shutdown(&self.listener, Shutdown::Both) {
            tracing::debug!("the socket is not shut down: {errno}");
        }
    }
}

/// Answers one connection, of root or of the server's user.
fn answer(
    mut stream: UnixStream,
    status: &impl Fn() -> Vec<u8>,
    is_over: &impl Fn() -> bool,
    waiting: &Mutex<Vec<UnixStream>>,
) -> io::Result<()> {
    let peer = socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(Errno::PERM.into());
    }
    let greeting = if is_over() { OVER } else { LIVE };
    write_until(&mut stream, greeting.as_bytes(), Instant::now() + PATIENCE)?;
    match request(&stream)?.as_str() {
        STATUS => write_until(&mut stream, &status(), Instant::now() + PATIENCE),
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
fn request(stream: &UnixStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut line = String::new();
    let mut bytes = Timed { stream, until }.take(REQUEST_BYTES_MAX);
    while !line.ends_with('\n') {
        let mut byte = [0];
        bytes.read_exact(&mut byte)?;
        line.push(char::from(byte[0]));
    }
    Ok(line)
}

fn write_until(stream: &mut UnixStream, bytes: &[u8], until: Instant) -> io::Result<()> {
    Timed { stream, until }.write_all(bytes)
}

/// A stream with a deadline for all its reads and writes together, however slow the other side.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// Gives a timeout one kind: the operating system reports it as `WouldBlock`.
fn timed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        (&mut &*self.stream).read(buf).map_err(timed)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        (&mut &*self.stream).write(buf).map_err(timed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a mount's server gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unheard {
    /// It died; its mount is left.
    #[error("it is dead")]
    Dead,
    /// It lives and does not answer.
    #[error("it did not answer within {} seconds{}: it is stopped, or hangs", ANSWER_TIME_MAX.as_secs(), shown(*.server))]
    Silent {
        /// Its process, if known.
        server: Option<Pid>,
    },
    /// It does not answer this user.
    #[error("only root and the user who mounted the volume may ask it")]
    Refused,
    /// Its socket cannot be seen, though it answers the kernel.
    #[error("its socket cannot be seen from here: it is in another network name space")]
    Elsewhere,
    /// The operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn shown(server: Option<Pid>) -> String {
    server.map_or_else(String::new, |pid| format!(" (process {})", pid.as_raw_nonzero()))
}

/// A client's connection.
pub struct Line {
    stream: UnixStream,
    server: Option<Pid>,
    until: Instant,
}

impl Line {
    /// Connects to the server of a mount.
    ///
    /// # Errors
    /// [`Unheard`], after [`ANSWER_TIME_MAX`] at the latest.
    pub fn open(mount: &MountEntry) -> Result<Line, Unheard> {
        let until = Instant::now() + ANSWER_TIME_MAX;
        let mut last = None;
        let mut probe = None;
        while Instant::now() < until {
            for name in sockets(mount) {
                match connect(&name) {
                    Ok((socket, peer)) if may_serve(peer.uid, mount) => {
                        let server = Pid::from_raw(peer.pid.as_raw_pid());
                        let mut line = Line { stream: socket.into(), server, until };
                        if line.is_live()? {
                            return Ok(line);
                        }
                    }
                    Ok(_) => {}
                    Err(errno) => last = Some(errno),
                }
            }
            // A new mount has no socket yet; one whose server has died has none any more.
            let probe = probe.get_or_insert_with(|| Probe::start(mount));
            match probe.answered() {
                Some(Err(errno)) if is_dead(errno) => return Err(Unheard::Dead),
                _ => thread::sleep(LOOK_EVERY),
            }
        }
        match (last, probe.is_some_and(|mut probe| probe.answered().is_some())) {
            (Some(Errno::AGAIN), _) | (_, false) => Err(Unheard::Silent { server: None }),
            _ => Err(Unheard::Elsewhere),
        }
    }

    /// The server's process.
    pub fn server(&self) -> Option<Pid> {
        self.server
    }

    /// The answer to `status`.
    ///
    /// # Errors
    /// [`Unheard`], after [`ANSWER_TIME_MAX`] at the latest.
    pub fn status(mut self) -> Result<Vec<u8>, Unheard> {
        self.ask(STATUS)?;
        let mut answer = Vec::new();
        let line = Timed { stream: &self.stream, until: self.until };
        let read = line.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        read.map_err(|error| self.unheard(error))?;
        if answer.is_empty() { Err(Unheard::Refused) } else { Ok(answer) }
    }

    /// Asks whether the server answers.
    ///
    /// # Errors
    /// [`Unheard`], after [`ANSWER_TIME_MAX`] at the latest.
    pub fn ping(mut self) -> Result<(), Unheard> {
        self.ask(PING)?;
        self.hear()
    }

    /// Asks for the outcome of the volume's close. The server has registered that when this returns.
    ///
    /// # Errors
    /// [`Unheard`], after [`ANSWER_TIME_MAX`] at the latest.
    pub fn farewell(mut self, mount: &MountEntry) -> Result<Farewell, Unheard> {
        self.ask(FAREWELL)?;
        self.hear()?;
        Ok(Farewell { stream: self.stream, mount: mount.clone(), server: self.server })
    }

    fn is_live(&mut self) -> Result<bool, Unheard> {
        let mut greeting = [0; LIVE.len()];
        let read = Timed { stream: &self.stream, until: self.until }.read_exact(&mut greeting);
        read.map_err(|error| self.unheard(error))?;
        Ok(greeting == LIVE.as_bytes())
    }

    fn ask(&mut self, request: &str) -> Result<(), Unheard> {
        let asked = write_until(&mut self.stream, request.as_bytes(), self.until);
        asked.map_err(|error| self.unheard(error))
    }

    fn hear(&mut self) -> Result<(), Unheard> {
        let mut heard = [0; HEARD.len()];
        let read = Timed { stream: &self.stream, until: self.until }.read_exact(&mut heard);
        read.map_err(|error| self.unheard(error))
    }

    fn unheard(&self, error: io::Error) -> Unheard {
        match error.kind() {
            io::ErrorKind::TimedOut => Unheard::Silent { server: self.server },
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Unheard::Refused
            }
            _ => Unheard::Io(error),
        }
    }
}

/// The names of all listening sockets, of any user, with the prefix of a mount.
fn sockets(mount: &MountEntry) -> Vec<Vec<u8>> {
    let list = fs::read("/proc/self/net/unix").unwrap_or_default();
    let begin = format!("@{}", name_of(mount.device));
    let names = list.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<_> = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).collect();
        // The server's ends of connections have this name too.
        let listens = fields.get(3) == Some(&&b"00010000"[..]);
        let name = fields.last().filter(|name| listens && name.starts_with(begin.as_bytes()))?;
        Some(name.strip_prefix(b"@")?.to_vec())
    });
    names.take(SOCKETS_MAX).collect()
}

fn may_serve(peer: Uid, mount: &MountEntry) -> bool {
    peer.is_root() || peer.as_raw() == mount.owner().0
}

/// Connects; `EAGAIN` at once if the socket's queue is full.
fn connect(name: &[u8]) -> Result<(OwnedFd, UCred), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    let peer = socket_peercred(&socket)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok((socket, peer))
}

/// A request through the kernel, which passes it to the server, or answers itself if that is dead.
struct Probe {
    answer: mpsc::Receiver<Result<(), Errno>>,
    answered: Option<Result<(), Errno>>,
}

impl Probe {
    /// Asks in a thread of its own, because a server that hangs blocks it.
    fn start(mount: &MountEntry) -> Probe {
        let (sender, answer) = mpsc::channel();
        let (path, owner, is_for_all) = (mount.path.clone(), mount.owner(), mount.is_for_all());
        let asking = thread::Builder::new().name("betrfs-probe".into()).spawn(move || {
            let as_owner = if is_for_all { Ok(()) } else { become_user(owner) };
            // The receiver may be gone.
            let _ = sender.send(as_owner.and_then(|()| ask_kernel(&path)));
        });
        if let Err(error) = asking {
            tracing::debug!("cannot probe the mount: {error}");
        }
        Probe { answer, answered: None }
    }

    fn answered(&mut self) -> Option<Result<(), Errno>> {
        self.answered = self.answered.or_else(|| self.answer.try_recv().ok());
        self.answered
    }
}

fn ask_kernel(path: &Path) -> Result<(), Errno> {
    rustix::fs::statfs(path).map(|_| ())
}

/// Makes this thread a user's, if it is root's: a user's mount refuses even root.
pub fn become_user((user, group): (u32, u32)) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(user), rustix::process::Gid::from_raw(group));
    if !rustix::process::geteuid().is_root() || user.is_root() {
        return Ok(());
    }
    rustix::thread::set_thread_groups(&[group])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

/// The wait for a farewell.
pub struct Farewell {
    stream: UnixStream,
    mount: MountEntry,
    server: Option<Pid>,
}

impl Farewell {
    /// Waits for the close while the server answers; `Ok` if it was clean.
    ///
    /// # Errors
    /// A sentence that says why it was not clean.
    pub fn wait(self) -> Result<(), String> {
        let mut message = Vec::new();
        loop {
            let line = Timed { stream: &self.stream, until: Instant::now() + SILENCE };
            match line.take(ANSWER_BYTES_MAX).read_to_end(&mut message) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.still_answers()?,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(format!("cannot read from its server: {error}")),
            }
        }
        match String::from_utf8_lossy(&message).into_owned() {
            message if message == CLEAN => Ok(()),
            message if message.is_empty() => Err(DIED.to_owned()),
            message => Err(message),
        }
    }

    fn still_answers(&self) -> Result<(), String> {
        let until = Instant::now() + ANSWER_TIME_MAX;
        let connections = sockets(&self.mount).into_iter().filter_map(|name| connect(&name).ok());
        let of_server = |peer: UCred| Pid::from_raw(peer.pid.as_raw_pid()) == self.server;
        let found = connections.into_iter().find(|(_, peer)| of_server(*peer));
        // It no longer listens: it has sent the outcome, or has died.
        let Some((socket, _)) = found else { return Ok(()) };
        let mut line = Line { stream: socket.into(), server: self.server, until };
        match line.is_live().and_then(|_| line.ping()) {
            Err(silent @ Unheard::Silent { .. }) => Err(format!("no word from its server: {silent}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
