//! A file system as a library, on the write-optimized dictionary [`betree`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod error;
mod node;
mod schema;
mod types;
mod volume;

pub use error::{Error, Result};
pub use types::{
    Attr, DirEntry, Entry, FallocateMode, FileType, FormatOptions, NewNode, NodeId, OpenOptions, RenameFlags,
    SeekWhat, SetAttr, StatFs, TimeSet, XattrMode,
};
/// The largest file in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 62;

pub use volume::{Counters, OpCount, OpKind, Volume};
