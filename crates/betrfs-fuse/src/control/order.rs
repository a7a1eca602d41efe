//! Orders on the control socket: changes of the volume itself, which need no path on the mount.
//!
//! The request is `order` with JSON; it is answered as `check` is, with a number as its report. A client that
//! is gone ends what takes long.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use betree::Growth;
use serde::{Deserialize, Serialize};

use super::ORDER;
use super::check::{CheckError, Telling, hear, in_thread};
use super::client::{Line, Unheard};
use super::server::Served;
use super::turn::Turn;
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

/// Answers a client in a thread of its own: a checkpoint may take long.
pub(super) fn answer(
    stream: UnixStream,
    order: &str,
    served: &Arc<dyn Served>,
    turn: &Turn,
) -> io::Result<()> {
    let order: Order = serde_json::from_str(order)?;
    let served = Arc::clone(served);
    in_thread(stream, turn, BUSY, "betrfs-order", move |stream, taken| {
        let mut telling = Telling::new(stream);
        let done = served.carry_out(&order, &mut |done, all| match served.is_over() {
            true => ControlFlow::Break(()),
            false => telling.tell(done, all),
        });
        // The client that hears of it may give its next order at once.
        drop(taken);
        telling.report(done)
    })
}

impl Line {
    /// Has the server carry out an order, and calls `progress` with how much is done, and of how much, while
    /// that takes long; returns the answer's number.
    ///
    /// # Errors
    /// [`CheckError`]; nothing has changed if the server refused it.
    pub fn order(
        mut self,
        mount: &MountEntry,
        order: &Order,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, CheckError> {
        let text = serde_json::to_string(order).map_err(|error| Unheard::Io(error.into()))?;
        self.ask(&format!("{ORDER}{text}\n"))?;
        hear(self.patient(mount), progress)
    }
}
