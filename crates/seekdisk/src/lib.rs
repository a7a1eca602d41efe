//! An emulated 7200 rpm disk: a file over FUSE with the response times of a disk.
//!
//! [`Model`] computes the time of each request, [`Drive`] queues requests and answers each at its time, and
//! [`serve`] exposes an image as the file [`DISK`] of a directory, with [`STATS`] and [`PACE`] beside it. A
//! process of its own should call [`serve`], so that its memory and work are not counted as those of the
//! program under test; that program uses a [`Client`].
//!
//! `cargo run --release -p seekdisk --example serve IMAGE DIR` serves an image by hand.
#![forbid(unsafe_code)]

mod client;
mod drive;
mod image;
mod model;
mod server;

pub use client::Client;
pub use drive::{Answer, Arrival, Drive, Request};
pub use model::{Counters, Model, Nanos};
pub use server::serve;

/// The file that is the disk.
pub const DISK: &str = "disk";
/// The file with the drive's [`Counters`] as JSON.
pub const STATS: &str = "stats";
/// The file that controls fast-forward: write [`FAST_FORWARD`] or [`REAL_TIME`] to it.
pub const PACE: &str = "pace";
/// Written to [`PACE`], starts fast-forward.
pub const FAST_FORWARD: &[u8] = b"1";
/// Written to [`PACE`], ends fast-forward.
pub const REAL_TIME: &[u8] = b"0";
/// The line that [`serve`] prints once the disk is there.
pub const READY: &str = "ready";
