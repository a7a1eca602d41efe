//! The dictionary as an embedded store: named dictionaries of byte strings in one file, opened by its path.
//!
//! A [`Store`] is a file. A [`Dict`] is one of its dictionaries, of which it has any number. A [`WriteBatch`]
//! changes several of them together, wholly or not at all. A range of keys is a value: it is
//! [cloned](Dict::clone_prefix), renamed and [deleted](Dict::delete_range) whole, at a cost that does not
//! depend on what it holds, and so is a whole dictionary ([`Store::clone_dict`]). An [upsert](Dict::upsert)
//! changes a value without reading it. A [`View`] reads one moment of all dictionaries, and a
//! [`Transaction`] changes what it has read, if nobody else has meanwhile.
//!
//! ```
//! # fn main() -> betree_store::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("events.betree");
//! use betree_store::Store;
//!
//! let store = Store::open(&path)?;
//! let users = store.dict("users")?;
//! users.put("ada", "1815")?;
//! users.put("alan", "1912")?;
//! assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
//! for pair in users.prefix("a") {
//!     let (name, born) = pair?;
//!     println!("{name:?} {born:?}");
//! }
//! store.sync()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Using a store
//!
//! | to | call |
//! |---|---|
//! | open a file, or make one | [`Store::open`], [`Store::options`] |
//! | get dictionaries, list, rename, drop, clone them | [`Store::dict`], [`Store::dicts`], [`Store::clone_dict`] |
//! | read | [`Dict::get`], [`Dict::get_many`], [`Dict::range`], [`Dict::prefix`] |
//! | change | [`Dict::put`], [`Dict::delete`], [`Dict::upsert`], [`Store::batch`] |
//! | put many sorted pairs at once | [`Dict::ingest`] |
//! | rewrite a range in order | [`Dict::compact`] |
//! | change ranges | [`Dict::delete_range`], [`Dict::clone_prefix`], [`Dict::rename_prefix`] |
//! | read one moment | [`Store::view`], [`View::dict`] |
//! | let values expire | [`DictOptions::expiring`], [`Dict::put_until`], [`Dict::put_for`] |
//! | change what was read | [`Store::run`], [`Store::begin`], [`Transaction`] |
//! | change more than memory holds, as one | [`Store::begin_large`], [`LargeTransaction`] |
//! | make changes durable | [`Durability`], [`Store::sync`] |
//! | copy it while it is used | [`Store::backup`] |
//! | look at it | [`Store::stats`], [`Store::check`], [`Dict::estimate`] |
//!
//! # What is promised
//!
//! Each change, and each batch, is seen and survives a crash wholly or not at all, and changes survive in the
//! order in which they were made: what a crash takes is the last of them. [`Durability`] says when none can
//! be taken any more. Store, dictionaries and batches are `Send` and `Sync`; one thread's changes are seen by
//! the others when the call returns. An iterator of a dictionary is no snapshot: it meets changes that are
//! made ahead of it. That of a [`ViewDict`] reads one moment, whose space is held while the view lasts.
//!
//! A transaction sees one moment and its own changes, and commits only if nothing that it depends on was
//! changed since: with [`Isolation::Snapshot`] what it changes itself, with [`Isolation::Serializable`] what
//! it has read. A [`Conflict`] names dictionary and key; [`Store::run`] tries again. A [`LargeTransaction`]
//! promises the same, with keys that both sides have changed as conflicts, or any key.
//!
//! A value that expires is seen by nobody from its time on, by the clock of the system. An iterator of a
//! dictionary, and a get, go by the time at which they read; a view and a transaction by that of their
//! beginning. While a store is open its clock does not go back, whatever the system's does. What has expired
//! takes room until leaves of the tree are written anew, or a thread of the store meets it, which reads no
//! more than 1 MiB a second ([`Dict::remove_expired`]).
//!
//! # Limits
//!
//! A value has up to [`VALUE_BYTES_MAX`] bytes, 64 MiB. One above 1 MiB (of a store with a small log above a
//! sixteenth of that) is stored in parts, with its key, and only where the dictionary has no merge. From the
//! first of them on, a put or a delete in that dictionary reads what it replaces, to remove the parts; others
//! read nothing. A batch has up to an eighth of the log, 8 MiB, beside values in parts. A transaction has up
//! to a sixteenth of the cache, 4 MiB, and no more than a batch; values that would be stored in parts are
//! refused in it. A key has up to [`KEY_BYTES_MAX`] bytes, the name of a dictionary up to
//! [`NAME_BYTES_MAX`]. One process has a store open at a time.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod backup;
mod batch;
mod bytes;
mod catalogue;
mod compact;
mod dict;
mod error;
mod expiring;
mod expiry;
mod file;
mod freeing;
mod gate;
mod ingest;
mod iter;
mod keys;
mod large;
mod merge;
pub mod merges;
mod names;
mod options;
mod owned;
mod parts;
mod shared;
mod steps;
mod store;
mod sweep;
mod transaction;
mod unmerged;
mod value;
mod view;

pub use backup::BackupProgress;
pub use batch::WriteBatch;
pub use betree::{Compression, Finding, FindingCode, Place};
pub use bytes::{Bytes, Key, Value};
pub use compact::Compacted;
pub use dict::{Dict, Estimate};
pub use error::{Error, Result};
pub use ingest::Ingested;
pub use iter::{Iter, Lent};
pub use keys::{KEY_BYTES_MAX, NAME_BYTES_MAX};
pub use large::LargeTransaction;
pub use merge::Merge;
pub use options::{DictOptions, Durability, MissingMerges, StoreOptions};
pub use owned::OwnedIter;
pub use parts::VALUE_BYTES_MAX;
pub use store::{Stats, Store};
pub use transaction::{Conflict, Isolation, Outcome, Savepoint, SharedTransaction, Transaction};
pub use view::{View, ViewDict};
