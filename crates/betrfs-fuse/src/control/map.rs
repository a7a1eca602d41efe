//! `map TOKEN OFFSET LENGTH` on the control socket: where the bytes of a file lie. The token is that of the
//! open file as a source of copies, so that no path is followed. Answered as the layout is.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::io::Errno;

use super::MAP;
use super::check::{CheckError, hear};
use super::client::Line;
use super::layout::in_turn;
use super::server::Served;
use super::turn::Turn;
use crate::file_map::MapExtent;
use crate::mount_info::MountEntry;

/// The most bytes of a file in an answer: of basements and messages some ten thousands.
pub const MAP_BYTES_MAX: u64 = 1 << 30;
/// The sentence of a client that comes while others' questions are answered.
const BUSY: &str = "another command maps a file of this mount";

/// Answers a client in a thread of its own.
pub(super) fn answer(
    stream: UnixStream,
    words: &str,
    served: &Arc<dyn Served>,
    turn: &Turn,
) -> io::Result<()> {
    let mut numbers = words.trim_end().split(' ').map(str::parse);
    let (Some(Ok(token)), Some(Ok(offset)), Some(Ok(len))) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return Err(Errno::INVAL.into());
    };
    let served = Arc::clone(served);
    in_turn(stream, turn, BUSY, "betrfs-map", move || served.map(token, offset, MAP_BYTES_MAX.min(len)))
}

impl Line {
    /// Asks the server where the bytes `[offset, offset + len)` of a file lie; of at most
    /// [`MAP_BYTES_MAX`] it tells. The token is from [`map_token`](crate::map_token).
    ///
    /// # Errors
    /// [`CheckError`]; the server goes on serving.
    pub fn map(
        mut self,
        mount: &MountEntry,
        token: u64,
        (offset, len): (u64, u64),
    ) -> Result<Vec<MapExtent>, CheckError> {
        self.ask(&format!("{MAP}{token} {offset} {len}\n"))?;
        hear(self.patient(mount), &mut |_, _| ())
    }
}
