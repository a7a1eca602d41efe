//! A write-optimized dictionary: a lifted Bε-tree with a redo log, copy-on-write checkpoints and
//! recovery. It knows nothing of files.
//!
//! An [`Env`] holds several dictionaries of byte strings in one volume. A [`Batch`] collects changes, and
//! [`Env::commit`] applies all of them or none. [`Env::sync`] makes what was committed durable. [`Env::get`]
//! and [`Cursor`] read.
//!
//! ```
//! # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
//! # fn main() -> betree::Result<()> {
//! # let (device, _folder) = doc::device();
//! use std::sync::Arc;
//!
//! use betree::{Batch, Cut, DictId, Env, Geometry, Options, Replace};
//!
//! const FRUIT: DictId = DictId(0);
//!
//! // Once: an empty volume with one dictionary, and 16 random bytes that distinguish it from all others.
//! Env::format(device.clone(), &Geometry::for_volume(16 << 20, 1), [7; 16])?;
//!
//! let env = Env::open(device, Options::new(1 << 20, Arc::new(Replace)))?;
//! let mut batch = Batch::new();
//! batch.put(FRUIT, b"banana", b"yellow");
//! batch.put(FRUIT, b"cherry", b"red");
//! env.commit(&batch)?;
//! env.sync()?;
//!
//! assert_eq!(env.get(FRUIT, b"banana")?.as_deref(), Some(&b"yellow"[..]));
//! let mut cursor = env.cursor(FRUIT, Cut::before("c"), Cut::HIGH);
//! assert_eq!(cursor.next()?, Some((&b"cherry"[..], &b"red"[..])));
//! drop(cursor);
//! env.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Using a volume
//!
//! | to | call |
//! |---|---|
//! | make a volume, open it, end it | [`Env::format`], [`Env::open`], [`Env::close`] |
//! | change | [`Env::commit`]; with room kept for later: [`Env::set_aside`], [`Batch::draw`] |
//! | put many pairs in order, at once | [`Env::ingest`] |
//! | rewrite a range in order | [`Env::compact`] |
//! | make changes durable | [`Env::sync`]; [`Env::checkpoint`] writes the trees too |
//! | read | [`Env::get`], [`Env::get_many`], [`Env::cursor`]; one moment of all dictionaries: [`Env::view`] |
//! | read and change as one | [`Env::begin`], [`Env::run`] |
//! | let values expire | [`Upsert::expires_at_ns`], [`Options::clock`], [`Env::remove_expired`] |
//! | know what it holds and does | [`Env::space`], [`View::usage`], [`View::occupancy`], [`View::locate`], [`View::estimate_pairs`], [`Env::stats`], [`Env::state`] |
//! | verify it | [`Env::check`]; [`Env::open_damaged`] for one that does not open |
//! | read what is left of a damaged one | [`Env::open_for_rescue`] |
//!
//! # For platforms
//!
//! The engine starts no threads. A platform lends them, and its application calls none of these:
//!
//! | method | what it does |
//! |---|---|
//! | [`Env::run_worker`] | flushes, makes checkpoints and frees nodes, until [`Env::stop`] |
//! | [`Env::run_readahead`] | reads for scans to come, until [`Env::stop`] |
//! | [`Env::run_writeback`] | encodes and writes the nodes of checkpoints and ingests, until [`Env::stop`] |
//! | [`Env::run_due_work`] | does one piece of a worker's work in the caller's thread |
//! | [`Env::throttle`] | waits for room before the caller takes locks of its own |
//! | [`Env::stop`] | makes the three loops return |
//!
//! Without threads all of it still works: a writer that finds no room does the work itself, and a checkpoint
//! is written by its caller.
//!
//! # Events
//!
//! The engine has events for `tracing`. Their targets, levels and fields stay as they are. None holds a key
//! or a value.
//!
//! | target | level | when | fields |
//! |---|---|---|---|
//! | `betree::commit` | trace | a batch was committed | `first_msn`, `changes`, `clones`, `bytes` |
//! | `betree::flush` | debug | messages went down | `dictionary`, `node`, `bytes`, `reached` |
//! | `betree::split` | debug | new nodes took the place of one | `dictionary`, `node`, `bytes`, `parts` |
//! | `betree::merge` | debug | a new node took the place of neighbours | `dictionary`, `node`, `bytes`, `edges` |
//! | `betree::clone` | debug | clones came to a tree | `dictionary`, `clones`, `deletes`, `nodes` |
//! | `betree::ingest` | debug | pairs in order came to a tree | `dictionary`, `pairs`, `nodes`, `bytes` |
//! | `betree::checkpoint` | info | one begins | `clean` |
//! | | | it is captured | `next_msn`, `nodes`, `pages` |
//! | | | it is committed | `generation`, `bytes`, with a [`Watcher`] `duration_ns` |
//! | | | it is not needed, or failed | `error` |
//! | `betree::evict` | trace | pieces of nodes left memory | `pieces`, `bytes`, `left_bytes` |
//! | | | headers of nodes did | `dictionary`, `headers` |
//! | `betree::recover` | info | the log was replayed | `segments`, `batches`, `next_msn` |
//! | | | the volume is open | `generation`, `dictionaries`, `was_closed` |
//!
//! Locks may be held when an event comes: a subscriber must not call the environment.
//!
//! `node` is the node's slot and generation in the node table, as in findings of a check.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
mod cache;
mod check;
pub mod debug;
mod dict;
mod engine;
mod env;
mod error;
mod events;
mod expiry;
mod format;
mod health;
#[cfg(test)]
mod hostile;
mod invariant;
mod io;
mod key;
mod locate;
mod log;
mod memtable;
mod merge_yield;
mod message;
mod node;
mod node_id;
mod occupancy;
mod pair_estimate;
pub mod planted;
mod run;
mod scan;
mod settings;
mod space;
mod stall;
mod stats;
mod store;
mod table;
mod transaction;
mod tree;
mod upsert;
mod usage;
mod views;

pub use batch::Batch;
pub use check::{
    Finding, FindingCode, KeyRange, NotedDamage, OnDamage, Place, Remedy, ScrubFrom, ScrubOptions, ScrubStep,
    undo_repair,
};
pub use env::{
    Backup, Compacted, Conflict, Difference, Differences, Env, Growth, Ingested, Isolation, Outcome,
    Savepoint, Swept, Transaction, TransactionCursor, View,
};
pub use error::{Error, NO_SUPERBLOCK, Result, counted};
pub use format::superblock::scrub_record::{ScrubRecord, ScrubState};
pub use format::superblock::{Identity, LABEL_BYTES_MAX, VERSION as FORMAT_VERSION};
pub use format::tail::TaggedTail;
pub use health::{ErrorCount, ErrorRecord, State, Trouble, Watcher};
pub use key::{Cut, KEY_BYTES_MAX};
pub use locate::{Holds, Level, Located, StoredRun};
pub use message::{PairCompression, ZstdLevel};
pub use occupancy::{Compressed, Occupancy, Occupant, Sharing};
pub use pair_estimate::PairEstimate;
pub use settings::{Compression, DictId, Geometry, LogLoss, NodeCopies, OpenMode, Options, ReplayProgress};
pub use stats::{SpaceStats, Stats};
pub use tree::{Cursor, Unreadable};
pub use upsert::{Replace, Upsert};
pub use usage::Usage;
pub use uuid::{Error as UuidError, Uuid};
