//! `unmount` on the control socket: the server removes its mount for a user who may not do so himself, where
//! the option `users` lets all.
//!
//! `unmount ID` names the mount as the kernel numbers it, so that none but the one that the client means
//! goes. It is answered with `unmounted`, or with `failed` and a sentence. A server that ends at once gives
//! no answer.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use super::check::{Telling, in_thread};
use super::client::{Line, Unheard};
use super::server::{PATIENCE, Served};
use super::timed::write_until;
use super::turn::Turn;
use super::{ANSWER_BYTES_MAX, UNMOUNT};
use crate::mount_info::MountEntry;

/// The sentence of a second client.
const BUSY: &str = "another user unmounts it right now";

/// Answers a client in a thread of its own: what is left to write may take long.
pub(super) fn answer(
    stream: UnixStream,
    number: &str,
    served: &Arc<dyn Served>,
    turn: &Turn,
) -> io::Result<()> {
    let number: u64 = number.trim_end().parse().map_err(io::Error::other)?;
    let served = Arc::clone(served);
    in_thread(stream, turn, BUSY, "betrfs-unmount", move |stream, taken| {
        let unmounted = served.unmount(number);
        drop(taken);
        match unmounted {
            Ok(()) => write_until(stream, b"unmounted\n", Instant::now() + PATIENCE),
            Err(why) => Telling::new(stream).refuse(&why),
        }
    })
}

/// Why a server did not remove its mount.
#[derive(Debug, thiserror::Error)]
pub enum NotUnmounted {
    /// The server was not asked, or lets only root and its own user do this.
    #[error(transparent)]
    Unheard(#[from] Unheard),
    /// It failed: the mount is in use, for example.
    #[error("{0}")]
    Failed(String),
}

impl Line {
    /// Has the server remove its mount. When this returns, the mount is gone or the server has ended, which
    /// removes it; a [farewell](Line::farewell) on another connection tells how the volume was closed.
    ///
    /// # Errors
    /// [`NotUnmounted`]; the mount is there then.
    pub fn unmount(mut self, mount: &MountEntry) -> Result<(), NotUnmounted> {
        self.ask(&format!("{UNMOUNT}{}\n", mount.id))?;
        let mut line = String::new();
        let read = BufReader::new(self.patient(mount)).take(ANSWER_BYTES_MAX).read_line(&mut line);
        read.map_err(|error| NotUnmounted::Failed(format!("no word from its server: {error}")))?;
        match line.trim_end().split_once(' ') {
            Some(("failed", why)) => Err(NotUnmounted::Failed(why.to_owned())),
            None if line == "unmounted\n" => Ok(()),
            // The end of the mount is the end of its server, which may be sooner than the answer.
            _ if !MountEntry::all().map_err(Unheard::Io)?.iter().any(|other| other.id == mount.id) => Ok(()),
            _ => Err(Unheard::Refused.into()),
        }
    }
}
