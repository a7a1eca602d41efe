//! `backup` on the control socket: the server reads the blocks of a moment, and the client writes its copy.
//!
//! The answer is a line `volume VOLUME_BYTES ALL_BYTES`, then for each piece a line `piece OFFSET LEN` and
//! its bytes, and at the end `done` or `failed` with a sentence. A client that is gone, or does not take a
//! piece in time, ends the backup.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::BACKUP;
use super::check::in_idle_thread;
use super::client::{Line, Unheard};
use super::server::{PATIENCE, Served};
use super::timed::write_until;
use super::turn::Turn;
use crate::mount_info::MountEntry;

/// How long a client may take to write a piece.
const PIECE_TIME_MAX: Duration = Duration::from_secs(60);
/// The longest piece that a client takes.
const PIECE_BYTES_MAX: usize = 16 << 20;
/// The longest line.
const LINE_BYTES_MAX: u64 = 4096;
/// The sentence of a second client.
const BUSY: &str = "another backup of this mount is running";

/// A part of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupPart<'a> {
    /// The first part: what the copy will have.
    Size {
        /// The size of the volume.
        volume_bytes: u64,
        /// The bytes of all pieces.
        all_bytes: u64,
    },
    /// Blocks of the volume.
    Piece {
        /// The offset of their first byte on the volume.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
}

/// Answers a client in a thread of its own, of low priority.
pub(super) fn answer(stream: UnixStream, served: &Arc<dyn Served>, turn: &Turn) -> io::Result<()> {
    let served = Arc::clone(served);
    in_idle_thread(stream, turn, BUSY, "betrfs-backup", move |stream, _taken| back_up(stream, &*served))
}

fn back_up(stream: &mut UnixStream, served: &dyn Served) -> io::Result<()> {
    let mut unsent = Ok(());
    let read = served.backup(&mut |part| {
        unsent = if served.is_over() { Err(io::ErrorKind::Interrupted.into()) } else { send(stream, part) };
        if unsent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    unsent?;
    let line = read.map_or_else(|error| format!("failed {error}\n"), |()| "done\n".to_owned());
    write_until(stream, line.as_bytes(), Instant::now() + PATIENCE)
}

fn send(stream: &mut UnixStream, part: BackupPart<'_>) -> io::Result<()> {
    let until = Instant::now() + PIECE_TIME_MAX;
    match part {
        BackupPart::Size { volume_bytes, all_bytes } => {
            write_until(stream, format!("volume {volume_bytes} {all_bytes}\n").as_bytes(), until)
        }
        BackupPart::Piece { offset, bytes } => {
            write_until(stream, format!("piece {offset} {}\n", bytes.len()).as_bytes(), until)?;
            write_until(stream, bytes, until)
        }
    }
}

/// Why a backup of a mount is not complete.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The server was not asked.
    #[error(transparent)]
    Unheard(#[from] Unheard),
    /// It failed, or the server ended.
    #[error("{0}")]
    Failed(String),
    /// The caller broke it off.
    #[error("it was broken off")]
    Stopped,
}

impl Line {
    /// Has the server read its volume as of one moment, and calls `take` with the size and then each piece.
    /// The last piece makes the copy a volume.
    ///
    /// # Errors
    /// [`BackupError`]; the server goes on serving.
    pub fn backup(
        mut self,
        mount: &MountEntry,
        take: &mut dyn FnMut(BackupPart<'_>) -> ControlFlow<()>,
    ) -> Result<(), BackupError> {
        self.ask(BACKUP)?;
        let mut answer = BufReader::new(self.patient(mount));
        let mut piece = Vec::new();
        let unheard = |error: io::Error| BackupError::Failed(format!("no word from its server: {error}"));
        loop {
            let mut line = String::new();
            answer.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(unheard)?;
            let (kind, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
            let numbers: Vec<u64> = rest.split(' ').map_while(|number| number.parse().ok()).collect();
            let part = match (kind, numbers.as_slice()) {
                ("volume", &[volume_bytes, all_bytes]) => BackupPart::Size { volume_bytes, all_bytes },
                ("piece", &[offset, len]) if len <= PIECE_BYTES_MAX as u64 => {
                    piece.resize(len as usize, 0);
                    answer.read_exact(&mut piece).map_err(unheard)?;
                    BackupPart::Piece { offset, bytes: &piece }
                }
                ("done", []) => return Ok(()),
                ("failed", _) => return Err(BackupError::Failed(rest.to_owned())),
                _ => return Err(BackupError::Failed("its server ended before the backup".to_owned())),
            };
            if take(part).is_break() {
                return Err(BackupError::Stopped);
            }
        }
    }
}
