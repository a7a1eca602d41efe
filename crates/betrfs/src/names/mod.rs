//! Names and inodes in memory: the inode table, directories with their names, open files, and the order of
//! eviction.

mod access_queue;
mod allocations;
mod directory;
mod eviction_backoff;
mod file_cache;
mod inode;
mod inode_table;
mod listing_epoch;
mod namespace;
mod open_below;
mod openings;
mod orphans;
mod properties;
mod quota;

pub(crate) use access_queue::AccessQueue;
pub(crate) use allocations::Allocations;
pub(crate) use directory::{COOKIE_FIRST, Directory, Name};
pub(crate) use eviction_backoff::EvictionBackoff;
pub(crate) use file_cache::{FileCache, Recorded};
pub(crate) use inode::{DirPath, Inode, Place, State, ino_of};
pub(crate) use inode_table::InodeTable;
pub(crate) use listing_epoch::{ChangeEpoch, ListingEpochs};
pub(crate) use namespace::{Exclusive, InNamespace, Namespace, Shared};
pub(crate) use orphans::Orphans;
pub(crate) use quota::{Counter, CountingAbove, Held, Tally};
