//! `freeze` and `thaw` on the control socket: the volume stands still while others copy its file.
//!
//! `freeze SECONDS` (0: without a limit) is answered with a line `holds` when changes are about to be held,
//! and then `frozen NUMBER`. A client that does not take them has gone, and the freeze ends; one that ends
//! later leaves it. `thaw NUMBER`, or `thaw any`, is answered with `thawed`. Both may be answered with
//! `failed` and a sentence.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Line, Unheard};
use super::server::{PATIENCE, Served};
use super::timed::{Timed, write_until};
use super::{ANSWER_BYTES_MAX, FREEZE, THAW};
use crate::freeze::{End, Step};
use crate::mount_info::MountEntry;

/// The sentence of a thaw without a freeze.
const NOT_FROZEN: &str = "it is not frozen";
/// Stands for the number of the freeze that lasts.
const ANY: &str = "any";

/// Freezes in a thread of its own, until the end of the freeze.
pub(super) fn freeze(stream: UnixStream, seconds: &str, served: &Arc<dyn Served>) -> io::Result<()> {
    let seconds: u64 = seconds.trim_end().parse().map_err(io::Error::other)?;
    let time = (seconds > 0).then(|| Duration::from_secs(seconds));
    let served = Arc::clone(served);
    thread::Builder::new().name("betrfs-freeze".into()).spawn(move || {
        let say = |line: &str| write_until(&stream, line.as_bytes(), Instant::now() + PATIENCE);
        let ended = served.freeze(time, &mut |step| match step {
            Step::Holds => say("holds\n"),
            Step::StandsStill(number) => {
                tracing::info!("frozen, {}: changes wait", limit(time));
                say(&format!("frozen {number}\n"))
            }
        });
        match ended {
            Ok(End::Asked) => tracing::info!("thawed"),
            Ok(End::Time) => tracing::warn!("thawed, as the time of the freeze is over"),
            Err(error) => {
                tracing::warn!("a freeze has failed: {error}");
                // A client that does not hear it has gone.
                let _ = say(&format!("failed {error}\n"));
            }
        }
    })?;
    Ok(())
}

fn limit(time: Option<Duration>) -> String {
    time.map_or_else(|| "until a thaw".to_owned(), |time| format!("for {} s at most", time.as_secs()))
}

/// Thaws. The end is waited for in a thread of its own; that it begins needs none.
pub(super) fn thaw(stream: UnixStream, which: &str, served: &Arc<dyn Served>) -> io::Result<()> {
    let number = match which.trim_end() {
        ANY => None,
        number => Some(number.parse().map_err(io::Error::other)?),
    };
    if !served.thaw(number) {
        let line = format!("failed {NOT_FROZEN}\n");
        return write_until(&stream, line.as_bytes(), Instant::now() + PATIENCE);
    }
    let served = Arc::clone(served);
    thread::Builder::new().name("betrfs-thaw".into()).spawn(move || {
        served.await_thaw();
        if let Err(error) = write_until(&stream, b"thawed\n", Instant::now() + PATIENCE) {
            tracing::info!("the client that thawed is gone: {error}");
        }
    })?;
    Ok(())
}

/// Why a mount was not frozen, or not thawed.
#[derive(Debug, thiserror::Error)]
pub enum NotFrozen {
    /// The server was not asked.
    #[error(transparent)]
    Unheard(#[from] Unheard),
    /// It refused, failed, or ended.
    #[error("{0}")]
    Failed(String),
}

impl Line {
    /// Has the server freeze its volume for some time, or until the thaw; returns the number of the freeze
    /// once nothing is written any more.
    ///
    /// # Errors
    /// [`NotFrozen`], after `wait` at the latest; nothing is frozen then, or thaws at once.
    pub fn freeze(mut self, time: Option<Duration>, wait: Duration) -> Result<u64, NotFrozen> {
        self.ask(&format!("{FREEZE}{}\n", time.map_or(0, |time| time.as_secs().max(1))))?;
        let until =
            Instant::now().checked_add(wait).ok_or(Unheard::Io(io::ErrorKind::InvalidInput.into()))?;
        let mut answer = BufReader::new(Timed { stream: self.stream(), until });
        loop {
            let mut line = String::new();
            let read = answer.by_ref().take(ANSWER_BYTES_MAX).read_line(&mut line);
            read.map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => {
                    NotFrozen::Failed(format!("it did not stand still within {} s", wait.as_secs()))
                }
                _ => NotFrozen::Failed(format!("no word from its server: {error}")),
            })?;
            match line.trim_end().split_once(' ') {
                None if line == "holds\n" => {}
                Some(("frozen", number)) => {
                    return number
                        .parse()
                        .map_err(|_| NotFrozen::Failed(format!("its server said `{number}`")));
                }
                answer => return Err(failed(answer)),
            }
        }
    }

    /// Has the server end the freeze with this number, or any, and waits for its end.
    ///
    /// # Errors
    /// [`NotFrozen`]: among others, that there is none.
    pub fn thaw(mut self, mount: &MountEntry, number: Option<u64>) -> Result<(), NotFrozen> {
        let which = number.map_or_else(|| ANY.to_owned(), |number| number.to_string());
        self.ask(&format!("{THAW}{which}\n"))?;
        let mut line = String::new();
        let read = BufReader::new(self.patient(mount)).take(ANSWER_BYTES_MAX).read_line(&mut line);
        read.map_err(|error| NotFrozen::Failed(format!("no word from its server: {error}")))?;
        if line == "thawed\n" { Ok(()) } else { Err(failed(line.trim_end().split_once(' '))) }
    }
}

fn failed(answer: Option<(&str, &str)>) -> NotFrozen {
    NotFrozen::Failed(match answer {
        Some(("failed", why)) => why.to_owned(),
        // A server of an earlier version closes the connection.
        _ => "its server ended or does not know this command".to_owned(),
    })
}
