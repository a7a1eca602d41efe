//! A file system as a library, on the write-optimized dictionary [`betree`].
//!
//! A [`Volume`] has the operations that a mount needs, on identities of objects in memory ([`InodeId`]), and
//! paths for programs without a mount. Metadata, data and links are three dictionaries, keyed by whole paths:
//! entries close to each other in the tree of names are close on the disk. An update is one batch of
//! messages; answers that are in memory take no query of the tree.
//!
//! ```
//! # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
//! use betrfs::{FileType, FormatOptions, NewNode, OpenOptions, Volume};
//!
//! # fn main() -> betrfs::Result<()> {
//! # let (device, platform) = doc::device();
//! Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
//! let volume = Volume::open(device, OpenOptions::new(platform))?;
//!
//! let root = volume.resolve(b"/")?;
//! let new = NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0, umask: 0 };
//! let file = volume.create(root.node, b"greeting", &new)?;
//! volume.write(file.node, 0, b"hello")?;
//! volume.sync()?;
//!
//! let mut bytes = Vec::new();
//! volume.read(volume.resolve(b"/greeting")?.node, 0, 100, &mut bytes)?;
//! assert_eq!(bytes, b"hello");
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod contents;
pub mod debug;
mod error;
mod names;
mod op;
pub mod planted;
mod properties;
pub mod rescue;
mod rules;
mod schema;
mod types;
mod volume;

pub use betree::{Identity, Usage, Uuid, UuidError, ZstdLevel};
pub use error::{Error, Result};
pub use properties::{
    DataCompression, OwnProperties, Properties, Property, PropertyChange, PropertySource, SetProperties,
};
pub use schema::{Acl, DATA};
pub use types::{
    Access, AccessTimes, AclKind, Attr, DirEntry, Entry, FallocateMode, FileType, Finished, FlagSetter,
    FormatOptions, Held, InodeFlags, InodeId, NewNode, Objects, OpenMode, OpenOptions, Owned, Quota,
    QuotaLimits, QuotaUse, RemovedBelow, RenameFlags, Restored, SNAPSHOTS_NAME, SeekWhat, SetAttr,
    SetGroupId, SnapshotsBelow, StatFs, TimeSet, User, Writing, XattrMode,
};
/// The largest file in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 62;

pub use op::{Counters, OpCount, OpKind};
pub use schema::key::NAME_BYTES_MAX;
pub use volume::{
    FileExtent, Mended, Mending, Problem, Recompress, Recompressed, Repair, Report, Scrubbed, Volume,
    is_of_later_version, problem_codes,
};
