//! The protocol between the kernel and the server: [`Dispatch`] decodes requests, calls the server and
//! encodes replies; [`kernel_cache`] and [`notify`] tell the kernel to drop what the server changed. The
//! transport carries requests: it uses an [`Answerer`] and implements [`NotifySink`].

mod convert;
mod dispatch;
mod fetch_file;
pub mod init;
mod kernel_cache;
mod notify;
mod panics;
#[cfg(test)]
mod tests;

use std::io::IoSlice;

use rustix::io::Errno;

pub use dispatch::{Dispatch, SHORT_REPLY_BYTES_MAX};
pub use fetch_file::{FetchFile, ask_for_request};
pub use notify::LateNotices;
pub use panics::abort_on_stray_panics;

use crate::server::Answer;
use crate::wire::{Body, InHeader};

/// Prefix of the names of the server's threads.
pub const THREAD_NAME: &str = "betrfs-fuse";

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A reply of this many bytes, or an error.
    Reply(Answer<usize>),
    /// The kernel waits for no reply.
    Silent,
}

/// Answers requests.
pub trait Answerer: Send + Sync {
    /// Answers one request. The reply without its header is written to the start of `out`.
    fn answer(&self, header: &InHeader, body: Body<'_>, out: &mut [u8]) -> Outcome;

    /// The kernel has ended the connection: no request that waits may go on waiting.
    fn ended(&self);
}

/// Sends notices to the kernel.
pub trait NotifySink: Send + Sync {
    /// Sends one notice, the concatenation of `parts`.
    ///
    /// # Errors
    /// The transport's; `ENOENT` if the kernel does not know the inode.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno>;
}
