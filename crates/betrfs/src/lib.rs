//! A file system as a library, on the write-optimized dictionary [`betree`].
//!
//! A [`Volume`] has the operations that a mount needs, on identities of objects in memory ([`InodeId`]), and
//! paths for programs without a mount. Metadata, data and links are three dictionaries, keyed by whole paths:
//! entries close to each other in the tree of names are close on the disk. An update is one batch of
//! messages; answers that are in memory take no query of the tree.
//!
//! ```
//! # use std::sync::{Arc, Mutex};
//! # use betree_platform::{Device, DeviceError, Platform};
//! # struct Memory(Mutex<Vec<u8>>);
//! # impl Device for Memory {
//! #     fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
//! #         buf.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..buf.len()]);
//! #         Ok(())
//! #     }
//! #     fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
//! #         self.0.lock().unwrap()[offset as usize..][..buf.len()].copy_from_slice(buf);
//! #         Ok(())
//! #     }
//! #     fn sync(&self) -> Result<(), DeviceError> { Ok(()) }
//! #     fn len(&self) -> u64 { self.0.lock().unwrap().len() as u64 }
//! #     fn seeks(&self) -> bool { false }
//! #     fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> { Ok(()) }
//! # }
//! # struct Still;
//! # impl Platform for Still {
//! #     fn now_ns(&self) -> i64 { 0 }
//! #     fn random_u64(&self) -> u64 { 4 }
//! # }
//! use betrfs::{FileType, FormatOptions, NewNode, OpenOptions, Volume};
//!
//! # fn main() -> betrfs::Result<()> {
//! # let device = Arc::new(Memory(Mutex::new(vec![0; 32 << 20])));
//! # let platform = Arc::new(Still);
//! Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
//! let volume = Volume::open(device, OpenOptions::new(platform))?;
//!
//! let root = volume.resolve(b"/")?;
//! let new = NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0 };
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
mod error;
mod names;
mod op;
mod rules;
mod schema;
mod types;
mod volume;

pub use betree::{Identity, Usage, Uuid, UuidError};
pub use error::{Error, Result};
pub use types::{
    Access, AccessTimes, Attr, DirEntry, Entry, FallocateMode, FileType, FormatOptions, Held, InodeFlags,
    InodeId, NewNode, Objects, OpenOptions, RenameFlags, SNAPSHOTS_NAME, SeekWhat, SetAttr, SnapshotsBelow,
    StatFs, TimeSet, XattrMode,
};
/// The largest file in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 62;

pub use op::{Counters, OpCount, OpKind};
pub use volume::{Problem, Report, Volume};
