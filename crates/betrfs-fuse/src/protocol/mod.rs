//! The protocol between the kernel and the server: requests are decoded, answered by a call of the server,
//! and their replies encoded ([`Dispatch`]); what the kernel remembers and the server changes is told to it
//! ([`kernel_cache`], [`notify`]). How requests travel is the transport's business, which knows an
//! [`Answerer`] and is a [`NotifySink`].

mod convert;
mod dispatch;
pub mod init;
mod kernel_cache;
mod notify;
mod panics;
#[cfg(test)]
mod tests;

use std::io::IoSlice;

use rustix::io::Errno;

pub use dispatch::{Dispatch, SHORT_REPLY_BYTES_MAX};
pub use panics::abort_on_stray_panics;

use crate::server::Answer;
use crate::wire::{Body, InHeader};

/// What the names of the server's threads begin with.
pub const THREAD_NAME: &str = "betrfs-fuse";

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A reply of this many bytes, or an error.
    Reply(Answer<usize>),
    /// The kernel waits for no reply.
    Silent,
}

/// Answers requests.
pub trait Answerer: Send + Sync {
    /// Answers one request. The reply's bytes behind its header go to the start of `out`.
    fn answer(&self, header: &InHeader, body: Body<'_>, out: &mut [u8]) -> Outcome;
}

/// The way to the kernel for what it has not asked for.
pub trait NotifySink: Send + Sync {
    /// Sends one notice, whose bytes are these parts.
    ///
    /// # Errors
    /// The transport's; `ENOENT` where the kernel does not know what the notice is about.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno>;
}
