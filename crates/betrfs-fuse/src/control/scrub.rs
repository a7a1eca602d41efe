//! `scrub RATE start` or `scrub RATE resume` on the control socket: the server reads all that is stored, at
//! most RATE bytes a second, and answers as to `check`. A client that is gone ends the scrub, which the next
//! one may resume.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use betree::ScrubFrom;
use rustix::io::Errno;

use super::SCRUB;
use super::check::{CheckError, Telling, hear, in_thread};
use super::client::Line;
use super::pace::pause;
use super::server::Served;
use super::turn::Turn;
use crate::check_report::ScrubReport;
use crate::mount_info::MountEntry;

/// The longest sleep between two looks whether the client and the mount are still there.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The sentence of a second client.
const BUSY: &str = "another scrub of this mount is running";
const START: &str = "start";
const RESUME: &str = "resume";

/// How a scrub is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubRequest {
    /// The most bytes that it reads in a second.
    pub bytes_per_second: u64,
    /// Where it begins.
    pub from: ScrubFrom,
}

impl ScrubRequest {
    /// The request behind its first word.
    fn parse(words: &str) -> Option<ScrubRequest> {
        let (rate, from) = words.strip_suffix('\n')?.split_once(' ')?;
        let from = match from {
            START => ScrubFrom::Start,
            RESUME => ScrubFrom::LastStop,
            _ => return None,
        };
        Some(ScrubRequest { bytes_per_second: rate.parse().ok()?, from })
    }

    fn line(self) -> String {
        let from = if self.from == ScrubFrom::Start { START } else { RESUME };
        format!("{SCRUB}{} {from}\n", self.bytes_per_second)
    }
}

/// Answers a client in a thread of its own, which gives way to all others.
pub(super) fn answer(
    stream: UnixStream,
    words: &str,
    served: &Arc<dyn Served>,
    turn: &Turn,
) -> io::Result<()> {
    let request = ScrubRequest::parse(words).ok_or(Errno::INVAL)?;
    let served = Arc::clone(served);
    in_thread(stream, turn, BUSY, "betrfs-scrub", move |stream| {
        let mut telling = Telling::new(stream);
        let mut began = Instant::now();
        let scrubbed = served.scrub(request.from, &mut |step| {
            let until = Instant::now() + pause(step.bytes, request.bytes_per_second, began.elapsed());
            loop {
                if served.is_over() || telling.tell(step.done_bytes, step.all_bytes).is_break() {
                    return ControlFlow::Break(());
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                thread::sleep(left.min(SLEEP_MAX));
            }
            began = Instant::now();
            ControlFlow::Continue(())
        });
        if let Ok(scrubbed) = &scrubbed {
            // The client may be gone.
            scrubbed.report.problems.iter().for_each(|problem| tracing::warn!("a scrub found: {problem}"));
        }
        telling.report(scrubbed.map(ScrubReport::from))
    })
}

impl Line {
    /// Has the server scrub its volume, and calls `progress` with the number of bytes done, and of all.
    ///
    /// # Errors
    /// [`CheckError`]; the server goes on serving.
    pub fn scrub(
        mut self,
        mount: &MountEntry,
        request: ScrubRequest,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ScrubReport, CheckError> {
        self.ask(&request.line())?;
        hear(self.patient(mount), progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for from in [ScrubFrom::Start, ScrubFrom::LastStop] {
            for bytes_per_second in [1, 50 << 20, u64::MAX] {
                let request = ScrubRequest { bytes_per_second, from };
                let line = request.line();
                assert!(line.len() < 64);
                assert_eq!(ScrubRequest::parse(line.strip_prefix(SCRUB).unwrap()), Some(request));
            }
        }
        for wrong in ["", "\n", "1\n", "1 start", "x start\n", "1 begin\n", "-1 resume\n"] {
            assert_eq!(ScrubRequest::parse(wrong), None, "{wrong}");
        }
    }
}
