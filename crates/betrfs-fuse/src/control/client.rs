//! A client's end: finds the server of a mount, asks, and waits until the volume is closed.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::UCred;
use rustix::process::Pid;

use super::probe::Probe;
use super::sockets::{Address, connect, is_private, may_serve, sockets};
use super::timed::{Timed, write_until};
use super::{ANSWER_BYTES_MAX, ANSWER_TIME_MAX, CLEAN, FAREWELL, HEARD, LIVE, LOOK_EVERY, PING, STATUS};
use crate::errno::is_dead;
use crate::mount_info::MountEntry;

/// How long a client hears nothing while it waits for a farewell before it pings the server.
const SILENCE: Duration = Duration::from_secs(5);
/// The error for a connection that ended without a farewell.
const DIED: &str = "its server ended without closing it";

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
        let mut probe: Option<Probe> = None;
        while Instant::now() < until {
            // The name that the mount itself reports is among the others, which may be very many.
            let reported = match probe.as_mut().and_then(Probe::answered) {
                Some(Ok(Some(name))) => Some(Address::Abstract(name.clone())),
                _ => None,
            };
            for address in reported.into_iter().chain(sockets(mount)) {
                match connect(&address) {
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
                Some(Err(errno)) if is_dead(*errno) => return Err(Unheard::Dead),
                // Its only socket is where this user may not go.
                Some(Ok(None)) if is_private(mount) && sockets(mount).is_empty() => {
                    return Err(Unheard::Refused);
                }
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
        Ok(Farewell(self.patient(mount)))
    }

    /// The same connection for an answer that may take long.
    pub(super) fn patient(self, mount: &MountEntry) -> Patient {
        Patient { stream: self.stream, mount: mount.clone(), server: self.server }
    }

    /// The connection itself, for a caller with a time limit of its own.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Reads the first word of the connection: whether the mount is live, and not over.
    fn is_live(&mut self) -> Result<bool, Unheard> {
        let mut greeting = [0; LIVE.len()];
        let read = Timed { stream: &self.stream, until: self.until }.read_exact(&mut greeting);
        read.map_err(|error| self.unheard(error))?;
        Ok(greeting == LIVE.as_bytes())
    }

    pub(super) fn ask(&mut self, request: &str) -> Result<(), Unheard> {
        let asked = write_until(&self.stream, request.as_bytes(), self.until);
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

/// Waits for a server's words, however long they take, as long as it answers on other connections.
pub(super) struct Patient {
    stream: UnixStream,
    mount: MountEntry,
    server: Option<Pid>,
}

impl Patient {
    /// Another connection to the same server; `None` if it no longer listens: it has sent all, or has died.
    fn again(&self) -> Option<Line> {
        let until = Instant::now() + ANSWER_TIME_MAX;
        let connections = sockets(&self.mount).into_iter().filter_map(|address| connect(&address).ok());
        let of_server = |peer: UCred| Pid::from_raw(peer.pid.as_raw_pid()) == self.server;
        let (socket, _) = connections.into_iter().find(|(_, peer)| of_server(*peer))?;
        Some(Line { stream: socket.into(), server: self.server, until })
    }

    /// An error if the server is silent on another connection too.
    fn still_answers(&self) -> Result<(), Unheard> {
        let Some(mut line) = self.again() else { return Ok(()) };
        match line.is_live().and_then(|_| line.ping()) {
            Err(silent @ Unheard::Silent { .. }) => Err(silent),
            _ => Ok(()),
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match (Timed { stream: &self.stream, until: Instant::now() + SILENCE }).read(buf) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    self.still_answers().map_err(io::Error::other)?;
                }
                // Its end is closed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
                read => return read,
            }
        }
    }
}

/// The wait for a farewell.
pub struct Farewell(Patient);

impl Farewell {
    /// Whether the file system is mounted still: after an unmount, on another directory or in another mount
    /// name space. `false` too if the server does not say.
    pub fn is_mounted(&self) -> bool {
        self.0.again().is_some_and(|mut line| line.is_live().unwrap_or(false))
    }

    /// Waits for the close while the server answers; `Ok` if it was clean.
    ///
    /// # Errors
    /// A sentence that says why it was not clean.
    pub fn wait(self) -> Result<(), String> {
        let mut message = Vec::new();
        let read = self.0.take(ANSWER_BYTES_MAX).read_to_end(&mut message);
        read.map_err(|error| format!("no word from its server: {error}"))?;
        match String::from_utf8_lossy(&message).into_owned() {
            message if message == CLEAN => Ok(()),
            message if message.is_empty() => Err(DIED.to_owned()),
            message => Err(message),
        }
    }
}
