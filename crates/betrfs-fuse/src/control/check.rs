//! `check` on the control socket: the whole check runs in the server, and the client hears how far it is.
//!
//! The answer is a line `done DONE ALL` now and then, and at the end `report` with JSON, `failed` with a
//! sentence, or `over` if the mount has ended. A client that is gone, or reads no more, ends the check. A
//! scrub is answered likewise.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CHECK;
use super::client::{Line, Patient, Unheard};
use super::server::{PATIENCE, Served};
use super::timed::write_until;
use super::turn::{Taken, Turn};
use crate::check_report::CheckReport;
use crate::low_priority::lower_priority;
use crate::mount_info::MountEntry;

/// Interval between two lines that tell how far it is.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// How long a client may take for the report.
const REPORT_TIME_MAX: Duration = Duration::from_secs(30);
/// The longest line: a report has up to 11,000 paths.
const LINE_BYTES_MAX: u64 = 128 << 20;
/// Where there is no result because the mount has ended.
const OVER_LINE: &str = "over unmounted\n";
/// The sentence of a second client.
const BUSY: &str = "another check of this mount is running";

/// Answers a client in a thread of its own, of low priority.
pub(super) fn answer(stream: UnixStream, served: &Arc<dyn Served>, turn: &Turn) -> io::Result<()> {
    let served = Arc::clone(served);
    in_idle_thread(stream, turn, BUSY, "betrfs-check", move |stream, taken| {
        let mut telling = Telling::new(stream);
        let checked = served.check(&mut |done, all| match served.is_over() {
            true => ControlFlow::Break(()),
            false => telling.tell(done, all),
        });
        let _kept = until_told(taken, served.as_ref());
        match checked {
            Err(_) if served.is_over() => telling.end(),
            checked => telling.report(checked.map(CheckReport::from)),
        }
    })
}

/// Gives the turn back, as a client that has the report may ask again at once; after the end of the mount it
/// is kept until the client knows, which the server waits for.
pub(super) fn until_told(taken: Taken, served: &dyn Served) -> Option<Taken> {
    served.is_over().then_some(taken)
}

/// Does work for a client in a thread of its own, of low priority; else as [`in_thread`].
pub(super) fn in_idle_thread(
    stream: UnixStream,
    turn: &Turn,
    busy: &'static str,
    name: &'static str,
    work: impl FnOnce(&mut UnixStream, Taken) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    in_thread(stream, turn, busy, name, move |stream, taken| {
        if let Err(error) = lower_priority() {
            tracing::info!("{name} runs with the priority of all threads: {error}");
        }
        work(stream, taken)
    })
}

/// Does work for a client in a thread of its own; another client that comes meanwhile hears the sentence
/// `busy`. The work gives its turn back before it reports.
pub(super) fn in_thread(
    mut stream: UnixStream,
    turn: &Turn,
    busy: &'static str,
    name: &'static str,
    work: impl FnOnce(&mut UnixStream, Taken) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let turn = turn.clone();
    thread::Builder::new().name(name.into()).spawn(move || {
        let Some(taken) = turn.take_soon() else {
            // A client that does not hear it has gone.
            let _ = Telling::new(&mut stream).refuse(busy);
            return;
        };
        if let Err(error) = work(&mut stream, taken) {
            tracing::info!("{name} ended before its client had the report: {error}");
        }
    })?;
    Ok(())
}

/// Tells a client how far the work is, and its result.
pub(super) struct Telling<'s> {
    stream: &'s mut UnixStream,
    told: Instant,
}

impl Telling<'_> {
    pub fn new(stream: &mut UnixStream) -> Telling<'_> {
        Telling { stream, told: Instant::now() }
    }

    /// Tells now and then that `done` of `all` are done; `Break` if the client is gone.
    pub fn tell(&mut self, done: u64, all: u64) -> ControlFlow<()> {
        if self.told.elapsed() < TELL_EVERY {
            return ControlFlow::Continue(());
        }
        self.told = Instant::now();
        let line = format!("done {done} {all}\n");
        match write_until(self.stream, line.as_bytes(), self.told + PATIENCE) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Tells why there is no result.
    pub fn refuse(self, why: &str) -> io::Result<()> {
        write_until(self.stream, format!("failed {why}\n").as_bytes(), Instant::now() + PATIENCE)
    }

    /// Tells that the mount has ended.
    pub fn end(self) -> io::Result<()> {
        write_until(self.stream, OVER_LINE.as_bytes(), Instant::now() + PATIENCE)
    }

    /// Tells the result.
    pub fn report<T: Serialize>(self, result: betrfs::Result<T>) -> io::Result<()> {
        let line = match result {
            Ok(report) => format!("report {}\n", serde_json::to_string(&report)?),
            Err(error) => format!("failed {error}\n"),
        };
        write_until(self.stream, line.as_bytes(), Instant::now() + REPORT_TIME_MAX)
    }
}

/// Why work of a mount's server that may take long gave no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The server was not asked.
    #[error(transparent)]
    Unheard(#[from] Unheard),
    /// It failed, or the server died.
    #[error("{0}")]
    Failed(String),
    /// The mount has ended.
    #[error("it was unmounted meanwhile")]
    Over,
}

impl Line {
    /// Has the server check its volume, and calls `progress` with the number of nodes done, and of all.
    ///
    /// # Errors
    /// [`CheckError`]; the server goes on serving.
    pub fn check(
        mut self,
        mount: &MountEntry,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, CheckError> {
        self.ask(CHECK)?;
        hear(self.patient(mount), progress)
    }
}

/// Hears how far the work is, until the report.
pub(super) fn hear<T: DeserializeOwned>(
    answer: Patient,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<T, CheckError> {
    let mut answer = BufReader::new(answer);
    loop {
        let mut line = String::new();
        let read = answer.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        read.map_err(|error| CheckError::Failed(format!("no word from its server: {error}")))?;
        let unknown = || CheckError::Failed("its server ended before the report".to_owned());
        let (kind, rest) = line.trim_end().split_once(' ').ok_or_else(unknown)?;
        match kind {
            "done" => {
                let mut numbers = rest.split(' ').map(str::parse);
                if let (Some(Ok(done)), Some(Ok(all))) = (numbers.next(), numbers.next()) {
                    progress(done, all);
                }
            }
            "report" => {
                return serde_json::from_str(rest).map_err(|error| CheckError::Failed(error.to_string()));
            }
            "failed" => return Err(CheckError::Failed(rest.to_owned())),
            "over" => return Err(CheckError::Over),
            _ => return Err(unknown()),
        }
    }
}
