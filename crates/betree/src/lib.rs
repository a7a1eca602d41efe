//! A write-optimized dictionary: a lifted Bε-tree with a redo log, copy-on-write checkpoints and
//! recovery. It knows nothing of files.
//!
//! An [`Env`] holds several dictionaries of byte strings in one volume. Changes are collected in a
//! [`Batch`] and committed as one; [`Env::sync`] makes what was committed durable. Reads are
//! [`Env::get`] and [`Cursor`].
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
mod env;
mod error;
mod format;
mod io;
mod key;
mod log;
mod space;
mod upsert;

pub use batch::{Batch, KEY_BYTES_MAX};
pub use env::{Cursor, DictId, Env, Geometry, Options, Space, Stats};
pub use error::{Error, Result};
pub use key::Cut;
pub use upsert::{Replace, Upsert};
