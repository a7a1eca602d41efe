//! `closing` on the control socket: how far the close of the volume is.
//!
//! The answer is a line `done DONE ALL` now and then, in bytes of memory that are to be written; ALL is 0
//! until the close begins. The connection ends with the close. A server of an earlier version ends it at
//! once.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::CLOSING;
use super::check::in_thread;
use super::client::{Line, Unheard};
use super::server::{PATIENCE, Served};
use super::timed::write_until;
use super::turn::Turn;
use crate::closing::CloseState;
use crate::mount_info::MountEntry;

/// Interval between two lines.
const TELL_EVERY: Duration = Duration::from_millis(100);
const LINE_BYTES_MAX: u64 = 128;
/// The sentence of a second client.
const BUSY: &str = "another command waits for the close";

/// Answers a client in a thread of its own, until the close is over or the client is gone.
pub(super) fn answer(stream: UnixStream, served: &Arc<dyn Served>, turn: &Turn) -> io::Result<()> {
    let served = Arc::clone(served);
    in_thread(stream, turn, BUSY, "betrfs-closing", move |stream, _taken| {
        let mut all_bytes = 0;
        loop {
            let done_bytes = match served.close_state() {
                CloseState::Open => 0,
                CloseState::Writing { left_bytes } => {
                    // What waited in memtables comes to the nodes first.
                    all_bytes = left_bytes.max(all_bytes);
                    all_bytes - left_bytes
                }
                CloseState::Closed => return Ok(()),
            };
            let line = format!("done {done_bytes} {all_bytes}\n");
            write_until(stream, line.as_bytes(), Instant::now() + PATIENCE)?;
            thread::sleep(TELL_EVERY);
        }
    })
}

impl Line {
    /// Calls `progress` with the bytes that the close of the volume has written, and with all that it has to,
    /// until it is over; with 0 and 0 before it begins.
    ///
    /// # Errors
    /// [`Unheard`]: the server was not asked.
    pub fn hear_close(
        mut self,
        mount: &MountEntry,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Unheard> {
        self.ask(CLOSING)?;
        let mut answer = BufReader::new(self.patient(mount));
        loop {
            let mut line = String::new();
            answer.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
            let mut words = line.trim_end().split(' ');
            match (words.next(), words.next().map(str::parse), words.next().map(str::parse)) {
                (Some("done"), Some(Ok(done)), Some(Ok(all))) => progress(done, all),
                _ => return Ok(()),
            }
        }
    }
}
