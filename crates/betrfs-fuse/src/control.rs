//! The control socket: a mount's server reports its status, and how its volume was closed.
//!
//! Questions cannot go through the mount: its server may be stopped, another user's mount refuses even root,
//! and after an unmount no mount is left. So the server listens on a socket. Its name begins with the mount's
//! device number, which the kernel shows without asking a server, and ends at random, so that nobody can take
//! the name in advance. The socket of root's server is in a directory that only root may enter, so that other
//! users can neither imitate nor occupy it. Other servers, and root's where any user may unmount, have an
//! abstract socket; if there are too many of these, the mount itself reports the name. Both sides check the
//! other's user, and no wait is long.
//!
//! The kernel reuses a device number for the next mount while the last server may still be closing its
//! volume: so a connection begins with a word of the server that says whether its mount is over. It carries
//! one request, a line. `status` is answered with JSON; `ping` with a word; `farewell` with a word at once,
//! and with the outcome when the volume is closed and released; `closing` with lines until then; `check` and
//! `scrub` with lines while it is read; `backup` with the volume's blocks; `layout` and `map` with JSON;
//! `order` and `quota` with the outcome of a change; `freeze` and `thaw` when the volume stands still, and
//! goes on; `unmount` when the mount is removed. `peer` has a table of who may ask for what.

mod backup;
mod check;
mod client;
mod closing;
mod freeze;
mod layout;
mod map;
mod order;
mod pace;
mod peer;
mod private;
mod probe;
mod quota;
mod scrub;
mod server;
pub(crate) mod shares;
mod sockets;
mod timed;
mod turn;
mod unmount;

use std::time::Duration;

pub use backup::{BackupError, BackupPart};
pub use check::CheckError;
pub use client::{Farewell, Line, Unheard};
pub use freeze::NotFrozen;
pub use map::MAP_BYTES_MAX;
pub use order::{NewSize, Order};
pub use probe::become_user;
pub use scrub::ScrubRequest;
pub use server::{Control, Served};
pub use unmount::NotUnmounted;

/// How long a client waits for an answer.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval between two searches for a socket.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// First word of a connection.
const LIVE: &str = "live\n";
/// As [`LIVE`], after the unmount: the socket's device number may be another mount's by now.
const OVER: &str = "over\n";
const STATUS: &str = "status\n";
const CHECK: &str = "check\n";
/// With the rate and where to begin behind it.
const SCRUB: &str = "scrub ";
const BACKUP: &str = "backup\n";
const CLOSING: &str = "closing\n";
/// With the number of cells behind it.
const LAYOUT: &str = "layout ";
/// With the token of a file, an offset and a length behind it.
const MAP: &str = "map ";
/// Begins an order; JSON follows.
const ORDER: &str = "order ";
/// Begins limits for what is below a directory; JSON follows.
const QUOTA: &str = "quota ";
/// With the longest time in seconds behind it.
const FREEZE: &str = "freeze ";
/// With the number of a freeze behind it, or `any`.
const THAW: &str = "thaw ";
/// With the number of the mount behind it.
const UNMOUNT: &str = "unmount ";
const PING: &str = "ping\n";
const FAREWELL: &str = "farewell\n";
/// The answer to `ping`, and the first to `farewell`.
const HEARD: &str = "heard\n";
/// The farewell after a clean close.
const CLEAN: &str = "clean";

/// The attribute of a mount's root that has the name of its server's abstract socket, if there is one.
/// Nothing stores it.
pub(crate) const SOCKET_ATTRIBUTE: &[u8] = b"system.betrfs.socket";

/// Prefix of the name of a mount's socket.
fn name_of((major, minor): (u32, u32)) -> String {
    format!("betrfs-{major}:{minor}-")
}

#[cfg(test)]
mod tests;
