//! The bytes of the kernel's FUSE protocol: what `linux/fuse.h` declares of it, as far as it is
//! used here, and how requests are taken apart and replies put together.

mod body;
pub mod ioctl;
mod listing;
mod messages;
mod opcode;

pub use body::{Body, name};
pub use listing::Listing;
pub use messages::*;
pub use opcode::Opcode;

/// The protocol's version that is spoken here; a kernel of an earlier one gets what it knows.
pub const MAJOR: u32 = 7;
/// See [`MAJOR`].
pub const MINOR: u32 = 45;
/// Before this one (Linux 5.1) the kernel does not take it that an open directory is nothing to a server.
pub const MINOR_MIN: u32 = 29;
/// Before this one (Linux 6.6) the kernel keeps the pages that a write past them has made wrong.
pub const MINOR_COHERENT_DIRECT_IO: u32 = 39;

/// Flags by which INIT agrees on what is used; the upper half travels in fields of its own.
pub mod init {
    /// Several reads of one file at once.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// OPEN with O_TRUNC empties the file.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// READDIRPLUS exists.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel chooses between READDIR and READDIRPLUS.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Lookups and listings in one directory at the same time.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// `max_pages` counts.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The kernel keeps what symbolic links hold.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// Pages are dropped when the server says so, and not when times change.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// The server clears set-id bits, so the kernel need not ask for them at each write.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// The upper half of the flags counts.
    pub const INIT_EXT: u64 = 1 << 30;
    /// The mount may be seen with other owners; then requests that make nothing name no user.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests come by io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// What the reply to OPEN and CREATE asks for.
pub mod fopen {
    /// Reads and writes go past the pages.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// The pages that the kernel has of it stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Closing sends no FLUSH.
    pub const NOFLUSH: u32 = 1 << 5;
}

/// Which fields of a [`SetattrIn`] count.
pub mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    /// Set-id bits are to be cleared.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// A flag of an [`IoctlIn`]: it is about a directory.
pub const IOCTL_DIR: u32 = 1 << 4;
/// A flag of a [`WriteIn`]: set-id bits are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A flag of an [`OpenIn`]: set-id bits are to be cleared.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
