//! `check` on the control socket: the whole check runs in the server, and the client hears how far it is.
//!
//! The answer is a line `nodes DONE ALL` now and then, and at the end `report` with JSON, or `failed` with a
//! sentence. A client that is gone, or reads no more, ends the check.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::CHECK;
use super::client::{Line, Unheard};
use super::server::{PATIENCE, Served};
use super::timed::write_until;
use super::turn::Turn;
use crate::check_report::CheckReport;
use crate::mount_info::MountEntry;
use crate::sched_idle::set_sched_idle;

/// Interval between two lines that tell how far it is.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// How long a client may take for the report.
const REPORT_TIME_MAX: Duration = Duration::from_secs(30);
/// The longest line: a report has up to 11,000 paths.
const LINE_BYTES_MAX: u64 = 128 << 20;
/// The sentence of a second client.
const BUSY: &str = "another check of this mount is running";

/// Answers a client in a thread of its own, which gives way to all others.
pub(super) fn answer(mut stream: UnixStream, served: &Arc<dyn Served>, turn: &Turn) -> io::Result<()> {
    let Some(taken) = turn.take() else {
        return write_until(&mut stream, format!("failed {BUSY}\n").as_bytes(), Instant::now() + PATIENCE);
    };
    let served = Arc::clone(served);
    thread::Builder::new().name("betrfs-check".into()).spawn(move || {
        let _taken = taken;
        if let Err(error) = set_sched_idle() {
            tracing::info!("a check runs with the priority of all threads: {error}");
        }
        if let Err(error) = check(&mut stream, &*served) {
            tracing::info!("a check ended before its client had the report: {error}");
        }
    })?;
    Ok(())
}

fn check(stream: &mut UnixStream, served: &dyn Served) -> io::Result<()> {
    let mut told = Instant::now();
    let checked = served.check(&mut |done, all| {
        if served.is_over() {
            return ControlFlow::Break(());
        }
        if told.elapsed() < TELL_EVERY {
            return ControlFlow::Continue(());
        }
        told = Instant::now();
        match write_until(stream, format!("nodes {done} {all}\n").as_bytes(), told + PATIENCE) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    let line = match checked {
        Ok(report) => format!("report {}\n", serde_json::to_string(&CheckReport::from(report))?),
        Err(error) => format!("failed {error}\n"),
    };
    write_until(stream, line.as_bytes(), Instant::now() + REPORT_TIME_MAX)
}

/// Why a check of a mount gave no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The server was not asked.
    #[error(transparent)]
    Unheard(#[from] Unheard),
    /// It failed, or the server ended.
    #[error("{0}")]
    Failed(String),
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
        let mut answer = BufReader::new(self.patient(mount));
        loop {
            let mut line = String::new();
            let read = answer.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
            read.map_err(|error| CheckError::Failed(format!("no word from its server: {error}")))?;
            let unknown = || CheckError::Failed("its server ended before the check".to_owned());
            let (kind, rest) = line.trim_end().split_once(' ').ok_or_else(unknown)?;
            match kind {
                "nodes" => {
                    let mut numbers = rest.split(' ').map(str::parse);
                    if let (Some(Ok(done)), Some(Ok(all))) = (numbers.next(), numbers.next()) {
                        progress(done, all);
                    }
                }
                "report" => {
                    return serde_json::from_str(rest).map_err(|error| CheckError::Failed(error.to_string()));
                }
                "failed" => return Err(CheckError::Failed(rest.to_owned())),
                _ => return Err(unknown()),
            }
        }
    }
}
