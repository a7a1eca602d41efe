//! `layout CELLS` on the control socket: what lies where on the volume.
//!
//! The answer is as that of a check: `report` with JSON, or `failed` with a sentence. Headers of nodes are
//! read for it, so a thread of its own answers, of ordinary priority: it reads little, and a person waits.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::io::Errno;
use serde::Serialize;

use super::LAYOUT;
use super::check::{CheckError, Telling, hear, in_thread};
use super::client::Line;
use super::server::Served;
use super::turn::Turn;
use crate::layout::Layout;
use crate::mount_info::MountEntry;

/// The most cells of an answer: some megabytes of memory and of JSON.
const CELLS_MAX: u32 = 1 << 16;
/// The sentence of a client that comes while others' questions are answered.
const BUSY: &str = "another command looks at the layout of this mount";

/// Answers a client in a thread of its own.
pub(super) fn answer(
    stream: UnixStream,
    words: &str,
    served: &Arc<dyn Served>,
    turn: &Turn,
) -> io::Result<()> {
    let cells_max: u32 = words.trim_end().parse().map_err(|_| Errno::INVAL)?;
    let cells_max = cells_max.min(CELLS_MAX);
    let served = Arc::clone(served);
    in_turn(stream, turn, BUSY, "betrfs-layout", move || served.layout(cells_max))
}

/// Answers a client with the result of some work in a thread of its own, of ordinary priority; another client
/// that comes meanwhile hears the sentence `busy`.
pub(super) fn in_turn<T: Serialize>(
    stream: UnixStream,
    turn: &Turn,
    busy: &'static str,
    name: &'static str,
    work: impl FnOnce() -> betrfs::Result<T> + Send + 'static,
) -> io::Result<()> {
    in_thread(stream, turn, busy, name, move |stream, taken| {
        let result = work();
        // A client that has the answer may ask again at once.
        drop(taken);
        Telling::new(stream).report(result)
    })
}

impl Line {
    /// Asks the server what lies where on its volume, in at most `cells_max` cells.
    ///
    /// # Errors
    /// [`CheckError`]; the server goes on serving.
    pub fn layout(mut self, mount: &MountEntry, cells_max: u32) -> Result<Layout, CheckError> {
        self.ask(&format!("{LAYOUT}{cells_max}\n"))?;
        hear(self.patient(mount), &mut |_, _| ())
    }
}
