//! Orders on the control socket: changes of the volume itself, which need no path on the mount.
//!
//! The request is `order` with JSON, the answer a line: `done` with a number, or `failed` with a sentence.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use betree::Growth;
use serde::{Deserialize, Serialize};

use super::client::{Line, Unheard};
use super::server::{PATIENCE, Served};
use super::timed::write_until;
use super::turn::Turn;
use super::{ANSWER_BYTES_MAX, ORDER};
use crate::mount_info::MountEntry;
use crate::mount_settings::ChangeableSettings;

/// The sentence of a second client.
const BUSY: &str = "another command changes this volume right now";

/// A change of a mounted volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Gives it this label: [`Env::set_label`](betree::Env::set_label).
    Label(String),
    /// Gives it this UUID: [`Env::set_uuid`](betree::Env::set_uuid).
    Uuid([u8; 16]),
    /// Begins to count errors anew: [`Env::reset_errors`](betree::Env::reset_errors).
    ResetErrors,
    /// Discards all free space: [`Env::trim`](betree::Env::trim). The number is that of its bytes.
    Trim,
    /// Makes it larger: [`Env::grow`](betree::Env::grow). The number is that of its bytes.
    Resize(NewSize),
    /// Gives its interior nodes so many copies from then on:
    /// [`Env::set_node_copies`](betree::Env::set_node_copies).
    MetadataCopies(u32),
    /// Writes some nodes anew that have not as many copies:
    /// [`Env::renew_node_copies`](betree::Env::renew_node_copies). The number is that of the nodes that are
    /// left.
    RenewMetadata,
    /// Changes what a remount can change.
    Settings(ChangeableSettings),
}

/// The size that a volume is to have, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewSize {
    /// So many.
    To(u64),
    /// So many more.
    By(u64),
    /// All of its device, or all that its file has already.
    Max,
}

impl From<NewSize> for Growth {
    fn from(size: NewSize) -> Growth {
        match size {
            NewSize::To(bytes) => Growth::To(bytes),
            NewSize::By(bytes) => Growth::By(bytes),
            NewSize::Max => Growth::ToDevice,
        }
    }
}

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The server was not asked.
    #[error(transparent)]
    Unheard(#[from] Unheard),
    /// It refused, failed, or ended.
    #[error("{0}")]
    Failed(String),
}

/// Answers a client in a thread of its own: a checkpoint may take long.
pub(super) fn answer(
    mut stream: UnixStream,
    order: &str,
    served: &Arc<dyn Served>,
    turn: &Turn,
) -> io::Result<()> {
    let order: Order = serde_json::from_str(order)?;
    let Some(taken) = turn.take() else {
        return write_until(&mut stream, format!("failed {BUSY}\n").as_bytes(), Instant::now() + PATIENCE);
    };
    let served = Arc::clone(served);
    thread::Builder::new().name("betrfs-order".into()).spawn(move || {
        let line = match served.carry_out(&order) {
            Ok(number) => format!("done {number}\n"),
            Err(error) => format!("failed {error}\n"),
        };
        // The client that hears of it may give its next order at once.
        drop(taken);
        if let Err(error) = write_until(&mut stream, line.as_bytes(), Instant::now() + PATIENCE) {
            tracing::info!("{order:?} was carried out, and its client is gone: {error}");
        }
    })?;
    Ok(())
}

impl Line {
    /// Has the server carry out an order; returns the answer's number.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed if the server refused it.
    pub fn order(mut self, mount: &MountEntry, order: &Order) -> Result<u64, OrderError> {
        let text = serde_json::to_string(order).map_err(|error| Unheard::Io(error.into()))?;
        self.ask(&format!("{ORDER}{text}\n"))?;
        let mut line = String::new();
        let read = BufReader::new(self.patient(mount)).take(ANSWER_BYTES_MAX).read_line(&mut line);
        read.map_err(|error| OrderError::Failed(format!("no word from its server: {error}")))?;
        match line.trim_end().split_once(' ') {
            Some(("done", number)) => {
                number.parse().map_err(|_| OrderError::Failed(format!("its server said `{number}`")))
            }
            Some(("failed", why)) => Err(OrderError::Failed(why.to_owned())),
            // A server of an earlier version knows no orders, and closes the connection.
            _ => Err(OrderError::Failed("its server ended or does not know this command".to_owned())),
        }
    }
}
