//! The file system in an ordinary program, by paths and without a mount.
//!
//! [`Fs`] opens a volume in a file or a block device and has the operations of `std::fs` on it, with those
//! that `std::fs` has not: copies, snapshots and removals of whole trees at a cost that does not depend on
//! what they hold. [`Dir`] is a directory from which paths lead on, [`File`] an open file with the traits of
//! `std::io`. All can be used by many threads at once.
//!
//! ```
//! use std::io::Write;
//!
//! use betrfs_std::Fs;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("data.betrfs");
//! let fs = Fs::create(&path, 64 << 20)?;
//! fs.create_dir_all("project/src")?;
//! fs.write("project/src/main.rs", "fn main() {}\n")?;
//! writeln!(fs.create_file("project/README")?, "A project.")?;
//!
//! fs.clone_tree("project", "experiment")?;
//! fs.remove_file("experiment/README")?;
//! for entry in fs.walk("/") {
//!     println!("{}", entry?.path().display());
//! }
//! fs.rm_tree("project")?;
//! fs.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Paths
//!
//! Paths are resolved as the system does it (path_resolution(7)): relative ones from the [`Dir`], others from
//! the volume's root; `.`, `..` and symbolic links are followed, of the latter 40 at most; above the root is
//! the root. A path has at most 4095 bytes and no 0 byte, a name 255. Paths are bytes, of any encoding.
//!
//! # Permissions
//!
//! A program that has the volume's file open can read all of it: permissions here keep a program from what
//! its user is not meant to do, and not from more. They are checked as a mount's kernel checks them, against
//! the [`Caller`]: the process's user, or another that [`Options::caller`] or [`Fs::acting_as`] sets. User 0
//! may do everything. What copies or removes whole trees without a look at each entry is for root and the
//! user who opened the volume. Access control lists count, capabilities do not, and of the kernel's further
//! protections (`fs.protected_*`) that of hard links alone is there.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod caller;
mod dir;
mod errno;
mod error;
mod file;
mod fs;
mod listing;
mod metadata;
mod open_options;
mod opened;
mod permission;
mod resolve;
mod walk;

pub use betree_std::OpenError;
pub use betrfs::{FileType, StatFs, Usage, XattrMode};
pub use caller::Caller;
pub use dir::Dir;
pub use errno::{Errno, errno};
pub use error::{Error, ErrorKind, Result};
pub use file::File;
pub use fs::{Fs, Options};
pub use listing::{DirEntry, ReadDir};
pub use metadata::Metadata;
pub use open_options::OpenOptions;
pub use walk::{Walk, WalkEntry};
