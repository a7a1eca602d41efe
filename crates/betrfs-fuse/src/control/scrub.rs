//! `scrub RATE start tell` on the control socket: the server reads all that is stored, at most RATE bytes a
//! second, and answers as to `check`. With `resume` in place of `start` it goes on with the last one, with
//! `mend` in place of `tell` it writes anew what has a good copy. A client that is gone ends the scrub, which
//! the next one may resume.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use betree::{OnDamage, ScrubFrom, ScrubOptions};
use rustix::io::Errno;

use super::SCRUB;
use super::check::{CheckError, Telling, hear, in_idle_thread, until_told};
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
const TELL: &str = "tell";
const MEND: &str = "mend";

/// How a scrub is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubRequest {
    /// The most bytes that it reads in a second.
    pub bytes_per_second: u64,
    /// Where it begins, and what it does about damage.
    pub options: ScrubOptions,
}

impl ScrubRequest {
    /// The request behind its first word.
    fn parse(words: &str) -> Option<ScrubRequest> {
        let mut words = words.strip_suffix('\n')?.split(' ');
        let bytes_per_second = words.next()?.parse().ok()?;
        let from = match words.next()? {
            START => ScrubFrom::Start,
            RESUME => ScrubFrom::LastStop,
            _ => return None,
        };
        let on_damage = match words.next()? {
            TELL => OnDamage::Tell,
            MEND => OnDamage::Mend,
            _ => return None,
        };
        let options = ScrubOptions { from, on_damage };
        words.next().is_none().then_some(ScrubRequest { bytes_per_second, options })
    }

    fn line(self) -> String {
        let ScrubRequest { bytes_per_second, options } = self;
        let from = if options.from == ScrubFrom::Start { START } else { RESUME };
        let on_damage = if options.on_damage == OnDamage::Tell { TELL } else { MEND };
        format!("{SCRUB}{bytes_per_second} {from} {on_damage}\n")
    }
}

/// Answers a client in a thread of its own, of low priority.
pub(super) fn answer(
    stream: UnixStream,
    words: &str,
    served: &Arc<dyn Served>,
    turn: &Turn,
) -> io::Result<()> {
    let request = ScrubRequest::parse(words).ok_or(Errno::INVAL)?;
    let served = Arc::clone(served);
    in_idle_thread(stream, turn, BUSY, "betrfs-scrub", move |stream, taken| {
        let mut telling = Telling::new(stream);
        let mut began = Instant::now();
        let scrubbed = served.scrub(request.options, &mut |step| {
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
        let _kept = until_told(taken, served.as_ref());
        match scrubbed {
            Err(_) if served.is_over() => telling.end(),
            scrubbed => telling.report(scrubbed.map(ScrubReport::from)),
        }
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
        let all = [ScrubFrom::Start, ScrubFrom::LastStop];
        for from in all {
            for (bytes_per_second, on_damage) in [(1, OnDamage::Tell), (u64::MAX, OnDamage::Mend)] {
                let request = ScrubRequest { bytes_per_second, options: ScrubOptions { from, on_damage } };
                let line = request.line();
                assert!(line.len() < 64);
                assert_eq!(ScrubRequest::parse(line.strip_prefix(SCRUB).unwrap()), Some(request));
            }
        }
        for wrong in [
            "",
            "\n",
            "1\n",
            "1 start\n",
            "1 start tell",
            "x start tell\n",
            "1 begin tell\n",
            "1 start fix\n",
        ] {
            assert_eq!(ScrubRequest::parse(wrong), None, "{wrong}");
        }
    }
}
