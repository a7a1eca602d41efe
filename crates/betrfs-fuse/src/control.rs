//! The socket on which a mount's server tells of itself, and of how its volume was closed.
//!
//! Whoever asks must not go through the mount: its server may be stopped, a mount of another user refuses
//! even root, and of an unmount that is over nothing is left to ask. So the server listens on an abstract
//! socket whose name begins with the mount's number, which the kernel tells without asking anybody, and ends
//! at random, so that nobody can take the name before it is needed. Both sides look at who the other is, and
//! wait for nobody for long.
//!
//! The kernel gives a number that is free to the next mount, and the server of the last may still be closing
//! its volume: so a connection begins with a word of the server, whether its mount is over. It has one
//! request, a line. `status` is answered with JSON; `ping` with a word; `farewell` with a word at once, and
//! when the volume is closed and let go of with how that went.

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

/// How long a server waits for the request of one who is connected, and for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long whoever asks waits for an answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long whoever waits for a farewell hears nothing before it asks whether the server still answers.
const SILENCE: Duration = Duration::from_secs(5);
/// How often a socket is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many may wait for the farewell.
const WAITING_MAX: usize = 64;
/// The longest request.
const REQUEST_BYTES_MAX: u64 = 64;
/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// How many sockets of the right name are tried: others may have made some.
const SOCKETS_MAX: usize = 1000;

/// What a connection begins with.
const LIVE: &str = "live\n";
/// See [`LIVE`]: the number that the socket is named by may be another mount's by now.
const OVER: &str = "over\n";
const STATUS: &str = "status\n";
const PING: &str = "ping\n";
const FAREWELL: &str = "farewell\n";
/// The answer to a request that has to be waited for, or has no other.
const HEARD: &str = "heard\n";
/// What is said of a clean close.
const CLEAN: &str = "clean";
/// What is heard of a server that said nothing.
const DIED: &str = "its server ended without closing it";

/// What the name of a mount's socket begins with.
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
    /// Begins to listen for a mount of this number, and to answer with a status, and whether it is over.
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
                    // For want of descriptors, say.
                    thread::sleep(LOOK_EVERY);
                    continue;
                };
                if let Err(error) = answer(stream, &status, &is_over, &waiting) {
                    tracing::debug!("whoever asked is not answered: {error}");
                }
            }
        })?;
        Ok(control)
    }

    /// Tells those who wait how the volume was closed, cleanly or why not, and listens no more. Nobody is
    /// waited for: what is told has room in a socket.
    pub fn tell<E: Display>(&self, closed: &Result<(), E>) {
        let message = closed.as_ref().err().map_or_else(|| CLEAN.to_owned(), ToString::to_string);
        for mut stream in self.waiting.lock().drain(..) {
            let told = stream.set_nonblocking(true).and_then(|()| stream.write_all(message.as_bytes()));
            if let Err(error) = told {
                tracing::debug!("nobody waits any more: {error}");
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The thread ends with it, and lets go of what it asks whether the mount is over.
        self.is_ended.store(true, Ordering::Release);
        if let Err(errno) = rustix::net::shutdown(&self.listener, Shutdown::Both) {
            tracing::debug!("the socket is not shut down: {errno}");
        }
    }
}

/// Answers one connection, if it is that of root or of whoever mounted.
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
            // Whoever asks is told of this before the unmount, and so before the farewell.
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

/// A request: all up to the end of a line.
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

/// A stream that is read and written until a moment, however slowly the other side goes.
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

/// A timeout has two names.
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

/// Why a mount's server is not heard.
#[derive(Debug, thiserror::Error)]
pub enum Unheard {
    /// It has died, and left its mount.
    #[error("it is dead")]
    Dead,
    /// It is there and does not answer; its process, if that is known.
    #[error("it did not answer within {} seconds{}: it is stopped, or hangs", ANSWER_TIME_MAX.as_secs(), shown(*.server))]
    Silent {
        /// The process.
        server: Option<Pid>,
    },
    /// It answers others only.
    #[error("only root and whoever mounted the volume may ask it")]
    Refused,
    /// No socket of it can be seen, though it answers the kernel.
    #[error("its socket cannot be seen from here: it is in another network name space")]
    Elsewhere,
    /// The operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn shown(server: Option<Pid>) -> String {
    server.map_or_else(String::new, |pid| format!(" (process {})", pid.as_raw_nonzero()))
}

/// A connection of whoever asks.
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
            // A mount that was made just now has no socket yet; one whose server has died has none any more.
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

    /// Asks to be told how the volume is closed. The server has taken note of that when this returns.
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

/// The names of the sockets that are listened on, by whomever, as those of a mount's number.
fn sockets(mount: &MountEntry) -> Vec<Vec<u8>> {
    let list = fs::read("/proc/self/net/unix").unwrap_or_default();
    let begin = format!("@{}", name_of(mount.device));
    let names = list.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<_> = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).collect();
        // Those who are connected to it bear its name too.
        let listens = fields.get(3) == Some(&&b"00010000"[..]);
        let name = fields.last().filter(|name| listens && name.starts_with(begin.as_bytes()))?;
        Some(name.strip_prefix(b"@")?.to_vec())
    });
    names.take(SOCKETS_MAX).collect()
}

fn may_serve(peer: Uid, mount: &MountEntry) -> bool {
    peer.is_root() || peer.as_raw() == mount.owner().0
}

/// Does not wait where too many wait already.
fn connect(name: &[u8]) -> Result<(OwnedFd, UCred), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    let peer = socket_peercred(&socket)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok((socket, peer))
}

/// A question that the kernel passes on to the server, or answers for one that is dead.
struct Probe {
    answer: mpsc::Receiver<Result<(), Errno>>,
    answered: Option<Result<(), Errno>>,
}

impl Probe {
    /// Asks by a thread: a server that hangs keeps it.
    fn start(mount: &MountEntry) -> Probe {
        let (sender, answer) = mpsc::channel();
        let (path, owner, is_for_all) = (mount.path.clone(), mount.owner(), mount.is_for_all());
        let asking = thread::Builder::new().name("betrfs-probe".into()).spawn(move || {
            let as_owner = if is_for_all { Ok(()) } else { become_user(owner) };
            // Who listens no more wants no answer.
            let _ = sender.send(as_owner.and_then(|()| ask_kernel(&path)));
        });
        if let Err(error) = asking {
            tracing::debug!("the mount is not asked: {error}");
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

/// Has this thread be a user, if root runs it: a mount of a user refuses even root.
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
    /// Waits for the close, as long as the server answers: `Ok` if it was clean.
    ///
    /// # Errors
    /// Why it was not, as a sentence.
    pub fn wait(self) -> Result<(), String> {
        let mut message = Vec::new();
        loop {
            let line = Timed { stream: &self.stream, until: Instant::now() + SILENCE };
            match line.take(ANSWER_BYTES_MAX).read_to_end(&mut message) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.still_answers()?,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(format!("its server cannot be heard: {error}")),
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
        // Where it listens no more it has told already, or has died.
        let Some((socket, _)) = found else { return Ok(()) };
        let mut line = Line { stream: socket.into(), server: self.server, until };
        match line.is_live().and_then(|_| line.ping()) {
            Err(silent @ Unheard::Silent { .. }) => Err(format!("its server is not heard: {silent}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
