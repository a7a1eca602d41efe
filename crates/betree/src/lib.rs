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
mod cache;
mod check;
mod dict;
mod engine;
mod env;
mod error;
mod format;
mod health;
#[cfg(test)]
mod hostile;
mod invariant;
mod io;
mod key;
mod log;
mod memtable;
mod merge_yield;
mod message;
mod node;
pub mod planted;
mod run;
mod settings;
mod space;
mod stats;
mod store;
mod table;
mod tree;
mod upsert;
mod usage;

pub use batch::{Batch, KEY_BYTES_MAX};
pub use check::{Finding, FindingCode, Place};
pub use env::Env;
pub use error::{Error, Result};
pub use format::superblock::{Identity, VERSION as FORMAT_VERSION};
pub use format::tail::TaggedTail;
pub use health::{State, Trouble, Watcher};
pub use key::Cut;
pub use settings::{Compression, DictId, Geometry, Options};
pub use stats::{SpaceStats, Stats};
pub use tree::{Cursor, Unreadable};
pub use upsert::{Replace, Upsert};
pub use usage::Usage;
pub use uuid::{Error as UuidError, Uuid};
